package scheduler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// How nodes that fit are ranked. The lower rank wins, of equals the name that sorts first. A rank is
// made of, from the most to the least important:
//
//   - whether attempts of the task failed on the node: those last;
//   - whether it has a taint that keeps tasks away where there is another node: those last;
//   - the wishes: the sum of the weights of the affinities and relations that the node meets, and of each spread that
//     part of its weight by which the node's value has fewer of the tasks than it should: the highest sum first;
//   - with anti-affinity "prefer", the number of tasks of the same group on the node;
//   - with strategy "whole", and where the owner names none, what its devices lose of their worth, in ten-thousandths
//     of a device: how much less of them the tasks that are likely to come would fill. Tasks without devices cost
//     something, too, where they take the CPU that devices need. See package packing;
//   - with strategy "whole", how far apart the node's free CPU and free memory would be, in steps of 1/32 of a node:
//     what is left of one without the other is of little use;
//   - how full the node would be, in millionths of its CPU, its memory and its disk, added up: emptiest first to
//     spread, fullest first to binpack and whole. Images that are there count for up to 50,000 of them, see imageParts;
//   - the number of tasks on the node: fewest first to spread, most first else. It decides
//     among tasks that ask for nothing.
//
// How full a node would be is what is used now and what the task asks for, each rounded down in parts of the node's
// shape, see shapeOf: so the nodes of a class have the same order for every task.
//
// An owner that says nothing of anti-affinity prefers to be apart if it spreads, and does not mind
// else: otherwise every job would be spread. All is integers, so that every server finds the
// same order.
type rank struct {
	tier uint64 // what counts before how full it is
	fill uint64 // as the strategy has it
}

// refused is the rank of a node that does not take the task.
func refused() rank { return rank{1<<64 - 1, 1<<64 - 1} }

const (
	levelShift = fillBits + taskBits
	shunned    = 1 << 63

	// What a tier is made of, from the lowest bits: what the node's devices lose, tasks of the group, the wishes from
	// highest to lowest, and whether the node is to be avoided.
	nearShift  = packing.LossBits
	wishShift  = nearShift + 17
	mostNear   = 1<<(wishShift-nearShift) - 1
	wishBits   = 24
	mostWishes = 1<<(wishBits-1) - 1
	toAvoid    = 1 << (wishShift + wishBits)
	emptyTier  = mostWishes<<wishShift | packing.NoLoss
)

// tierOf returns the tier of a node without tasks of the group.
func tierOf(points int64, avoid bool) uint64 {
	tier := uint64(mostWishes-min(max(points, -mostWishes), mostWishes))<<wishShift | packing.NoLoss
	if avoid {
		tier |= toAvoid
	}
	return tier
}

// classTier returns the tier of those nodes of a class that stand out in nothing.
func (y *cycle) classTier(c *class, class int32) uint64 {
	if !c.wishes {
		return emptyTier
	}
	return tierOf(c.classPoints(class), y.sieveOf(c).avoids(class))
}

// avoids reports whether the nodes of a class are for those who find no other.
func (s *sieve) avoids(class int32) bool { return s.avoid != nil && s.avoid[class] }

// less reports whether a node ranks before another one.
func (r rank) less(o rank) bool { return r.tier < o.tier || r.tier == o.tier && r.fill < o.fill }

// rankOf ranks a node that does not refuse the class.
func (y *cycle) rankOf(c *class, slot int32) rank {
	l := y.load(slot)
	r := rank{fill: y.fillOf(c, l.class, l.key[byFill], l.key[byBalance])}
	r.fill -= c.imageWorth(c.present(slot))
	r.tier = emptyTier
	if c.wishes {
		r.tier = tierOf(c.classPoints(l.class)+y.nodePoints(c, slot), y.sieveOf(c).avoids(l.class))
	}
	if c.affinity == cluster.AntiAffinityPrefer {
		r.tier += uint64(min(c.group.near(slot), mostNear)) << nearShift
	}
	r.tier += y.lossOf(c, slot) - packing.NoLoss
	if len(c.shunned) > 0 && slices.Contains(c.shunned, slot) {
		r.tier |= shunned
	}
	return r
}

// fillOf returns the part of a rank that tells how full the node would be, if it has no image of the class.
func (y *cycle) fillOf(c *class, class int32, key, balance uint64) uint64 {
	more := y.shapeShares(c.demand)[y.fleet.catalog.classes[class].shape]
	full := key + more.fill()<<taskBits
	if c.strategy == cluster.StrategySpread {
		return full + c.imageWorth(len(c.images))
	}
	full = 1<<levelShift - 1 - full
	if c.strategy == cluster.StrategyWhole {
		level := int(balance>>levelShift) - balanceZero + more.balance()
		full |= uint64(max(level, -level)) << levelShift
	}
	return full
}

// ranking keeps the nodes of one class of tasks so that the best is known: a tournament, in which eight at a time meet.
// A change is played again from its node upwards, as far as it changes who wins.
type ranking struct {
	label  []uint64 // by slot, the order of names
	ranks  []rank   // by slot
	rounds [][]block
}

const (
	matchShift = 3
	matchSize  = 1 << matchShift
)

// block is a node with its rank.
type block struct {
	rank rank
	slot int32
}

// newRanking returns a ranking in which all nodes refuse.
func newRanking(slots int, label []uint64) *ranking {
	r := &ranking{label: label, ranks: make([]rank, slots)}
	for winners := slots; winners > 1 || len(r.rounds) == 0; {
		winners = (winners + matchSize - 1) >> matchShift
		r.rounds = append(r.rounds, make([]block, winners))
	}
	r.clear()
	return r
}

// clear makes all nodes refuse. What is put into ranks afterwards holds from play on.
func (r *ranking) clear() {
	for i := range r.ranks {
		r.ranks[i] = refused()
	}
}

// play plays all rounds.
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

// match returns who wins it.
func (r *ranking) match(round, match int) block {
	first := match << matchShift
	if round == 0 {
		b := block{rank: r.ranks[first], slot: int32(first)}
		for n, k := range r.ranks[first+1 : min(first+matchSize, len(r.ranks))] {
			if slot := int32(first + 1 + n); k.less(b.rank) || k == b.rank && r.label[slot] < r.label[b.slot] {
				b = block{k, slot}
			}
		}
		return b
	}
	others := r.rounds[round-1]
	b := &others[first]
	for n := first + 1; n < min(first+matchSize, len(others)); n++ {
		if o := &others[n]; o.rank.less(b.rank) || o.rank == b.rank && r.label[o.slot] < r.label[b.slot] {
			b = o
		}
	}
	return *b
}

// better returns the one of two nodes that ranks before the other; a slot of -1 is none.
func (y *cycle) better(a, b block) block {
	switch {
	case a.slot < 0:
		return b
	case b.slot < 0:
		return a
	case a.rank == b.rank:
		if cmp.Less(y.fleet.names.label[b.slot], y.fleet.names.label[a.slot]) {
			return b
		}
		return a
	case b.rank.less(a.rank):
		return b
	}
	return a
}
