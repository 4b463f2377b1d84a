package scheduler

import "github.com/berthd/berth/internal/cluster"

// freeable is what the victims of a node can free, for any task class, by levels of priority from the lowest. It is
// valid until the node changes.
type freeable struct {
	known  bool
	stamp  int32
	levels []freeableLevel
}

// freeableLevel is the victims of a node up to a priority.
type freeableLevel struct {
	priority        int
	frees, maxFrees amounts // in all; by one victim at most
}

// freeableLevels returns the levels of a node. It counts whole devices of any type.
func (p *preempt) freeableLevels(slot int32) []freeableLevel {
	o := &p.freeables[slot]
	if o.known && o.stamp == p.stamp[slot] {
		return o.levels
	}
	o.known, o.stamp = true, p.stamp[slot]
	from, sum := len(p.levels), freeableLevel{}
	for _, n := range p.victimsOn(slot) {
		v := &p.victims[n]
		if v.gone {
			continue
		}
		frees := amountsOf(v.frees, v.devices)
		sum.frees = sum.frees.plus(frees)
		for i := range frees {
			sum.maxFrees[i] = max(sum.maxFrees[i], frees[i])
		}
		if last := len(p.levels) - 1; last < from || p.levels[last].priority != v.Priority {
			p.levels = append(p.levels, freeableLevel{})
		}
		sum.priority = v.Priority
		p.levels[len(p.levels)-1] = sum
	}
	o.levels = p.levels[from:len(p.levels):len(p.levels)]
	return o.levels
}

// hasNoRelated reports whether ending victims cannot change the terms of any class: no task that groups or relations
// count stands anywhere.
func (p *preempt) hasNoRelated() bool {
	return len(p.waitingGroups)+len(p.relationViews)+len(p.exclusionViews) == 0
}

// isExcluded reports whether a term keeps the class from a node even if victims end there.
func (p *preempt) isExcluded(c *taskClass, slot int32) bool {
	if !p.hasNoRelated() {
		return false
	}
	code, _ := p.unmetTerm(c, slot)
	return code != "" || c.affinity == cluster.AntiAffinityDemand && c.group.tasksOn(slot) > 0
}

// bestRank returns a lower bound of the node's rank after so many victims of a level have ended. The node is now short
// of the given amounts.
func (s *search) bestRank(slot int32, short amounts, level *freeableLevel, count int) (r rank) {
	p, c, l := s.p, s.c, s.p.load(slot)
	switch {
	case c.usesValueModel || len(c.images) > 0:
		return r
	case !c.hasWishes:
		r.tier = emptyTier
	case p.hasNoRelated():
		r.tier = tierOf(c.classPoints(l.class)+p.nodePoints(c, slot), c.filter.isPenalized(l.class))
	default:
		return r
	}
	shape := p.fleet.catalog.classes[l.class].shape
	after, tasks := short, l.tasks
	if c.strategy == cluster.StrategySpread {
		after, tasks = level.maxFrees, max(l.tasks-int32(count), 0)
		for i := range after {
			after[i] *= int64(count)
		}
	}
	used := l.used.Sub(cluster.Demand{
		CPU: cluster.MilliCPU(after[0]), Memory: cluster.Bytes(after[1]),
		Disk: cluster.Bytes(after[2]),
	})
	fill := (sharesOf(used, p.fleet.catalog.shapes[shape]).fill()+p.shapeShares(
		c.demand)[shape].fill())<<taskBits | uint64(min(tasks, maxCountedTasks))
	if r.fill = fill; c.strategy != cluster.StrategySpread {
		r.fill = 1<<levelShift - 1 - fill
	}
	return r
}
