package services

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// renewals are the restarts of one task for changes of services.
type renewals struct {
	due    time.Duration // when the next restart is due, 0 for none (Boot)
	round  int           // the round that the restart ends
	last   time.Duration // when the last restart was, 0 for never (Boot)
	streak int
}

// plan returns how long to wait before the restart of a round, at most 0 once it is due.
func (r *renewals) plan(round int, splay, now time.Duration) time.Duration {
	if r.due == 0 || r.round != round {
		r.round, r.due = round, now+splay
		if rest := min(minRenewalInterval<<min(r.streak, 10), maxRenewalInterval); r.last != 0 {
			r.due = max(r.due, r.last+rest)
		}
	}
	return r.due - now
}

// noteRestart records that a restart was requested.
func (r *renewals) noteRestart(now time.Duration) {
	if r.last != 0 && now-r.last < 2*maxRenewalInterval {
		r.streak++
	} else {
		r.streak = 0
	}
	r.last, r.due = now, 0
}

// splay is how long a task waits before it restarts for a change, so that the tasks of a service restart one after the
// other.
func splay(d *cluster.Desired) time.Duration {
	parts, _ := d.Task.Parts()
	count := max(d.Count, 1)
	all := min(splayStep.Seconds()*float64(count-1), maxSplay.Seconds())
	return time.Duration(all * float64(parts.Index%count) / float64(count) * float64(time.Second))
}
