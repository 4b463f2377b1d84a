package reconciler

import (
	"maps"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Retry returns the retries of a job after its user had failed tasks tried again: with all, every failed task, and
// otherwise these one by one. It reads Spec, Tasks and Packed of the input. All times are of the leader's clock.
func Retry(in JobInput, failed []FailedTask, all bool) cluster.JobRetries {
	r := in.Spec.Retried
	if !IsUnderWay(in) {
		r.Attempts = in.countAttempts()
	}
	var at time.Time
	for _, f := range failed {
		at = later(at, f.Placed)
	}
	if all {
		r.All = later(r.All, at)
		for _, single := range r.Tasks { // order-free: a maximum; tasks that are tried again already stay so
			r.All = later(r.All, single)
		}
		r.Tasks = nil
		return r
	}
	if r.Tasks = maps.Clone(r.Tasks); r.Tasks == nil {
		r.Tasks = map[string]time.Time{}
	}
	for _, f := range failed {
		r.Tasks[cluster.RetriedTask(f.Step, f.Index)] = at
	}
	return r
}

// countAttempts returns how many attempts the tasks of the present run have had.
func (in *JobInput) countAttempts() (n int) {
	newest := map[cluster.TaskID]int{} // outcomes of earlier attempts may be gone
	for i := range in.Tasks {
		t := &in.Tasks[i]
		if parts, _ := t.id().Parts(); isOfRun(in.Spec, &parts) {
			newest[t.id()] = max(newest[t.id()], t.number())
		}
	}
	for _, number := range newest { // order-free: a sum
		n += number
	}
	for _, one := range in.Packed {
		if in.isPresent(one.Tasks) {
			n += one.Tasks.Count()
		}
	}
	return n
}
