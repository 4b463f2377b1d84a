package scheduler

import (
	"math"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// best returns the best node for a task of the class, or -1 if all refuse it.
//
// There are two ways to it, which find the same. A class of few tasks searches the trees: most nodes stand out in
// nothing and have the order that their tree has; the few that stand out are looked at one by one. A class of many
// tasks looks at every node once and keeps a ranking, as then most nodes come to stand out.
func (y *cycle) best(c *class) int32 {
	y.renew(c)
	if c.full && (!c.revives || c.fullAt == len(y.touched)) {
		return -1
	}
	y.ready(c)
	var best int32
	if slots, few := y.candidates(c); few {
		best = y.bestOf(c, slots)
	} else {
		if !c.visited && y.many(c) {
			if c.group.apart {
				y.count(c.group)
			}
			if !c.dynamic && !c.joins {
				c.ranking = y.rank(c)
			}
		}
		if c.ranking != nil {
			y.refresh(c)
			best = c.ranking.best()
		} else {
			best = y.search(c)
		}
		c.visited = true
	}
	if c.full = best < 0; c.full {
		c.fullAt = len(y.touched)
	}
	return best
}

// ready prepares the class for its first turn.
func (y *cycle) ready(c *class) {
	if c.settled {
		return
	}
	c.settled = true
	if c.group.apart {
		y.gather(c.group)
	}
	y.settle(c)
}

// many reports whether a ranking is less work than to search the trees for each task of the class. A search may come by
// all nodes where tasks of the group are, before it finds one without, and looks at each node class; a ranking looks at
// each node once.
func (y *cycle) many(c *class) bool {
	if y.opts.ranking != 0 {
		return y.opts.ranking > 0
	}
	if c.each {
		return c.left > 1
	}
	near := 0
	if c.group.apart {
		near = c.group.size() + c.left
	}
	return c.left > 1 && c.left*(2*near+len(c.sieve.takes)+16) > y.fleet.names.count
}

// bestOf returns the best of some nodes, or -1.
func (y *cycle) bestOf(c *class, slots []int32) int32 {
	best := block{slot: -1}
	for _, slot := range slots {
		best = y.judge(c, slot, best)
	}
	return best.slot
}

// judge returns the better of a node and the best of others.
func (y *cycle) judge(c *class, slot int32, best block) block {
	if !y.takes(c, slot) {
		return best
	}
	return y.better(best, block{rank: y.rankOf(c, slot), slot: slot})
}

// takes reports whether the node does not refuse the class.
func (y *cycle) takes(c *class, slot int32) bool {
	l := y.load(slot)
	s := y.sieveOf(c)
	if l.class < 0 || !s.passes[l.class] || !y.meets(s, slot) || c.Only != "" && c.Only != y.node(slot).Name ||
		slices.Contains(c.avoided, slot) {
		return false
	}
	code, _ := y.lacks(c, slot)
	return code == ""
}

// seek is a search of the trees for one task.
type seek struct {
	query
	y     *cycle
	c     *class
	level int32 // how many tasks of the group the node has, where that counts
	image int   // how many of the class's images the node has at least; what is more is found by another search
	next  int32 // the least of it above level that was come by, -1 if none was
}

// search finds the best node in the trees. Those nodes that stand out are looked at one by one.
func (y *cycle) search(c *class) int32 {
	best := block{slot: -1}
	if c.each {
		for _, class := range c.sieve.takes {
			y.visit(y.fleet.catalog.trees[byFill][class].page, func(slot int32) { best = y.judge(c, slot, best) })
		}
		return best.slot
	}
	s := seek{query: query{need: c.need}, y: y, c: c}
	if y.picky(c) {
		s.suit = s.plain
	}
	if c.floors == nil && c.affinity == cluster.AntiAffinityPrefer {
		c.floors = make([]int32, len(y.fleet.catalog.classes))
	}
	best = y.searchClasses(c, &s)
	for _, slot := range c.shunned {
		best = y.judge(c, slot, best)
	}
	for _, slot := range c.odd {
		best = y.judge(c, slot, best)
	}
	for slot := range c.outstanding {
		best = y.judge(c, slot, best)
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.Required && t.table == nil {
			for slot := range t.nodes { // order-free: the best is taken
				best = y.judge(c, slot, best)
			}
		}
	}
	if !c.commonImages {
		for slot := range c.withImages {
			best = y.judge(c, slot, best)
		}
	}
	return best.slot
}

// searchClasses searches the node classes, those that the wishes say the most for first.
func (y *cycle) searchClasses(c *class, s *seek) block {
	best, shelved := block{slot: -1}, y.some[:0]
	devised := len(c.requests) > 0 || c.priced
	if !c.wishes { // all are equal
		for _, class := range c.sieve.takes {
			if devised && y.devised(c, class) {
				shelved = append(shelved, class)
			} else {
				best = y.searchClass(s, class, emptyTier, best)
			}
		}
		y.some = shelved
		return y.searchShelves(c, shelved, best)
	}
	tiers, low := y.tiers[:0], uint64(math.MaxUint64)
	for _, class := range c.sieve.takes {
		tier := y.classTier(c, class)
		tiers, low = append(tiers, tier), min(low, tier)
	}
	for _, first := range []bool{true, false} {
		for i, class := range c.sieve.takes {
			switch {
			case (tiers[i] == low) != first:
			case devised && y.devised(c, class):
				shelved = append(shelved, class)
			case best.slot < 0 || tiers[i] <= best.rank.tier:
				best = y.searchClass(s, class, tiers[i], best)
			}
		}
	}
	y.some, y.tiers = shelved, tiers
	return y.searchShelves(c, shelved, best)
}

// searchClass returns the better of the best node of a class that does not stand out, and the best of others. Where
// tasks of the group count it looks at the nodes with the fewest of them first.
func (y *cycle) searchClass(s *seek, class int32, tier uint64, best block) block {
	c := s.c
	if c.dynamic && c.closed(class) || c.deviceless != nil && c.deviceless[class] {
		return best
	}
	if c.floors == nil {
		if best.slot >= 0 && tier > best.rank.tier {
			return best
		}
		return y.find(s, class, tier, best)
	}
	for c.floors[class] >= 0 {
		s.level, s.next = c.floors[class], -1
		near := tier + uint64(min(s.level, mostNear))<<nearShift
		if best.slot >= 0 && near > best.rank.tier {
			return best
		}
		found := y.find(s, class, near, best)
		if found != best || best.slot >= 0 && near == best.rank.tier { // the latter would come second
			return found
		}
		c.floors[class] = s.next // as a cycle only takes, that stays so
	}
	return best
}

// picky reports whether nodes of which enough is free may still refuse the class, or stand out.
func (y *cycle) picky(c *class) bool {
	return c.group.apart && (c.group.counts != nil || c.group.size() > 0) ||
		len(c.fixed)+c.auto+len(c.avoided)+len(c.shunned)+len(c.sieve.named)+len(c.odd)+
			len(c.images)+len(c.requests)+len(c.distincts)+len(c.spreads)+len(c.relations)+len(c.guards) > 0
}

// plain reports whether the node, of which enough is free, takes the class and stands out in nothing but in how many of
// the group it has, and has as many of them as are looked for.
func (s *seek) plain(slot int32) bool {
	y, c := s.y, s.c
	if s.image > 0 && c.present(slot) < s.image {
		return false
	}
	if slices.Contains(c.avoided, slot) || slices.Contains(c.shunned, slot) || slices.Contains(c.odd, slot) ||
		c.standsOut(slot) || !y.meets(c.sieve, slot) {
		return false
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.Required && t.table == nil && t.nodes[slot] > 0 {
			return false
		}
	}
	if code, _ := y.breaks(c, slot); code != "" {
		return false
	}
	if y.lacksDevices(c, slot) {
		return false
	}
	if code, _ := y.lacksPorts(c, slot); code != "" {
		return false
	}
	if c.affinity == cluster.AntiAffinityNone {
		return true
	}
	near := c.group.near(slot)
	if c.affinity == cluster.AntiAffinityDemand {
		return near == 0
	}
	if near > s.level && (s.next < 0 || near < s.next) {
		s.next = near
	}
	return near == s.level
}

// find returns the better of the best node of a class in the trees, which is of that tier, and the best of others.
func (y *cycle) find(s *seek, class int32, tier uint64, best block) block {
	images := 0
	if s.c.commonImages {
		images = len(s.c.images)
	}
	for s.image = 0; s.image <= images; s.image++ {
		if s.c.strategy == cluster.StrategyWhole {
			best = y.findBalanced(s, class, tier, best)
		} else {
			best = y.findFill(s, class, tier, best)
		}
	}
	return best
}

// findFill is find for nodes that have so many of the images or more, which count as having that many.
func (y *cycle) findFill(s *seek, class int32, tier uint64, best block) block {
	c := s.c
	worth := c.imageWorth(s.image)
	more := y.shapeShares(c.demand)[y.fleet.catalog.classes[class].shape]
	t := y.tree(byFill, class)
	if t.page == nil || !s.fits(t.most) {
		return best
	}
	low, high := uint64(0), uint64(math.MaxUint64)
	if best.slot >= 0 && tier == best.rank.tier { // what cannot be better need not be looked at
		adds := more.fill() << taskBits
		if c.strategy == cluster.StrategySpread {
			if adds += c.imageWorth(len(c.images)) - worth; best.rank.fill < adds {
				return best
			}
			high = best.rank.fill - adds
		} else if least := 1<<levelShift - 1 - best.rank.fill; least > adds+worth {
			low = least - adds - worth
		}
	}
	if t.high < low || t.low > high {
		return best
	}
	var en *entry
	if c.strategy == cluster.StrategySpread {
		en = s.lowest(t.page, low, high)
	} else {
		en = s.highest(t.page, low, high)
	}
	if en == nil {
		return best
	}
	return y.better(best, block{rank: rank{tier, y.fillOf(c, class, en.key, 0) - worth}, slot: en.slot})
}

// findBalanced is findFill for the strategy "whole": it goes away from the best balance step by step, to both sides.
func (y *cycle) findBalanced(s *seek, class int32, tier uint64, best block) block {
	t := y.tree(byBalance, class)
	if t.page == nil || !s.fits(t.most) {
		return best
	}
	zero := balanceZero - y.shapeShares(s.c.demand)[y.fleet.catalog.classes[class].shape].balance()
	low, high := int(t.low>>levelShift), int(t.high>>levelShift)
	for away := max(low-zero, zero-high, 0); away <= max(zero-low, high-zero); away++ {
		if best.slot >= 0 && tier == best.rank.tier && uint64(away) > best.rank.fill>>levelShift {
			return best
		}
		found := false
		for _, level := range []int{zero - away, zero + away} {
			if level < low || level > high {
				continue
			}
			if en := s.highest(t.page, uint64(level)<<levelShift, uint64(level+1)<<levelShift-1); en != nil {
				found = true
				best = y.better(best, block{rank{
					tier,
					y.fillOf(s.c, class, en.key&(1<<levelShift-1), en.key) - s.c.imageWorth(s.image),
				}, en.slot})
			}
		}
		if found {
			return best
		}
	}
	return best
}

// rank looks at every node and keeps the order: at most of them as the fleet has them, and again at those that the
// cycle changed or that stand out.
func (y *cycle) rank(c *class) *ranking {
	r := y.spareRanking()
	s := y.sieveOf(c)
	order := byFill
	if c.strategy == cluster.StrategyWhole {
		order = byBalance
	}
	each := c.each || len(c.requests)+len(c.fixed)+c.auto+len(s.named) > 0
	for _, class := range s.takes {
		y.rankPage(c, r, y.fleet.catalog.trees[order][class].page, class, each || y.prices(c, class))
	}
	again := func(slot int32) {
		r.ranks[slot] = refused()
		if y.takes(c, slot) {
			r.ranks[slot] = y.rankOf(c, slot)
		}
	}
	if !each {
		y.standOut(c, again)
	}
	r.play()
	c.seen, c.ranked = len(y.touched), y.leasts(c)
	return r
}

// leasts adds up how far the spreads over what nodes of one class differ in have come. When one gets further, nodes
// that refused may take the class again.
func (y *cycle) leasts(c *class) (sum int64) {
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && t.view.table == nil {
			sum += int64(y.leastOf(c, t))
		}
	}
	return sum
}

// standOut calls back for each node that may differ from how the fleet's trees have it, some more than once.
func (y *cycle) standOut(c *class, again func(slot int32)) {
	touched := y.touched
	if len(touched) > y.fleet.names.count/8 { // mostly the same again and again
		touched = nil
		for slot := range y.ownSlots {
			again(slot)
		}
	}
	for _, list := range [][]int32{touched, c.avoided, c.shunned, c.odd} {
		for _, slot := range list {
			again(slot)
		}
	}
	if c.group.apart {
		for slot := range c.group.nodes {
			again(slot)
		}
	}
	for slot := range c.withImages {
		again(slot)
	}
	for slot := range c.outstanding {
		again(slot)
	}
	for i := range c.relations {
		for slot := range c.relations[i].nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.guards {
		for slot := range c.guards[i].nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.distincts {
		for slot := range c.distincts[i].view.nodes { // order-free: each for itself
			again(slot)
		}
	}
}

// rankPage enters the nodes of a page of the fleet: each by all that counts, or by what the page says of it.
func (y *cycle) rankPage(c *class, r *ranking, p *page, class int32, each bool) {
	if p == nil {
		return
	}
	q, tier := query{need: c.need}, y.classTier(c, class)
	for i := range p.kids {
		y.rankPage(c, r, p.kids[i].page, class, each)
	}
	for i := range p.entries {
		switch en := &p.entries[i]; {
		case !each && q.fits(en.free):
			r.ranks[en.slot] = rank{tier, y.fillOf(c, class, en.key&(1<<levelShift-1), en.key)}
		case each && y.takes(c, en.slot):
			r.ranks[en.slot] = y.rankOf(c, en.slot)
		}
	}
}

// refresh brings a class's ranking up to what was placed since its last turn. A node that refused the
// class goes on to refuse it, as a cycle only takes, until a spread has come further.
func (y *cycle) refresh(c *class) {
	if y.leasts(c) != c.ranked {
		y.spareRank = append(y.spareRank, c.ranking)
		c.ranking = y.rank(c)
		return
	}
	for _, slot := range y.touched[c.seen:] {
		if c.ranking.ranks[slot] == refused() {
			continue
		}
		if code, _ := y.lacks(c, slot); code != "" {
			c.ranking.set(slot, refused())
		} else {
			c.ranking.set(slot, y.rankOf(c, slot))
		}
	}
	c.seen = len(y.touched)
}

func (y *cycle) spareRanking() *ranking {
	if last := len(y.spareRank) - 1; last >= 0 {
		r := y.spareRank[last]
		y.spareRank = y.spareRank[:last]
		r.clear()
		return r
	}
	return newRanking(len(y.fleet.slots), y.fleet.names.label)
}
