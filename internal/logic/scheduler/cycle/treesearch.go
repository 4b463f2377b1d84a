package cycle

import (
	"math"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// treeSearch is a search of the trees for one task.
type treeSearch struct {
	index.Query
	by             *treeFinder
	heaps          *deviceSearcher
	c              *taskclass.Class
	groupTasks     int32 // wanted number of the group's tasks on the node, if it counts
	minImages      int   // least number of the class's images on the node; further searches want more
	nextGroupTasks int32 // least number above groupTasks that was met; -1 if none
}

// searchClasses searches the node classes, those with the highest preference points first.
func (s *treeSearch) searchClasses() rank.RankedNode {
	c := s.c
	best, deviceNodeClasses := rank.RankedNode{Slot: -1}, s.by.deviceNodeClasses[:0]
	usesDevices := len(c.Devices.Requests) > 0 || c.Devices.UsesValueModel
	if !c.HasPreferences { // all node classes are equal
		for _, class := range c.Filter.Feasible {
			if usesDevices && s.heaps.searchedByDevices(c, class) {
				deviceNodeClasses = append(deviceNodeClasses, class)
			} else {
				best = s.searchClass(class, rank.EmptyTier, best)
			}
		}
		s.by.deviceNodeClasses = deviceNodeClasses
		return s.heaps.searchDeviceNodes(c, deviceNodeClasses, best)
	}
	tiers, low := s.by.nodeClassTiers[:0], uint64(math.MaxUint64)
	for _, class := range c.Filter.Feasible {
		tier := s.by.eval.ClassTier(c, class)
		tiers, low = append(tiers, tier), min(low, tier)
	}
	for _, first := range []bool{true, false} {
		for i, class := range c.Filter.Feasible {
			switch {
			case (tiers[i] == low) != first:
			case usesDevices && s.heaps.searchedByDevices(c, class):
				deviceNodeClasses = append(deviceNodeClasses, class)
			case best.Slot < 0 || tiers[i] <= best.Rank.Tier:
				best = s.searchClass(class, tiers[i], best)
			}
		}
	}
	s.by.deviceNodeClasses, s.by.nodeClassTiers = deviceNodeClasses, tiers
	return s.heaps.searchDeviceNodes(c, deviceNodeClasses, best)
}

// searchClass returns the better of best and the best node of a node class without an individual score. Where tasks of
// the group count, it tries the nodes with the fewest of them first.
func (s *treeSearch) searchClass(class int32, tier uint64, best rank.RankedNode) rank.RankedNode {
	c := s.c
	if c.IsDynamic && c.RefusesNodeClass(class) || c.Devices.Lacking != nil && c.Devices.Lacking[class] {
		return best
	}
	if c.Found.MinGroupTasks == nil {
		if best.Slot >= 0 && tier > best.Rank.Tier {
			return best
		}
		return s.find(class, tier, best)
	}
	for c.Found.MinGroupTasks[class] >= 0 {
		s.groupTasks, s.nextGroupTasks = c.Found.MinGroupTasks[class], -1
		near := tier + uint64(min(s.groupTasks, rank.MaxGroupTasks))<<rank.GroupTasksShift
		if best.Slot >= 0 && near > best.Rank.Tier {
			return best
		}
		found := s.find(class, near, best)
		if found != best || best.Slot >= 0 && near == best.Rank.Tier {
			return found // if the tiers are equal, nodes with more of the group's tasks come second
		}
		c.Found.MinGroupTasks[class] = s.nextGroupTasks // usage only grows in a cycle, so the bound stays valid
	}
	return best
}

// suits reports whether the node is feasible and has no individual score but for the tasks of the group. It must also
// have the wanted number of the group's tasks and images. The caller has checked room.
func (s *treeSearch) suits(slot int32) bool {
	eval, c := s.by.eval, s.c
	if s.minImages > 0 && c.Images.Present(slot) < s.minImages {
		return false
	}
	if slices.Contains(c.Excluded, slot) || slices.Contains(c.Penalized, slot) ||
		slices.Contains(c.AffinityScored, slot) || c.IsSpreadScored(slot) ||
		!c.Filter.MeetsPerNode(s.by.nodes.Node(slot)) {
		return false
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; !t.Required && t.Table == nil && t.Nodes[slot] > 0 {
			return false
		}
	}
	if code, _ := eval.UnmetTerm(c, slot); code != "" {
		return false
	}
	if eval.MissesDevices(c, slot) {
		return false
	}
	if code, _ := eval.PortRefusal(c, slot); code != "" {
		return false
	}
	if c.Affinity == cluster.AntiAffinityNone {
		return true
	}
	near := c.Group.TasksOn(slot)
	if c.Affinity == cluster.AntiAffinityDemand {
		return near == 0
	}
	if near > s.groupTasks && (s.nextGroupTasks < 0 || near < s.nextGroupTasks) {
		s.nextGroupTasks = near
	}
	return near == s.groupTasks
}

// find returns the better of best and the best node of a node class in the trees, which has the given tier.
func (s *treeSearch) find(class int32, tier uint64, best rank.RankedNode) rank.RankedNode {
	images := 0
	if s.c.Images.Common {
		images = len(s.c.Images.Nodes)
	}
	for s.minImages = 0; s.minImages <= images; s.minImages++ {
		if s.c.Strategy == cluster.StrategyWhole {
			best = s.findBalanced(class, tier, best)
		} else {
			best = s.findFill(class, tier, best)
		}
	}
	return best
}

// findFill is find for nodes with at least s.minImages images: they get the bonus of exactly that many.
func (s *treeSearch) findFill(class int32, tier uint64, best rank.RankedNode) rank.RankedNode {
	c := s.c
	bonus := c.Images.Bonus(s.minImages)
	more := s.by.nodes.ShapeShares(c.Demand)[s.by.nodes.Fleet.Catalog.Classes[class].Shape]
	t := s.by.nodes.Tree(fleet.ByFill, class)
	if t.Page == nil || !s.Fits(t.MaxFree) {
		return best
	}
	low, high := uint64(0), uint64(math.MaxUint64)
	if best.Slot >= 0 && tier == best.Rank.Tier { // limit the search to nodes that can be better
		adds := more.Fill() << index.TaskBits
		if c.Strategy == cluster.StrategySpread {
			if adds += c.Images.Bonus(len(c.Images.Nodes)) - bonus; best.Rank.Fill < adds {
				return best
			}
			high = best.Rank.Fill - adds
		} else if least := 1<<index.LevelShift - 1 - best.Rank.Fill; least > adds+bonus {
			low = least - adds - bonus
		}
	}
	if t.High < low || t.Low > high {
		return best
	}
	var en *index.Entry
	if c.Strategy == cluster.StrategySpread {
		en = s.Lowest(t.Page, low, high)
	} else {
		en = s.Highest(t.Page, low, high)
	}
	if en == nil {
		return best
	}
	own := rank.Rank{Tier: tier, Fill: s.by.eval.FillRank(c, class, en.Key, 0) - bonus}
	return s.by.eval.Better(best, rank.RankedNode{Rank: own, Slot: en.Slot})
}

// findBalanced is findFill for the strategy "whole": it moves away from the best balance step by step, to both sides.
func (s *treeSearch) findBalanced(class int32, tier uint64, best rank.RankedNode) rank.RankedNode {
	t := s.by.nodes.Tree(fleet.ByBalance, class)
	if t.Page == nil || !s.Fits(t.MaxFree) {
		return best
	}
	more := s.by.nodes.ShapeShares(s.c.Demand)[s.by.nodes.Fleet.Catalog.Classes[class].Shape]
	zero := index.BalanceZero - more.Balance()
	low, high := int(t.Low>>index.LevelShift), int(t.High>>index.LevelShift)
	for away := max(low-zero, zero-high, 0); away <= max(zero-low, high-zero); away++ {
		if best.Slot >= 0 && tier == best.Rank.Tier && uint64(away) > best.Rank.Fill>>index.LevelShift {
			return best
		}
		found := false
		for _, level := range []int{zero - away, zero + away} {
			if level < low || level > high {
				continue
			}
			first, last := uint64(level)<<index.LevelShift, uint64(level+1)<<index.LevelShift-1
			if en := s.Highest(t.Page, first, last); en != nil {
				found = true
				fill := s.by.eval.FillRank(s.c, class, en.Key&(1<<index.LevelShift-1), en.Key)
				own := rank.Rank{Tier: tier, Fill: fill - s.c.Images.Bonus(s.minImages)}
				best = s.by.eval.Better(best, rank.RankedNode{Rank: own, Slot: en.Slot})
			}
		}
		if found {
			return best
		}
	}
	return best
}
