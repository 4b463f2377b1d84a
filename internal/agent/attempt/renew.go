package attempt

import "github.com/berthd/berth/internal/logic/lifecycle"

// Renew ends a round whose containers all run, so that the next round begins without delay with new content. The
// renewal is no failure and does not count against the limit of restarts. Renew returns false and changes nothing in
// three cases: the round is over, the attempt has to stop, or it is a batch attempt.
func (r *Record) Renew(round int, why string) bool {
	if r.Round != round || !r.IsUp() || r.stop() != nil || r.Desired.Stop != nil || r.Desired.Batch() {
		return false
	}
	r.Renewal = why
	endRound(r, Ending{Cause: lifecycle.CauseRenewal, Container: -1, Problem: why})
	return true
}
