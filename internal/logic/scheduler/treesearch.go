package scheduler

import (
	"math"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// treeSearch is a search of the trees for one task.
type treeSearch struct {
	query
	by             *treeFinder
	heaps          *deviceSearcher
	c              *taskClass
	groupTasks     int32 // wanted number of the group's tasks on the node, if it counts
	minImages      int   // least number of the class's images on the node; further searches want more
	nextGroupTasks int32 // least number above groupTasks that was met; -1 if none
}

// searchClasses searches the node classes, those with the highest wish points first.
func (s *treeSearch) searchClasses() rankedNode {
	c := s.c
	best, deviceNodeClasses := rankedNode{slot: -1}, s.by.deviceNodeClasses[:0]
	devised := len(c.devices.requests) > 0 || c.devices.usesValueModel
	if !c.hasWishes { // all node classes are equal
		for _, class := range c.filter.feasible {
			if devised && s.heaps.searchedByDevices(c, class) {
				deviceNodeClasses = append(deviceNodeClasses, class)
			} else {
				best = s.searchClass(class, emptyTier, best)
			}
		}
		s.by.deviceNodeClasses = deviceNodeClasses
		return s.heaps.searchDeviceNodes(c, deviceNodeClasses, best)
	}
	tiers, low := s.by.nodeClassTiers[:0], uint64(math.MaxUint64)
	for _, class := range c.filter.feasible {
		tier := s.by.eval.classTier(c, class)
		tiers, low = append(tiers, tier), min(low, tier)
	}
	for _, first := range []bool{true, false} {
		for i, class := range c.filter.feasible {
			switch {
			case (tiers[i] == low) != first:
			case devised && s.heaps.searchedByDevices(c, class):
				deviceNodeClasses = append(deviceNodeClasses, class)
			case best.slot < 0 || tiers[i] <= best.rank.tier:
				best = s.searchClass(class, tiers[i], best)
			}
		}
	}
	s.by.deviceNodeClasses, s.by.nodeClassTiers = deviceNodeClasses, tiers
	return s.heaps.searchDeviceNodes(c, deviceNodeClasses, best)
}

// searchClass returns the better of best and the best node of a node class without an individual score. Where tasks of
// the group count, it tries the nodes with the fewest of them first.
func (s *treeSearch) searchClass(class int32, tier uint64, best rankedNode) rankedNode {
	c := s.c
	if c.isDynamic && c.refusesNodeClass(class) || c.devices.lacking != nil && c.devices.lacking[class] {
		return best
	}
	if c.found.minGroupTasks == nil {
		if best.slot >= 0 && tier > best.rank.tier {
			return best
		}
		return s.find(class, tier, best)
	}
	for c.found.minGroupTasks[class] >= 0 {
		s.groupTasks, s.nextGroupTasks = c.found.minGroupTasks[class], -1
		near := tier + uint64(min(s.groupTasks, maxGroupTasks))<<groupTasksShift
		if best.slot >= 0 && near > best.rank.tier {
			return best
		}
		found := s.find(class, near, best)
		if found != best || best.slot >= 0 && near == best.rank.tier {
			return found // if the tiers are equal, nodes with more of the group's tasks come second
		}
		c.found.minGroupTasks[class] = s.nextGroupTasks // usage only grows in a cycle, so the bound stays valid
	}
	return best
}

// suits reports whether the node is feasible and has no individual score but for the tasks of the group. It must also
// have the wanted number of the group's tasks and images. The caller has checked room.
func (s *treeSearch) suits(slot int32) bool {
	eval, c := s.by.eval, s.c
	if s.minImages > 0 && c.images.present(slot) < s.minImages {
		return false
	}
	if slices.Contains(c.excluded, slot) || slices.Contains(c.penalized, slot) ||
		slices.Contains(c.affinityScored, slot) || c.isSpreadScored(slot) ||
		!c.filter.meetsPerNode(s.by.nodes.node(slot)) {
		return false
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.Required && t.table == nil && t.nodes[slot] > 0 {
			return false
		}
	}
	if code, _ := eval.unmetTerm(c, slot); code != "" {
		return false
	}
	if eval.missesDevices(c, slot) {
		return false
	}
	if code, _ := eval.portRefusal(c, slot); code != "" {
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
func (s *treeSearch) find(class int32, tier uint64, best rankedNode) rankedNode {
	images := 0
	if s.c.images.common {
		images = len(s.c.images.nodes)
	}
	for s.minImages = 0; s.minImages <= images; s.minImages++ {
		if s.c.strategy == cluster.StrategyWhole {
			best = s.findBalanced(class, tier, best)
		} else {
			best = s.findFill(class, tier, best)
		}
	}
	return best
}

// findFill is find for nodes with at least s.minImages images: they get the bonus of exactly that many.
func (s *treeSearch) findFill(class int32, tier uint64, best rankedNode) rankedNode {
	c := s.c
	bonus := c.images.bonus(s.minImages)
	more := s.by.nodes.shapeShares(c.demand)[s.by.nodes.fleet.catalog.classes[class].shape]
	t := s.by.nodes.tree(byFill, class)
	if t.page == nil || !s.fits(t.maxFree) {
		return best
	}
	low, high := uint64(0), uint64(math.MaxUint64)
	if best.slot >= 0 && tier == best.rank.tier { // limit the search to nodes that can be better
		adds := more.fill() << taskBits
		if c.strategy == cluster.StrategySpread {
			if adds += c.images.bonus(len(c.images.nodes)) - bonus; best.rank.fill < adds {
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
	own := rank{tier, s.by.eval.fillRank(c, class, en.key, 0) - bonus}
	return s.by.eval.better(best, rankedNode{rank: own, slot: en.slot})
}

// findBalanced is findFill for the strategy "whole": it moves away from the best balance step by step, to both sides.
func (s *treeSearch) findBalanced(class int32, tier uint64, best rankedNode) rankedNode {
	t := s.by.nodes.tree(byBalance, class)
	if t.page == nil || !s.fits(t.maxFree) {
		return best
	}
	zero := balanceZero - s.by.nodes.shapeShares(s.c.demand)[s.by.nodes.fleet.catalog.classes[class].shape].balance()
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
				best = s.by.eval.better(best, rankedNode{rank{
					tier,
					s.by.eval.fillRank(s.c, class, en.key&(1<<levelShift-1), en.key) - s.c.images.bonus(s.minImages),
				}, en.slot})
			}
		}
		if found {
			return best
		}
	}
	return best
}
