package rank

// Ranking keeps the ranks of all nodes for one task class, and the best node: a tournament tree with eight nodes a
// match. A change is propagated from its node upwards as far as it changes the winner.
type Ranking struct {
	nameOrder []uint64 // by slot; ordered like names
	Ranks     []Rank   // by slot
	rounds    [][]RankedNode
}

const (
	matchShift = 3
	matchSize  = 1 << matchShift
)

// NewRanking returns a ranking in which all nodes refuse.
func NewRanking(slots int, nameOrder []uint64) *Ranking {
	r := &Ranking{nameOrder: nameOrder, Ranks: make([]Rank, slots)}
	for winners := slots; winners > 1 || len(r.rounds) == 0; {
		winners = (winners + matchSize - 1) >> matchShift
		r.rounds = append(r.rounds, make([]RankedNode, winners))
	}
	r.Clear()
	return r
}

// Clear makes all nodes refuse. Ranks that are set directly afterwards take effect with play.
func (r *Ranking) Clear() {
	for i := range r.Ranks {
		r.Ranks[i] = Refused()
	}
}

// Play recomputes all matches.
func (r *Ranking) Play() {
	for round := range r.rounds {
		for match := range r.rounds[round] {
			r.rounds[round][match] = r.match(round, match)
		}
	}
}

// Set changes the rank of a node.
func (r *Ranking) Set(slot int32, k Rank) {
	r.Ranks[slot] = k
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

// Best returns the best of the nodes, or -1 if all refused.
func (r *Ranking) Best() int32 {
	if last := r.rounds[len(r.rounds)-1]; len(last) > 0 && last[0].Rank != Refused() {
		return last[0].Slot
	}
	return -1
}

// match returns the winner of a match.
func (r *Ranking) match(round, match int) RankedNode {
	first := match << matchShift
	if round == 0 {
		b := RankedNode{Rank: r.Ranks[first], Slot: int32(first)}
		for n, k := range r.Ranks[first+1 : min(first+matchSize, len(r.Ranks))] {
			if slot := int32(first + 1 + n); k.Less(b.Rank) || k == b.Rank && r.nameOrder[slot] < r.nameOrder[b.Slot] {
				b = RankedNode{k, slot}
			}
		}
		return b
	}
	others := r.rounds[round-1]
	b := &others[first]
	for n := first + 1; n < min(first+matchSize, len(others)); n++ {
		if o := &others[n]; o.Rank.Less(b.Rank) || o.Rank == b.Rank && r.nameOrder[o.Slot] < r.nameOrder[b.Slot] {
			b = o
		}
	}
	return *b
}
