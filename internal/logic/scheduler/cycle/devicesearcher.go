package cycle

import (
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/evaluation"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// deviceSearcher searches nodes by device class, for tasks whose ranks depend on devices: no order of nodes holds for
// all of them. It expands pages of device classes in the order of their lower bounds, and stops at the first exact
// rank.
type deviceSearcher struct {
	nodes         *fleet.Overlay
	eval          *evaluation.Evaluator
	singleUseHeap rank.CandidateHeap // for task classes that search only once
}

// searchedByDevices reports whether the nodes of a node class are searched by device class. Where a task requests
// devices, or where their value counts, no order of nodes holds for all tasks.
func (d *deviceSearcher) searchedByDevices(c *taskclass.Class, class int32) bool {
	return (len(c.Devices.Requests) > 0 || d.eval.ValueModelApplies(c, class)) &&
		(c.Devices.Lacking == nil || !c.Devices.Lacking[class])
}

// maxSingleUseTasks is the number of tasks up to which a dynamic class fills a heap for each search. Beyond it, the
// class keeps one heap for each node class.
const maxSingleUseTasks = 16

// searchDeviceNodes returns the better of best and the best node with devices of some node classes. It does not
// consider preferences that single nodes of a node class meet.
func (d *deviceSearcher) searchDeviceNodes(c *taskclass.Class, classes []int32, best rank.RankedNode) rank.RankedNode {
	switch {
	case len(classes) == 0:
		return best
	// The heap would not be used again.
	case c.Found.CandidateHeaps == nil && (c.Left <= 1 || c.IsDynamic && c.Left <= maxSingleUseTasks):
		d.fillHeap(&d.singleUseHeap, c, classes)
		return d.bestOfHeap(&d.singleUseHeap, c, best)
	case !c.IsDynamic:
		return d.bestOfHeap(d.candidateHeapOf(c, -1, classes), c, best)
	}
	for _, class := range classes {
		if !c.RefusesNodeClass(class) {
			best = d.bestOfHeap(d.candidateHeapOf(c, class, nil), c, best)
		}
	}
	return best
}

// candidateHeapOf returns the current heap of a node class, or with -1 of all node classes.
func (d *deviceSearcher) candidateHeapOf(c *taskclass.Class, class int32, classes []int32) *rank.CandidateHeap {
	r := c.Found.CandidateHeaps[class]
	if r == nil {
		r = &rank.CandidateHeap{}
		if class < 0 {
			d.fillHeap(r, c, classes)
		} else {
			d.fillHeapOfClass(r, c, class)
		}
		d.nodes.RetainDevicePages() // the heap refers to them
		if c.Found.CandidateHeaps == nil {
			c.Found.CandidateHeaps = map[int32]*rank.CandidateHeap{}
		}
		c.Found.CandidateHeaps[class] = r
	}
	for ; r.Seen < len(d.nodes.Touched); r.Seen++ {
		slot := d.nodes.Touched[r.Seen]
		of := d.nodes.Load(slot).Class
		if (of == class || class < 0 && d.searchedByDevices(c, of)) && d.eval.IsFeasible(c, slot) {
			r.Push(d.nodeCandidate(r, c, slot))
		}
	}
	return r
}

// bestOfHeap returns the better of best and the best node of the heap.
func (d *deviceSearcher) bestOfHeap(r *rank.CandidateHeap, c *taskclass.Class, best rank.RankedNode) rank.RankedNode {
	tier := uint64(0) // the preferences that the heap leaves out
	if r.NodeClass >= 0 && c.HasPreferences {
		tier = rank.TierOf(c.ClassPoints(r.NodeClass), false) - rank.TierOf(0, false)
	}
	for len(r.Heap) > 0 {
		top := &r.Heap[0]
		if best.Slot >= 0 && best.Rank.Less(rank.Rank{Tier: top.Rank.Tier + tier, Fill: top.Rank.Fill}) {
			return best
		}
		turn := int32(0)
		if top.Page == nil {
			turn = d.nodes.Load(top.Slot).Turn
		}
		switch {
		case top.Page != nil:
			opened := *top
			r.Pop()
			best = d.expandPage(r, c, &opened, best)
		case top.Exact && top.Turn == turn:
			return d.eval.Better(best, rank.RankedNode{Rank: d.eval.RankOf(c, top.Slot), Slot: top.Slot})
		case !top.Exact && turn <= r.FilledAt && d.eval.IsFeasible(c, top.Slot):
			*top = d.nodeCandidate(r, c, top.Slot)
			r.SiftDown(0)
		default:
			r.Pop()
		}
	}
	return best
}

// expandPage pushes the children of a page. For the single-use heap it compares nodes with best directly instead.
func (d *deviceSearcher) expandPage(r *rank.CandidateHeap, c *taskclass.Class, opened *rank.Candidate,
	best rank.RankedNode,
) rank.RankedNode {
	p, q := opened.Page, index.Query{Need: c.Need}
	for i := range p.Children {
		if k := &p.Children[i]; p.Spans[i].Classes&c.Filter.Mask != 0 && q.Fits(k.MaxFree) {
			r.Push(d.pageCandidate(r, c, opened.Cost, k, &p.Spans[i]))
		}
	}
	b := &r.Costs[opened.Cost]
	for i := range p.Entries {
		en := &p.Entries[i]
		if !q.Fits(en.Free) {
			continue
		}
		k := rank.Rank{Tier: r.MinTier + b.MinLoss(en.Free, en.Free) - packing.NoLoss}
		if r == &d.singleUseHeap && best.Slot >= 0 && best.Rank.Tier < k.Tier {
			continue
		}
		s := index.SpanOf(en)
		k.Fill = c.MinFill(&s, b.More)
		if r == &d.singleUseHeap && best.Slot >= 0 && best.Rank.Less(k) {
			continue
		}
		class := d.nodes.Fleet.ClassOf(en.Slot)
		if !c.Filter.IsFeasible[class] || d.nodes.Load(en.Slot).Turn > r.FilledAt ||
			c.IsDynamic && c.RefusesNodeClass(class) {
			continue
		}
		if k.Tier += d.eval.ClassTier(c, class) - r.MinTier; r != &d.singleUseHeap {
			r.Push(rank.Candidate{
				RankedNode: rank.RankedNode{Rank: k, Slot: en.Slot}, Cost: opened.Cost,
				NameOrder: d.nodes.Fleet.Names.Order[en.Slot],
			})
		} else if best.Slot < 0 || !best.Rank.Less(k) {
			best = d.eval.Judge(c, en.Slot, best)
		}
	}
	return best
}
