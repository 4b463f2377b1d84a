package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// backoff is how long a task waits after attempts that failed for good.
type backoff struct{ first, limit time.Duration }

// jobBackoff is that of all jobs.
func jobBackoff() backoff { return backoff{FirstDelay, MaxJobDelay} }

// reschedule is the policy of a service in numbers.
type reschedule struct {
	backoff
	most   int // attempts within the window, 0 for no limit
	window time.Duration
	since  time.Time // what ended before does not count
}

func newReschedule(spec *cluster.Service) reschedule {
	r := spec.Reschedule
	return reschedule{
		backoff: backoff{
			time.Duration(cmp.Or(r.Delay, cluster.DefaultRescheduleDelay)),
			time.Duration(cmp.Or(r.MaxDelay, cluster.DefaultRescheduleMax)),
		},
		most: r.Limit, window: time.Duration(cmp.Or(r.Window, cluster.DefaultRescheduleWindow)), since: spec.Updated,
	}
}

// kept is how many outcomes of a task have to be remembered.
func (r *reschedule) kept() int { return max(KeptOutcomes, r.most) }

// bad reports whether an attempt ended for good and not because somebody wanted it to, or because its node was lost.
func bad(o *cluster.Outcome) bool {
	return o.State == cluster.StateFailed || o.State == cluster.StateRejected || o.State == cluster.StateSucceeded
}

// spent says that the task failed too often and is given up, until its service changes; empty if it is not. It
// does not depend on how long ago that was: what is given up stays so.
func (r *reschedule) spent(s *slot) string {
	t := s.newest()
	if r.most == 0 || t == nil || s.live() || !bad(t.Outcome) {
		return ""
	}
	var ends []time.Time
	for _, t := range s.attempts {
		if o := t.Outcome; o != nil && bad(o) && o.Ended.After(r.since) {
			ends = append(ends, o.Ended)
		}
	}
	if len(ends) < r.most || ends[len(ends)-1].Sub(ends[len(ends)-r.most]) >= r.window {
		return ""
	}
	return fmt.Sprintf("%s is given up: it failed %s within %s%s; restart or change the service to try again", s.id,
		times(r.most),
		cluster.Duration(r.window), because(t.Outcome.Message))
}

// shun returns the nodes where attempts of the task failed, or where it was in the way, within the window, ordered.
func (r *reschedule) shun(s *slot, now time.Time) []string {
	var nodes []string
	for _, t := range s.attempts {
		o := t.Outcome
		if o == nil || now.Sub(o.Ended) >= r.window {
			continue
		}
		if o.State == cluster.StateFailed || o.State == cluster.StateRejected || o.Reason == cluster.ReasonPressure {
			nodes = append(nodes, o.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
