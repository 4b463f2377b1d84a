package reconciler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// budget is the number of healthy tasks that a service may lose by voluntary stops (P5). The record of a stop is its
// charge: a committed stop stays charged without a time limit until the attempt has its outcome. The reason is that a
// task counts as healthy only by a live attempt that is known to be healthy and has no stop (P5.3, P5.4). A new leader
// finds all charges in the records.
//
// A task that must not live twice cannot move without a time in which it does not run. To empty nodes, such a service
// goes one task below the wanted count, and no further (see spareAbove).
//
// An agent that requests a permit lets its task continue until it has one. So the decision on another permit counts
// such a task like one without a stop. Otherwise two healthy tasks that both have a stop would block each other where
// nothing can begin before one has ended: a daemon's node has no place for another task.
type budget struct {
	healthy, least int
	wanted         int
	// countsAsHealthy reports whether a task is healthy and no mandatory stop ends it now.
	countsAsHealthy func(*slot) bool
	// awaitingPermit are tasks that would count without their stop, and that continue until their agent has the permit
	// that it requests.
	awaitingPermit map[*slot]bool
	// unconfirmed reports whether a task would count if this leader had a report of its node.
	unconfirmed func(*slot) bool
	// grantsAll grants every stop. ignoresCharges does not charge granted stops. Both are for tests (clause.Permit,
	// clause.ChargeHeld).
	grantsAll, ignoresCharges bool
}

// newBudget counts the healthy tasks of all generations, each once. The minimum of the service's update policy holds
// for rollouts, drains, scaling down and all other moves. A daemon's tasks count only on its counted nodes.
func (p *plan) newBudget(spec *cluster.Service, roll *rollout, all []*slot) budget {
	b := budget{
		awaitingPermit: map[*slot]bool{}, countsAsHealthy: p.countsAsHealthy, unconfirmed: p.unconfirmed,
		grantsAll:      p.without.Off(clause.Permit),
		ignoresCharges: p.without.Off(clause.ChargeHeld),
	}
	if spec == nil {
		return b
	}
	if roll != nil {
		b.wanted, b.least = roll.n, roll.limits.MinHealthy
		if roll.nodes != nil {
			b.countsAsHealthy = func(s *slot) bool { return roll.belongs(s) && p.countsAsHealthy(s) }
		}
	}
	for _, s := range all {
		switch {
		case b.countsAsHealthy(s):
			b.healthy++
		case slices.ContainsFunc(s.attempts, p.awaitsPermit) && (roll == nil || roll.nodes == nil || roll.belongs(s)):
			b.awaitingPermit[s] = true
		}
	}
	return b
}

// limits returns the service's update policy as numbers for a count of tasks.
func (p *plan) limits(spec *cluster.Service, count int) cluster.Limits {
	d := p.definitions(spec.Definition)
	return spec.Update.Limits(count, d != nil && d.Pinned())
}

// countsAsHealthy reports whether a task has a healthy attempt that the drain of its node does not end now.
func (p *plan) countsAsHealthy(s *slot) bool {
	return slices.ContainsFunc(s.attempts, func(t *Task) bool {
		if t.stopped() && p.without.Off(clause.ChargeHeld) {
			return t.live() && t.Absence == watcher.Present && t.Observed.Healthy()
		}
		return p.confirmedHealthy(t)
	})
}

// confirmedHealthy reports whether the attempt's node reported to this leader that it is healthy, and the drain of the
// node does not end it now. Reports to an earlier leader are no evidence for giving up another task.
func (p *plan) confirmedHealthy(t *Task) bool {
	return t.Reported && t.healthy() && (t.Drain == nil || !p.drainEnds(t.Drain))
}

// awaitsPermit reports whether the attempt has a stop and continues until its agent's request for a permit is answered.
// Its node reported to this leader that it is healthy.
func (p *plan) awaitsPermit(t *Task) bool {
	return t.mayNotStopYet() && t.openPermitRequest() != "" && t.Reported && t.Absence == watcher.Present &&
		t.Observed.Healthy() && !p.drainEndsNow(t)
}

// unconfirmed reports whether a task may be healthy on a node that has not reported to this leader yet. It does not
// count in favour of others, but its own stop needs the budget.
func (p *plan) unconfirmed(s *slot) bool {
	return !p.countsAsHealthy(s) && slices.ContainsFunc(s.attempts, func(t *Task) bool {
		return t.healthy() && !t.Reported && !p.drainEndsNow(t)
	})
}

// grant reports whether a task may be given up, and charges it. A task that is not healthy has nothing to lose.
func (b *budget) grant(s *slot) bool {
	switch {
	case b.grantsAll, b.ignoresCharges && s.hasStop():
		return true
	case !b.countsAsHealthy(s):
		return !b.unconfirmed(s) || b.healthy >= b.least
	case b.healthy > b.least:
		b.healthy--
		return true
	}
	return false
}

// healthyWithout returns how many tasks are healthy without the given one: those that count, and those that await a
// permit.
func (b *budget) healthyWithout(s *slot) int {
	n := b.healthy + len(b.awaitingPermit)
	if b.awaitingPermit[s] {
		n--
	}
	return n
}

// spareAbove returns how many healthy tasks may be given up until only least are left.
func (b *budget) spareAbove(least int) int {
	if b.grantsAll {
		return b.healthy
	}
	return max(0, b.healthy-least)
}

// text says how many tasks are healthy and how many have to stay so.
func (b *budget) text(least int) string {
	return fmt.Sprintf("%d/%d healthy, min_healthy is %d", b.healthy, b.wanted, least)
}

// leastWhileMoving returns how many tasks must be healthy while a task moves that must not live twice.
func (b *budget) leastWhileMoving() int { return min(b.least, max(0, b.wanted-1)) }

// grantStops chooses the unwanted tasks that stop now: older generations first, then the highest index of the newest.
// The others continue until enough tasks are healthy without them.
func (b *budget) grantStops(unwanted []*slot) map[*slot]bool {
	order := slices.Clone(unwanted)
	slices.SortStableFunc(order, func(x, y *slot) int {
		return cmp.Or(cmp.Compare(x.parts.Generation, y.parts.Generation), -cmp.Compare(x.parts.Index, y.parts.Index))
	})
	granted := make(map[*slot]bool, len(order))
	for _, s := range order {
		granted[s] = b.grant(s)
	}
	return granted
}

// describeUnwanted describes the unwanted tasks that continue for now, as the end of a sentence.
func describeUnwanted(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s to be stopped once enough others are healthy", countedTasks(n))
}
