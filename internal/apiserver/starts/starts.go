// Package starts forecasts when waiting tasks of jobs start, from the tables of the server. Package forecast has the
// method.
//
// What it learns is in the records that every server has: the outcomes of tasks, the packed ones among them, and the
// jobs. They are kept for as long as their job is. So all servers forecast from the same history, and a new leader or a
// restarted server loses nothing.
package starts

import (
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// Ages of what a Forecaster keeps.
const (
	// minAge is the least time between two forecasts. If one takes long, the time is restAfter times as long, at most
	// maxAge.
	minAge, maxAge = 2 * time.Second, 15 * time.Second
	restAfter      = 20
	// historyAge is the age after which a history is learned again.
	historyAge = time.Minute
)

// Forecaster forecasts starts, and keeps the last forecast for some seconds. Its zero value is ready, and it is safe
// for concurrent use: one caller computes, and the others wait for the result.
type Forecaster struct {
	mu      sync.Mutex
	until   time.Time // of the forecast
	at      time.Time
	starts  map[cluster.TaskID]Start
	learned time.Time
	history *forecast.History
}

// Start is the forecast of a start, and the names of the nodes on which it probably is (forecast.Start.Nodes).
type Start struct {
	First, Last forecast.Interval
	Nodes       []string
}

// Input is what a forecast is computed from.
type Input struct {
	Domain   string
	Snapshot *store.Snapshot
	Now      time.Time
	// Fleet returns the nodes with the tasks on them.
	Fleet func() *scheduler.Fleet
	// Pending yields the waiting tasks in the order of the queue, without those that are held.
	Pending iter.Seq[*cluster.Pending]
	// Waits returns why the leader's last decision did not place a task; ok is false if that is not known.
	Waits func(task cluster.TaskID) (why cluster.Waiting, ok bool)
	// Unfinished returns the number of tasks of a job's run that have not ended.
	Unfinished func(job cluster.OwnerRef) int
	// Clock is a clock that measures how long a forecast takes; nil for none.
	Clock func() time.Duration
}

// Starts returns the start of each request, by its first task. Tasks that wait for something else than room and limits
// of their cluster have none. The result may be some seconds old, and callers must not change it.
func (f *Forecaster) Starts(in *Input) map[cluster.TaskID]Start {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.starts != nil && !in.Now.Before(f.at) && in.Now.Before(f.until) {
		return f.starts
	}
	var began time.Duration
	if in.Clock != nil {
		began = in.Clock()
	}
	f.starts, f.at = f.compute(in), in.Now
	age := minAge
	if in.Clock != nil {
		age = min(max(minAge, restAfter*(in.Clock()-began)), maxAge)
	}
	f.until = in.Now.Add(age)
	return f.starts
}

func (f *Forecaster) compute(in *Input) map[cluster.TaskID]Start {
	b := &builder{Input: in, dims: map[string]int{}}
	b.fleet = in.Fleet()
	b.choose(in.Pending)
	if len(b.pending) == 0 {
		return map[cluster.TaskID]Start{}
	}
	if f.history == nil || in.Now.Before(f.learned) || in.Now.Sub(f.learned) >= historyAge {
		f.history, f.learned = learn(in.Snapshot), in.Now
	}
	b.history = f.history
	b.build()
	starts, names := map[cluster.TaskID]Start{}, b.fleet.Nodes()
	for i, s := range forecast.Forecast(&b.out) {
		if s.First.From.IsZero() {
			continue
		}
		start := Start{First: s.First, Last: s.Last}
		for _, n := range s.Nodes {
			start.Nodes = append(start.Nodes, names[n])
		}
		for _, at := range b.members[i] {
			starts[b.pending[at].Task] = start
		}
	}
	return starts
}

// waitsForRoom reports whether a task waits for room or for a limit of its cluster alone, as far as that is known.
func waitsForRoom(why cluster.Waiting, known bool) bool {
	if !known || len(why.Refusals) == 0 {
		return true
	}
	switch why.Refusals[0].Code {
	case cluster.ReasonRecovery, cluster.ReasonPermission, cluster.ReasonNoDefinition, cluster.ReasonSecret,
		cluster.ReasonVolume:
		return false
	default:
		return true
	}
}

// kindOf returns the kind of a job's tasks. Jobs whose names differ in the digits at the end alone are of one name, as
// the jobs of a cron are.
func kindOf(inCluster, job, step string) forecast.Kind {
	if family := strings.TrimRight(job, "0123456789-"); family != "" {
		job = family
	}
	return forecast.Kind{Cluster: inCluster, Job: job, Step: step}
}
