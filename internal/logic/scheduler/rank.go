package scheduler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// rank is the rank of a feasible node. The lowest rank wins; of equal ranks the node name that sorts first. A rank is
// made of these parts, from the most to the least important:
//
//   - whether attempts of the task failed on the node: those nodes come last
//   - whether the node has a taint with the effect avoid that is not tolerated: those come last
//   - the wishes, the highest sum first: the weights of affinities and relations that the node meets, and a part of the
//     weight of each spread. The part is by how much of its target the node's value has too few tasks
//   - with anti-affinity "prefer": the number of tasks of the same group on the node
//   - with strategy "whole", and where the owner names none: the value that the devices lose, in ten-thousandths of a
//     device. It says how much less of them the likely tasks would fill. Tasks without devices also cost value where
//     they take the CPU that devices need. See package packing
//   - with strategy "whole": the distance between free CPU and free memory, in steps of 1/32 of a node, because one is
//     of little use without the other
//   - the fill: millionths of CPU, memory and disk, added up; emptiest first for spread, fullest first for binpack and
//     whole. Images on the node count for up to 50,000 millionths, see imageParts
//   - the number of tasks on the node: fewest first for spread, else most first. It decides for tasks without demands
//
// The fill is the present usage plus the task's demand, each rounded down to millionths of the node's shape, see
// shapeOf. So the nodes of a node class have the same order for every task.
//
// An owner that does not set anti-affinity gets "prefer" with spread, and else none: jobs would be spread otherwise.
// All parts are integers, so that every server finds the same order.
type rank struct {
	tier uint64 // the parts before the fill
	fill uint64 // fill, balance and tasks, as the strategy orders them
}

// refused is the rank of a node that refuses the task.
func refused() rank { return rank{1<<64 - 1, 1<<64 - 1} }

const (
	levelShift = fillBits + taskBits
	penaltyBit = 1 << 63

	// Parts of a tier, from the lowest bits: loss of device value, tasks of the group, wishes from highest to lowest,
	// and the penalty of a taint.
	groupTasksShift = packing.LossBits
	wishShift       = groupTasksShift + 17
	maxGroupTasks   = 1<<(wishShift-groupTasksShift) - 1
	wishBits        = 24
	maxWishPoints   = 1<<(wishBits-1) - 1
	taintPenaltyBit = 1 << (wishShift + wishBits)
	emptyTier       = maxWishPoints<<wishShift | packing.NoLoss
)

// tierOf returns the tier of a node without tasks of the group and without loss.
func tierOf(points int64, avoid bool) uint64 {
	tier := uint64(maxWishPoints-min(max(points, -maxWishPoints), maxWishPoints))<<wishShift | packing.NoLoss
	if avoid {
		tier |= taintPenaltyBit
	}
	return tier
}

// classTier returns the tier of the nodes of a node class without individual scores.
func (y *cycle) classTier(c *taskClass, class int32) uint64 {
	if !c.hasWishes {
		return emptyTier
	}
	return tierOf(c.classPoints(class), y.filterOf(c).isPenalized(class))
}

// isPenalized reports whether a taint lets the nodes of a node class come last.
func (s *feasibilityFilter) isPenalized(class int32) bool {
	return s.penalized != nil && s.penalized[class]
}

// less reports whether r ranks before o.
func (r rank) less(o rank) bool { return r.tier < o.tier || r.tier == o.tier && r.fill < o.fill }

// rankOf returns the rank of a feasible node.
func (y *cycle) rankOf(c *taskClass, slot int32) rank {
	l := y.load(slot)
	r := rank{fill: y.fillRank(c, l.class, l.key[byFill], l.key[byBalance])}
	r.fill -= c.imageBonus(c.present(slot))
	r.tier = emptyTier
	if c.hasWishes {
		r.tier = tierOf(c.classPoints(l.class)+y.nodePoints(c, slot), y.filterOf(c).isPenalized(l.class))
	}
	if c.affinity == cluster.AntiAffinityPrefer {
		r.tier += uint64(min(c.group.tasksOn(slot), maxGroupTasks)) << groupTasksShift
	}
	r.tier += y.valueLoss(c, slot) - packing.NoLoss
	if len(c.penalized) > 0 && slices.Contains(c.penalized, slot) {
		r.tier |= penaltyBit
	}
	return r
}

// fillRank returns the fill of a rank, for a node without images of the class.
func (y *cycle) fillRank(c *taskClass, class int32, key, balance uint64) uint64 {
	more := y.shapeShares(c.demand)[y.fleet.catalog.classes[class].shape]
	full := key + more.fill()<<taskBits
	if c.strategy == cluster.StrategySpread {
		return full + c.imageBonus(len(c.images))
	}
	full = 1<<levelShift - 1 - full
	if c.strategy == cluster.StrategyWhole {
		level := int(balance>>levelShift) - balanceZero + more.balance()
		full |= uint64(max(level, -level)) << levelShift
	}
	return full
}

// ranking keeps the ranks of all nodes for one task class, and the best node: a tournament tree with eight nodes a
// match. A change is propagated from its node upwards as far as it changes the winner.
type ranking struct {
	nameOrder []uint64 // by slot; ordered like names
	ranks     []rank   // by slot
	rounds    [][]rankedNode
}

const (
	matchShift = 3
	matchSize  = 1 << matchShift
)

// block is a node with its rank.
type rankedNode struct {
	rank rank
	slot int32
}

// newRanking returns a ranking in which all nodes refuse.
func newRanking(slots int, nameOrder []uint64) *ranking {
	r := &ranking{nameOrder: nameOrder, ranks: make([]rank, slots)}
	for winners := slots; winners > 1 || len(r.rounds) == 0; {
		winners = (winners + matchSize - 1) >> matchShift
		r.rounds = append(r.rounds, make([]rankedNode, winners))
	}
	r.clear()
	return r
}

// clear makes all nodes refuse. Ranks that are set directly afterwards take effect with play.
func (r *ranking) clear() {
	for i := range r.ranks {
		r.ranks[i] = refused()
	}
}

// play recomputes all matches.
func (r *ranking) play() {
	for round := range r.rounds {
		for match := range r.rounds[round] {
			r.rounds[round][match] = r.match(round, match)
		}
	}
}

// set changes the rank of a node.
func (r *ranking) set(slot int32, k rank) {
	r.ranks[slot] = k
	match := int(slot)
	for round := range r.rounds {
		match >>= matchShift
		winner := r.match(round, match)
		if winner == r.rounds[round][match] {
			return
		}
		r.rounds[round][match] = winner
	}
}

// best returns the best of the nodes, or -1 if all refused.
func (r *ranking) best() int32 {
	if last := r.rounds[len(r.rounds)-1]; len(last) > 0 && last[0].rank != refused() {
		return last[0].slot
	}
	return -1
}

// match returns the winner of a match.
func (r *ranking) match(round, match int) rankedNode {
	first := match << matchShift
	if round == 0 {
		b := rankedNode{rank: r.ranks[first], slot: int32(first)}
		for n, k := range r.ranks[first+1 : min(first+matchSize, len(r.ranks))] {
			if slot := int32(first + 1 + n); k.less(b.rank) || k == b.rank && r.nameOrder[slot] < r.nameOrder[b.slot] {
				b = rankedNode{k, slot}
			}
		}
		return b
	}
	others := r.rounds[round-1]
	b := &others[first]
	for n := first + 1; n < min(first+matchSize, len(others)); n++ {
		if o := &others[n]; o.rank.less(b.rank) || o.rank == b.rank && r.nameOrder[o.slot] < r.nameOrder[b.slot] {
			b = o
		}
	}
	return *b
}

// better returns the node that ranks first; a slot of -1 means none.
func (y *cycle) better(a, b rankedNode) rankedNode {
	switch {
	case a.slot < 0:
		return b
	case b.slot < 0:
		return a
	case a.rank == b.rank:
		if cmp.Less(y.fleet.names.order[b.slot], y.fleet.names.order[a.slot]) {
			return b
		}
		return a
	case b.rank.less(a.rank):
		return b
	}
	return a
}
