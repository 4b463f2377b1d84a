package reconciler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// budget is how many healthy tasks a service may lose by stops that could as well wait (P5). The record of a stop is
// the permit: what the leader commits it has granted, and it stays charged without a time limit, until the attempt has
// its outcome, for a task is healthy only by an attempt that lives, is known to be well, and was not told to stop
// (P5.3, P5.4). A new leader finds all charges in the records.
//
// A task of which two must not live at once cannot move without a time in which none does: to empty nodes, such a
// service goes one below what is wanted, and no further (see spare).
//
// An agent that asks for a permit says with that that its task goes on until it has one. So, when another permit is
// weighed, what asks counts like what was not told to stop. Else of two tasks that were told to stop, and that run
// well, neither might end where nothing can begin before one has: a daemon's node has no place for another task.
type budget struct {
	healthy, least int
	wanted         int
	// counts reports whether a task is healthy and nothing that must happen takes that away now.
	counts func(*slot) bool
	// asking are the tasks that would count had they not been told to stop, and that go on until their agent has the
	// permit it asks for.
	asking map[*slot]bool
	// doubtful reports whether a task would count if its node had been heard by this leader.
	doubtful func(*slot) bool
	// open grants everything, and forgetful what was granted already is not charged; for tests (clause.Permit,
	// clause.ChargeHeld).
	open, forgetful bool
}

// newBudget counts the healthy tasks of all generations, each once. The least is that of the service's update policy:
// one for rollouts, drains, scaling down and whatever else moves tasks. A daemon's tasks count where they belong.
func (p *plan) newBudget(spec *cluster.Service, roll *rollout, all []*slot) budget {
	b := budget{
		asking: map[*slot]bool{}, counts: p.counts, doubtful: p.doubtful, open: p.without.Off(clause.Permit),
		forgetful: p.without.Off(clause.ChargeHeld),
	}
	if spec == nil {
		return b
	}
	if roll != nil {
		b.wanted, b.least = roll.n, roll.limits.Least
		if roll.nodes != nil {
			b.counts = func(s *slot) bool { return roll.belongs(s) && p.counts(s) }
		}
	}
	for _, s := range all {
		switch {
		case b.counts(s):
			b.healthy++
		case slices.ContainsFunc(s.attempts, p.awaits) && (roll == nil || roll.nodes == nil || roll.belongs(s)):
			b.asking[s] = true
		}
	}
	return b
}

// limits returns the service's update policy in numbers, for a count of tasks.
func (p *plan) limits(spec *cluster.Service, count int) cluster.Limits {
	d := p.definitions(spec.Definition)
	return spec.Update.Limits(count, d != nil && d.Pinned())
}

// counts reports whether a task is healthy by an attempt that the drain of its node does not end now.
func (p *plan) counts(s *slot) bool {
	return slices.ContainsFunc(s.attempts, func(t *Task) bool {
		if t.stopped() && p.without.Off(clause.ChargeHeld) {
			return t.live() && t.Absence == watcher.Present && t.Observed.Healthy()
		}
		return p.stays(t)
	})
}

// stays reports whether the attempt is healthy, by what its node told this leader, and the drain of its node does not
// end it now. What an earlier leader heard last is no evidence that something may be given up for it.
func (p *plan) stays(t *Task) bool {
	return t.Reported && t.healthy() && (t.Drain == nil || !p.passed(t.Drain))
}

// awaits reports whether the attempt is healthy, by what its node told this leader, and was told to stop, and goes on
// until it is answered: its agent asks for a permit that was not given.
func (p *plan) awaits(t *Task) bool {
	return t.wished() && t.asks() != "" && t.Reported && t.Absence == watcher.Present && t.Observed.Healthy() &&
		!p.mustEnd(t)
}

// doubtful reports whether a task may well be healthy, but its node was not heard by this leader yet: it counts for no
// other one, and has something to lose itself.
func (p *plan) doubtful(s *slot) bool {
	return !p.counts(s) && slices.ContainsFunc(s.attempts, func(t *Task) bool {
		return t.healthy() && !t.Reported && !p.mustEnd(t)
	})
}

// grant reports whether a task may be given up. One that is not healthy has nothing to lose.
func (b *budget) grant(s *slot) bool {
	switch {
	case b.open, b.forgetful && s.told():
		return true
	case !b.counts(s):
		return !b.doubtful(s) || b.healthy >= b.least
	case b.healthy > b.least:
		b.healthy--
		return true
	}
	return false
}

// without is how many are healthy without the task, which is not one that counts: those that count, and those that ask.
func (b *budget) without(s *slot) int {
	n := b.healthy + len(b.asking)
	if b.asking[s] {
		n--
	}
	return n
}

// spare is how many healthy tasks may be given up until only so many are left.
func (b *budget) spare(least int) int {
	if b.open {
		return b.healthy
	}
	return max(0, b.healthy-least)
}

// apart is how many are to be healthy while a task moves of which two must not live at once.
func (b *budget) apart() int { return min(b.least, max(0, b.wanted-1)) }

// granted picks those of the unwanted tasks that are given up now: of older generations first, of the newest the
// highest index. The others go on until enough are healthy without them.
func (b *budget) granted(unwanted []*slot) map[*slot]bool {
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

// linger says how many unwanted tasks go on for now.
func linger(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s no longer wanted and %s stopped once enough others are healthy", tasksAre(n, "is", "are"),
		are(n))
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
