package reconciler

import "time"

// ClockHold is how long, after the leader's wall clock was set, no time is over that began before. The clock may be
// wrong, and be set right again within this time.
const ClockHold = 10 * time.Minute

// endOf returns the end of a time that counts from a stored time. What happens then cannot be undone. So the end is at
// least ClockHold after ClockSet, or the whole time after ClockSet if it is shorter than ClockHold.
func (p *plan) endOf(start time.Time, length time.Duration) time.Time {
	return p.held(start.Add(length), length)
}

// held returns the end of a time of the length, or the end of the hold if that is later.
func (p *plan) held(end time.Time, length time.Duration) time.Time {
	if p.clockSet.IsZero() {
		return end
	}
	return later(end, p.clockSet.Add(min(max(0, length), ClockHold)))
}

// nextAttemptAt returns the time from which the next attempt of the slot may be placed. If the last attempt ended later
// than now, the clock of that time was ahead, and the delay counts from ClockSet.
func (p *plan) nextAttemptAt(s *slot, delay backoff) time.Time {
	at := s.nextAttemptAt(delay)
	if at.IsZero() || p.clockSet.IsZero() {
		return at
	}
	if ended := s.newest().Outcome.Ended; ended.After(p.now) {
		return p.clockSet.Add(at.Sub(ended))
	}
	return at
}
