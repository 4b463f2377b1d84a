package reconciler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
)

// plan is a decision in the making.
type plan struct {
	Decision
	owner       cluster.OwnerRef
	definition  cluster.Ref          // stands in for that of an attempt without a desired record
	disconnect  cluster.OnDisconnect // of a service: the same
	definitions Definitions
	recovery    Recovery
	budget      budget      // of a service
	policy      *reschedule // of a service
	without     clause.Set
	now         time.Time
	ended       map[*Task]*cluster.Outcome // what the decision writes of attempts
	lives       map[uint64]bool            // the generations of which a task lives, of a service
	asked       map[*cluster.TaskDefinition]*asks
}

func newPlan(owner cluster.OwnerRef, definitions Definitions, now time.Time) *plan {
	if definitions == nil {
		definitions = func(cluster.Ref) *cluster.TaskDefinition { return nil }
	}
	return &plan{owner: owner, definitions: definitions, now: now, ended: make(map[*Task]*cluster.Outcome)}
}

// pend asks for the next attempt of a slot, unless one lives, or it is too soon after a failure. The
// template holds what is the same for all tasks of a service or a step.
func (p *plan) pend(s *slot, template cluster.Pending, life cluster.Lifespan, delay backoff) {
	if s.live() {
		return
	}
	if p.policy != nil {
		if why := p.policy.spent(s); why != "" {
			p.hold(s.id, cluster.ReasonRescheduled, why)
			return
		}
	}
	if at := s.ready(delay); at.After(p.now) {
		p.look(at)
		p.hold(s.id, cluster.ReasonRescheduled, fmt.Sprintf("%s is tried again in %s: attempt %d %s%s", s.id,
			cluster.Duration(max(at.Sub(p.now).Round(time.Second), time.Second)), s.newest().number(),
			ended(s.newest().Outcome.State), because(s.newest().Outcome.Message)))
		return
	}
	if next, ok := p.next(s, template); ok {
		next.Since = s.since(life)
		p.Pending = append(p.Pending, next)
	}
}

// next returns what the slot's next attempt asks for; false if its definition does not exist.
func (p *plan) next(s *slot, template cluster.Pending) (cluster.Pending, bool) {
	d := p.definitions(template.Definition)
	if d == nil {
		p.Message = fmt.Sprintf("task definition %s does not exist", template.Definition)
		return cluster.Pending{}, false
	}
	next, ask := template, p.asksOf(d)
	next.Task, next.Attempt, next.Owner = s.id, s.next(), p.owner
	next.Demand, next.Ports, next.Devices = ask.demand, d.Ports, ask.devices
	next.Images, next.NeedsImage, next.Plain, next.Volumes = ask.images, ask.needsImage, ask.plain, ask.volumes
	next.Network = ask.network
	if ask.keyed {
		next.Volumes, next.Sticky = d.PinnedVolumes(p.owner, s.id), d.StickyVolumes(p.owner, s.id)
	}
	if len(ask.needs) > 0 {
		next.Placement.Constraints = slices.Concat(next.Placement.Constraints, ask.needs)
	}
	next.Avoid = s.avoid()
	if p.policy != nil && next.Only == "" {
		next.Shun = p.policy.shun(s, p.now)
	}
	return next, true
}

// joined returns the placement with the cluster's constraints in front.
func joined(own cluster.Placement, common []cluster.Constraint) cluster.Placement {
	if len(common) > 0 {
		own.Constraints = slices.Concat(common, own.Constraints)
	}
	return own
}
