package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
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

// search finds the cheapest set of victims on a node for a task class by branch and bound. It tries each highest
// priority from the lowest. At each level it first spares the most expensive unit and then ends it, and goes on with
// the next unit.
type search struct {
	p           *preempt
	c           *taskClass
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

func (s *search) begin(p *preempt, c *taskClass, priority int) {
	*s = search{
		p: p, c: c, maxPriority: priority - p.minPriorityGap,
		units: s.units[:0], prefixes: s.prefixes[:0], chosen: s.chosen[:0],
	}
	s.onlyAmounts = p.simple(c) || p.hasNoRelated() && len(c.requests)+len(c.fixed)+c.auto == 0
	s.isMonotonic = !c.revives
	for i := range c.requests {
		if c.requests[i].Share == 0 {
			s.devices += int64(c.requests[i].Count)
		}
	}
}

// wantsDevice reports whether a device suits one of the requests for whole devices.
func (s *search) wantsDevice(d *cluster.Device) bool {
	for i := range s.c.requests {
		if r := &s.c.requests[i]; r.Share == 0 && suits(r, d) {
			return true
		}
	}
	return false
}

// shortage returns the amounts that the node lacks for the class.
func (s *search) shortage(slot int32) (a amounts) {
	l, d := s.p.load(slot), s.c.demand
	if d.CPU > 0 {
		a[0] = max(int64(l.used.CPU+d.CPU-l.capacity.CPU), 0)
	}
	if d.Memory > 0 {
		a[1] = max(int64(l.used.Memory+d.Memory-l.capacity.Memory), 0)
	}
	if d.Disk > 0 {
		a[2] = max(int64(l.used.Disk+d.Disk-l.capacity.Disk), 0)
	}
	if s.devices > 0 {
		a[3] = s.devices
		used, list := s.p.devicesOf(slot), s.p.node(slot).Devices
		for i := range list {
			if _, taken := used.find(list[i].ID); !taken && s.wantsDevice(&list[i]) {
				a[3]--
			}
		}
		a[3] = max(a[3], 0)
	}
	return a
}

// freed returns an upper bound of what a victim's end frees.
func (s *search) freed(v *victim) amounts {
	if s.devices == 0 {
		return amountsOf(v.frees, 0)
	}
	return amountsOf(v.frees, v.devices)
}

// lowerBound returns a lower bound of the victims' price, and the level that covers the shortage; nil if no level does.
func (s *search) lowerBound(slot int32, short amounts) (least price, level *freeableLevel) {
	levels := s.p.freeableLevels(slot)
	for i := range levels {
		l := &levels[i]
		if l.priority > s.maxPriority {
			break
		}
		if short.less(l.frees) == (amounts{}) {
			least.highest, least.count = l.priority, max(minCount(short, l.maxFrees), 1)
			if least.count == 1 && !s.oneSuffices(slot, short, l.priority) {
				least.count = 2
			}
			least.sum = least.highest + (least.count-1)*max(levels[0].priority, 0)
			return least, l
		}
	}
	return least, nil
}

// oneSuffices reports whether one victim of at most that priority frees enough.
func (s *search) oneSuffices(slot int32, short amounts, priority int) bool {
	for _, n := range s.p.victimsOn(slot) {
		v := &s.p.victims[n]
		if v.Priority > priority {
			return false
		}
		if !v.gone && short.less(amountsOf(v.frees, v.devices)) == (amounts{}) {
			return true
		}
	}
	return false
}

// minCount returns a lower bound of the number of victims, if one frees no more than most.
func minCount(short, most amounts) (count int) {
	for i, a := range short {
		if a > 0 {
			count = max(count, int((a+most[i]-1)/max(most[i], 1)))
		}
	}
	return count
}

// cheapest finds the cheapest victims of a node; ok is false if none suffice.
func (s *search) cheapest(slot int32) (r nodeCost, ok bool) {
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
			r.rank = s.p.rankWithout(s.c, slot, r.victims)
			return r, true
		}
	}
	return r, false
}

// makeUnits makes the units of the node, ordered by priority, then by what they free, the most first.
func (s *search) makeUnits(short amounts) {
	p, list := s.p, s.p.victimsOn(s.slot)
	s.units = s.units[:0]
	for i, n := range list {
		v := &p.victims[n]
		switch {
		case v.gone, v.Priority > s.maxPriority, v.owner >= 0 && p.spare[v.owner] < 1:
			continue
		case v.gang < 0:
			s.units = append(s.units,
				unit{price: price{v.Priority, v.Priority, 1}, frees: s.freed(v), members: list[i : i+1]})
		case !slices.ContainsFunc(list[:i], func(o int32) bool { return p.victims[o].gang == v.gang }):
			if u, ok := s.gangUnit(p.gangs[v.gang]); ok {
				s.units = append(s.units, u)
			}
		}
	}
	has := p.load(s.slot).capacity
	all := amountsOf(has, s.devices)
	for i := range s.units {
		u := &s.units[i]
		for r, a := range u.frees {
			if short[r] > 0 {
				u.freedShare += share(a, all[r])
			}
		}
	}
	slices.SortFunc(s.units, func(a, b unit) int {
		if d := cmp.Or(cmp.Compare(a.highest, b.highest), cmp.Compare(b.freedShare, a.freedShare)); d != 0 {
			return d
		}
		return strings.Compare(p.victims[a.members[0]].UUID, p.victims[b.members[0]].UUID)
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
func (s *search) gangUnit(members []int32) (u unit, ok bool) {
	u.highest = s.p.victims[members[0]].Priority
	for _, n := range members {
		v := &s.p.victims[n]
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
	return u, len(u.members) > 0 && s.p.ownersCanSpare(u.members)
}

// searchLevel searches the first units, and reports whether it found victims.
func (s *search) searchLevel(end int, short amounts) bool {
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
func (s *search) reprieve(end int, short amounts) (possible bool) {
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
		s.chargeOwners(s.units[u].members, 1)
	}
	for _, first := range []bool{true, false} { // first those whose owners would lose too many
		for i := len(set) - 1; i >= 0 && len(set) > 1; i-- {
			u := &s.units[set[i]]
			if first && s.ownersWithinBound(u.members) {
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
			s.chargeOwners(u.members, -1)
			set = slices.Delete(set, i, i+1)
		}
	}
	s.chargeUnits(set, 1)
	s.found = true
	for _, u := range set {
		s.found = s.found && s.ownersWithinBound(s.units[u].members)
	}
	for _, u := range set {
		s.chargeOwners(s.units[u].members, -1)
	}
	if s.found {
		s.setBest(set)
	}
	return true
}

// setBest makes a set of units the best.
func (s *search) setBest(set []int32) {
	s.set, s.best = append(s.set[:0], set...), price{}
	for _, u := range set {
		s.best = s.best.add(s.units[u].price)
	}
}

// branch tries the first units together with the chosen ones.
func (s *search) branch(first int, cost price, short amounts) {
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
	s.chargeOwners(u.members, 1)
	if s.ownersWithinBound(u.members) {
		s.chosen = append(s.chosen, last)
		s.branch(first-1, cost.add(u.price), short.less(u.frees))
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
	s.chargeOwners(u.members, -1)
}

// isCheaper reports whether a price is below the best, given the same highest priority.
func (s *search) isCheaper(a price) bool {
	return cmp.Or(cmp.Compare(a.sum, s.best.sum), cmp.Compare(a.count, s.best.count)) < 0
}

// fitsWithout reports whether the class fits without the chosen units and the first units.
func (s *search) fitsWithout(first int) bool {
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
func (s *search) fits() bool {
	if s.onlyAmounts {
		return true
	}
	code, _ := s.p.loadRefusal(s.c, s.slot)
	return code == ""
}

// chargeUnits removes units from the node with -1, or restores them with 1. It does nothing if only amounts count.
func (s *search) chargeUnits(set []int32, sign int) {
	if s.onlyAmounts {
		return
	}
	for _, u := range set {
		for _, n := range s.units[u].members {
			s.p.chargeVictim(n, sign, s.c)
		}
	}
}

// chargeOwners charges victims to their owners with 1, or takes that back with -1.
func (s *search) chargeOwners(members []int32, sign int) {
	for _, n := range members {
		if o := s.p.victims[n].owner; o >= 0 {
			s.p.spare[o] -= sign
		}
	}
}

// ownersWithinBound reports whether the owners of victims lose no more than they can spare, by the present charges.
func (s *search) ownersWithinBound(members []int32) bool {
	return !slices.ContainsFunc(members, func(n int32) bool {
		o := s.p.victims[n].owner
		return o >= 0 && s.p.spare[o] < 0
	})
}
