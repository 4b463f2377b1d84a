package fleet

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Run is the run of a job's attempt, which frees its room by itself.
type Run struct {
	Task    cluster.TaskID
	Slot    int32
	Started time.Time     // zero if it has not started
	Limit   time.Duration // 0 for no limit
}

// LongestLeft returns how long the run may still take by its limit: 0 if that has passed, and all of the limit if the
// run has not started. ok is false for a run without a limit.
func (r *Run) LongestLeft(now time.Time) (left time.Duration, ok bool) {
	switch {
	case r.Limit <= 0:
		return 0, false
	case r.Started.IsZero():
		return r.Limit, true
	}
	return max(r.Limit-now.Sub(r.Started), 0), true
}

// Begin notes when the attempt with a UUID started. An unknown UUID is no error.
func (f *Fleet) Begin(uuid string, at time.Time) {
	r, found := f.runs[uuid]
	if !found || r.Started.Equal(at) {
		return
	}
	held := f.held[uuid]
	r.Started, held.Started = at, at
	f.runs[uuid], f.held[uuid] = r, held
}

// Runs yields the runs of the attempts of jobs with their UUIDs, in no order. The caller must not change the fleet
// meanwhile.
func (f *Fleet) Runs(yield func(uuid string, r *Run) bool) {
	for uuid, r := range f.runs { // order-free: the caller sorts
		if !yield(uuid, &r) {
			return
		}
	}
}
