package optimizer

import "github.com/berthd/berth/internal/cluster"

// score tells how well tasks stand now.
func (b *board) score() Score {
	s := Score{Violations: len(b.violating())}
	var uneven, strand int64
	for n := range b.nodes {
		o := &b.nodes[n]
		if b.packs && o.inUse() {
			s.Used++
		}
		uneven += square(o.share)
		strand += o.stranded
	}
	if b.whole {
		s.Stranded = int(strand * Points / one)
	}
	if !b.spread {
		return s
	}
	uneven = uneven >> shareBits * Points / one
	for _, g := range b.groups {
		uneven += b.unevenness(g)
	}
	for i := range b.tasks {
		t := &b.tasks[i]
		n, found := b.find(t.Node)
		if c := b.kinds[i]; found && c != nil && c.liked != nil && c.strategy == cluster.StrategySpread {
			uneven -= int64(points(c.liked[n]))
		}
	}
	s.Uneven = int(uneven)
	return s
}

// unevenness returns, in points, how far a version's tasks are from the spread that they ask for.
func (b *board) unevenness(g *group) int64 {
	if g.class.strategy != cluster.StrategySpread {
		return 0
	}
	var sum int64
	if b.apart(g.class) > 0 {
		pairs := int64(0)
		for _, k := range g.at { // order-free: a sum
			pairs += int64(k) * int64(k-1) / 2
		}
		sum = pairs * Points * int64(b.open) / int64(max(g.count, b.open))
	}
	for i := range g.spreads {
		s := &g.spreads[i]
		for v := range s.names {
			off := s.off(int32(v))
			sum += off * off >> 10 * s.weight * Points / (2 * cluster.DefaultWeight * s.mean * 1024)
		}
	}
	return sum
}

// mostShortened bounds the lists that are shortened, as all of one is carried out once more for that.
const mostShortened = 100

// shorten replaces moves of one task in several steps by a single one, where the list is as good then at every step.
func shorten(in Input, opts Options, moves []Move) []Move {
	last := map[string]int{}
	for i := range moves {
		last[moves[i].UUID] = i
	}
	if len(last) == len(moves) || len(moves) > mostShortened {
		return moves
	}
	from, gains := map[string]string{}, map[string]int{}
	var short []Move
	for i, m := range moves {
		if _, known := from[m.UUID]; !known {
			from[m.UUID] = m.From
		}
		gains[m.UUID] += m.Gain
		if last[m.UUID] != i {
			continue
		}
		if m.From, m.Gain = from[m.UUID], gains[m.UUID]; m.From != m.To {
			short = append(short, m)
		}
	}
	if !replay(in, opts, short) {
		return moves
	}
	return short
}

// replay reports whether the moves can be carried out in their order, each leaving things no worse; those that empty
// nodes are taken together.
func replay(in Input, opts Options, moves []Move) bool {
	b := newBoard(in, opts)
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
		b.carry(i, b.kinds[i], r)
		if m.Cause == CauseEmpty && k+1 < len(moves) && moves[k+1].Cause == CauseEmpty {
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
