package preemption

import (
	"container/heap"

	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// nodeCost is what it costs to make room on a node.
type nodeCost struct {
	price
	exact     bool // else price and rank are lower bounds
	slot      int32
	stamp     int32     // of the node, when the cost was found
	rank      rank.Rank // after the victims have ended
	nameOrder uint64
	victims   []int32
	reclaims  bool // the victims end as their clusters hold more than their quotas: see reclaim
}

// nodeCostHeap holds all nodes for a task class and a highest priority of victims, the cheapest on top. Most costs are
// made exact only at the top. A cost is void when its node has changed.
type nodeCostHeap struct {
	p           *preempt
	c           *taskclass.Class
	maxPriority int // of victims
	heap        []nodeCost
	seen        int // how much of preempt.changed it contains
	isVolatile  bool
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
		return a.rank.Less(b.rank)
	}
	return a.nameOrder < b.nameOrder
}

// best returns the cheapest node. It stays in the heap until the node changes.
func (s *nodeCostHeap) best() (nodeCost, bool) {
	s.p.sets.begin(s.p, s.c, s.maxPriority)
	for ; s.seen < len(s.p.victims.changed); s.seen++ {
		if r, ok := s.estimate(s.p.victims.changed[s.seen]); ok {
			heap.Push(s, r)
		}
	}
	for len(s.heap) > 0 {
		top := &s.heap[0]
		switch {
		case top.stamp != s.p.victims.stamp[top.slot]:
			heap.Pop(s)
		case top.exact && s.p.victims.ownersCanSpare(top.victims):
			return *top, true
		default:
			r, ok := s.p.sets.cheapest(top.slot)
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
	r = nodeCost{slot: slot, stamp: p.victims.stamp[slot], nameOrder: p.Nodes.Fleet.Names.Order[slot]}
	if !p.isCurable(s.c, slot) || p.isExcluded(s.c, slot) {
		return r, false
	}
	short := p.sets.shortage(slot)
	if short == (amounts{}) {
		if code, _ := p.Eval.LoadRefusal(s.c, slot); code == "" {
			r.exact, r.rank = true, p.Eval.RankOf(s.c, slot)
			return r, true
		}
	}
	price, level := p.sets.lowerBound(slot, short)
	if level == nil {
		return r, false
	}
	r.price, r.rank = price, p.sets.bestRank(slot, short, level, price.count)
	return r, true
}
