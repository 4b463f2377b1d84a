package scheduler

import (
	"math"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// best returns the best node for a task of the class, or -1 if all refuse it.
//
// It searches in one of two ways, with equal results. A small class searches the trees: most nodes have the order of
// their tree, and the few with individual scores are judged one by one. A large class ranks every node once and keeps
// the ranking: by its own placements most nodes get individual scores.
func (y *cycle) best(c *taskClass) int32 {
	y.forgetStale(c)
	if c.isFull && (!c.revives || c.fullAt == len(y.touched)) {
		return -1
	}
	y.prepare(c)
	var best int32
	if slots, few := y.namedNodes(c); few {
		best = y.bestOf(c, slots)
	} else {
		if !c.visited && y.prefersRanking(c) {
			if c.group.isCounted {
				y.makeCounts(c.group)
			}
			if !c.isDynamic && !c.joins {
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
	if c.isFull = best < 0; c.isFull {
		c.fullAt = len(y.touched)
	}
	return best
}

// prepare completes the class before its first turn.
func (y *cycle) prepare(c *taskClass) {
	if c.prepared {
		return
	}
	c.prepared = true
	if c.group.isCounted {
		y.findReserved(c.group)
	}
	y.prepareTerms(c)
}

// prefersRanking reports whether a ranking is less work than a tree search for each task of the class. A tree search
// looks at each node class, and may pass all nodes with tasks of the group before it finds one without. A ranking looks
// at each node once.
func (y *cycle) prefersRanking(c *taskClass) bool {
	if y.opts.ranking != 0 {
		return y.opts.ranking > 0
	}
	if c.scansAll {
		return c.left > 1
	}
	near := 0
	if c.group.isCounted {
		near = c.group.maxNodes() + c.left
	}
	return c.left > 1 && c.left*(2*near+len(c.filter.feasible)+16) > y.fleet.names.count
}

// bestOf returns the best of some nodes, or -1.
func (y *cycle) bestOf(c *taskClass, slots []int32) int32 {
	best := rankedNode{slot: -1}
	for _, slot := range slots {
		best = y.judge(c, slot, best)
	}
	return best.slot
}

// judge returns the better of best and the node, if the node is feasible.
func (y *cycle) judge(c *taskClass, slot int32, best rankedNode) rankedNode {
	if !y.isFeasible(c, slot) {
		return best
	}
	return y.better(best, rankedNode{rank: y.rankOf(c, slot), slot: slot})
}

// isFeasible reports whether the node does not refuse the class.
func (y *cycle) isFeasible(c *taskClass, slot int32) bool {
	l := y.load(slot)
	s := y.filterOf(c)
	if l.class < 0 || !s.isFeasible[l.class] || !y.meetsPerNode(s, slot) ||
		c.OnlyNode != "" && c.OnlyNode != y.node(slot).Name || slices.Contains(c.excluded, slot) {
		return false
	}
	code, _ := y.loadRefusal(c, slot)
	return code == ""
}

// treeSearch is a search of the trees for one task.
type treeSearch struct {
	query
	y              *cycle
	c              *taskClass
	groupTasks     int32 // wanted number of the group's tasks on the node, if it counts
	minImages      int   // least number of the class's images on the node; further searches want more
	nextGroupTasks int32 // least number above groupTasks that was met; -1 if none
}

// search finds the best node in the trees, and judges the nodes with individual scores one by one.
func (y *cycle) search(c *taskClass) int32 {
	best := rankedNode{slot: -1}
	if c.scansAll {
		for _, class := range c.filter.feasible {
			y.visit(y.fleet.catalog.trees[byFill][class].page, func(slot int32) { best = y.judge(c, slot, best) })
		}
		return best.slot
	}
	s := treeSearch{query: query{need: c.need}, y: y, c: c}
	if y.needsSuit(c) {
		s.suit = s.suits
	}
	if c.minGroupTasks == nil && c.affinity == cluster.AntiAffinityPrefer {
		c.minGroupTasks = make([]int32, len(y.fleet.catalog.classes))
	}
	best = y.searchClasses(c, &s)
	for _, slot := range c.penalized {
		best = y.judge(c, slot, best)
	}
	for _, slot := range c.affinityScored {
		best = y.judge(c, slot, best)
	}
	for slot := range c.spreadScored {
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

// searchClasses searches the node classes, those with the highest wish points first.
func (y *cycle) searchClasses(c *taskClass, s *treeSearch) rankedNode {
	best, deviceNodeClasses := rankedNode{slot: -1}, y.deviceNodeClasses[:0]
	devised := len(c.requests) > 0 || c.usesValueModel
	if !c.hasWishes { // all node classes are equal
		for _, class := range c.filter.feasible {
			if devised && y.searchedByDevices(c, class) {
				deviceNodeClasses = append(deviceNodeClasses, class)
			} else {
				best = y.searchClass(s, class, emptyTier, best)
			}
		}
		y.deviceNodeClasses = deviceNodeClasses
		return y.searchDeviceNodes(c, deviceNodeClasses, best)
	}
	tiers, low := y.nodeClassTiers[:0], uint64(math.MaxUint64)
	for _, class := range c.filter.feasible {
		tier := y.classTier(c, class)
		tiers, low = append(tiers, tier), min(low, tier)
	}
	for _, first := range []bool{true, false} {
		for i, class := range c.filter.feasible {
			switch {
			case (tiers[i] == low) != first:
			case devised && y.searchedByDevices(c, class):
				deviceNodeClasses = append(deviceNodeClasses, class)
			case best.slot < 0 || tiers[i] <= best.rank.tier:
				best = y.searchClass(s, class, tiers[i], best)
			}
		}
	}
	y.deviceNodeClasses, y.nodeClassTiers = deviceNodeClasses, tiers
	return y.searchDeviceNodes(c, deviceNodeClasses, best)
}

// searchClass returns the better of best and the best node of a node class without an individual score. Where tasks of
// the group count, it tries the nodes with the fewest of them first.
func (y *cycle) searchClass(s *treeSearch, class int32, tier uint64, best rankedNode) rankedNode {
	c := s.c
	if c.isDynamic && c.refusesNodeClass(class) || c.deviceless != nil && c.deviceless[class] {
		return best
	}
	if c.minGroupTasks == nil {
		if best.slot >= 0 && tier > best.rank.tier {
			return best
		}
		return y.find(s, class, tier, best)
	}
	for c.minGroupTasks[class] >= 0 {
		s.groupTasks, s.nextGroupTasks = c.minGroupTasks[class], -1
		near := tier + uint64(min(s.groupTasks, maxGroupTasks))<<groupTasksShift
		if best.slot >= 0 && near > best.rank.tier {
			return best
		}
		found := y.find(s, class, near, best)
		if found != best || best.slot >= 0 && near == best.rank.tier {
			return found // if the tiers are equal, nodes with more of the group's tasks come second
		}
		c.minGroupTasks[class] = s.nextGroupTasks // usage only grows in a cycle, so the bound stays valid
	}
	return best
}

// needsSuit reports whether nodes with enough room may still refuse the class or have individual scores.
func (y *cycle) needsSuit(c *taskClass) bool {
	return c.group.isCounted && (c.group.counts != nil || c.group.maxNodes() > 0) ||
		len(c.fixed)+c.auto+len(c.excluded)+len(c.penalized)+len(c.filter.perNode)+len(c.affinityScored)+
			len(c.images)+len(c.requests)+len(c.distincts)+len(c.spreads)+len(c.relations)+len(c.exclusions) > 0
}

// suits reports whether the node is feasible and has no individual score but for the tasks of the group. It must also
// have the wanted number of the group's tasks and images. The caller has checked room.
func (s *treeSearch) suits(slot int32) bool {
	y, c := s.y, s.c
	if s.minImages > 0 && c.present(slot) < s.minImages {
		return false
	}
	if slices.Contains(c.excluded, slot) || slices.Contains(c.penalized, slot) ||
		slices.Contains(c.affinityScored, slot) || c.isSpreadScored(slot) || !y.meetsPerNode(c.filter, slot) {
		return false
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.Required && t.table == nil && t.nodes[slot] > 0 {
			return false
		}
	}
	if code, _ := y.unmetTerm(c, slot); code != "" {
		return false
	}
	if y.missesDevices(c, slot) {
		return false
	}
	if code, _ := y.portRefusal(c, slot); code != "" {
		return false
	}
	if c.affinity == cluster.AntiAffinityNone {
		return true
	}
	near := c.group.tasksOn(slot)
	if c.affinity == cluster.AntiAffinityDemand {
		return near == 0
	}
	if near > s.groupTasks && (s.nextGroupTasks < 0 || near < s.nextGroupTasks) {
		s.nextGroupTasks = near
	}
	return near == s.groupTasks
}

// find returns the better of best and the best node of a node class in the trees, which has the given tier.
func (y *cycle) find(s *treeSearch, class int32, tier uint64, best rankedNode) rankedNode {
	images := 0
	if s.c.commonImages {
		images = len(s.c.images)
	}
	for s.minImages = 0; s.minImages <= images; s.minImages++ {
		if s.c.strategy == cluster.StrategyWhole {
			best = y.findBalanced(s, class, tier, best)
		} else {
			best = y.findFill(s, class, tier, best)
		}
	}
	return best
}

// findFill is find for nodes with at least s.minImages images: they get the bonus of exactly that many.
func (y *cycle) findFill(s *treeSearch, class int32, tier uint64, best rankedNode) rankedNode {
	c := s.c
	bonus := c.imageBonus(s.minImages)
	more := y.shapeShares(c.demand)[y.fleet.catalog.classes[class].shape]
	t := y.tree(byFill, class)
	if t.page == nil || !s.fits(t.maxFree) {
		return best
	}
	low, high := uint64(0), uint64(math.MaxUint64)
	if best.slot >= 0 && tier == best.rank.tier { // limit the search to nodes that can be better
		adds := more.fill() << taskBits
		if c.strategy == cluster.StrategySpread {
			if adds += c.imageBonus(len(c.images)) - bonus; best.rank.fill < adds {
				return best
			}
			high = best.rank.fill - adds
		} else if least := 1<<levelShift - 1 - best.rank.fill; least > adds+bonus {
			low = least - adds - bonus
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
	return y.better(best, rankedNode{rank: rank{tier, y.fillRank(c, class, en.key, 0) - bonus}, slot: en.slot})
}

// findBalanced is findFill for the strategy "whole": it moves away from the best balance step by step, to both sides.
func (y *cycle) findBalanced(s *treeSearch, class int32, tier uint64, best rankedNode) rankedNode {
	t := y.tree(byBalance, class)
	if t.page == nil || !s.fits(t.maxFree) {
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
				best = y.better(best, rankedNode{rank{
					tier,
					y.fillRank(s.c, class, en.key&(1<<levelShift-1), en.key) - s.c.imageBonus(s.minImages),
				}, en.slot})
			}
		}
		if found {
			return best
		}
	}
	return best
}

// rank makes a ranking of all nodes. It takes most ranks from the fleet's trees, and judges again the nodes that the
// cycle changed or that have individual scores.
func (y *cycle) rank(c *taskClass) *ranking {
	r := y.spareRanking()
	s := y.filterOf(c)
	order := byFill
	if c.strategy == cluster.StrategyWhole {
		order = byBalance
	}
	each := c.scansAll || len(c.requests)+len(c.fixed)+c.auto+len(s.perNode) > 0
	for _, class := range s.feasible {
		y.rankPage(c, r, y.fleet.catalog.trees[order][class].page, class, each || y.valueModelApplies(c, class))
	}
	again := func(slot int32) {
		r.ranks[slot] = refused()
		if y.isFeasible(c, slot) {
			r.ranks[slot] = y.rankOf(c, slot)
		}
	}
	if !each {
		y.visitIndividual(c, again)
	}
	r.play()
	c.seen, c.rankedMinimums = len(y.touched), y.spreadMinimums(c)
	return r
}

// spreadMinimums adds up the minimums of the spreads over per-node attributes. When a minimum rises, nodes that refused
// may become feasible.
func (y *cycle) spreadMinimums(c *taskClass) (sum int64) {
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && t.view.table == nil {
			sum += int64(y.minTasksOf(c, t))
		}
	}
	return sum
}

// visitIndividual calls again for each node whose rank may differ from the fleet's trees, for some more than once.
func (y *cycle) visitIndividual(c *taskClass, again func(slot int32)) {
	touched := y.touched
	if len(touched) > y.fleet.names.count/8 { // most entries would be repetitions
		touched = nil
		for slot := range y.ownSlots {
			again(slot)
		}
	}
	for _, list := range [][]int32{touched, c.excluded, c.penalized, c.affinityScored} {
		for _, slot := range list {
			again(slot)
		}
	}
	if c.group.isCounted {
		for slot := range c.group.nodes {
			again(slot)
		}
	}
	for slot := range c.withImages {
		again(slot)
	}
	for slot := range c.spreadScored {
		again(slot)
	}
	for i := range c.relations {
		for slot := range c.relations[i].nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.exclusions {
		for slot := range c.exclusions[i].nodes { // order-free: each for itself
			again(slot)
		}
	}
	for i := range c.distincts {
		for slot := range c.distincts[i].view.nodes { // order-free: each for itself
			again(slot)
		}
	}
}

// rankPage ranks the nodes of a page of the fleet: each by itself, or by its entry in the page.
func (y *cycle) rankPage(c *taskClass, r *ranking, p *page, class int32, each bool) {
	if p == nil {
		return
	}
	q, tier := query{need: c.need}, y.classTier(c, class)
	for i := range p.children {
		y.rankPage(c, r, p.children[i].page, class, each)
	}
	for i := range p.entries {
		switch en := &p.entries[i]; {
		case !each && q.fits(en.free):
			r.ranks[en.slot] = rank{tier, y.fillRank(c, class, en.key&(1<<levelShift-1), en.key)}
		case each && y.isFeasible(c, en.slot):
			r.ranks[en.slot] = y.rankOf(c, en.slot)
		}
	}
}

// refresh updates a class's ranking by the nodes touched since its last turn. A node that refused the class still
// refuses it, because usage only grows; only a rising minimum of a spread requires a new ranking.
func (y *cycle) refresh(c *taskClass) {
	if y.spreadMinimums(c) != c.rankedMinimums {
		y.spareRank = append(y.spareRank, c.ranking)
		c.ranking = y.rank(c)
		return
	}
	for _, slot := range y.touched[c.seen:] {
		if c.ranking.ranks[slot] == refused() {
			continue
		}
		if code, _ := y.loadRefusal(c, slot); code != "" {
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
	return newRanking(len(y.fleet.slots), y.fleet.names.order)
}
