package scheduler

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// maxNodeCostHeaps limits the heaps that are kept: each is as large as the fleet.
const maxNodeCostHeaps = 8

// choose returns the best node for the task at a position.
func (p *preempt) choose(position int32) (best nodeCost, found bool) {
	c, task := p.classes.at[position], p.classes.task(position)
	if slot, known := p.nodes.fleet.search(task.Promised); known && p.isCurable(c, slot) {
		if code, _ := p.eval.loadRefusal(c, slot); code == "" {
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
	s := &nodeCostHeap{p: p, c: c, priority: priority, seen: len(p.victims.changed)}
	s.isVolatile = c.isDynamic || c.scansAll || c.revives ||
		slices.ContainsFunc(c.spreads, func(t spreadTerm) bool { return t.view.table == nil })
	if last := len(p.spareHeaps) - 1; last >= 0 {
		s.heap, p.spareHeaps = p.spareHeaps[last], p.spareHeaps[:last]
	}
	p.sets.begin(p, c, priority)
	add := func(slot int32) {
		if r, ok := s.estimate(slot); ok {
			s.heap = append(s.heap, r)
		}
	}
	if slots, few := p.cycle.search.namedNodes(c); few {
		for _, slot := range slots {
			add(slot)
		}
	} else {
		for _, class := range c.filter.feasible {
			if p.victims.hasNoRelated() && c.isDynamic && c.refusesNodeClass(class) {
				continue
			}
			p.nodes.fleet.catalog.trees[byFill][class].page.visit(add)
		}
	}
	heap.Init(s)
	return s
}

// isCurable reports whether only refusals that victims can cure keep the class from the node.
func (p *preempt) isCurable(c *taskClass, slot int32) bool {
	l := p.nodes.load(slot)
	if l.class < 0 || !c.filter.isFeasible[l.class] || !c.filter.meetsPerNode(p.nodes.node(slot)) ||
		c.task.OnlyNode != "" && c.task.OnlyNode != p.nodes.node(slot).Name {
		return false
	}
	return !slices.Contains(c.excluded, slot) && (c.devices.lacking == nil || !c.devices.lacking[l.class])
}

// isExcluded reports whether a term keeps the class from a node even if victims end there.
func (p *preempt) isExcluded(c *taskClass, slot int32) bool {
	if !p.victims.hasNoRelated() {
		return false
	}
	code, _ := p.eval.unmetTerm(c, slot)
	return code != "" || c.affinity == cluster.AntiAffinityDemand && c.group.tasksOn(slot) > 0
}
