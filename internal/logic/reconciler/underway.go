package reconciler

import "slices"

// IsUnderWay reports whether the present run of a job has begun and not ended, so that it has its place in its
// concurrency group. It reads Spec, Tasks and Packed of the input.
//
// A job whose tasks all had ended when the user tried failed ones again has to begin again: its place may be taken.
func IsUnderWay(in JobInput) bool {
	return in.Spec != nil && !in.Spec.Deleted && in.hasBegun() && !StatusOfJob(in).State.Ended()
}

// hasBegun reports whether a task of the run was placed since the user last had tasks tried again, or ran then.
func (in *JobInput) hasBegun() bool {
	retried := in.Spec.Retried.All
	for _, at := range in.Spec.Retried.Tasks { // order-free: a maximum
		retried = later(retried, at)
	}
	ranSince := func(t *Task) bool {
		parts, _ := t.id().Parts()
		o := t.Outcome
		return parts.Generation == in.Spec.Generation &&
			(o == nil || o.Ended.After(retried) || placedAt(o).After(retried))
	}
	for i := range in.Tasks {
		if ranSince(&in.Tasks[i]) {
			return true
		}
	}
	return slices.ContainsFunc(in.Packed, func(one Packed) bool {
		return in.isPresent(one.Tasks) && (one.Tasks.Unreadable || one.Tasks.LastEnded.After(retried))
	})
}
