package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/forecast"
)

// remembered is the time for which arrivals are remembered: that for which a cluster keeps ended jobs by default.
const remembered = 7 * 24 * time.Hour

// forecaster forecasts the start of each job that does not start when it arrives, in a queue with a policy.
type forecaster struct {
	policy
	line    forecast.Policy
	from    int // the first job that is forecast
	every   int // a forecast is made each time that so many jobs did not start at once
	history *forecast.History
	past    []int // jobs that arrived in the remembered time
	seen    int   // number of jobs that have arrived
	// nodes says that each processor is a node, and that a job is a gang. known says that run times are known, and that
	// no job arrives later.
	nodes, known bool

	users map[string]int32 // numbers, for queues with the policy fair

	waits   int
	made    []made
	count   int
	took    time.Duration // for all forecasts
	longest time.Duration
}

// made is a forecast, in seconds.
type made struct {
	job              int
	fresh            bool // the job has just arrived
	at               int64
	from, median, to int64 // to and median are -1 if unknown
}

// newForecaster returns a forecaster of a queue with the policy easy, sjbf or fair. The queue of easy is that of EASY,
// as the leader's is on nodes of one processor. That of fair is the scheduler's on one node.
func newForecaster(q cluster.QueuePolicy, from, every int) *forecaster {
	f := &forecaster{
		policy: yardstick{backfill: true}, from: from, every: every, history: forecast.NewHistory(1 << 14),
		users: map[string]int32{},
	}
	switch q {
	case cluster.QueueSJBF:
		f.policy, f.line = pool(q), forecast.SJBF
	case cluster.QueueFair:
		f.policy, f.line = newFairQueue(false), forecast.Fair
	default:
	}
	return f
}

// nextDecisionAt implements waker.
func (f *forecaster) nextDecisionAt() int64 {
	if w, ok := f.policy.(waker); ok {
		return w.nextDecisionAt()
	}
	return 0
}

func (f *forecaster) ended(j job) {
	f.history.Learn(startKind(j), forecast.Sample{Ran: seconds(j.run), Limit: seconds(j.limit)})
}

func startKind(j job) forecast.Kind {
	return forecast.Kind{Cluster: "log", Job: j.user, Step: strconv.FormatInt(j.procs, 10)}
}

func (f *forecaster) start(s *state) []int {
	start := f.policy.start(s)
	fresh := f.seen
	for f.seen < len(s.jobs) && s.jobs[f.seen].arrived <= s.now {
		f.past = append(f.past, f.seen)
		f.seen++
	}
	for len(f.past) > 0 && s.jobs[f.past[0]].arrived < s.now-int64(remembered/time.Second) {
		f.past = f.past[1:]
	}
	wanted := false
	for _, i := range s.waiting {
		if i >= max(fresh, f.from) && !slices.Contains(start, i) {
			f.waits++
			wanted = wanted || f.waits%f.every == 0
		}
	}
	if wanted {
		f.forecast(s, start, fresh)
	}
	return start
}

// input returns the state once the chosen jobs have started, and the jobs that wait then.
func (f *forecaster) input(s *state, start []int) (in forecast.Input, waiting []int) {
	in = forecast.Input{
		Now: time.Unix(s.now, 0), Seed: uint64(s.now), Lines: []forecast.Line{{Policy: f.line}},
		Past: min(seconds(s.now-s.jobs[0].arrived), remembered),
	}
	for _, r := range s.running {
		f.run(&in, s.jobs[r.job], r.started)
	}
	for _, i := range start {
		f.run(&in, s.jobs[i], s.now)
	}
	free := s.free
	for _, i := range start {
		free -= s.jobs[i].procs
	}
	f.addNodes(&in, free)
	for _, i := range s.waiting {
		if !slices.Contains(start, i) {
			in.Waiting = append(in.Waiting, f.request(s.jobs[i], s.now))
			waiting = append(waiting, i)
		}
	}
	for _, i := range f.past {
		if f.known {
			break
		}
		a := forecast.Arrival{
			Request: f.request(s.jobs[i], s.jobs[i].arrived), At: in.Past - seconds(s.now-s.jobs[i].arrived),
		}
		in.Arrivals = append(in.Arrivals, a)
	}
	in.Clusters, in.Users = []forecast.Cluster{{Weight: 1}}, make([]forecast.User, len(f.users))
	for _, n := range in.Nodes {
		in.Capacity[0] += n[0]
	}
	for _, r := range in.Running {
		in.Capacity[0] += r.Demand[0]
	}
	return in, waiting
}

// addNodes adds the nodes to the input: those of the running tasks, and free ones.
func (f *forecaster) addNodes(in *forecast.Input, free int64) {
	if !f.nodes {
		in.Nodes = []forecast.Amounts{{free}}
	} else {
		in.Nodes = make([]forecast.Amounts, int64(len(in.Running))+free)
		for i := range in.Running {
			in.Running[i].Node = int32(i)
		}
		for i := range free {
			in.Nodes[int64(len(in.Running))+i][0] = 1
		}
	}
	for n := range in.Nodes {
		in.Lines[0].Nodes = append(in.Lines[0].Nodes, int32(n))
	}
}

// run adds a running job to the input.
func (f *forecaster) run(in *forecast.Input, j job, began int64) {
	r := forecast.Running{
		Demand: forecast.Amounts{j.procs}, Started: time.Unix(began, 0), Limit: seconds(j.limit), Runs: f.runsOf(j),
		User: f.userOf(j),
	}
	if !f.nodes {
		in.Running = append(in.Running, r)
		return
	}
	r.Demand, r.Gang = forecast.Amounts{1}, len(in.Running)+1
	for range j.procs {
		in.Running = append(in.Running, r)
	}
}

// request returns the request of a job, with its run times as they were expected when it arrived.
func (f *forecaster) request(j job, now int64) forecast.Request {
	r := forecast.Request{
		Demand: forecast.Amounts{j.procs}, Tasks: 1, Limit: seconds(j.limit), Waited: seconds(now - j.arrived),
		Runs: f.runsOf(j), User: f.userOf(j), Priority: cluster.DefaultPriority,
	}
	if f.nodes {
		r.Demand, r.Tasks, r.Gang = forecast.Amounts{1}, int(j.procs), true
	}
	return r
}

// userOf returns the number of a job's user.
func (f *forecaster) userOf(j job) int32 {
	n, known := f.users[j.user]
	if !known {
		n = int32(len(f.users))
		f.users[j.user] = n
	}
	return n
}

// runsOf returns the distribution of a job's run time.
func (f *forecaster) runsOf(j job) *forecast.Runs {
	if f.known {
		return forecast.Fixed(seconds(j.run))
	}
	return f.history.Runs(startKind(j), seconds(j.limit))
}

func (f *forecaster) forecast(s *state, start []int, fresh int) {
	in, waiting := f.input(s, start)
	began := time.Now()
	starts := forecast.Forecast(&in)
	took := time.Since(began)
	f.count++
	f.took += took
	f.longest = max(f.longest, took)
	after := func(t time.Time) int64 {
		if t.IsZero() {
			return -1
		}
		return t.Unix() - s.now
	}
	for k, v := range starts {
		f.made = append(f.made, made{
			job: waiting[k], fresh: waiting[k] >= fresh, at: s.now, from: after(v.First.From),
			median: after(v.First.Median), to: after(v.First.To),
		})
	}
}

// coverage are the figures of forecasts. Widths and errors are medians, in seconds.
type coverage struct {
	count, early, late, open int // all, starts before the interval and after it, and intervals without an end
	width, err, wait         int64
}

// measureStarts compares the forecasts with the waits, those at the arrival or those of jobs that already waited.
func (f *forecaster) measureStarts(t *trace, waits []int64, fresh bool) (c coverage) {
	var widths, errs, all []int64
	for _, m := range f.made {
		if m.fresh != fresh {
			continue
		}
		actual := waits[m.job] - (m.at - t.jobs[m.job].arrived)
		c.count++
		switch {
		case actual < m.from:
			c.early++
		case m.to >= 0 && actual > m.to:
			c.late++
		}
		if m.to < 0 {
			c.open++
			continue
		}
		widths = append(widths, m.to-m.from)
		errs = append(errs, max(actual-m.median, m.median-actual))
		all = append(all, actual)
	}
	c.width, c.err, c.wait = middle(widths), middle(errs), middle(all)
	return c
}

func middle(l []int64) int64 {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return l[len(l)/2]
}

// forecastTraces returns the traces whose starts are forecast: the halves of recorded ones, and made up ones. The
// parameters of forecasts were chosen on first halves, and on made up traces of other seeds (1 to 3).
func forecastTraces(traces []*trace, count int) (all []*trace) {
	for _, t := range traces {
		all = append(all, variants(t)[:2]...)
	}
	for seed, load := range []float64{0.65, 0.7, 0.75, 0.8, 0.85} {
		all = append(all, syntheticTrace(uint64(seed)+11, min(count, 5000), 100, load))
	}
	return all
}

// forecastQueues are the policies whose starts are compared.
var forecastQueues = []cluster.QueuePolicy{cluster.QueueEASY, cluster.QueueSJBF, cluster.QueueFair}

// compareStarts prints how many of the starts are in their intervals, with a policy.
func compareStarts(ctx context.Context, q cluster.QueuePolicy, traces []*trace, every int, out io.Writer) error {
	fmt.Fprintf(out, "queue.policy %s\n\n", q)
	fmt.Fprintf(out, "| trace | forecasts | in the interval, %% | before it, %% | after it, %% | median wait, s | "+
		"median width, s | median error, s | no end |\n|---|---|---|---|---|---|---|---|---|\n")
	var took, longest time.Duration
	n := 0
	for _, t := range traces {
		if err := ctx.Err(); err != nil {
			return err
		}
		f := newForecaster(q, len(t.jobs)/50, every)
		waits, err := replay(t, f)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		took, longest, n = took+f.took, max(longest, f.longest), n+f.count
		for _, row := range []struct {
			name  string
			fresh bool
		}{{"at the arrival", true}, {"later", false}} {
			c := f.measureStarts(t, waits, row.fresh)
			part := func(n int) float64 { return 100 * float64(n) / float64(max(c.count, 1)) }
			fmt.Fprintf(out, "| %s, %s | %d | %.1f | %.1f | %.1f | %d | %d | %d | %d |\n", t.name, row.name, c.count,
				part(c.count-c.early-c.late), part(c.early), part(c.late), c.wait, c.width, c.err, c.open)
		}
	}
	fmt.Fprintf(out, "\n%d forecasts of a queue: %.1f ms each, %d ms at most.\n\n", n,
		took.Seconds()*1000/float64(max(n, 1)), longest.Milliseconds())
	return nil
}
