package rank

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// CandidateHeap is a heap of nodes with devices for one task class, the best on top. It starts with whole device
// classes, each with a lower bound of its nodes' ranks. Pages that come to the top are expanded into their children. A
// touched node is pushed again; its older entries are dropped when they come to the top.
type CandidateHeap struct {
	Heap  []Candidate
	Costs []DeviceClassCost
	// CostBounds backs those of all costs, and StepBuffer backs their bounds.
	CostBounds []packing.CostBound
	StepBuffer []int32
	FilledAt   int32 // the number of touched nodes when it was filled
	Seen       int   // how many of the touched nodes it contains
	// NodeClass is the only node class of the heap, or -1 if it holds all. Task classes with dynamic terms need one
	// heap for each node class: the preferences that are equal for a whole node class are then left out of its ranks.
	NodeClass int32
	MinTier   uint64 // a lower bound of all tiers
}

// Candidate is a node with its rank at one of its turns, or a page of a device class.
type Candidate struct {
	RankedNode
	NameOrder  uint64 // of a page: a lower bound of its nodes' NameOrder
	Turn, Cost int32
	Page       *index.Page // nil for a node
	// Exact says that Rank is the node's rank; else it is a lower bound.
	Exact bool
}

// DeviceClassCost is what a task of one class costs on nodes of a device class: bounds by device type, and the fill
// that it adds.
type DeviceClassCost struct {
	CostBounds []packing.CostBound // none if the value model does not apply
	More       index.Shares
}

// MinLoss returns a lower bound of the loss on nodes with free CPU and memory from least to most. It equals the loss
// if least and most are equal.
func (b *DeviceClassCost) MinLoss(least, most cluster.Demand) uint64 {
	lost := int64(0)
	for i := range b.CostBounds {
		lost += b.CostBounds[i].Least(least, most)
	}
	return packing.Loss(lost)
}

// Heapify establishes the heap order.
func (r *CandidateHeap) Heapify() {
	for i := len(r.Heap)/2 - 1; i >= 0; i-- {
		r.SiftDown(i)
	}
}

// Push adds a candidate.
func (r *CandidateHeap) Push(x Candidate) {
	r.Heap = append(r.Heap, x)
	for i := len(r.Heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !r.Heap[i].precedes(&r.Heap[up]) {
			return
		}
		r.Heap[i], r.Heap[up] = r.Heap[up], r.Heap[i]
		i = up
	}
}

// Pop removes the first candidate.
func (r *CandidateHeap) Pop() {
	last := len(r.Heap) - 1
	r.Heap[0] = r.Heap[last]
	r.Heap = r.Heap[:last]
	r.SiftDown(0)
}

// SiftDown moves the candidate at i down to its place.
func (r *CandidateHeap) SiftDown(i int) {
	for {
		first := i
		for down := 2*i + 1; down <= 2*i+2 && down < len(r.Heap); down++ {
			if r.Heap[down].precedes(&r.Heap[first]) {
				first = down
			}
		}
		if first == i {
			return
		}
		r.Heap[i], r.Heap[first] = r.Heap[first], r.Heap[i]
		i = first
	}
}

func (x *Candidate) precedes(o *Candidate) bool {
	return x.Rank.Less(o.Rank) || x.Rank == o.Rank && x.NameOrder < o.NameOrder
}
