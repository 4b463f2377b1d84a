package scheduler

import "github.com/berthd/berth/internal/cluster"

// outlook is what the victims of a node free, for any class of tasks: level by level of their priorities, from the
// lowest. It holds until the node changes.
type outlook struct {
	known  bool
	stamp  int32
	levels []outlookLevel
}

// outlookLevel is the victims of a node up to a priority.
type outlookLevel struct {
	priority    int
	frees, most amounts // all of them, and one at most
}

// outlookOf returns that of a node. Whole devices count whatever their type.
func (p *preempt) outlookOf(slot int32) []outlookLevel {
	o := &p.outlooks[slot]
	if o.known && o.stamp == p.stamp[slot] {
		return o.levels
	}
	o.known, o.stamp = true, p.stamp[slot]
	from, sum := len(p.levels), outlookLevel{}
	for _, n := range p.at(slot) {
		v := &p.victims[n]
		if v.gone {
			continue
		}
		frees := amountsOf(v.frees, v.devices)
		sum.frees = sum.frees.plus(frees)
		for i := range frees {
			sum.most[i] = max(sum.most[i], frees[i])
		}
		if last := len(p.levels) - 1; last < from || p.levels[last].priority != v.Priority {
			p.levels = append(p.levels, outlookLevel{})
		}
		sum.priority = v.Priority
		p.levels[len(p.levels)-1] = sum
	}
	o.levels = p.levels[from:len(p.levels):len(p.levels)]
	return o.levels
}

// settled reports whether nothing that ends changes what the demands and wishes of a class on the nearness of others
// say of a node: no task of the waiting groups stands on any, nor one that relations look at.
func (p *preempt) settled() bool { return len(p.counted)+len(p.watches)+len(p.guards) == 0 }

// stays reports whether others keep the class from a node, whoever ends there.
func (p *preempt) stays(c *class, slot int32) bool {
	if !p.settled() {
		return false
	}
	code, _ := p.breaks(c, slot)
	return code != "" || c.affinity == cluster.AntiAffinityDemand && c.group.near(slot) > 0
}

// bestRank returns a rank that the node is not better than when so many victims of a level have ended, which is short
// of so much now.
func (s *search) bestRank(slot int32, short amounts, level *outlookLevel, count int) (r rank) {
	p, c, l := s.p, s.c, s.p.load(slot)
	switch {
	case c.priced || len(c.images) > 0:
		return r
	case !c.wishes:
		r.tier = emptyTier
	case p.settled():
		r.tier = tierOf(c.classPoints(l.class)+p.nodePoints(c, slot), c.sieve.avoids(l.class))
	default:
		return r
	}
	shape := p.fleet.catalog.classes[l.class].shape
	after, tasks := short, l.tasks
	if c.strategy == cluster.StrategySpread {
		after, tasks = level.most, max(l.tasks-int32(count), 0)
		for i := range after {
			after[i] *= int64(count)
		}
	}
	used := l.used.Sub(cluster.Demand{
		CPU: cluster.MilliCPU(after[0]), Memory: cluster.Bytes(after[1]),
		Disk: cluster.Bytes(after[2]),
	})
	fill := (sharesOf(used, p.fleet.catalog.shapes[shape]).fill()+p.shapeShares(
		c.demand)[shape].fill())<<taskBits | uint64(min(tasks, mostTasks))
	if r.fill = fill; c.strategy != cluster.StrategySpread {
		r.fill = 1<<levelShift - 1 - fill
	}
	return r
}
