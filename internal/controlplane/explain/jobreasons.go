package explain

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// jobReasons is why the requests of one job wait, of which a placement may consider only some. The reasons of the
// others are those of the last placement that considered them.
type jobReasons struct {
	requests []cluster.Pending
	reasons  [][]cluster.Waiting // by request; the tasks of one may have several reasons
	index    *cluster.TaskIndex  // of requests; made when it is needed
}

// number returns the index of the request of a task.
func (j *jobReasons) number(task cluster.TaskID) (int, bool) {
	if j.index == nil {
		j.index = cluster.IndexTasks(cluster.RangesOf(j.requests))
	}
	return j.index.Find(task)
}

// wasHeld reports whether the request of a task was held: its reason ended with the hold.
func (j *jobReasons) wasHeld(task cluster.TaskID) bool {
	if j == nil {
		return false
	}
	i, found := j.number(task)
	return found && scheduler.IsHeld(&j.requests[i])
}

func (j *jobReasons) find(task cluster.TaskID) (cluster.Waiting, bool) {
	i, found := j.number(task)
	if !found {
		return cluster.Waiting{}, false
	}
	for _, w := range j.reasons[i] {
		if r := w.Range(); r.Has(task) {
			return w, true
		}
	}
	return cluster.Waiting{}, false
}

// Considered is a request that a placement considered, by its index among those of its job, and why its tasks wait:
// nothing if all of them are placed.
type Considered struct {
	Owner   cluster.OwnerRef
	Index   int
	Waiting []cluster.Waiting
}

// SetRequests sets the requests of a job in a long queue. The reasons of tasks that waited before remain until a
// placement considers them.
func (r *Reasons) SetRequests(o cluster.OwnerRef, requests []cluster.Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := &jobReasons{requests: requests, reasons: make([][]cluster.Waiting, len(requests))}
	alone := make([]cluster.Waiting, len(requests))
	former := r.jobs[o]
	for i := range requests {
		p := &requests[i]
		first, known := r.find(p.Task)
		if !known || scheduler.IsHeld(p) || former.wasHeld(p.Task) {
			first = scheduler.Unconsidered(p)
		}
		first.Task, first.Further = p.Task, p.Further
		alone[i] = first
		if j.reasons[i] = alone[i : i+1 : i+1]; first.Promise == nil || p.Further == 0 {
			continue
		}
		rest, known := r.find(p.Task.Offset(1)) // a promise is for the first task alone
		if !known || rest.Promise != nil {
			rest = scheduler.Unconsidered(p)
		}
		rest.Task, rest.Further = p.Task.Offset(1), p.Further-1
		first.Further = 0
		j.reasons[i] = []cluster.Waiting{first, rest}
	}
	if r.jobs == nil {
		r.jobs = map[cluster.OwnerRef]*jobReasons{}
	}
	r.jobs[o] = j
}

// SetConsidered sets the reasons of the requests that a placement considered, and replaces those of all tasks that
// belong to no job of SetRequests. It forgets the jobs for which keep is false.
func (r *Reasons) SetConsidered(considered []Considered, others []cluster.Waiting, victims []cluster.Victim,
	keep func(cluster.OwnerRef) bool,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.held, r.waiting, r.victims, r.tasks, r.groups = "", others, victims, nil, nil
	for _, c := range considered {
		if j := r.jobs[c.Owner]; j != nil && c.Index < len(j.reasons) {
			j.reasons[c.Index] = c.Waiting
		}
	}
	maps.DeleteFunc(r.jobs, func(o cluster.OwnerRef, _ *jobReasons) bool { return !keep(o) })
}

// OfJobs returns the reasons of jobs of SetRequests.
func (r *Reasons) OfJobs(of func(cluster.OwnerRef) bool) (reasons []cluster.Waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range slices.SortedFunc(maps.Keys(r.jobs), cluster.OwnerRef.Compare) {
		if of(o) {
			reasons = append(reasons, slices.Concat(r.jobs[o].reasons...)...)
		}
	}
	return reasons
}

// all returns all reasons: those of no job in a long queue in the order of decision, then those of the jobs. r.mu is
// held; the lists do not change afterwards.
func (r *Reasons) all() [][]cluster.Waiting {
	lists := [][]cluster.Waiting{r.waiting}
	for _, o := range slices.SortedFunc(maps.Keys(r.jobs), cluster.OwnerRef.Compare) {
		lists = append(lists, r.jobs[o].reasons...)
	}
	return lists
}
