package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/backfill"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/traces"
	"github.com/berthd/berth/internal/whatif"
)

// pool returns the policy of a queue as a function of one pool of processors. That of fair is the scheduler itself.
func pool(q cluster.QueuePolicy) policy {
	never := func(time.Duration) time.Duration { return 0 }
	switch q {
	case cluster.QueueEASY:
		return byLimits{newBerth(never, false), true}
	case cluster.QueueSJBF:
		return byLimits{newBerth(backfill.PriorityAfter, false), false}
	case cluster.QueueFIFO:
		return yardstick{}
	case cluster.QueueGreedy:
		return firstFit{}
	default:
		return newFairQueue(true)
	}
}

// byLimits is the policy of internal/logic/backfill without learned run times: in the order of arrival, or else of the
// response ratio.
type byLimits struct {
	*berth
	byArrival bool
}

func (b byLimits) ended(job) {}

func (b byLimits) start(s *state) []int {
	in := b.input(s)
	for i := range in.Waiting {
		if b.byArrival {
			in.Waiting[i].Priority = len(s.jobs) - s.waiting[i]
		}
	}
	return b.decide(s, in)
}

// firstFit starts each job that fits, in the order of arrival.
type firstFit struct{}

func (firstFit) start(s *state) (start []int) {
	free := s.free
	for _, i := range s.waiting {
		if s.jobs[i].procs <= free {
			free -= s.jobs[i].procs
			start = append(start, i)
		}
	}
	return start
}

// compareSystem prints, for each policy of a queue, the waits with all nodes as one pool and in the control plane, with
// the difference.
func compareSystem(ctx context.Context, t *trace, queues []cluster.QueuePolicy, out io.Writer) error {
	if t.procs > cluster.MaxGang {
		fmt.Fprintf(out, "%s: not replayed by the control plane, as a gang has at most %d tasks.\n\n", t.name,
			cluster.MaxGang)
		return nil
	}
	fmt.Fprintf(out, "%s: %d jobs on %d processors\n\n| queue.policy | measured | mean wait, s | average bounded "+
		"slowdown | p99 wait, s | longest wait, s |\n|---|---|---|---|---|---|\n", t.name, len(t.jobs), t.procs)
	for _, q := range queues {
		pure, err := judge(ctx, t, pool(q))
		if err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		fmt.Fprintf(out, "| %s | one pool | %s |\n", q, pure)
		waits, err := replaySystem(ctx, t, q)
		if err != nil {
			return fmt.Errorf("%s: the control plane: %w", q, err)
		}
		system := measure(t, waits)
		fmt.Fprintf(out, "| %s | control plane | %s |\n", q, system)
		fmt.Fprintf(out, "| | difference, %% | %s | %s | %s | %s |\n", percent(system.mean, pure.mean),
			percent(system.slowdown, pure.slowdown), percent(float64(system.p99), float64(pure.p99)),
			percent(float64(system.longest), float64(pure.longest)))
	}
	fmt.Fprintln(out)
	return nil
}

// String formats the figures as the cells of a table.
func (f figures) String() string {
	return fmt.Sprintf("%.0f | %.1f | %d | %d", f.mean, f.slowdown, f.p99, f.longest)
}

// percent formats the difference of a figure to another, in percent of that.
func percent(of, to float64) string {
	if to == 0 {
		return "–"
	}
	return fmt.Sprintf("%+.1f", (of/to-1)*100)
}

// replaySystem replays a trace through the API, the control plane and simulated agents, in virtual time, on one node
// for each processor. It returns how long each job waited.
func replaySystem(ctx context.Context, t *trace, q cluster.QueuePolicy) ([]int64, error) {
	branch, err := store.LoadBranch(nil, 1, store.DefaultPrefix, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	log, at := t.log()
	waits := make([]int64, len(t.jobs))
	began := 0
	result, err := whatif.RunTrace(ctx, whatif.Config{Branch: branch, Now: time.Unix(1e9, 0)},
		api.SimulateRequest{Changes: []api.SimulateChange{
			{AddNodes: &api.SimulateNodes{Name: "n", Count: int(t.procs), CPU: "1", Memory: "1GiB"}},
		}},
		whatif.Replay{
			Name: t.name, Trace: log, Queue: q, Tasks: whatif.MaxTraceTasks, Time: whatif.MaxTraceTime,
			Begun: func(j *traces.Job, waited time.Duration) {
				waits[at[j.ID]] = int64(waited / time.Second)
				began++
			},
		})
	if err != nil {
		return nil, err
	}
	if began < len(waits) {
		return nil, fmt.Errorf("%d of %d jobs began, %d were left out", began, len(waits), result.Replayed.LeftOut)
	}
	return waits, nil
}

// log returns the trace as a log, and the index of each job by its id. The ids are in the order of the jobs, so that
// jobs of one moment have that order, too.
func (t *trace) log() (log *traces.Trace, at map[string]int) {
	log, at = &traces.Trace{Procs: t.procs, Shapes: []traces.Shape{{CPU: 1000}}}, map[string]int{}
	for i, j := range t.jobs {
		id := fmt.Sprintf("%07d", i)
		at[id] = i
		log.Jobs = append(log.Jobs, traces.Job{
			ID: id, User: j.user, Arrived: seconds(j.arrived), Run: seconds(j.run), Limit: seconds(j.limit),
			Tasks: int(j.procs),
		})
	}
	return log, at
}

// readQueues parses names of policies, separated by commas.
func readQueues(text string) (queues []cluster.QueuePolicy, err error) {
	for name := range strings.SplitSeq(text, ",") {
		q := cluster.QueuePolicy(name)
		if !slices.Contains(q.Values(), q) {
			return nil, fmt.Errorf("-queues: %q is not known", name)
		}
		queues = append(queues, q)
	}
	return queues, nil
}
