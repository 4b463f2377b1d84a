package attempt

import (
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// Renew ends a round whose containers all run, so that the next one begins at once with what is new: the attempt goes
// on, and nothing of it counts as a failure or against the limit of restarts. It reports false, and changes nothing,
// where the round is over, where the attempt has to stop, and for a batch attempt, which is never begun again for it.
func (r *Record) Renew(round int, why string) bool {
	if r.Round != round || !r.IsUp() || r.stop() != nil || r.Desired.Stop != nil || r.Desired.Batch() {
		return false
	}
	r.Renewal = why
	r.endRound(Ending{Cause: lifecycle.CauseRenewal, Container: -1, Problem: why})
	return true
}

// renewed begins the next round of an attempt whose last one was ended by Renew.
func (r *Record) renewed(now Now) {
	r.Phase, r.NotBefore = PhaseBackoff, now.Boot
	r.Note = "starts again: " + r.Ending.Problem
}
