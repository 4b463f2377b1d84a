package explain

import (
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

const (
	// maxKeptTraces is how many traces are kept, the newest ones: 20 MB if each lists alternatives.
	maxKeptTraces = 4096
	// maxTraceEvaluations bounds the cost of tracing one cycle, in evaluations of a task on a kind of nodes: about a
	// millisecond. Decisions beyond the bound get no trace. A request for one is answered from the present fleet.
	maxTraceEvaluations = 4096
	// maxTracedGroups limits how many task groups get a decision trace in one cycle.
	maxTracedGroups = 512
)

// Traces says why tasks were placed where they are. It is soft state of a server: a ring of the newest
// decisions that it made while it led. It is safe for concurrent use.
type Traces struct {
	mu      sync.Mutex
	ring    []*groupTrace
	next    int                      // index in ring of the oldest, which is replaced next
	byTasks map[string][]*groupTrace // by the common part of the task ids, the newest last
}

// groupTrace is the decision trace of the first task of a group, with the tasks that it represents.
type groupTrace struct {
	cluster.DecisionTrace
	tasks  string // their ids without the index
	ranges []indexRange
}

// indexRange is tasks with consecutive indices and the same attempt number.
type indexRange struct{ first, last, attempt int }

func (g *groupTrace) covers(index, attempt int) bool {
	return slices.ContainsFunc(g.ranges, func(s indexRange) bool {
		return s.first <= index && index <= s.last && s.attempt == attempt
	})
}

// groupPlacements groups the placements of a cycle by tasks of one owner and step, in the order of the decisions. first
// holds the index of each group's first placement.
func groupPlacements(pending []cluster.Pending, placed []scheduler.Placement) (all []*groupTrace, first []int) {
	by := map[string]*groupTrace{}
	var last *groupTrace
	for i := range placed {
		tasks, index, ok := placed[i].Task.Cut()
		if !ok {
			continue
		}
		attempt := pending[placed[i].Pending].Attempt
		if last == nil || last.tasks != tasks {
			if last = by[tasks]; last == nil && len(all) == maxTracedGroups {
				continue
			}
			if last == nil {
				last = &groupTrace{tasks: tasks}
				last.Before = i
				by[tasks] = last
				all, first = append(all, last), append(first, i)
			}
		}
		last.Like++
		if n := len(last.ranges) - 1; n >= 0 && last.ranges[n].last+1 == index && last.ranges[n].attempt == attempt {
			last.ranges[n].last = index
		} else {
			last.ranges = append(last.ranges, indexRange{index, index, attempt})
		}
	}
	return all, first
}

// Record keeps traces of a cycle's placements. f is the fleet before them.
func (t *Traces) Record(f *scheduler.Fleet, pending []cluster.Pending, placed []scheduler.Placement,
	options scheduler.Options, now time.Time,
) {
	if len(placed) == 0 {
		return
	}
	all, first := groupPlacements(pending, placed)
	tasks, nodes := make([]cluster.Pending, 0, len(all)), make([]string, 0, len(all))
	for _, i := range first {
		tasks, nodes = append(tasks, pending[placed[i].Pending]), append(nodes, placed[i].Node)
	}
	t.add(all, scheduler.DecisionTraces(f, tasks, nodes, maxTraceEvaluations, options), now)
}

func (t *Traces) add(all []*groupTrace, found []cluster.DecisionTrace, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byTasks == nil {
		t.byTasks = map[string][]*groupTrace{}
	}
	for i := range found {
		trace := all[i]
		found[i].At, found[i].Like, found[i].Before = now, trace.Like, trace.Before
		trace.DecisionTrace = found[i]
		if len(t.ring) < maxKeptTraces {
			t.ring = append(t.ring, trace)
		} else {
			t.drop(t.ring[t.next])
			t.ring[t.next] = trace
			t.next = (t.next + 1) % maxKeptTraces
		}
		t.byTasks[trace.tasks] = append(t.byTasks[trace.tasks], trace)
	}
}

// drop removes the oldest trace.
func (t *Traces) drop(old *groupTrace) {
	rest := slices.DeleteFunc(t.byTasks[old.tasks], func(o *groupTrace) bool { return o == old })
	if len(rest) == 0 {
		delete(t.byTasks, old.tasks)
		return
	}
	t.byTasks[old.tasks] = rest
}

// Get returns the newest trace that is kept for an attempt of a task.
func (t *Traces) Get(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
	tasks, index, ok := task.Cut()
	if !ok {
		return cluster.DecisionTrace{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, trace := range slices.Backward(t.byTasks[tasks]) {
		if trace.covers(index, attempt) {
			return trace.DecisionTrace, true
		}
	}
	return cluster.DecisionTrace{}, false
}
