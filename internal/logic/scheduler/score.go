package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// classTier returns the tier of the nodes of a node class without individual scores.
func (e *evaluator) classTier(c *taskClass, class int32) uint64 {
	if !c.hasWishes {
		return emptyTier
	}
	return tierOf(c.classPoints(class), c.filter.isPenalized(class))
}

// rankOf returns the rank of a feasible node.
func (e *evaluator) rankOf(c *taskClass, slot int32) rank {
	l := e.nodes.load(slot)
	r := rank{fill: e.fillRank(c, l.class, l.key[byFill], l.key[byBalance])}
	r.fill -= c.images.bonus(c.images.present(slot))
	r.tier = emptyTier
	if c.hasWishes {
		r.tier = tierOf(c.classPoints(l.class)+e.nodePoints(c, slot), c.filter.isPenalized(l.class))
	}
	if c.affinity == cluster.AntiAffinityPrefer {
		r.tier += uint64(min(c.group.tasksOn(slot), maxGroupTasks)) << groupTasksShift
	}
	r.tier += e.valueLoss(c, slot) - packing.NoLoss
	if len(c.penalized) > 0 && slices.Contains(c.penalized, slot) {
		r.tier |= penaltyBit
	}
	return r
}

// fillRank returns the fill of a rank, for a node without images of the class.
func (e *evaluator) fillRank(c *taskClass, class int32, key, balance uint64) uint64 {
	more := e.nodes.shapeShares(c.demand)[e.nodes.fleet.catalog.classes[class].shape]
	full := key + more.fill()<<taskBits
	if c.strategy == cluster.StrategySpread {
		return full + c.images.bonus(len(c.images.nodes))
	}
	full = 1<<levelShift - 1 - full
	if c.strategy == cluster.StrategyWhole {
		level := int(balance>>levelShift) - balanceZero + more.balance()
		full |= uint64(max(level, -level)) << levelShift
	}
	return full
}

// nodePoints returns the wish points that a node has beside classPoints.
func (e *evaluator) nodePoints(c *taskClass, slot int32) int64 {
	points := int64(0)
	for i := range c.namedAffinities {
		if Matches(c.namedAffinities[i].Constraint, e.nodes.node(slot)) {
			points += int64(c.namedAffinities[i].Weight) * point
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table == nil {
			part, wholes := e.nodePart(t, slot)
			own := spreadPoints(int64(t.Weight), int64(t.view.nodes[slot]), int64(c.task.Count), part, wholes)
			points += own - t.emptyPoints
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table == nil {
			points += t.pointsFor(t.nodes[slot])
		}
	}
	return points
}

// nodePart returns the target share of a node's value, for per-node attributes.
func (e *evaluator) nodePart(t *spreadTerm, slot int32) (part, wholes int64) {
	if len(t.Targets) > 0 {
		if own := targetOf(t.Targets, e.nodes.node(slot).Value(t.Attribute)); own >= 0 {
			return int64(t.Targets[own].Percent) * t.openCount, 100 * t.openCount
		}
	}
	return 100 - t.namedPercent, 100 * t.openCount
}
