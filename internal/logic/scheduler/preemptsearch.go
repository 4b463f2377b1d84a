package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Bounds of the work: of a call of Preempt in all, and of the search on one node.
const (
	mostSteps     = 1 << 19
	mostNodeSteps = 1 << 11
)

// unit is victims of a node that end together: one, or those of a gang wherever they are.
type unit struct {
	price
	frees   amounts // on the node
	size    uint64  // the same, of what is short, in parts of the node
	members []int32
}

// search finds the cheapest victims of a node for a class of tasks: of all sets of them that would do, by branch and
// bound. For each highest priority, from the lowest, the dearest unit is first let live and then not, and so on with
// the next.
type search struct {
	p       *preempt
	c       *class
	most    int  // priority of victims
	plain   bool // nothing counts but amounts
	rising  bool // more victims never make a node worse
	devices int64

	slot   int32
	units  []unit
	rest   []rest // by number of units
	chosen []int32
	found  bool
	best   price
	set    []int32 // units
	steps  int
}

// rest sums up the first units.
type rest struct {
	frees, most amounts // in all, and what one frees at most
	least       price   // of one of them
}

func (s *search) begin(p *preempt, c *class, priority int) {
	*s = search{p: p, c: c, most: priority - p.least, units: s.units[:0], rest: s.rest[:0], chosen: s.chosen[:0]}
	s.plain, s.rising = p.simple(c) || p.settled() && len(c.requests)+len(c.fixed)+c.auto == 0, !c.revives
	for i := range c.requests {
		if c.requests[i].Share == 0 {
			s.devices += int64(c.requests[i].Count)
		}
	}
}

// wants reports whether a device would do for one of the requests for whole ones.
func (s *search) wants(d *cluster.Device) bool {
	for i := range s.c.requests {
		if r := &s.c.requests[i]; r.Share == 0 && does(r, d) {
			return true
		}
	}
	return false
}

// short returns by how much the node is short of what the class asks for.
func (s *search) short(slot int32) (a amounts) {
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
			if _, taken := used.find(list[i].ID); !taken && s.wants(&list[i]) {
				a[3]--
			}
		}
		a[3] = max(a[3], 0)
	}
	return a
}

// freed returns what the node has more without a victim, at most.
func (s *search) freed(v *victim) amounts {
	if s.devices == 0 {
		return amountsOf(v.frees, 0)
	}
	return amountsOf(v.frees, v.devices)
}

// least returns what victims cost at least, and of which level of the node's outlook the dearest is; nil where there
// are not enough.
func (s *search) least(slot int32, short amounts) (least price, level *outlookLevel) {
	levels := s.p.outlookOf(slot)
	for i := range levels {
		l := &levels[i]
		if l.priority > s.most {
			break
		}
		if short.less(l.frees) == (amounts{}) {
			least.highest, least.count = l.priority, max(atLeast(short, l.most), 1)
			if least.count == 1 && !s.one(slot, short, l.priority) {
				least.count = 2
			}
			least.sum = least.highest + (least.count-1)*max(levels[0].priority, 0)
			return least, l
		}
	}
	return least, nil
}

// one reports whether a victim of at most that priority would do alone.
func (s *search) one(slot int32, short amounts, priority int) bool {
	for _, n := range s.p.at(slot) {
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

// atLeast returns how many victims it takes at least, if none frees more than most.
func atLeast(short, most amounts) (count int) {
	for i, a := range short {
		if a > 0 {
			count = max(count, int((a+most[i]-1)/max(most[i], 1)))
		}
	}
	return count
}

// cheapest finds the cheapest victims of a node, or what it can do without any.
func (s *search) cheapest(slot int32) (r prospect, ok bool) {
	s.slot = slot
	if s.p.stays(s.c, slot) {
		return r, false
	}
	short := s.short(slot)
	s.gather(short)
	for end := 1; end <= len(s.units); end++ {
		if end < len(s.units) && s.units[end].highest == s.units[end-1].highest {
			continue
		}
		if s.level(end, short) {
			r = prospect{price: s.best, exact: true, slot: slot}
			for _, u := range s.set {
				r.victims = append(r.victims, s.units[u].members...)
			}
			r.rank = s.p.rankWithout(s.c, slot, r.victims)
			return r, true
		}
	}
	return r, false
}

// gather makes the units of the node, by priority; of equals that which frees more comes first.
func (s *search) gather(short amounts) {
	p, list := s.p, s.p.at(s.slot)
	s.units = s.units[:0]
	for i, n := range list {
		v := &p.victims[n]
		switch {
		case v.gone, v.Priority > s.most, v.owner >= 0 && p.spare[v.owner] < 1:
			continue
		case v.gang < 0:
			s.units = append(s.units,
				unit{price: price{v.Priority, v.Priority, 1}, frees: s.freed(v), members: list[i : i+1]})
		case !slices.ContainsFunc(list[:i], func(o int32) bool { return p.victims[o].gang == v.gang }):
			if u, ok := s.gang(p.gangs[v.gang]); ok {
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
				u.size += share(a, all[r])
			}
		}
	}
	slices.SortFunc(s.units, func(a, b unit) int {
		if d := cmp.Or(cmp.Compare(a.highest, b.highest), cmp.Compare(b.size, a.size)); d != 0 {
			return d
		}
		return strings.Compare(p.victims[a.members[0]].UUID, p.victims[b.members[0]].UUID)
	})
	s.rest = append(s.rest[:0], rest{})
	for i := range s.units {
		u, r := &s.units[i], s.rest[i]
		r.frees = r.frees.plus(u.frees)
		for k := range r.most {
			r.most[k] = max(r.most[k], u.frees[k])
		}
		if i == 0 {
			r.least = u.price
		} else {
			r.least.sum, r.least.count = min(r.least.sum, u.sum), min(r.least.count, u.count)
		}
		s.rest = append(s.rest, r)
	}
}

// gang returns the unit of a gang that may end.
func (s *search) gang(members []int32) (u unit, ok bool) {
	u.highest = s.p.victims[members[0]].Priority
	for _, n := range members {
		v := &s.p.victims[n]
		if v.gone {
			continue
		}
		if v.Priority > s.most {
			return u, false
		}
		u.price = u.price.add(price{v.Priority, v.Priority, 1})
		if v.slot == s.slot {
			u.frees = u.frees.plus(s.freed(v))
		}
		u.members = append(u.members, n)
	}
	return u, len(u.members) > 0 && s.p.may(u.members)
}

// level searches among the first units, and reports whether it found victims.
func (s *search) level(end int, short amounts) bool {
	if short.less(s.rest[end].frees) != (amounts{}) {
		return false
	}
	s.found = false
	possible := s.reprieve(end, short)
	if s.found && s.best.count == 1 || !possible || s.p.steps <= 0 {
		return s.found
	}
	s.steps = min(mostNodeSteps, s.p.steps)
	s.p.steps -= s.steps
	s.chosen = s.chosen[:0]
	s.descend(end, price{}, short)
	s.p.steps += max(s.steps, 0)
	return s.found
}

// reprieve begins with all of the units and lets one after the other live that is not needed, the dearest first. That
// finds a set without a superfluous one, if it finds any. It reports whether there may be one.
func (s *search) reprieve(end int, short amounts) (possible bool) {
	set, freed := make([]int32, end), s.rest[end].frees
	for i := range set {
		set[i] = int32(i)
	}
	s.takeOff(set, -1)
	if !s.fits() {
		s.takeOff(set, 1)
		return !s.rising
	}
	for _, u := range set {
		s.charge(s.units[u].members, 1)
	}
	for _, first := range []bool{true, false} { // first of those who may not lose so many
		for i := len(set) - 1; i >= 0 && len(set) > 1; i-- {
			u := &s.units[set[i]]
			if first && s.within(u.members) {
				continue
			}
			left := freed.minus(u.frees)
			if short.less(left) != (amounts{}) {
				continue
			}
			one := set[i : i+1 : i+1]
			s.takeOff(one, 1)
			if !s.fits() {
				s.takeOff(one, -1)
				continue
			}
			freed = left
			s.charge(u.members, -1)
			set = slices.Delete(set, i, i+1)
		}
	}
	s.takeOff(set, 1)
	s.found = true
	for _, u := range set {
		s.found = s.found && s.within(s.units[u].members)
	}
	for _, u := range set {
		s.charge(s.units[u].members, -1)
	}
	if s.found {
		s.keep(set)
	}
	return true
}

// keep makes a set of units the best.
func (s *search) keep(set []int32) {
	s.set, s.best = append(s.set[:0], set...), price{}
	for _, u := range set {
		s.best = s.best.add(s.units[u].price)
	}
}

// descend tries the first units with those that are chosen.
func (s *search) descend(first int, cost price, short amounts) {
	s.steps--
	if s.steps < 0 {
		return
	}
	if short == (amounts{}) && len(s.chosen) > 0 && s.would(0) {
		if !s.found || s.cheaper(cost) {
			s.found = true
			s.keep(s.chosen)
		}
		return
	}
	r := &s.rest[first]
	if first == 0 || short.less(r.frees) != (amounts{}) {
		return
	}
	if more := max(atLeast(short, r.most), 1); s.found &&
		!s.cheaper(price{sum: cost.sum + more*r.least.sum, count: cost.count + more*r.least.count}) {
		return
	}
	last := int32(first - 1)
	u := &s.units[last]
	if !s.rising || s.would(first-1) {
		s.descend(first-1, cost, short)
	}
	s.charge(u.members, 1)
	if s.within(u.members) {
		s.chosen = append(s.chosen, last)
		s.descend(first-1, cost.add(u.price), short.less(u.frees))
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
	s.charge(u.members, -1)
}

// cheaper reports whether a price is below that of the best, of one highest priority.
func (s *search) cheaper(a price) bool {
	return cmp.Or(cmp.Compare(a.sum, s.best.sum), cmp.Compare(a.count, s.best.count)) < 0
}

// would reports whether the class fits without what is chosen and the first units.
func (s *search) would(first int) bool {
	if s.plain {
		return true // the amounts were looked at
	}
	set := s.chosen
	for i := range first {
		set = append(set, int32(i))
	}
	s.steps -= len(set)
	s.takeOff(set, -1)
	ok := s.fits()
	s.takeOff(set, 1)
	return ok
}

// fits reports whether the node takes the class, when nothing is short of what is added up.
func (s *search) fits() bool {
	if s.plain {
		return true
	}
	code, _ := s.p.lacks(s.c, s.slot)
	return code == ""
}

// takeOff takes units off, with -1, or with 1 puts them back, where more than amounts counts.
func (s *search) takeOff(set []int32, sign int) {
	if s.plain {
		return
	}
	for _, u := range set {
		for _, n := range s.units[u].members {
			s.p.lift(n, sign, s.c)
		}
	}
}

// charge charges victims to their owners, or with -1 takes that back.
func (s *search) charge(members []int32, sign int) {
	for _, n := range members {
		if o := s.p.victims[n].owner; o >= 0 {
			s.p.spare[o] -= sign
		}
	}
}

// within reports whether the owners of victims lose no more than they can spare, by what is charged to them.
func (s *search) within(members []int32) bool {
	return !slices.ContainsFunc(members, func(n int32) bool {
		o := s.p.victims[n].owner
		return o >= 0 && s.p.spare[o] < 0
	})
}
