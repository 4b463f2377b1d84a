package scheduler

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// candidateHeap is a heap of nodes with devices for one task class, the best on top. It starts with whole device
// classes, each with a lower bound of its nodes' ranks. Pages that come to the top are expanded into their children. A
// touched node is pushed again; its older entries are dropped when they come to the top.
type candidateHeap struct {
	heap  []candidate
	costs []deviceClassCost
	// costBounds backs those of all costs, and stepBuffer backs their bounds.
	costBounds []packing.CostBound
	stepBuffer []int32
	filledAt   int32 // length of cycle.touched when it was filled
	seen       int   // how much of cycle.touched it contains
	// nodeClass is the only node class of the heap, or -1 if it holds all. Task classes with dynamic terms need one
	// heap for each node class: the wishes that are equal for a whole node class are then left out of its ranks.
	nodeClass int32
	minTier   uint64 // a lower bound of all tiers
}

// candidate is a node with its rank at one of its turns, or a page of a device class.
type candidate struct {
	rankedNode
	nameOrder  uint64 // of a page: a lower bound of its nodes' nameOrder
	turn, cost int32
	page       *page // nil for a node
	// exact says that rank is the node's rank; else it is a lower bound.
	exact bool
}

// deviceClassCost is what a task of one class costs on nodes of a device class: bounds by device type, and the fill
// that it adds.
type deviceClassCost struct {
	costBounds []packing.CostBound // none if the value model does not apply
	more       shares
}

// minLoss returns a lower bound of the loss on nodes with free CPU and memory from least to most. It equals valueLoss
// if least and most are equal.
func (b *deviceClassCost) minLoss(least, most cluster.Demand) uint64 {
	lost := int64(0)
	for i := range b.costBounds {
		lost += b.costBounds[i].Least(least, most)
	}
	return packing.Loss(lost)
}

// heapify establishes the heap order.
func (r *candidateHeap) heapify() {
	for i := len(r.heap)/2 - 1; i >= 0; i-- {
		r.siftDown(i)
	}
}

// push adds a candidate.
func (r *candidateHeap) push(x candidate) {
	r.heap = append(r.heap, x)
	for i := len(r.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !r.heap[i].precedes(&r.heap[up]) {
			return
		}
		r.heap[i], r.heap[up] = r.heap[up], r.heap[i]
		i = up
	}
}

// pop removes the first candidate.
func (r *candidateHeap) pop() {
	last := len(r.heap) - 1
	r.heap[0] = r.heap[last]
	r.heap = r.heap[:last]
	r.siftDown(0)
}

// siftDown moves the candidate at i down to its place.
func (r *candidateHeap) siftDown(i int) {
	for {
		first := i
		for down := 2*i + 1; down <= 2*i+2 && down < len(r.heap); down++ {
			if r.heap[down].precedes(&r.heap[first]) {
				first = down
			}
		}
		if first == i {
			return
		}
		r.heap[i], r.heap[first] = r.heap[first], r.heap[i]
		i = first
	}
}

func (x *candidate) precedes(o *candidate) bool {
	return x.rank.less(o.rank) || x.rank == o.rank && x.nameOrder < o.nameOrder
}
