package reconciler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
)

// plan builds a decision.
type plan struct {
	Decision
	owner           cluster.OwnerRef
	definition      cluster.Ref          // of an attempt without a desired record
	disconnect      cluster.OnDisconnect // of a service, for an attempt without a desired record
	definitions     Definitions
	recovery        Recovery
	budget          budget      // of a service
	policy          *reschedule // of a service
	without         clause.Set
	now             time.Time
	clockSet        time.Time                  // see ServiceInput.ClockSet
	outcomes        map[*Task]*cluster.Outcome // that the decision writes
	reconnects      map[*slot]bool             // slots whose newest attempt goes on after its loss
	liveGenerations map[uint64]bool            // of a service: generations with a live or a wanted task
	requirements    map[*cluster.TaskDefinition]*requirements
}

func newPlan(owner cluster.OwnerRef, definitions Definitions, now time.Time) *plan {
	if definitions == nil {
		definitions = func(cluster.Ref) *cluster.TaskDefinition { return nil }
	}
	return &plan{
		owner: owner, definitions: definitions, now: now, outcomes: make(map[*Task]*cluster.Outcome),
		reconnects: make(map[*slot]bool),
	}
}

// requestAttempt requests the next attempt of a slot; see request.
func (p *plan) requestAttempt(s *slot, template cluster.Pending, requested time.Time, delay backoff) {
	if next, ok := p.request(s, template, requested, delay); ok {
		p.Pending = append(p.Pending, next)
	}
}

// request returns the request of the next attempt of a slot; false if an attempt is live or reconnects, or the back-off
// delay runs.
// The template holds the values that all tasks of a service or a step share. The owner requested the task at the given
// time.
func (p *plan) request(s *slot, template cluster.Pending, requested time.Time, delay backoff,
) (next cluster.Pending, ok bool) {
	if s.live() || p.reconnects[s] {
		return next, false
	}
	if p.policy != nil {
		if why := p.policy.givenUp(s); why != "" {
			p.noteWait(s.id, cluster.ReasonRescheduled, why)
			return next, false
		}
	}
	if at := p.nextAttemptAt(s, delay); at.After(p.now) {
		p.decideAgainAt(at)
		p.noteWait(s.id, cluster.ReasonRescheduled, fmt.Sprintf("%s %s%s%s; next attempt in %s", s.id,
			ended(s.newest().Outcome.State), laterAttempt(s.newest()), because(s.newest().Outcome.Message),
			cluster.Duration(max(at.Sub(p.now).Round(time.Second), time.Second))))
		return next, false
	}
	if next, ok = p.nextAttempt(s, template); ok {
		next.Since = later(next.Since, s.waitingSince(requested))
	}
	return next, ok
}

// nextAttempt returns the request for the slot's next attempt; false if its definition does not exist.
func (p *plan) nextAttempt(s *slot, template cluster.Pending) (cluster.Pending, bool) {
	d := p.definitions(template.Definition)
	if d == nil {
		p.Message = fmt.Sprintf("task definition %s does not exist", template.Definition)
		return cluster.Pending{}, false
	}
	next, ask := template, p.requirementsOf(d)
	next.Task, next.Attempt, next.Owner = s.id, s.nextNumber(), p.owner
	next.Demand, next.Ports, next.Devices = ask.demand, d.Ports, ask.devices
	next.Images, next.NeedsImage, next.Plain, next.Volumes = ask.images, ask.needsImage, ask.plain, ask.volumes
	next.Network = ask.network
	if ask.volumesPerTask {
		next.Volumes, next.Sticky = d.PinnedVolumes(p.owner, s.id), d.StickyVolumes(p.owner, s.id)
	}
	if len(ask.constraints) > 0 {
		next.Placement.Constraints = slices.Concat(next.Placement.Constraints, ask.constraints)
	}
	next.ExcludedNodes = s.nodesWithRecords()
	switch {
	case next.OnlyNode != "":
	case p.policy != nil:
		next.PenalizedNodes = p.policy.penalizedNodes(s, p.now)
	default:
		next.PenalizedNodes = s.rejectingNodes()
	}
	return next, true
}

// joinConstraints returns the placement with the constraints of the cluster in front.
func joinConstraints(own cluster.Placement, in *cluster.Cluster) cluster.Placement {
	if common := constraintsOf(in); len(common) > 0 {
		own.Constraints = slices.Concat(common, own.Constraints)
	}
	return own
}

func constraintsOf(c *cluster.Cluster) []cluster.Constraint {
	if c == nil {
		return nil
	}
	return c.Constraints
}
