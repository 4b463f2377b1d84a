package whatif

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Replayed is what became of a trace.
type Replayed struct {
	Trace string `json:"trace"`
	// Jobs and Tasks came. Begun are the jobs of which all tasks had a place, Ended those that ran to their end,
	// Running and Waiting those that run, or of which a task waits for a place, at the end.
	Jobs    int `json:"jobs"`
	Tasks   int `json:"tasks"`
	Begun   int `json:"begun"`
	Ended   int `json:"ended"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// LeftOut are the jobs that were too many, or too late, to be replayed; Skipped those that the trace has and that
	// could not be run.
	LeftOut int `json:"left_out,omitempty"`
	Skipped int `json:"skipped,omitempty"`
	// Lasted is how much time passed from the first arrival to the end, and Cut says that it was ended for the bound of
	// that.
	Lasted cluster.Duration `json:"lasted"`
	Cut    bool             `json:"cut,omitempty"`
	// Waits says how long the jobs waited that begun.
	Waits Waits `json:"waits"`
	// Full says how full the domain was, all tasks counted.
	Full []Fullness `json:"full"`
	// Busiest is when most tasks waited; nil where none ever did.
	Busiest *Busiest `json:"busiest,omitempty"`

	placed, ended int // tasks
}

// Waits are the times from the arrival of jobs until all of their tasks had places.
type Waits struct {
	// Waited is how many waited for a second or longer.
	Waited  int              `json:"waited"`
	Mean    cluster.Duration `json:"mean"`
	Median  cluster.Duration `json:"median"`
	P99     cluster.Duration `json:"p99"`
	Longest cluster.Duration `json:"longest"`
}

// Fullness is how much of something is reserved, in percent of what all nodes have.
type Fullness struct {
	// What is "cpu", "memory" or "devices".
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

// kinds of what nodes have.
const (
	kindCPU = iota
	kindMemory
	kindDevices
	kindsAll
)

// kindName is what a kind is called.
func kindName(kind int) string { return [kindsAll]string{"cpu", "memory", "devices"}[kind] }

// tally counts while a trace is replayed.
type tally struct {
	held    map[store.AttemptKey]holding
	demands map[cluster.Ref]cluster.Demand
	total   [kindsAll]int64
	now     [kindsAll]int64
	peak    [kindsAll]int64
	area    [kindsAll]float64 // of what is reserved and the seconds of it
	passed  time.Duration

	waits    []time.Duration
	waiting  int         // jobs
	unplaced int         // tasks
	ended    int         // jobs
	gone     int         // tasks
	over     []*replayed // those that have ended and stand there yet
	tasks    int
	busiest  Busiest
	told     int // how many waited when it was last asked why
}

// holding is what an attempt holds, and what is known of it.
type holding struct {
	of            [kindsAll]int64
	placed, ended bool
}

// begin counts what there is.
func (t *tally) begin(p *replaying) {
	t.held, t.demands = map[store.AttemptKey]holding{}, map[cluster.Ref]cluster.Demand{}
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
		t.note(p, snap, store.AttemptKey{Task: row.Task, Number: row.Number}, row)
	}
	p.follow.Take()
}

// arrived counts a job that came.
func (t *tally) arrived(j *replayed) {
	t.waiting++
	t.tasks += j.tasks
	t.unplaced += j.tasks
}

// pass lets time pass.
func (t *tally) pass(d time.Duration) {
	t.passed += d
	for k := range t.area {
		t.area[k] += float64(t.now[k]) * d.Seconds()
	}
}

// note brings what is known of an attempt up to its row, nil for none.
func (t *tally) note(p *replaying, snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	was := t.held[key]
	is := holding{placed: was.placed, ended: was.ended}
	if row != nil && row.Desired != nil && row.Standing() && (row.Observed == nil || !row.Observed.Gone) &&
		domainOf(snap, row.Desired.Owner.Cluster) == p.world.config.Domain {
		is.of = t.of(snap, row.Desired)
	}
	for k := range is.of {
		t.now[k] += is.of[k] - was.of[k]
		t.peak[k] = max(t.peak[k], t.now[k])
	}
	if j := p.jobOf(key.Task); j != nil && row != nil {
		if !is.placed && row.Desired != nil {
			is.placed = true
			t.begun(p, j, key)
		}
		if o := row.Outcome; !is.ended && o != nil && o.State == cluster.StateSucceeded {
			is.ended = true
			t.gone++
			if j.done++; j.done == j.tasks {
				t.ended++
				t.over = append(t.over, j)
			}
		}
	}
	if row == nil {
		delete(t.held, key)
	} else {
		t.held[key] = is
	}
}

// begun counts a task that has a place.
func (t *tally) begun(p *replaying, j *replayed, key store.AttemptKey) {
	if key.Number > 1 {
		return // it had one before
	}
	t.unplaced--
	if j.placed++; j.placed == j.tasks {
		t.waiting--
		t.waits = append(t.waits, p.after()-j.arrives)
	}
}

// of returns what an attempt holds.
func (t *tally) of(snap *store.Snapshot, d *cluster.Desired) (of [kindsAll]int64) {
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

// look keeps when most tasks waited, and why. To ask why costs as much as all that wait, so it is asked where their
// number grew by a tenth.
func (t *tally) look(p *replaying) {
	if t.unplaced <= t.busiest.Tasks {
		return
	}
	t.busiest.Tasks, t.busiest.After = t.unplaced, rounded(p.after())
	if t.unplaced*10 < t.told*11 {
		return
	}
	const most = 3
	count := map[string]int{}
	for _, g := range p.world.plane.Waiting() {
		for _, task := range g.Tasks {
			if p.jobOf(task) != nil {
				count[g.Sentence]++
			}
		}
	}
	why := make([]BusiestWhy, 0, len(count))
	for sentence, n := range count { // order-free: sorted next
		why = append(why, BusiestWhy{n, sentence})
	}
	if len(why) == 0 { // what has come was not looked at yet
		return
	}
	t.told = t.unplaced
	slices.SortFunc(why, func(a, b BusiestWhy) int {
		return cmp.Or(-cmp.Compare(a.Tasks, b.Tasks), strings.Compare(a.Sentence, b.Sentence))
	})
	t.busiest.Why = why[:min(len(why), most)]
}

// result tells what became of the trace.
func (p *replaying) result() *Replayed {
	t := &p.tally
	r := &Replayed{
		Trace: p.Name, Jobs: p.next, Tasks: t.tasks, Begun: len(t.waits), Ended: t.ended, Waiting: t.waiting,
		Running: len(t.waits) - t.ended,
		LeftOut: len(p.Trace.Jobs) - p.next, Skipped: p.Trace.Skipped, Lasted: rounded(t.passed), Cut: p.ended,
		Full:   []Fullness{},
		placed: t.tasks - t.unplaced, ended: t.gone,
	}
	r.Waits = t.waited()
	for k := range t.total {
		if t.total[k] == 0 {
			continue
		}
		percent := func(n float64) float64 { return float64(int64(n*10000/float64(t.total[k])+0.5)) / 100 }
		r.Full = append(r.Full, Fullness{
			What: kindName(k), Mean: percent(t.area[k] / max(t.passed.Seconds(), 1e-9)),
			Peak: percent(float64(t.peak[k])), End: percent(float64(t.now[k])),
		})
	}
	if len(t.busiest.Why) > 0 {
		r.Busiest = &t.busiest
	}
	return r
}

// waited tells how long the jobs waited.
func (t *tally) waited() (w Waits) {
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
	w.Mean, w.Median, w.P99, w.Longest = rounded(sum), at(50), at(99), at(100)
	return w
}
