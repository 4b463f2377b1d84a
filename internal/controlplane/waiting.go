package controlplane

import (
	"fmt"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// reasons holds why tasks wait, and which attempts end for others. It is soft state: the leader replaces all of it
// after each decision.
type reasons struct {
	mu      sync.Mutex
	version uint64
	held    string // why all tasks wait; empty if they have reasons of their own
	waiting []cluster.Waiting
	victims []cluster.Victim       // ordered by UUID
	tasks   map[cluster.TaskID]int // indices of waiting; made at the first call of get
	groups  []cluster.WaitingGroup // waiting in groups; made at the first call of reportAfter
}

func (r *reasons) set(waiting []cluster.Waiting, victims []cluster.Victim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(waiting)+len(r.waiting)+len(victims)+len(r.victims) == 0 && r.held == "" {
		return
	}
	r.version++
	r.held, r.waiting, r.victims, r.tasks, r.groups = "", waiting, victims, nil, nil
}

// setHeld gives all tasks one reason to wait.
func (r *reasons) setHeld(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == why {
		return
	}
	r.version++
	r.held, r.waiting, r.victims, r.tasks, r.groups = why, nil, nil, nil, nil
}

func (r *reasons) get(task cluster.TaskID) (cluster.Waiting, bool) {
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

func (r *reasons) listVictims() []cluster.Victim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.victims
}

// reportAfter returns the waiting tasks in groups, in the order of the decisions, and the victims. A group without
// tasks stands for all tasks. If the version equals after, the report holds the version alone.
func (r *reasons) reportAfter(after uint64) cluster.WaitingReport {
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
