package scheduler

import "github.com/berthd/berth/internal/cluster"

// wantsDevice reports whether a device suits one of the requests for whole devices.
func (s *setSearch) wantsDevice(d *cluster.Device) bool {
	for i := range s.c.devices.requests {
		if r := &s.c.devices.requests[i]; r.Share == 0 && suits(r, d) {
			return true
		}
	}
	return false
}

// shortage returns the amounts that the node lacks for the class.
func (s *setSearch) shortage(slot int32) (a amounts) {
	l, d := s.p.nodes.load(slot), s.c.demand
	if d.CPU > 0 {
		a[0] = max(int64(l.used.CPU+d.CPU-l.capacity.CPU), 0)
	}
	if d.Memory > 0 {
		a[1] = max(int64(l.used.Memory+d.Memory-l.capacity.Memory), 0)
	}
	if d.Disk > 0 {
		a[2] = max(int64(l.used.Disk+d.Disk-l.capacity.Disk), 0)
	}
	if s.devices > 0 {
		a[3] = s.devices
		used, list := s.p.nodes.devicesOf(slot), s.p.nodes.node(slot).Devices
		for i := range list {
			if _, taken := used.find(list[i].ID); !taken && s.wantsDevice(&list[i]) {
				a[3]--
			}
		}
		a[3] = max(a[3], 0)
	}
	return a
}

// freed returns an upper bound of what a victim's end frees.
func (s *setSearch) freed(v *victim) amounts {
	if s.devices == 0 {
		return amountsOf(v.frees, 0)
	}
	return amountsOf(v.frees, v.devices)
}

// lowerBound returns a lower bound of the victims' price, and the level that covers the shortage; nil if no level does.
func (s *setSearch) lowerBound(slot int32, short amounts) (least price, level *freeableLevel) {
	levels := s.p.freeables.levelsOf(slot)
	for i := range levels {
		l := &levels[i]
		if l.priority > s.maxPriority {
			break
		}
		if short.less(l.frees) == (amounts{}) {
			least.highest, least.count = l.priority, max(minCount(short, l.maxFrees), 1)
			if least.count == 1 && !s.oneSuffices(slot, short, l.priority) {
				least.count = 2
			}
			least.sum = least.highest + (least.count-1)*max(levels[0].priority, 0)
			return least, l
		}
	}
	return least, nil
}

// oneSuffices reports whether one victim of at most that priority frees enough.
func (s *setSearch) oneSuffices(slot int32, short amounts, priority int) bool {
	for _, n := range s.p.victims.on(slot) {
		v := &s.p.victims.list[n]
		if v.Priority > priority {
			return false
		}
		if !v.gone && short.less(amountsOf(v.frees, v.devices)) == (amounts{}) {
			return true
		}
	}
	return false
}

// bestRank returns a lower bound of the node's rank after so many victims of a level have ended. The node is now short
// of the given amounts.
func (s *setSearch) bestRank(slot int32, short amounts, level *freeableLevel, count int) (r rank) {
	p, c, l := s.p, s.c, s.p.nodes.load(slot)
	switch {
	case c.devices.usesValueModel || len(c.images.nodes) > 0:
		return r
	case !c.hasWishes:
		r.tier = emptyTier
	case p.victims.hasNoRelated():
		r.tier = tierOf(c.classPoints(l.class)+p.eval.nodePoints(c, slot), c.filter.isPenalized(l.class))
	default:
		return r
	}
	shape := p.nodes.fleet.catalog.classes[l.class].shape
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
	fill := (sharesOf(used, p.nodes.fleet.catalog.shapes[shape]).fill()+p.nodes.shapeShares(
		c.demand)[shape].fill())<<taskBits | uint64(min(tasks, maxCountedTasks))
	if r.fill = fill; c.strategy != cluster.StrategySpread {
		r.fill = 1<<levelShift - 1 - fill
	}
	return r
}

// minCount returns a lower bound of the number of victims, if one frees no more than most.
func minCount(short, most amounts) (count int) {
	for i, a := range short {
		if a > 0 {
			count = max(count, int((a+most[i]-1)/max(most[i], 1)))
		}
	}
	return count
}
