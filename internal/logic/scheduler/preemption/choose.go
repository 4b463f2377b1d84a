package preemption

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// maxNodeCostHeaps limits the heaps that are kept: each is as large as the fleet.
const maxNodeCostHeaps = 8

// choose returns the best node for the task at a position.
func (p *preempt) choose(position int32) (best nodeCost, found bool) {
	c, task := p.Classes.At[position], p.Classes.Task(position)
	if slot, known := p.Nodes.Fleet.Search(task.Promised); known && p.isCurable(c, slot) {
		if code, _ := p.Eval.LoadRefusal(c, slot); code == "" {
			return nodeCost{slot: slot}, true
		}
	}
	s := p.nodeCostHeaps[c]
	if highest := cycle.HighestVictim(task, p.minPriorityGap); s == nil || s.maxPriority != highest || s.isVolatile {
		p.discard(c)
		if len(p.nodeCostHeaps) >= maxNodeCostHeaps {
			p.discard(slices.Collect(maps.Keys(p.nodeCostHeaps))...) // order-free: all go
		}
		s = p.newNodeCostHeap(c, highest)
		p.nodeCostHeaps[c] = s
	}
	return s.best()
}

// discard drops heaps, and keeps their memory for reuse.
func (p *preempt) discard(classes ...*taskclass.Class) {
	for _, c := range classes {
		if s := p.nodeCostHeaps[c]; s != nil {
			p.spareHeaps = append(p.spareHeaps, s.heap[:0])
			delete(p.nodeCostHeaps, c)
		}
	}
}

// newNodeCostHeap estimates all nodes. If the costs of a node depend on other nodes by the terms of the class, the heap
// is volatile: it is used only once.
func (p *preempt) newNodeCostHeap(c *taskclass.Class, maxPriority int) *nodeCostHeap {
	s := &nodeCostHeap{p: p, c: c, maxPriority: maxPriority, seen: len(p.victims.changed)}
	s.isVolatile = isVolatile(c)
	if last := len(p.spareHeaps) - 1; last >= 0 {
		s.heap, p.spareHeaps = p.spareHeaps[last], p.spareHeaps[:last]
	}
	p.sets.begin(p, c, maxPriority)
	add := func(slot int32) {
		if r, ok := s.estimate(slot); ok {
			s.heap = append(s.heap, r)
		}
	}
	if slots, few := p.Cycle.Search.NamedNodes(c); few {
		for _, slot := range slots {
			add(slot)
		}
	} else {
		for _, class := range c.Filter.Feasible {
			if p.victims.hasNoRelated() && c.IsDynamic && c.RefusesNodeClass(class) {
				continue
			}
			p.Nodes.Fleet.Catalog.Trees[fleet.ByFill][class].Page.Visit(add)
		}
	}
	heap.Init(s)
	return s
}

// isVolatile reports whether the costs of a node for a class depend on other nodes.
func isVolatile(c *taskclass.Class) bool {
	return c.IsDynamic || c.ScansAll || c.Revives ||
		slices.ContainsFunc(c.Spreads, func(t taskclass.SpreadTerm) bool { return t.View.Table == nil })
}

// isCurable reports whether only refusals that victims can cure keep the class from the node.
func (p *preempt) isCurable(c *taskclass.Class, slot int32) bool {
	l := p.Nodes.Load(slot)
	if l.Class < 0 || !c.Filter.IsFeasible[l.Class] || !c.Filter.MeetsPerNode(p.Nodes.Node(slot)) ||
		c.Task.OnlyNode != "" && c.Task.OnlyNode != p.Nodes.Node(slot).Name {
		return false
	}
	return !slices.Contains(c.Excluded, slot) && (c.Devices.Lacking == nil || !c.Devices.Lacking[l.Class])
}

// isExcluded reports whether a term keeps the class from a node even if victims end there.
func (p *preempt) isExcluded(c *taskclass.Class, slot int32) bool {
	if !p.victims.hasNoRelated() {
		return false
	}
	code, _ := p.Eval.UnmetTerm(c, slot)
	return code != "" || c.Affinity == cluster.AntiAffinityDemand && c.Group.TasksOn(slot) > 0
}
