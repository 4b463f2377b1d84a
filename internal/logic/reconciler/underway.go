package reconciler

import "slices"

// IsUnderWay reports whether the present run of a job has begun and not ended, so that it has its place in its
// concurrency group. It reads Spec, Tasks and Packed of the input.
//
// A job whose tasks all had ended when the user tried failed ones again has to begin again: its place may be taken.
func IsUnderWay(in JobInput) bool {
	return in.Spec != nil && !in.Spec.Deleted && in.hasBegun() && !StatusOfJob(in).State.Ended()
}

// hasBegun reports whether a task of the run is live, or an attempt was placed since the run last had to begin.
func (in *JobInput) hasBegun() bool {
	isLive := func(t Task) bool {
		parts, _ := t.id().Parts()
		return t.Outcome == nil && isOfRun(in.Spec, &parts)
	}
	return slices.ContainsFunc(in.Tasks, isLive) || in.countAttempts() > in.Spec.Retried.Attempts ||
		slices.ContainsFunc(in.Packed, func(one Packed) bool { return in.isPresent(one.Tasks) && one.Tasks.Unreadable })
}
