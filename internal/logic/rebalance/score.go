package rebalance

import "github.com/berthd/berth/internal/cluster"

// score returns the present score.
func (b *state) score() Score {
	s := Score{Violations: len(b.findViolating())}
	var uneven, strand int64
	for n := range b.nodes {
		o := &b.nodes[n]
		if b.hasBinpack && o.inUse() {
			s.Used++
		}
		uneven += square(o.share)
		strand += o.stranded
	}
	if b.hasWhole {
		s.Stranded = int(strand * Points / shareOne)
	}
	if !b.hasSpread {
		return s
	}
	uneven = uneven >> shareBits * Points / shareOne
	for _, g := range b.groups {
		uneven += b.unevenness(g)
	}
	for i := range b.tasks {
		t := &b.tasks[i]
		n, found := b.find(t.Node)
		if c := b.classOf[i]; found && c != nil && c.preferenceValues != nil && c.strategy == cluster.StrategySpread {
			uneven -= int64(points(c.preferenceValues[n]))
		}
	}
	s.Uneven = int(uneven)
	return s
}

// unevenness returns the distance of a version's tasks from their wanted spread, in points.
func (b *state) unevenness(g *group) int64 {
	if g.class.strategy != cluster.StrategySpread {
		return 0
	}
	var sum int64
	if b.siblingPenalty(g.class) > 0 {
		pairs := int64(0)
		for _, k := range g.at { // order-free: a sum
			pairs += int64(k) * int64(k-1) / 2
		}
		sum = pairs * Points * int64(b.openNodes) / int64(max(g.count, b.openNodes))
	}
	for i := range g.spreads {
		s := &g.spreads[i]
		for v := range s.names {
			off := s.excess(int32(v))
			sum += off * off >> 10 * s.weight * Points / (2 * cluster.DefaultWeight * s.mean * 1024)
		}
	}
	return sum
}

// maxShortened is the largest list that is shortened: each attempt replays the whole list.
const maxShortened = 100

// shorten replaces several moves of one task by a single move, if the list is then as good at every step. The single
// move has the cause of the first one: if that was a violation, the later ones only found a better node. It has the
// place of the last one in the list, when there is room for it.
func shorten(in Input, opts Options, moves []Move) []Move {
	last := map[string]int{}
	for i := range moves {
		last[moves[i].UUID] = i
	}
	if len(last) == len(moves) || len(moves) > maxShortened {
		return moves
	}
	first, gains := map[string]Move{}, map[string]int{}
	var short []Move
	for i, m := range moves {
		if _, known := first[m.UUID]; !known {
			first[m.UUID] = m
		}
		gains[m.UUID] += m.Gain
		if last[m.UUID] != i {
			continue
		}
		if f := first[m.UUID]; f.From != m.To {
			f.To = m.To
			if f.Cause != cluster.CauseViolation {
				f.Gain = gains[m.UUID]
			}
			short = append(short, f)
		}
	}
	if !replay(in, opts, short) {
		return moves
	}
	return short
}

// replay reports whether the moves can be carried out in order, none making the score worse. Moves that empty a node
// count together. It says anew why a task moves between two nodes.
func replay(in Input, opts Options, moves []Move) bool {
	b := newState(in, opts)
	byUUID := map[string]int32{}
	for i := range b.tasks {
		byUUID[b.tasks[i].UUID] = int32(i)
	}
	score := b.score()
	for k, m := range moves {
		i := byUUID[m.UUID]
		to, _ := b.find(m.To)
		r, ok := b.ask(i, to)
		if !ok {
			return false
		}
		if a := aspectOf(m.Cause); a != nil {
			from, _ := b.find(m.From)
			moves[k].Message = a.why(b, b.classOf[i], from, to)
		}
		b.applyMove(i, b.classOf[i], r)
		if m.Cause == cluster.CauseEmpty && k+1 < len(moves) && moves[k+1].Cause == cluster.CauseEmpty {
			continue
		}
		next := b.score()
		if next.Compare(score) > 0 {
			return false
		}
		score = next
	}
	return true
}
