package scheduler

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
