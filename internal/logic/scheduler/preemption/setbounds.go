package preemption

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
)

// wantsDevice reports whether a device suits one of the requests for whole devices.
func (s *setSearch) wantsDevice(d *cluster.Device) bool {
	for i := range s.c.Devices.Requests {
		if r := &s.c.Devices.Requests[i]; r.Share == 0 && devices.Suits(r, d) {
			return true
		}
	}
	return false
}

// shortage returns the amounts that the node lacks for the class.
func (s *setSearch) shortage(slot int32) (a amounts) {
	l, d := s.p.Nodes.Load(slot), s.c.Demand
	if d.CPU > 0 {
		a[0] = max(int64(l.Used.CPU+d.CPU-l.Capacity.CPU), 0)
	}
	if d.Memory > 0 {
		a[1] = max(int64(l.Used.Memory+d.Memory-l.Capacity.Memory), 0)
	}
	if d.Disk > 0 {
		a[2] = max(int64(l.Used.Disk+d.Disk-l.Capacity.Disk), 0)
	}
	if s.devices > 0 {
		a[3] = s.devices
		used, list := s.p.Nodes.DevicesOf(slot), s.p.Nodes.Node(slot).Devices
		for i := range list {
			if _, taken := used.Find(list[i].ID); !taken && s.wantsDevice(&list[i]) {
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

// bestRank returns a lower bound of the node's rank after that many victims of a level have ended. The node is now
// short of the given amounts.
func (s *setSearch) bestRank(slot int32, short amounts, level *freeableLevel, count int) (r rank.Rank) {
	p, c, l := s.p, s.c, s.p.Nodes.Load(slot)
	switch {
	case c.Devices.UsesValueModel || len(c.Images.Nodes) > 0:
		return r
	case !c.HasPreferences:
		r.Tier = rank.EmptyTier
	case p.victims.hasNoRelated():
		r.Tier = rank.TierOf(c.ClassPoints(l.Class)+p.Eval.NodePoints(c, slot), c.Filter.IsPenalized(l.Class))
	default:
		return r
	}
	shape := p.Nodes.Fleet.Catalog.Classes[l.Class].Shape
	after, tasks := short, l.Tasks
	if c.Strategy == cluster.StrategySpread {
		after, tasks = level.maxFrees, max(l.Tasks-int32(count), 0)
		for i := range after {
			after[i] *= int64(count)
		}
	}
	used := l.Used.Sub(cluster.Demand{
		CPU: cluster.MilliCPU(after[0]), Memory: cluster.Bytes(after[1]),
		Disk: cluster.Bytes(after[2]),
	})
	fill := (index.SharesOf(used, p.Nodes.Fleet.Catalog.Shapes[shape]).Fill()+p.Nodes.ShapeShares(
		c.Demand)[shape].Fill())<<index.TaskBits | uint64(min(tasks, index.MaxCountedTasks))
	if r.Fill = fill; c.Strategy != cluster.StrategySpread {
		r.Fill = 1<<index.LevelShift - 1 - fill
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
