package sim

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// checkJobGroup checks, when the first task of a job's run is placed, that the jobs of its concurrency group which have
// begun and not ended leave a place.
func (v *lifecycleChecker) checkJobGroup(a *attemptHistory) {
	parts, _ := a.task.Parts()
	j, step := v.stepOf(parts)
	if step == nil || j.Concurrency == nil || v.hasBegun(j, a) {
		return
	}
	others := 0
	for key := range v.records { // order-free: counted
		if o := v.groupMember(key, j); o != nil && v.isUnderWay(o) {
			others++
		}
	}
	if others >= j.Concurrency.Limit {
		v.breach("job-group", "%s/%d was placed while %d jobs of its group had begun and not ended, and %d may",
			a.task, a.number, others, j.Concurrency.Limit)
	}
}

// groupMember returns the job of a key if it is another one of a job's concurrency group, or nil.
func (v *lifecycleChecker) groupMember(key string, j *cluster.Job) *cluster.Job {
	name, ok := strings.CutPrefix(key, "job/"+j.Cluster+"/")
	if !ok || name == j.Name {
		return nil
	}
	o, err := store.Decode[cluster.Job](v.records[key].Value)
	if err != nil || o.Concurrency == nil || o.Concurrency.Group != j.Concurrency.Group {
		return nil
	}
	return o
}

// isUnderWay reports whether a job surely has begun and not ended: an attempt of its run is placed, or all attempts
// have succeeded and a task that must run after them has none.
func (v *lifecycleChecker) isUnderWay(j *cluster.Job) bool {
	if j.Deleted || j.Cancelled {
		return false
	}
	begun, missing := false, false
	for i := range j.Steps {
		for n := range j.Steps[i].Count {
			attempts := v.tasks[cluster.JobTask(j.Cluster, j.Name, j.Generation, j.Steps[i].Name, n)]
			missing = missing || len(attempts) == 0
			for a := range attempts { // order-free: any decides
				switch {
				case a.isPlaced():
					return true
				case a.outcome == nil || a.outcome.State != cluster.StateSucceeded:
					return false // it may have failed
				}
				begun = true
			}
		}
	}
	return begun && missing && !slices.ContainsFunc(j.Steps, func(s cluster.Step) bool { return s.Gang != nil })
}
