package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// maxAlternatives is how many nodes a decision trace lists beside the chosen one.
const maxAlternatives = 3

// DecisionTraces returns decision traces: for each task the rank of its node, the best alternatives, and why node
// classes refuse. The fleet must be the one that Schedule read. A trace takes a step for each node class, and one for
// each node if the task's preferences name nodes. The traces of all tasks take no more than the given steps; later
// tasks get no trace. The caller fills in At, Like and Before.
func DecisionTraces(f *fleet.Fleet, tasks []cluster.Pending, nodes []string, steps int,
	opts taskclass.Options,
) []cluster.DecisionTrace {
	classes := f.Catalog.InUse()
	tasks = slices.Clone(tasks[:min(len(tasks), steps/max(classes, 1))])
	if len(tasks) == 0 {
		return nil
	}
	y := cycle.New(f, tasks, opts)
	order := make([]int32, len(tasks))
	for i := range tasks {
		tasks[i].Gang = ""
		order[i] = int32(i)
	}
	y.Start(order)
	all := make([]cluster.DecisionTrace, 0, len(tasks))
	for i := range tasks {
		c := y.Classes.At[i]
		y.Preparer.Prepare(c)
		if steps -= classes; c.ScansAll {
			steps -= f.Names.Count
		}
		if steps < 0 {
			break
		}
		g := inquiry{y, c}.traceDecision(nodes[i])
		g.Task, g.Attempt = tasks[i].Task, tasks[i].Attempt
		all = append(all, g)
	}
	return all
}

// traceDecision returns the decision trace of one task that was placed on a node.
func (x inquiry) traceDecision(node string) cluster.DecisionTrace {
	c := x.c
	g := cluster.DecisionTrace{Node: node, Nodes: x.Nodes.Fleet.Names.Count}
	taken, found := x.Nodes.Fleet.Search(node)
	if found {
		g.Best = append(g.Best, x.scoredCandidate(taken))
	} else {
		taken = -1
	}
	if c.Task.OnlyNode != "" { // no alternatives exist
		if g.Nodes > 1 {
			g.Refusals = []cluster.RefusalCount{{Refusal: feasibility.Elsewhere(c.Task.OnlyNode), Nodes: g.Nodes - 1}}
		}
		return g
	}
	open := make([]int32, 0, len(c.Filter.Feasible))
	for i := range x.Nodes.Fleet.Catalog.Classes {
		class := &x.Nodes.Fleet.Catalog.Classes[i]
		others := class.Count
		if found && x.Nodes.Fleet.ClassOf(taken) == int32(i) {
			others--
		}
		if r, refused := x.nodeClassRefusal(int32(i), taken); refused {
			if others > 0 {
				g.Refusals = tally(g.Refusals, r, others)
			}
			continue
		}
		open = append(open, int32(i))
		g.More += others
	}
	slices.SortFunc(g.Refusals, byNodeCount)
	x.addAlternatives(&g, taken, open)
	return g
}

// nodeClassRefusal reports whether all nodes of a node class refuse the task class for one reason: their attributes,
// the tasks near them, or missing room.
func (x inquiry) nodeClassRefusal(class, taken int32) (r cluster.Refusal, refused bool) {
	c := x.c
	k := &x.Nodes.Fleet.Catalog.Classes[class]
	if k.Count == 0 {
		return r, true
	}
	if !c.Filter.IsFeasible[class] {
		code, about := feasibility.Refusal(c.Task, c.Now, &k.Like, x.Nodes.Fleet.Catalog.Labels.IsPerNode)
		return cluster.Refusal{Code: code, Detail: about}, true
	}
	q := index.Query{Need: c.Need}
	if !q.Fits(x.Nodes.Fleet.Catalog.Trees[fleet.ByFill][class].MaxFree) || c.IsDynamic && c.RefusesNodeClass(class) ||
		c.Devices.Lacking != nil && c.Devices.Lacking[class] {
		return x.emptiestRefusal(class, taken), true
	}
	return r, false
}

// addAlternatives adds the best node beside the chosen one, and then the best of the node classes not listed yet.
func (x inquiry) addAlternatives(g *cluster.DecisionTrace, taken int32, open []int32) {
	c := x.c
	filter, excluded := c.Filter, c.Excluded
	c.Excluded = append(slices.Clip(excluded), taken)
	left := &feasibility.Filter{
		Feasible: open, IsFeasible: slices.Clone(filter.IsFeasible), Mask: filter.Mask, Penalized: filter.Penalized,
		PerNode: filter.PerNode, Fine: filter.Fine, Nodes: filter.Nodes,
	}
	for range maxAlternatives {
		c.Filter, c.Found.CandidateHeaps = left, nil // heaps depend on the excluded nodes
		slot := x.Search.ByTrees(c)
		c.Filter, c.Found.CandidateHeaps = filter, nil
		if slot < 0 {
			break
		}
		g.Best = append(g.Best, x.scoredCandidate(slot))
		g.More--
		for _, named := range []int32{taken, slot} {
			if named >= 0 {
				class := x.Nodes.Fleet.ClassOf(named)
				left.Feasible = slices.DeleteFunc(left.Feasible, func(i int32) bool { return i == class })
				left.IsFeasible[class] = false
			}
		}
	}
	c.Excluded = excluded
}

// emptiestRefusal returns why the emptiest node of a node class refuses, the chosen node aside.
func (x inquiry) emptiestRefusal(class, taken int32) cluster.Refusal {
	c := x.c
	r := cluster.Refusal{Code: cluster.ReasonConstraint}
	for p := x.Nodes.Fleet.Catalog.Trees[fleet.ByFill][class].Page; p != nil; p = p.Children[0].Page {
		for i := range p.Entries {
			if slot := p.Entries[i].Slot; slot != taken || len(p.Entries) == 1 {
				return x.Eval.Refusal(c, slot)
			}
		}
		if p.Children == nil {
			break
		}
	}
	return r
}

// scoredCandidate returns a node with the parts of its rank.
func (x inquiry) scoredCandidate(slot int32) cluster.Candidate {
	v := cluster.Candidate{Node: x.Nodes.Fleet.Name(slot)}
	for _, p := range x.parts(slot) {
		v.Parts = append(v.Parts, cluster.RankPart(p))
	}
	return v
}
