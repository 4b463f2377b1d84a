package scheduler

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// price is what a set of victims costs.
type price struct {
	highest int // among the victims
	sum     int // of the victims
	count   int
}

func (a price) compare(b price) int {
	return cmp.Or(cmp.Compare(a.highest, b.highest), cmp.Compare(a.sum, b.sum), cmp.Compare(a.count, b.count))
}

func (a price) add(b price) price {
	return price{max(a.highest, b.highest), a.sum + b.sum, a.count + b.count}
}

// nodeCost is what it costs to make room on a node.
type nodeCost struct {
	price
	exact     bool // else price and rank are lower bounds
	slot      int32
	stamp     int32 // of the node, when the cost was found
	rank      rank  // after the victims have ended
	nameOrder uint64
	victims   []int32
}

// nodeCostHeap holds all nodes for a task class of one priority, the cheapest on top. Most costs are made exact only at
// the top. A cost is void when its node has changed.
type nodeCostHeap struct {
	p          *preempt
	c          *taskClass
	priority   int
	heap       []nodeCost
	seen       int // how much of preempt.changed it contains
	isVolatile bool
}

func (s *nodeCostHeap) Len() int { return len(s.heap) }

func (s *nodeCostHeap) Swap(i, j int) { s.heap[i], s.heap[j] = s.heap[j], s.heap[i] }

func (s *nodeCostHeap) Push(x any) {
	if r, ok := x.(nodeCost); ok {
		s.heap = append(s.heap, r)
	}
}

func (s *nodeCostHeap) Pop() any {
	last := s.heap[len(s.heap)-1]
	s.heap = s.heap[:len(s.heap)-1]
	return last
}

func (s *nodeCostHeap) Less(i, j int) bool {
	a, b := &s.heap[i], &s.heap[j]
	if d := a.price.compare(b.price); d != 0 {
		return d < 0
	}
	if a.rank != b.rank {
		return a.rank.less(b.rank)
	}
	return a.nameOrder < b.nameOrder
}

// maxNodeCostHeaps limits the heaps that are kept: each is as large as the fleet.
const maxNodeCostHeaps = 8

// choose returns the best node for the task at a position.
func (p *preempt) choose(position int32) (best nodeCost, found bool) {
	c, task := p.taskClassAt[position], p.task(position)
	if slot, known := p.fleet.search(task.Promised); known && p.isCurable(c, slot) {
		if code, _ := p.loadRefusal(c, slot); code == "" {
			return nodeCost{slot: slot}, true
		}
	}
	s := p.nodeCostHeaps[c]
	if s == nil || s.priority != task.Priority || s.isVolatile {
		p.discard(c)
		if len(p.nodeCostHeaps) >= maxNodeCostHeaps {
			p.discard(slices.Collect(maps.Keys(p.nodeCostHeaps))...) // order-free: all go
		}
		s = p.newNodeCostHeap(c, task.Priority)
		p.nodeCostHeaps[c] = s
	}
	return s.best()
}

// discard drops heaps, and keeps their memory for reuse.
func (p *preempt) discard(classes ...*taskClass) {
	for _, c := range classes {
		if s := p.nodeCostHeaps[c]; s != nil {
			p.spareHeaps = append(p.spareHeaps, s.heap[:0])
			delete(p.nodeCostHeaps, c)
		}
	}
}

// newNodeCostHeap estimates all nodes. If the costs of a node depend on other nodes by the terms of the class, the heap
// is volatile: it is used only once.
func (p *preempt) newNodeCostHeap(c *taskClass, priority int) *nodeCostHeap {
	s := &nodeCostHeap{p: p, c: c, priority: priority, seen: len(p.changed)}
	s.isVolatile = c.isDynamic || c.scansAll || c.revives ||
		slices.ContainsFunc(c.spreads, func(t spreadTerm) bool { return t.view.table == nil })
	if last := len(p.spareHeaps) - 1; last >= 0 {
		s.heap, p.spareHeaps = p.spareHeaps[last], p.spareHeaps[:last]
	}
	p.search.begin(p, c, priority)
	add := func(slot int32) {
		if r, ok := s.estimate(slot); ok {
			s.heap = append(s.heap, r)
		}
	}
	if slots, few := p.namedNodes(c); few {
		for _, slot := range slots {
			add(slot)
		}
	} else {
		for _, class := range c.filter.feasible {
			if p.hasNoRelated() && c.isDynamic && c.refusesNodeClass(class) {
				continue
			}
			p.visit(p.fleet.catalog.trees[byFill][class].page, add)
		}
	}
	heap.Init(s)
	return s
}

// best returns the cheapest node. It stays in the heap until the node changes.
func (s *nodeCostHeap) best() (nodeCost, bool) {
	s.p.search.begin(s.p, s.c, s.priority)
	for ; s.seen < len(s.p.changed); s.seen++ {
		if r, ok := s.estimate(s.p.changed[s.seen]); ok {
			heap.Push(s, r)
		}
	}
	for len(s.heap) > 0 {
		top := &s.heap[0]
		switch {
		case top.stamp != s.p.stamp[top.slot]:
			heap.Pop(s)
		case top.exact && s.p.ownersCanSpare(top.victims):
			return *top, true
		default:
			r, ok := s.p.search.cheapest(top.slot)
			if !ok {
				heap.Pop(s)
				continue
			}
			r.stamp, r.nameOrder = top.stamp, top.nameOrder
			*top = r
			heap.Fix(s, 0)
		}
	}
	return nodeCost{}, false
}

// estimate returns a lower bound of a node's cost; exact if no victim is needed. ok is false if no victims suffice.
func (s *nodeCostHeap) estimate(slot int32) (r nodeCost, ok bool) {
	p := s.p
	r = nodeCost{slot: slot, stamp: p.stamp[slot], nameOrder: p.fleet.names.order[slot]}
	if !p.isCurable(s.c, slot) || p.isExcluded(s.c, slot) {
		return r, false
	}
	short := p.search.shortage(slot)
	if short == (amounts{}) {
		if code, _ := p.loadRefusal(s.c, slot); code == "" {
			r.exact, r.rank = true, p.rankOf(s.c, slot)
			return r, true
		}
	}
	price, level := p.search.lowerBound(slot, short)
	if level == nil {
		return r, false
	}
	r.price, r.rank = price, p.search.bestRank(slot, short, level, price.count)
	return r, true
}

// isCurable reports whether only refusals that victims can cure keep the class from the node.
func (p *preempt) isCurable(c *taskClass, slot int32) bool {
	l := p.load(slot)
	if l.class < 0 || !c.filter.isFeasible[l.class] || !p.meetsPerNode(c.filter, slot) || c.OnlyNode != "" &&
		c.OnlyNode != p.node(slot).Name {
		return false
	}
	return !slices.Contains(c.excluded, slot) && (c.deviceless == nil || !c.deviceless[l.class])
}

// ownersCanSpare reports whether the owners can spare the victims.
func (p *preempt) ownersCanSpare(victims []int32) bool {
	ok := true
	for _, v := range victims {
		if o := p.victims[v].owner; o >= 0 {
			p.spare[o]--
			ok = ok && p.spare[o] >= 0
		}
	}
	for _, v := range victims {
		if o := p.victims[v].owner; o >= 0 {
			p.spare[o]++
		}
	}
	return ok
}

// rankWithout returns the rank of a node after victims have ended.
func (p *preempt) rankWithout(c *taskClass, slot int32, victims []int32) rank {
	for _, v := range victims {
		p.chargeVictim(v, -1, c)
	}
	r := p.rankOf(c, slot)
	for _, v := range victims {
		p.chargeVictim(v, 1, c)
	}
	return r
}

// amounts are of CPU, memory, disk and whole devices.
type amounts [4]int64

func amountsOf(d cluster.Demand, devices int64) amounts {
	return amounts{int64(d.CPU), int64(d.Memory), int64(d.Disk), devices}
}

// less subtracts amounts, down to 0.
func (a amounts) less(b amounts) amounts {
	for i := range a {
		a[i] = max(a[i]-b[i], 0)
	}
	return a
}

func (a amounts) minus(b amounts) amounts {
	for i := range a {
		a[i] -= b[i]
	}
	return a
}

func (a amounts) plus(b amounts) amounts {
	for i := range a {
		a[i] += b[i]
	}
	return a
}
