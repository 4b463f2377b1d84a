package whatif

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Replayed is the result of a replay.
type Replayed struct {
	Trace string `json:"trace"`
	// Jobs and Tasks arrived. Begun counts the jobs whose tasks were all placed, and Ended the jobs that ended. Running
	// and Waiting count the jobs that run, or have a waiting task, at the end of the replay.
	Jobs    int `json:"jobs"`
	Tasks   int `json:"tasks"`
	Begun   int `json:"begun"`
	Ended   int `json:"ended"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// LeftOut counts the jobs beyond the limits of tasks or time. Skipped counts jobs of the trace that cannot be run.
	LeftOut int `json:"left_out,omitempty"`
	Skipped int `json:"skipped,omitempty"`
	// Lasted is the time from the first arrival to the end. Cut says that the time limit ended the replay.
	Lasted cluster.Duration `json:"lasted"`
	Cut    bool             `json:"cut,omitempty"`
	// Waits holds the waiting times of the begun jobs.
	Waits Waits `json:"waits"`
	// Full is the use of the domain's resources by all tasks.
	Full []Fullness `json:"full"`
	// Busiest is the moment at which most tasks waited; nil if none ever did.
	Busiest *Busiest `json:"busiest,omitempty"`

	placed, ended int // tasks
}

// Waits are the times from the arrival of jobs until all of their tasks had places.
type Waits struct {
	// Waited counts the jobs that waited for a second or longer.
	Waited  int              `json:"waited"`
	Mean    cluster.Duration `json:"mean"`
	Median  cluster.Duration `json:"median"`
	P99     cluster.Duration `json:"p99"`
	Longest cluster.Duration `json:"longest"`
}

// Fullness is the reserved amount of one resource, in percent of the amount of all nodes.
type Fullness struct {
	// What is the resource: "cpu", "memory" or "devices".
	What string `json:"what"`
	// Mean is over the time of the trace.
	Mean float64 `json:"mean"`
	Peak float64 `json:"peak"`
	End  float64 `json:"end"`
}

// Busiest is the moment at which most tasks of a trace waited.
type Busiest struct {
	After cluster.Duration `json:"after"`
	Tasks int              `json:"tasks"`
	// Why are the reasons of most of them, the most frequent first.
	Why []BusiestWhy `json:"why"`
}

// BusiestWhy is a reason and how many tasks wait for it.
type BusiestWhy struct {
	Tasks    int    `json:"tasks"`
	Sentence string `json:"sentence"`
}

// Indexes of resources.
const (
	kindCPU = iota
	kindMemory
	kindDevices
	kindCount
)

// kindName returns the name of a resource.
func kindName(kind int) string { return [kindCount]string{"cpu", "memory", "devices"}[kind] }

// replayCounts counts during a replay.
type replayCounts struct {
	holdings map[store.AttemptKey]holding
	demands  map[cluster.Ref]cluster.Demand
	total    [kindCount]int64
	reserved [kindCount]int64
	peak     [kindCount]int64
	area     [kindCount]float64 // integral of reserved over time, in seconds
	passed   time.Duration

	waits       []time.Duration
	waiting     int          // jobs
	unplaced    int          // tasks
	ended       int          // jobs
	endedTasks  int          // tasks
	endedJobs   []*replayJob // ended jobs that are not deleted yet
	tasks       int
	busiest     Busiest
	explainedAt int // unplaced tasks when the reasons were last collected
}

// holding is the resources and the progress of one attempt.
type holding struct {
	of            [kindCount]int64
	placed, ended bool
}

// start counts the resources of the domain and its existing attempts.
func (t *replayCounts) start(p *replayRun) {
	t.holdings, t.demands = map[store.AttemptKey]holding{}, map[cluster.Ref]cluster.Demand{}
	snap := p.world.Snapshot()
	for e := range snap.NodeStatuses() {
		if n, ok := snap.Node(e.Value.Name); ok && n.Value.Domain == p.world.config.Domain {
			f := &e.Value.Facts
			t.total[kindCPU] += int64(f.CPU)
			t.total[kindMemory] += int64(f.Memory)
			t.total[kindDevices] += int64(len(f.Devices)) * cluster.WholeDevice
		}
	}
	for row := range snap.AllAttempts() {
		t.updateAttempt(p, snap, store.AttemptKey{Task: row.Task, Number: row.Number}, row)
	}
	p.follow.Take()
}

// arrived counts a job that arrived.
func (t *replayCounts) arrived(j *replayJob) {
	t.waiting++
	t.tasks += j.tasks
	t.unplaced += j.tasks
}

// advance lets time pass.
func (t *replayCounts) advance(d time.Duration) {
	t.passed += d
	for k := range t.area {
		t.area[k] += float64(t.reserved[k]) * d.Seconds()
	}
}

// updateAttempt updates the holding of an attempt from its row, nil for none.
func (t *replayCounts) updateAttempt(p *replayRun, snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	was := t.holdings[key]
	is := holding{placed: was.placed, ended: was.ended}
	if row != nil && row.Desired != nil && row.Standing() && (row.Observed == nil || !row.Observed.Gone) &&
		domainOf(snap, row.Desired.Owner.Cluster) == p.world.config.Domain {
		is.of = t.resourcesOf(snap, row.Desired)
	}
	for k := range is.of {
		t.reserved[k] += is.of[k] - was.of[k]
		t.peak[k] = max(t.peak[k], t.reserved[k])
	}
	if j := p.jobOf(key.Task); j != nil && row != nil {
		if !is.placed && row.Desired != nil {
			is.placed = true
			t.taskPlaced(p, j, key)
		}
		if o := row.Outcome; !is.ended && o != nil && o.State == cluster.StateSucceeded {
			is.ended = true
			t.endedTasks++
			if j.done++; j.done == j.tasks {
				t.ended++
				t.endedJobs = append(t.endedJobs, j)
			}
		}
	}
	if row == nil {
		delete(t.holdings, key)
	} else {
		t.holdings[key] = is
	}
}

// taskPlaced counts the first placement of a task.
func (t *replayCounts) taskPlaced(p *replayRun, j *replayJob, key store.AttemptKey) {
	if key.Number > 1 {
		return // it had one before
	}
	t.unplaced--
	if j.placed++; j.placed == j.tasks {
		t.waiting--
		t.waits = append(t.waits, p.traceTime()-j.arrives)
		if p.Begun != nil {
			p.Begun(j.Job, p.traceTime()-j.arrives)
		}
	}
}

// resourcesOf returns the resources of an attempt.
func (t *replayCounts) resourcesOf(snap *store.Snapshot, d *cluster.Desired) (of [kindCount]int64) {
	demand, known := t.demands[d.Definition]
	if !known {
		if def, ok := snap.Definition(d.Definition); ok {
			demand = def.Value.Demand()
		}
		t.demands[d.Definition] = demand
	}
	of[kindCPU], of[kindMemory] = int64(demand.CPU), int64(demand.Memory)
	for _, u := range d.Devices {
		of[kindDevices] += int64(u.Share)
	}
	return of
}

// recordBusiest records when most tasks waited, and why. Collecting the reasons is as expensive as the number of
// waiting tasks, so it is done only when this number has grown by a tenth.
func (t *replayCounts) recordBusiest(p *replayRun) {
	if t.unplaced <= t.busiest.Tasks {
		return
	}
	t.busiest.Tasks, t.busiest.After = t.unplaced, roundToSecond(p.traceTime())
	if t.unplaced*10 < t.explainedAt*11 {
		return
	}
	const most = 3
	count := map[string]int{}
	for _, g := range p.world.plane.Waiting() {
		for _, tasks := range g.Tasks {
			if p.jobOf(tasks.First) != nil {
				count[g.Sentence] += tasks.Count()
			}
		}
	}
	why := make([]BusiestWhy, 0, len(count))
	for sentence, n := range count { // order-free: sorted next
		why = append(why, BusiestWhy{n, sentence})
	}
	if len(why) == 0 { // arrived tasks were not decided on yet
		return
	}
	t.explainedAt = t.unplaced
	slices.SortFunc(why, func(a, b BusiestWhy) int {
		return cmp.Or(-cmp.Compare(a.Tasks, b.Tasks), strings.Compare(a.Sentence, b.Sentence))
	})
	t.busiest.Why = why[:min(len(why), most)]
}

// result returns the result of the replay.
func (p *replayRun) result() *Replayed {
	t := &p.counts
	r := &Replayed{
		Trace: p.Name, Jobs: p.next, Tasks: t.tasks, Begun: len(t.waits), Ended: t.ended, Waiting: t.waiting,
		Running: len(t.waits) - t.ended,
		LeftOut: len(p.Trace.Jobs) - p.next, Skipped: p.Trace.Skipped, Lasted: roundToSecond(t.passed), Cut: p.cut,
		Full:   []Fullness{},
		placed: t.tasks - t.unplaced, ended: t.endedTasks,
	}
	r.Waits = t.summarizeWaits()
	for k := range t.total {
		if t.total[k] == 0 {
			continue
		}
		percent := func(n float64) float64 { return float64(int64(n*10000/float64(t.total[k])+0.5)) / 100 }
		r.Full = append(r.Full, Fullness{
			What: kindName(k), Mean: percent(t.area[k] / max(t.passed.Seconds(), 1e-9)),
			Peak: percent(float64(t.peak[k])), End: percent(float64(t.reserved[k])),
		})
	}
	if len(t.busiest.Why) > 0 {
		r.Busiest = &t.busiest
	}
	return r
}

// summarizeWaits returns the distribution of the waiting times.
func (t *replayCounts) summarizeWaits() (w Waits) {
	if len(t.waits) == 0 {
		return w
	}
	slices.Sort(t.waits)
	sum := time.Duration(0)
	for i := range t.waits {
		t.waits[i] = t.waits[i].Round(time.Second)
		sum += t.waits[i] / time.Duration(len(t.waits))
		if t.waits[i] > 0 {
			w.Waited++
		}
	}
	at := func(percent int) cluster.Duration {
		return cluster.Duration(t.waits[min(len(t.waits)*percent/100, len(t.waits)-1)])
	}
	w.Mean, w.Median, w.P99, w.Longest = roundToSecond(sum), at(50), at(99), at(100)
	return w
}
