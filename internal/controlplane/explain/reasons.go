// Package explain keeps why tasks wait and why they were placed where they are, in the memory of the server that
// decided.
//
// # Decision traces
//
// A decision trace is kept in the memory of the server that decided, the newest 4,096 of them. A cycle groups its
// placements by owner and generation, or step, and finds the trace of the first task of each group: the parts of the
// score of the chosen node, of the best other node and of the best of two further node classes, and how many nodes
// refused for which reason. Other tasks of the group share that trace and are kept as ranges of indices. The fleet of a
// trace is the one at the beginning of the cycle; earlier placements of the cycle are counted in `before` and not
// charged. The work is bounded by 4,096 evaluations of node classes in a cycle: with 25 classes, the traces of 163
// owners. Measured with 4,000 tasks on 5,000 nodes of 25 classes: 1 % more time for one owner (1.78 and 1.79 ms), 5 %
// for 50 (6.06 and 6.38 ms), 38 % where each task has its own owner (8.3 and 11.5 ms). The ring takes 2.6 MiB when it
// is full. A trace that is gone is computed again on the present fleet, with the task's own room given back, and the
// answer says `recorded: false`. A server that does not lead asks the leader once, for a second at most. Traces are not
// in the store, because those of a plan of 1,000 placements (some 40 KB) would make it half as large again. Decide
// again if users request traces that are days old; the first of each generation then belongs in the store.
package explain

import (
	"fmt"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// Reasons holds why tasks wait, and which attempts end for others. It is soft state: the leader replaces all of it
// after each decision. It is safe for concurrent use.
type Reasons struct {
	grouping sync.Mutex // held while groups are made; before mu

	mu      sync.Mutex
	version uint64
	held    string // why all tasks wait; empty if they have reasons of their own
	waiting []cluster.Waiting
	victims []cluster.Victim       // ordered by UUID
	tasks   *cluster.TaskIndex     // of waiting; made at the first call of Get
	groups  []cluster.WaitingGroup // all in groups; nil until ReportAfter has made them
	// jobs holds the reasons of the requests of jobs while their queue is long. Waiting then holds all others.
	jobs map[cluster.OwnerRef]*jobReasons
}

// Set replaces why tasks wait and which attempts end for others.
func (r *Reasons) Set(waiting []cluster.Waiting, victims []cluster.Victim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(waiting)+len(r.waiting)+len(r.jobs)+len(victims)+len(r.victims) == 0 && r.held == "" {
		return
	}
	r.version++
	r.held, r.waiting, r.victims, r.tasks, r.groups, r.jobs = "", waiting, victims, nil, nil, nil
}

// SetHeld gives all tasks one reason to wait.
func (r *Reasons) SetHeld(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == why {
		return
	}
	r.version++
	r.held, r.waiting, r.victims, r.tasks, r.groups, r.jobs = why, nil, nil, nil, nil, nil
}

// Get returns why a task waits, and false if it does not.
func (r *Reasons) Get(task cluster.TaskID) (cluster.Waiting, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != "" {
		return heldBack(task, r.held), true
	}
	w, ok := r.find(task)
	w.Task, w.Further = task, 0
	return w, ok
}

// find returns the reason of a task or of a range that it belongs to.
func (r *Reasons) find(task cluster.TaskID) (cluster.Waiting, bool) {
	if len(r.jobs) > 0 {
		if owner, ok := task.Owner(); ok && r.jobs[owner] != nil {
			if w, ok := r.jobs[owner].find(task); ok {
				return w, true
			}
		}
	}
	if r.tasks == nil {
		r.tasks = cluster.IndexTasks(func(yield func(cluster.TaskRange, int) bool) {
			for i := range r.waiting {
				if !yield(r.waiting[i].Range(), i) {
					return
				}
			}
		})
	}
	i, ok := r.tasks.Find(task)
	if !ok {
		return cluster.Waiting{}, false
	}
	return r.waiting[i], true
}

func heldBack(task cluster.TaskID, why string) cluster.Waiting {
	return cluster.Waiting{
		Task: task, Sentence: why,
		Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonRecovery}}},
	}
}

// ListVictims returns the attempts that end for others, ordered by UUID. Callers must not change the result.
func (r *Reasons) ListVictims() []cluster.Victim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.victims
}

// ReportAfter returns the waiting tasks in groups, in the order of the decisions, and the victims. A group without
// tasks means all tasks. If the version equals after, the report holds the version alone. The leader's decisions do not
// wait for the grouping of a long queue.
func (r *Reasons) ReportAfter(after uint64) cluster.WaitingReport {
	r.grouping.Lock()
	defer r.grouping.Unlock()
	r.mu.Lock()
	report := cluster.WaitingReport{Version: r.version, Groups: r.groups, Victims: r.victims}
	var waiting [][]cluster.Waiting
	switch {
	case r.version == after:
		report.Groups, report.Victims = nil, nil
	case r.groups == nil && r.held != "":
		w := heldBack("", r.held)
		report.Groups = []cluster.WaitingGroup{{Refusals: w.Refusals, Sentence: w.Sentence}}
	case r.groups == nil:
		waiting = r.all()
	}
	r.mu.Unlock()
	if waiting == nil {
		return report
	}
	report.Groups = groupWaiting(waiting)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == report.Version {
		r.groups = report.Groups
	}
	return report
}

func groupWaiting(waiting [][]cluster.Waiting) []cluster.WaitingGroup {
	groups := []cluster.WaitingGroup{}
	at := map[string]int{}
	last := -1
	add := func(w *cluster.Waiting) {
		if last < 0 || w.Promise != groups[last].Promise || !slices.Equal(w.Refusals, groups[last].Refusals) {
			key := fmt.Sprint(w.Refusals, w.Promise)
			g, ok := at[key]
			if !ok {
				g = len(groups)
				at[key] = g
				groups = append(groups, cluster.WaitingGroup{
					Refusals: w.Refusals, Sentence: w.Sentence, Promise: w.Promise,
				})
			}
			last = g
		}
		groups[last].Tasks = append(groups[last].Tasks, w.Range())
	}
	for _, list := range waiting {
		for i := range list {
			add(&list[i])
		}
	}
	return groups
}
