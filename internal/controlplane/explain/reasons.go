// Package explain keeps why tasks wait and why they were placed where they are, in the memory of the server that
// decided.
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
	mu      sync.Mutex
	version uint64
	held    string // why all tasks wait; empty if they have reasons of their own
	waiting []cluster.Waiting
	victims []cluster.Victim       // ordered by UUID
	tasks   map[cluster.TaskID]int // indices of waiting; made at the first call of get
	groups  []cluster.WaitingGroup // waiting in groups; made at the first call of reportAfter
}

// Set replaces why tasks wait and which attempts end for others.
func (r *Reasons) Set(waiting []cluster.Waiting, victims []cluster.Victim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(waiting)+len(r.waiting)+len(victims)+len(r.victims) == 0 && r.held == "" {
		return
	}
	r.version++
	r.held, r.waiting, r.victims, r.tasks, r.groups = "", waiting, victims, nil, nil
}

// SetHeld gives all tasks one reason to wait.
func (r *Reasons) SetHeld(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == why {
		return
	}
	r.version++
	r.held, r.waiting, r.victims, r.tasks, r.groups = why, nil, nil, nil, nil
}

// Get returns why a task waits, and false if it does not.
func (r *Reasons) Get(task cluster.TaskID) (cluster.Waiting, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != "" {
		return heldBack(task, r.held), true
	}
	if r.tasks == nil {
		r.tasks = make(map[cluster.TaskID]int, len(r.waiting))
		for i := range r.waiting {
			r.tasks[r.waiting[i].Task] = i
		}
	}
	i, ok := r.tasks[task]
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

// ListVictims returns the attempts that end for others, ordered by UUID. Nobody may change the result.
func (r *Reasons) ListVictims() []cluster.Victim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.victims
}

// ReportAfter returns the waiting tasks in groups, in the order of the decisions, and the victims. A group without
// tasks stands for all tasks. If the version equals after, the report holds the version alone.
func (r *Reasons) ReportAfter(after uint64) cluster.WaitingReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == after {
		return cluster.WaitingReport{Version: after}
	}
	if r.groups == nil && r.held != "" {
		w := heldBack("", r.held)
		r.groups = []cluster.WaitingGroup{{Refusals: w.Refusals, Sentence: w.Sentence}}
	}
	if r.groups == nil {
		r.groups = groupWaiting(r.waiting)
	}
	return cluster.WaitingReport{Version: r.version, Groups: r.groups, Victims: r.victims}
}

func groupWaiting(waiting []cluster.Waiting) []cluster.WaitingGroup {
	var groups []cluster.WaitingGroup
	at := map[string]int{}
	last := -1
	for i := range waiting {
		w := &waiting[i]
		if last < 0 || !slices.Equal(w.Refusals, groups[last].Refusals) {
			key := fmt.Sprint(w.Refusals)
			g, ok := at[key]
			if !ok {
				g = len(groups)
				at[key] = g
				groups = append(groups, cluster.WaitingGroup{Refusals: w.Refusals, Sentence: w.Sentence})
			}
			last = g
		}
		groups[last].Tasks = append(groups[last].Tasks, w.Task)
	}
	return groups
}
