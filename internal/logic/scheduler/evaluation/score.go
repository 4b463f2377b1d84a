package evaluation

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// ClassTier returns the tier of the nodes of a node class without individual scores.
func (e *Evaluator) ClassTier(c *taskclass.Class, class int32) uint64 {
	if !c.HasPreferences {
		return rank.EmptyTier
	}
	return rank.TierOf(c.ClassPoints(class), c.Filter.IsPenalized(class))
}

// RankOf returns the rank of a feasible node.
func (e *Evaluator) RankOf(c *taskclass.Class, slot int32) rank.Rank {
	l := e.nodes.Load(slot)
	r := rank.Rank{Fill: e.FillRank(c, l.Class, l.Key[fleet.ByFill], l.Key[fleet.ByBalance])}
	r.Fill -= c.Images.Bonus(c.Images.Present(slot))
	r.Tier = rank.EmptyTier
	if c.HasPreferences {
		r.Tier = rank.TierOf(c.ClassPoints(l.Class)+e.NodePoints(c, slot), c.Filter.IsPenalized(l.Class))
	}
	if c.Affinity == cluster.AntiAffinityPrefer {
		r.Tier += uint64(min(c.Group.TasksOn(slot), rank.MaxGroupTasks)) << rank.GroupTasksShift
	}
	r.Tier += e.ValueLoss(c, slot) - packing.NoLoss
	if len(c.Penalized) > 0 && slices.Contains(c.Penalized, slot) {
		r.Tier |= rank.PenaltyBit
	}
	return r
}

// FillRank returns the fill of a rank, for a node without images of the class.
func (e *Evaluator) FillRank(c *taskclass.Class, class int32, key, balance uint64) uint64 {
	more := e.nodes.ShapeShares(c.Demand)[e.nodes.Fleet.Catalog.Classes[class].Shape]
	full := key + more.Fill()<<index.TaskBits
	if c.Strategy == cluster.StrategySpread {
		return full + c.Images.Bonus(len(c.Images.Nodes))
	}
	full = 1<<index.LevelShift - 1 - full
	if c.Strategy == cluster.StrategyWhole {
		level := int(balance>>index.LevelShift) - index.BalanceZero + more.Balance()
		full |= uint64(max(level, -level)) << index.LevelShift
	}
	return full
}

// NodePoints returns the preference points that a node has beside the points of its class.
func (e *Evaluator) NodePoints(c *taskclass.Class, slot int32) int64 {
	points := int64(0)
	for i := range c.NamedAffinities {
		if feasibility.Matches(c.NamedAffinities[i].Constraint, e.nodes.Node(slot)) {
			points += int64(c.NamedAffinities[i].Weight) * taskclass.Point
		}
	}
	for i := range c.Spreads {
		if t := &c.Spreads[i]; t.View.Table == nil {
			part, wholes := e.NodePart(t, slot)
			own := taskclass.SpreadPoints(int64(t.Weight), int64(t.View.Nodes[slot]), int64(c.Task.Count), part, wholes)
			points += own - t.EmptyPoints
		}
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; t.Table == nil {
			points += t.PointsFor(t.Nodes[slot])
		}
	}
	return points
}

// NodePart returns the target share of a node's value, for per-node attributes.
func (e *Evaluator) NodePart(t *taskclass.SpreadTerm, slot int32) (part, wholes int64) {
	if len(t.Targets) > 0 {
		if own := taskclass.TargetOf(t.Targets, e.nodes.Node(slot).Value(t.Attribute)); own >= 0 {
			return int64(t.Targets[own].Percent) * t.OpenCount, 100 * t.OpenCount
		}
	}
	return 100 - t.NamedPercent, 100 * t.OpenCount
}
