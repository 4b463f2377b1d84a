package scheduler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// explain returns why a task of the class waits. It finds the reasons once for each class.
func (y *placer) explain(c *taskClass, task cluster.TaskID) cluster.Waiting {
	if c.refusals == nil {
		y.preparer.prepare(c)
		c.refusals = inquiry{y.cycle, c}.refusals()
		slices.SortFunc(c.refusals, byNodeCount)
		c.sentence = Sentence(c.refusals)
	}
	return cluster.Waiting{Task: task, Refusals: c.refusals, Sentence: c.sentence}
}

// refusals counts the refusals of all nodes. Node classes whose nodes all refuse for one reason are counted at
// once.
func (x inquiry) refusals() (counts []cluster.RefusalCount) {
	c := x.c
	nodes := x.nodes.fleet.names.count
	if nodes == 0 {
		return []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}}
	}
	if c.task.OnlyNode != "" {
		if slot, found := x.nodes.fleet.search(c.task.OnlyNode); found {
			counts = tally(counts, x.eval.refusal(c, slot), 1)
			nodes--
		}
		if nodes > 0 {
			counts = tally(counts, elsewhere(c.task.OnlyNode), nodes)
		}
		return counts
	}
	s := c.filter
	simple, short := c.asksOnlyRoom(), shortage{need: c.need}
	for i := range x.nodes.fleet.catalog.classes {
		class := &x.nodes.fleet.catalog.classes[i]
		if class.count == 0 {
			continue
		}
		if !s.isFeasible[i] && len(s.perNode) == 0 { // one refusal for the whole node class
			code, about := nodeRefusal(c.task, c.now, &class.like, nil)
			counts = tally(counts, cluster.Refusal{Code: code, Detail: about}, class.count)
			continue
		}
		if simple {
			short.addPage(x.nodes.tree(byFill, int32(i)).page)
			continue
		}
		x.nodes.fleet.catalog.trees[byFill][i].page.visit(func(slot int32) {
			counts = tally(counts, x.eval.refusal(c, slot), 1)
		})
	}
	return short.appendTo(counts)
}

// shortage counts nodes with too little free, by the first resource that is short, and keeps the smallest shortage of
// each.
type shortage struct {
	need  cluster.Demand
	nodes [3]int // by resource: CPU, memory, disk
	least [3]int64
}

func (s *shortage) add(resource, nodes int, missing int64) {
	if s.nodes[resource] == 0 || missing < s.least[resource] {
		s.least[resource] = missing
	}
	s.nodes[resource] += nodes
}

// addPage adds the nodes below a page. Pages on which no node has the CPU are added at once.
func (s *shortage) addPage(p *page) {
	if p == nil {
		return
	}
	for i := range p.children {
		if k := &p.children[i]; s.need.CPU > k.maxFree.CPU {
			s.add(0, k.page.nodes(), int64(s.need.CPU-k.maxFree.CPU))
		} else {
			s.addPage(k.page)
		}
	}
	for i := range p.entries {
		switch free := &p.entries[i].free; {
		case s.need.CPU > free.CPU:
			s.add(0, 1, int64(s.need.CPU-free.CPU))
		case s.need.Memory > free.Memory:
			s.add(1, 1, int64(s.need.Memory-free.Memory))
		case s.need.Disk > free.Disk:
			s.add(2, 1, int64(s.need.Disk-free.Disk))
		}
	}
}

func (s *shortage) appendTo(counts []cluster.RefusalCount) []cluster.RefusalCount {
	for resource, code := range []cluster.ReasonCode{
		cluster.ReasonShortCPU, cluster.ReasonShortMemory,
		cluster.ReasonShortDisk,
	} {
		if s.nodes[resource] > 0 {
			counts = tally(counts, cluster.Refusal{Code: code, Short: s.least[resource]}, s.nodes[resource])
		}
	}
	return counts
}

// tally adds the refusal of more nodes. Refusals that differ only in the amount short are counted as one with the least
// amount: the smallest help that would admit the task somewhere.
func tally(counts []cluster.RefusalCount, r cluster.Refusal, nodes int) []cluster.RefusalCount {
	for i := range counts {
		c := &counts[i]
		if c.Code == r.Code && c.Port == r.Port && c.Detail == r.Detail {
			c.Short = min(c.Short, r.Short)
			c.Nodes += nodes
			return counts
		}
	}
	return append(counts, cluster.RefusalCount{Refusal: r, Nodes: nodes})
}

func byNodeCount(a, b cluster.RefusalCount) int {
	return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Code, b.Code),
		cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Port, b.Port))
}

// holdWaiting returns the reason of a task of priority 0.
func holdWaiting(task cluster.TaskID) cluster.Waiting {
	refusals := []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonHold}}}
	return cluster.Waiting{Task: task, Refusals: refusals, Sentence: Sentence(refusals)}
}

// lacksWaiting returns the reason of a task that lacks something a user has to provide.
func lacksWaiting(p *cluster.Pending) cluster.Waiting {
	refusals := []cluster.RefusalCount{{
		Refusal: cluster.Refusal{Code: cluster.ReasonSecret, Detail: p.MissingDependency},
	}}
	return cluster.Waiting{Task: p.Task, Refusals: refusals, Sentence: Sentence(refusals)}
}
