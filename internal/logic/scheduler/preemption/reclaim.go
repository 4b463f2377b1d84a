package preemption

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// reclaim finds tasks of jobs that end for a task which stays within the quota of its own cluster, because their
// clusters hold more than theirs. Their priority does not count. A set of victims on a node is found so: the newest
// victim that suffices alone, else victims from the newest to the oldest until the task fits, less those that are not
// needed then, the oldest first.
type reclaim struct {
	*preempt
	borrowed []borrowedOn // by name of the node
	found    map[reclaimKey][]reclaimCost
}

// borrowedOn is the victims of one node whose clusters hold more than their quotas, the newest first. A gang is one of
// them.
type borrowedOn struct {
	slot  int32
	units []borrowedUnit
}

// borrowedUnit is victims that end together.
type borrowedUnit struct {
	members  []int32
	holdings []*admission.Holding
	started  time.Time // the latest of the members; zero if one has not started
}

// reclaimKey is what the victims for a task depend on, besides the nodes and the loans.
type reclaimKey struct {
	class   *taskclass.Class
	cluster string
	beyond  bool // see admission.Loans.Claims
}

// reclaimCost is the victims of one node, as found when the node had the stamp. They stay right while the loans become
// less.
type reclaimCost struct {
	known, possible bool
	stamp           int32
	victims         []int32
	holdings        []*admission.Holding
	oldest          time.Time // start of the oldest; zero if none has started
	rank            rank.Rank
}

// newReclaim lists the victims that borrowed.
func newReclaim(p *preempt) reclaim {
	r := reclaim{preempt: p, found: map[reclaimKey][]reclaimCost{}}
	if p.victims.loans.IsEmpty() {
		return r
	}
	at := map[int32]int{} // by slot
	for n := range p.victims.list {
		v := &p.victims.list[n]
		if v.gone || v.holding == nil || v.holding.Job == "" {
			continue
		}
		i, known := at[v.slot]
		if !known {
			i = len(r.borrowed)
			at[v.slot] = i
			r.borrowed = append(r.borrowed, borrowedOn{slot: v.slot})
		}
		members := []int32{int32(n)}
		if v.gang >= 0 {
			members = p.victims.gangs[v.gang]
			known := func(u borrowedUnit) bool { return u.members[0] == members[0] }
			if slices.ContainsFunc(r.borrowed[i].units, known) {
				continue
			}
		}
		if u, ok := r.unit(members); ok {
			r.borrowed[i].units = append(r.borrowed[i].units, u)
		}
	}
	for i := range r.borrowed {
		slices.SortFunc(r.borrowed[i].units, func(a, b borrowedUnit) int {
			return cmp.Or(compareNewest(a.started, b.started),
				strings.Compare(p.victims.list[a.members[0]].UUID, p.victims.list[b.members[0]].UUID))
		})
	}
	names := p.Nodes.Fleet.Names.Order
	slices.SortFunc(r.borrowed, func(a, b borrowedOn) int { return cmp.Compare(names[a.slot], names[b.slot]) })
	return r
}

// compareNewest orders attempts by the times of their starts, the newest first. A zero time is an attempt that has not
// started.
func compareNewest(a, b time.Time) int {
	switch {
	case a.IsZero() || b.IsZero():
		return cmp.Compare(zeroLast(a), zeroLast(b))
	default:
		return b.Compare(a)
	}
}

func zeroLast(at time.Time) int {
	if at.IsZero() {
		return 0
	}
	return 1
}

// unit returns victims that end together; ok is false if one of them may not.
func (r *reclaim) unit(members []int32) (u borrowedUnit, ok bool) {
	u.members = members
	for i, n := range members {
		v := &r.victims.list[n]
		if v.holding == nil || v.holding.Job == "" {
			return u, false
		}
		u.holdings = append(u.holdings, v.holding)
		if i == 0 || compareNewest(v.started, u.started) < 0 {
			u.started = v.started
		}
	}
	return u, true
}

// choose returns the best node for the task at a position: with the fewest victims, then with the newest ones, then the
// node of the best rank. Victims that leave their clusters the quota come before all others.
func (r *reclaim) choose(position int32) (best nodeCost, found bool) {
	if len(r.borrowed) == 0 {
		return best, false
	}
	c, task := r.Classes.At[position], r.Classes.Task(position)
	r.sets.begin(r.preempt, c, cycle.HighestVictim(task, r.minPriorityGap))
	for _, beyond := range []bool{false, true} {
		if b := r.chooseOf(c, task, beyond); b != nil {
			return *b, true
		}
	}
	return best, false
}

func (r *reclaim) chooseOf(c *taskclass.Class, task *cluster.Pending, beyond bool) *nodeCost {
	key := reclaimKey{c, task.Owner.Cluster, beyond}
	costs := r.found[key]
	if costs == nil || isVolatile(c) {
		costs = make([]reclaimCost, len(r.borrowed))
		r.found[key] = costs
	}
	at := -1
	for i := range r.borrowed {
		cost, slot := &costs[i], r.borrowed[i].slot
		if !cost.known || cost.stamp != r.victims.stamp[slot] ||
			cost.possible && !r.victims.loans.Claims(task, cost.holdings, beyond) {
			if r.steps <= 0 {
				continue
			}
			*cost = r.search(&r.borrowed[i], c, task, beyond)
		}
		if cost.possible && (at < 0 || cost.compare(&costs[at]) < 0) {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	return &nodeCost{slot: r.borrowed[at].slot, victims: costs[at].victims, rank: costs[at].rank, reclaims: true}
}

// compare orders nodes by their victims.
func (a *reclaimCost) compare(b *reclaimCost) int {
	if d := cmp.Or(cmp.Compare(len(a.victims), len(b.victims)), compareNewest(a.oldest, b.oldest)); d != 0 {
		return d
	}
	switch {
	case a.rank.Less(b.rank):
		return -1
	case b.rank.Less(a.rank):
		return 1
	}
	return 0
}

// search finds the victims on a node for a task.
func (r *reclaim) search(on *borrowedOn, c *taskclass.Class, task *cluster.Pending, beyond bool) (cost reclaimCost) {
	slot := on.slot
	cost.known, cost.stamp = true, r.victims.stamp[slot]
	r.steps--
	if !r.isCurable(c, slot) || r.isExcluded(c, slot) {
		return cost
	}
	var claimed, chosen []borrowedUnit // claimed alone; and together
	var all amounts
	for _, u := range on.units {
		if !r.victims.list[u.members[0]].gone && r.victims.loans.Claims(task, u.holdings, beyond) {
			claimed = append(claimed, u)
			all = all.plus(r.freedBy(&u, slot))
		}
	}
	short := r.sets.shortage(slot)
	if short.less(all) != (amounts{}) {
		return cost
	}
	for i := range claimed {
		u := &claimed[i]
		if short.less(r.freedBy(u, slot)) == (amounts{}) && r.fitsAfter(c, slot, claimed[i:i+1]) {
			chosen = claimed[i : i+1]
			break
		}
	}
	if chosen == nil {
		chosen = r.collect(claimed, c, slot, task, beyond)
	}
	if len(chosen) == 0 {
		return cost
	}
	for i := range chosen {
		cost.victims = append(cost.victims, chosen[i].members...)
		cost.holdings = append(cost.holdings, chosen[i].holdings...)
		if i == 0 || compareNewest(cost.oldest, chosen[i].started) < 0 {
			cost.oldest = chosen[i].started
		}
	}
	cost.possible, cost.rank = true, r.victims.rankWithout(c, slot, cost.victims)
	return cost
}

// collecting tries sets of units, those with the newest ones first, until the class fits.
type collecting struct {
	*reclaim
	c       *taskclass.Class
	task    *cluster.Pending
	slot    int32
	beyond  bool
	claimed []borrowedUnit
	rest    []amounts // by number of units: what those from there on free
	steps   int
}

// collect returns units whose end makes the class fit, less those that are not needed, or nothing. It takes the first
// set in the order of the units.
func (r *reclaim) collect(claimed []borrowedUnit, c *taskclass.Class, slot int32, task *cluster.Pending,
	beyond bool,
) (chosen []borrowedUnit) {
	t := collecting{r, c, task, slot, beyond, claimed, make([]amounts, len(claimed)+1), maxNodeSteps}
	for i := len(claimed) - 1; i >= 0; i-- {
		t.rest[i] = t.rest[i+1].plus(r.freedBy(&claimed[i], slot))
	}
	chosen = t.from(0, nil, nil, r.sets.shortage(slot))
	for i := len(chosen) - 2; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(chosen), i, i+1); r.fitsAfter(c, slot, without) {
			chosen = without
		}
	}
	return chosen
}

// from continues with the units from a number on; short is what the node lacks after the chosen ones.
func (t *collecting) from(next int, chosen []borrowedUnit, holdings []*admission.Holding, short amounts,
) (set []borrowedUnit) {
	if len(chosen) > 0 && short == (amounts{}) && t.fitsAfter(t.c, t.slot, chosen) {
		return slices.Clone(chosen)
	}
	t.steps--
	t.reclaim.steps--
	if next == len(t.claimed) || t.steps <= 0 || short.less(t.rest[next]) != (amounts{}) {
		return nil
	}
	u := &t.claimed[next]
	if more := slices.Concat(holdings, u.holdings); t.victims.loans.Claims(t.task, more, t.beyond) {
		set = t.from(next+1, append(chosen, *u), more, short.less(t.freedBy(u, t.slot)))
	}
	if set == nil {
		set = t.from(next+1, chosen, holdings, short)
	}
	return set
}

// freedBy returns what a unit's end frees on a node, at most.
func (r *reclaim) freedBy(u *borrowedUnit, slot int32) (a amounts) {
	for _, n := range u.members {
		if v := &r.victims.list[n]; v.slot == slot && !v.gone {
			a = a.plus(r.sets.freed(v))
		}
	}
	return a
}

// fitsAfter reports whether the class fits on a node after units have ended.
func (r *reclaim) fitsAfter(c *taskclass.Class, slot int32, units []borrowedUnit) bool {
	r.charge(units, -1, c)
	defer r.charge(units, 1, c)
	if r.sets.shortage(slot) != (amounts{}) {
		return false
	}
	code, _ := r.Eval.LoadRefusal(c, slot)
	return code == ""
}

func (r *reclaim) charge(units []borrowedUnit, sign int, c *taskclass.Class) {
	for i := range units {
		r.steps -= len(units[i].members)
		for _, n := range units[i].members {
			if !r.victims.list[n].gone {
				r.victims.charge(n, sign, c)
			}
		}
	}
}

// forget drops what was found. Loans that grow again make more possible.
func (r *reclaim) forget() { clear(r.found) }
