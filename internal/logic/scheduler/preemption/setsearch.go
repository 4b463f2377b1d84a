package preemption

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Limits of search steps: of a call of Preempt, and of the search on one node.
const (
	maxSteps     = 1 << 19
	maxNodeSteps = 1 << 11
)

// unit is victims that end together: a single one, or the members of a gang on all nodes.
type unit struct {
	price
	frees      amounts // on this node
	freedShare uint64  // freed amounts that are short, as shares of the node added up
	members    []int32
}

// setSearch finds the cheapest set of victims on a node for a task class by branch and bound. It tries each highest
// priority from the lowest. At each level it first spares the most expensive unit and then ends it, and continues with
// the next unit.
type setSearch struct {
	p           *preempt
	c           *taskclass.Class
	maxPriority int  // of victims
	onlyAmounts bool // room alone decides, nothing else
	isMonotonic bool // ending more victims never makes a node infeasible
	devices     int64

	slot     int32
	units    []unit
	prefixes []unitPrefix // by number of units
	chosen   []int32
	found    bool
	best     price
	set      []int32 // indices of units
	steps    int
}

// unitPrefix sums up the first units.
type unitPrefix struct {
	frees, maxFrees amounts // in all; by one unit at most
	least           price   // lower bound of one unit
}

func (s *setSearch) begin(p *preempt, c *taskclass.Class, maxPriority int) {
	*s = setSearch{
		p: p, c: c, maxPriority: maxPriority,
		units: s.units[:0], prefixes: s.prefixes[:0], chosen: s.chosen[:0],
	}
	s.onlyAmounts = c.AsksOnlyRoom() || p.victims.hasNoRelated() && len(c.Devices.Requests) == 0 && !c.Ports.Any()
	s.isMonotonic = !c.Revives
	for i := range c.Devices.Requests {
		if c.Devices.Requests[i].Share == 0 {
			s.devices += int64(c.Devices.Requests[i].Count)
		}
	}
}

// cheapest finds the cheapest victims of a node; ok is false if none suffice.
func (s *setSearch) cheapest(slot int32) (r nodeCost, ok bool) {
	s.slot = slot
	if s.p.isExcluded(s.c, slot) {
		return r, false
	}
	short := s.shortage(slot)
	s.makeUnits(short)
	for end := 1; end <= len(s.units); end++ {
		if end < len(s.units) && s.units[end].highest == s.units[end-1].highest {
			continue
		}
		if s.searchLevel(end, short) {
			r = nodeCost{price: s.best, exact: true, slot: slot}
			for _, u := range s.set {
				r.victims = append(r.victims, s.units[u].members...)
			}
			r.rank = s.p.victims.rankWithout(s.c, slot, r.victims)
			return r, true
		}
	}
	return r, false
}

// makeUnits makes the units of the node, ordered by priority, then by what they free, the most first.
func (s *setSearch) makeUnits(short amounts) {
	p, list := s.p, s.p.victims.on(s.slot)
	s.units = s.units[:0]
	for i, n := range list {
		v := &p.victims.list[n]
		switch {
		case v.gone, v.Priority > s.maxPriority, v.owner >= 0 && p.victims.spare[v.owner] < 1:
			continue
		case v.gang < 0:
			s.units = append(s.units,
				unit{price: price{v.Priority, v.Priority, 1}, frees: s.freed(v), members: list[i : i+1]})
		case !slices.ContainsFunc(list[:i], func(o int32) bool { return p.victims.list[o].gang == v.gang }):
			if u, ok := s.gangUnit(p.victims.gangs[v.gang]); ok {
				s.units = append(s.units, u)
			}
		}
	}
	has := p.Nodes.Load(s.slot).Capacity
	all := amountsOf(has, s.devices)
	for i := range s.units {
		u := &s.units[i]
		for r, a := range u.frees {
			if short[r] > 0 {
				u.freedShare += index.Share(a, all[r])
			}
		}
	}
	slices.SortFunc(s.units, func(a, b unit) int {
		if d := cmp.Or(cmp.Compare(a.highest, b.highest), cmp.Compare(b.freedShare, a.freedShare)); d != 0 {
			return d
		}
		return strings.Compare(p.victims.list[a.members[0]].UUID, p.victims.list[b.members[0]].UUID)
	})
	s.prefixes = append(s.prefixes[:0], unitPrefix{})
	for i := range s.units {
		u, r := &s.units[i], s.prefixes[i]
		r.frees = r.frees.plus(u.frees)
		for k := range r.maxFrees {
			r.maxFrees[k] = max(r.maxFrees[k], u.frees[k])
		}
		if i == 0 {
			r.least = u.price
		} else {
			r.least.sum, r.least.count = min(r.least.sum, u.sum), min(r.least.count, u.count)
		}
		s.prefixes = append(s.prefixes, r)
	}
}

// gangUnit returns the unit of a gang; ok is false if the gang may not end.
func (s *setSearch) gangUnit(members []int32) (u unit, ok bool) {
	u.highest = s.p.victims.list[members[0]].Priority
	for _, n := range members {
		v := &s.p.victims.list[n]
		if v.gone {
			continue
		}
		if v.Priority > s.maxPriority {
			return u, false
		}
		u.price = u.price.add(price{v.Priority, v.Priority, 1})
		if v.slot == s.slot {
			u.frees = u.frees.plus(s.freed(v))
		}
		u.members = append(u.members, n)
	}
	return u, len(u.members) > 0 && s.p.victims.ownersCanSpare(u.members)
}

// searchLevel searches the first units, and reports whether it found victims.
func (s *setSearch) searchLevel(end int, short amounts) bool {
	if short.less(s.prefixes[end].frees) != (amounts{}) {
		return false
	}
	s.found = false
	possible := s.reprieve(end, short)
	if s.found && s.best.count == 1 || !possible || s.p.steps <= 0 {
		return s.found
	}
	s.steps = min(maxNodeSteps, s.p.steps)
	s.p.steps -= s.steps
	s.chosen = s.chosen[:0]
	s.branch(end, price{}, short)
	s.p.steps += max(s.steps, 0)
	return s.found
}

// reprieve starts with all units and spares one after the other that is not needed, the most expensive first. A set
// that it finds has no superfluous victim. It returns whether a set may exist.
func (s *setSearch) reprieve(end int, short amounts) (possible bool) {
	set, freed := make([]int32, end), s.prefixes[end].frees
	for i := range set {
		set[i] = int32(i)
	}
	s.chargeUnits(set, -1)
	if !s.fits() {
		s.chargeUnits(set, 1)
		return !s.isMonotonic
	}
	for _, u := range set {
		s.p.victims.chargeOwners(s.units[u].members, 1)
	}
	for _, first := range []bool{true, false} { // first those whose owners would lose too many
		for i := len(set) - 1; i >= 0 && len(set) > 1; i-- {
			u := &s.units[set[i]]
			if first && s.p.victims.ownersWithinBound(u.members) {
				continue
			}
			left := freed.minus(u.frees)
			if short.less(left) != (amounts{}) {
				continue
			}
			one := set[i : i+1 : i+1]
			s.chargeUnits(one, 1)
			if !s.fits() {
				s.chargeUnits(one, -1)
				continue
			}
			freed = left
			s.p.victims.chargeOwners(u.members, -1)
			set = slices.Delete(set, i, i+1)
		}
	}
	s.chargeUnits(set, 1)
	s.found = true
	for _, u := range set {
		s.found = s.found && s.p.victims.ownersWithinBound(s.units[u].members)
	}
	for _, u := range set {
		s.p.victims.chargeOwners(s.units[u].members, -1)
	}
	if s.found {
		s.setBest(set)
	}
	return true
}

// setBest makes a set of units the best.
func (s *setSearch) setBest(set []int32) {
	s.set, s.best = append(s.set[:0], set...), price{}
	for _, u := range set {
		s.best = s.best.add(s.units[u].price)
	}
}

// branch tries the first units together with the chosen ones.
func (s *setSearch) branch(first int, cost price, short amounts) {
	s.steps--
	if s.steps < 0 {
		return
	}
	if short == (amounts{}) && len(s.chosen) > 0 && s.fitsWithout(0) {
		if !s.found || s.isCheaper(cost) {
			s.found = true
			s.setBest(s.chosen)
		}
		return
	}
	r := &s.prefixes[first]
	if first == 0 || short.less(r.frees) != (amounts{}) {
		return
	}
	if more := max(minCount(short, r.maxFrees), 1); s.found &&
		!s.isCheaper(price{sum: cost.sum + more*r.least.sum, count: cost.count + more*r.least.count}) {
		return
	}
	last := int32(first - 1)
	u := &s.units[last]
	if !s.isMonotonic || s.fitsWithout(first-1) {
		s.branch(first-1, cost, short)
	}
	s.p.victims.chargeOwners(u.members, 1)
	if s.p.victims.ownersWithinBound(u.members) {
		s.chosen = append(s.chosen, last)
		s.branch(first-1, cost.add(u.price), short.less(u.frees))
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
	s.p.victims.chargeOwners(u.members, -1)
}

// isCheaper reports whether a price is below the best, given the same highest priority.
func (s *setSearch) isCheaper(a price) bool {
	return cmp.Or(cmp.Compare(a.sum, s.best.sum), cmp.Compare(a.count, s.best.count)) < 0
}

// fitsWithout reports whether the class fits without the chosen units and the first units.
func (s *setSearch) fitsWithout(first int) bool {
	if s.onlyAmounts {
		return true // the caller checked the amounts
	}
	set := s.chosen
	for i := range first {
		set = append(set, int32(i))
	}
	s.steps -= len(set)
	s.chargeUnits(set, -1)
	ok := s.fits()
	s.chargeUnits(set, 1)
	return ok
}

// fits reports whether the node is feasible; the caller checks the amounts.
func (s *setSearch) fits() bool {
	if s.onlyAmounts {
		return true
	}
	code, _ := s.p.Eval.LoadRefusal(s.c, s.slot)
	return code == ""
}

// chargeUnits removes units from the node with -1, or restores them with 1. It does nothing if only amounts count.
func (s *setSearch) chargeUnits(set []int32, sign int) {
	if s.onlyAmounts {
		return
	}
	for _, u := range set {
		for _, n := range s.units[u].members {
			s.p.victims.charge(n, sign, s.c)
		}
	}
}
