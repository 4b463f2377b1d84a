package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// backoff is the range of delays between attempts of a failing task.
type backoff struct{ first, limit time.Duration }

// jobBackoff returns the back-off of all jobs.
func jobBackoff() backoff { return backoff{FirstDelay, MaxJobDelay} }

// reschedule is a service's reschedule policy with defaults applied.
type reschedule struct {
	backoff
	maxFailures int // within the window, 0 for no limit
	window      time.Duration
	since       time.Time // attempts that ended before do not count
}

func newReschedule(spec *cluster.Service) reschedule {
	r := spec.Reschedule
	return reschedule{
		backoff: backoff{
			time.Duration(cmp.Or(r.Delay, cluster.DefaultRescheduleDelay)),
			time.Duration(cmp.Or(r.MaxDelay, cluster.DefaultRescheduleMax)),
		},
		maxFailures: r.Limit, window: time.Duration(cmp.Or(r.Window, cluster.DefaultRescheduleWindow)),
		since: spec.Updated,
	}
}

// keptOutcomes returns the number of outcomes that are kept for each task.
func (r *reschedule) keptOutcomes() int { return max(KeptOutcomes, r.maxFailures) }

// endedByItself reports whether an attempt ended without an order to stop and without the loss of its node.
func endedByItself(o *cluster.Outcome) bool {
	return o.State == cluster.StateFailed || o.State == cluster.StateRejected || o.State == cluster.StateSucceeded
}

// givenUp explains that the task failed too often and is not tried again until its service changes; empty otherwise.
// The result does not depend on the present time: a task that is given up stays so.
func (r *reschedule) givenUp(s *slot) string {
	t := s.newest()
	if r.maxFailures == 0 || t == nil || s.live() || !endedByItself(t.Outcome) {
		return ""
	}
	var ends []time.Time
	for _, t := range s.attempts {
		if o := t.Outcome; o != nil && endedByItself(o) && o.Ended.After(r.since) {
			ends = append(ends, o.Ended)
		}
	}
	if len(ends) < r.maxFailures || ends[len(ends)-1].Sub(ends[len(ends)-r.maxFailures]) >= r.window {
		return ""
	}
	return fmt.Sprintf("%s failed %s within %s%s; restart or change the service to try again", s.id,
		times(r.maxFailures), cluster.Duration(r.window), because(t.Outcome.Message))
}

// penalizedNodes returns the ordered nodes on which attempts of the task failed, or caused memory pressure, within the
// window.
func (r *reschedule) penalizedNodes(s *slot, now time.Time) []string {
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
