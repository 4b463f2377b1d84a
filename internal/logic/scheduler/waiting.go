package scheduler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// explain returns why a task of the class waits. It finds the reasons once for each class.
func (y *placer) explain(c *taskclass.Class, task cluster.TaskID) cluster.Waiting {
	if c.Refusals == nil {
		y.Preparer.Prepare(c)
		if first := y.backfill.behind[c]; first != "" && !y.backfill.promised[c] {
			c.Refusals = []cluster.RefusalCount{behind(first)}
			c.Sentence = Sentence(c.Refusals)
			return cluster.Waiting{Task: task, Refusals: c.Refusals, Sentence: c.Sentence}
		}
		c.Refusals = append(inquiry{y.Cycle, c}.refusals(), y.backfill.refusals(c)...)
		slices.SortFunc(c.Refusals, byNodeCount)
		c.Sentence = Sentence(c.Refusals)
	}
	return cluster.Waiting{Task: task, Refusals: c.Refusals, Sentence: c.Sentence}
}

// behind is the refusal of tasks in a queue without backfilling, behind the first task that waits.
func behind(first cluster.TaskID) cluster.RefusalCount {
	return cluster.RefusalCount{Refusal: cluster.Refusal{
		Code: cluster.ReasonBackfill, Detail: "behind " + string(first) + " in the queue of its pool, which is " +
			string(cluster.QueueFIFO),
	}}
}

// refusals counts the refusals of all nodes. Node classes whose nodes all refuse for one reason are counted together.
func (x inquiry) refusals() (counts []cluster.RefusalCount) {
	c := x.c
	nodes := x.Nodes.Fleet.Names.Count
	if nodes == 0 {
		return []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}}
	}
	if c.Task.OnlyNode != "" {
		if slot, found := x.Nodes.Fleet.Search(c.Task.OnlyNode); found {
			counts = tally(counts, x.Eval.Refusal(c, slot), 1)
			nodes--
		}
		if nodes > 0 {
			counts = tally(counts, feasibility.Elsewhere(c.Task.OnlyNode), nodes)
		}
		return counts
	}
	s := c.Filter
	simple, short := c.AsksOnlyRoom() && !x.Nodes.Fleet.KeepsRoom(), shortage{need: c.Need}
	for i := range x.Nodes.Fleet.Catalog.Classes {
		class := &x.Nodes.Fleet.Catalog.Classes[i]
		if class.Count == 0 {
			continue
		}
		if !s.IsFeasible[i] && len(s.PerNode) == 0 { // one refusal for the whole node class
			code, about := feasibility.Refusal(c.Task, c.Now, &class.Like, nil)
			counts = tally(counts, cluster.Refusal{Code: code, Detail: about}, class.Count)
			continue
		}
		if simple {
			short.addPage(x.Nodes.Tree(fleet.ByFill, int32(i)).Page)
			continue
		}
		x.Nodes.Fleet.Catalog.Trees[fleet.ByFill][i].Page.Visit(func(slot int32) {
			if r := x.Eval.Refusal(c, slot); r.Code != "" { // it has room, which is kept for another task
				counts = tally(counts, r, 1)
			}
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

// addPage adds the nodes below a page. Pages on which no node has the CPU are added together.
func (s *shortage) addPage(p *index.Page) {
	if p == nil {
		return
	}
	for i := range p.Children {
		if k := &p.Children[i]; s.need.CPU > k.MaxFree.CPU {
			s.add(0, k.Page.Nodes(), int64(s.need.CPU-k.MaxFree.CPU))
		} else {
			s.addPage(k.Page)
		}
	}
	for i := range p.Entries {
		switch free := &p.Entries[i].Free; {
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

// limitReason is why a limit keeps the tasks of one owner with equal requests waiting.
type limitReason struct {
	class       *taskclass.Class
	owner       cluster.OwnerRef
	concurrency *cluster.Concurrency
	waiting     cluster.Waiting
}

// limitWaiting returns the reason of the task at a position that a limit of its cluster keeps waiting; false if none
// does. It keeps the last reason, as such tasks are next to each other. No task may be placed any more.
func (y *placer) limitWaiting(position int32) (cluster.Waiting, bool) {
	p, class := y.Classes.Task(position), y.Classes.At[position]
	if y.Limits.Admits(p) {
		return cluster.Waiting{}, false
	}
	last := &y.limitReason
	if last.class != class || last.owner != p.Owner || last.concurrency != p.Concurrency {
		refusals := []cluster.RefusalCount{{Refusal: y.Limits.Refusal(p)}}
		*last = limitReason{class, p.Owner, p.Concurrency, cluster.Waiting{
			Refusals: refusals, Sentence: Sentence(refusals),
		}}
	}
	w := last.waiting
	w.Task = p.Task
	return w, true
}

// Unconsidered returns why a task waits that no placement has considered.
func Unconsidered(p *cluster.Pending) cluster.Waiting {
	if IsHeld(p) {
		return heldWaiting(p)
	}
	refusals := []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonTurn}}}
	return cluster.Waiting{Task: p.Task, Refusals: refusals, Sentence: Sentence(refusals)}
}

// IsHeld reports whether a task may not be placed, whatever room there is: it has a hold or priority 0.
func IsHeld(p *cluster.Pending) bool { return p.Hold != (cluster.Hold{}) || p.Priority <= 0 }

// heldWaiting returns the reason of a task that is held.
func heldWaiting(p *cluster.Pending) cluster.Waiting {
	refusal := cluster.Refusal{Code: p.Hold.Reason, Detail: p.Hold.Message}
	if p.Hold == (cluster.Hold{}) {
		refusal.Code = cluster.ReasonHold
	}
	refusals := []cluster.RefusalCount{{Refusal: refusal}}
	return cluster.Waiting{Task: p.Task, Refusals: refusals, Sentence: Sentence(refusals)}
}
