package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// maxAlternatives is how many nodes a decision trace lists beside the chosen one.
const maxAlternatives = 3

// DecisionTraces returns decision traces: for each task the rank of its node, the best alternatives, and why node
// classes refuse. The fleet must be the one that Schedule read. A trace looks at each node class once, or at each node
// if the task's wishes name nodes. At most looks such steps are spent on all tasks; the traces returned are those of
// the first tasks. The caller fills in At, Like and Before.
func DecisionTraces(f *Fleet, tasks []cluster.Pending, nodes []string, looks int,
	opts Options,
) []cluster.DecisionTrace {
	kinds := f.catalog.inUse()
	tasks = slices.Clone(tasks[:min(len(tasks), looks/max(kinds, 1))])
	if len(tasks) == 0 {
		return nil
	}
	y := newCycle(f, tasks, opts)
	order := make([]int32, len(tasks))
	for i := range tasks {
		tasks[i].Gang = ""
		order[i] = int32(i)
	}
	y.start(order)
	all := make([]cluster.DecisionTrace, 0, len(tasks))
	for i := range tasks {
		c := y.classes.at[i]
		y.preparer.prepare(c)
		if looks -= kinds; c.scansAll {
			looks -= f.names.count
		}
		if looks < 0 {
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
	g := cluster.DecisionTrace{Node: node, Nodes: x.nodes.fleet.names.count}
	taken, found := x.nodes.fleet.search(node)
	if found {
		g.Best = append(g.Best, x.scoredCandidate(taken))
	} else {
		taken = -1
	}
	if c.task.OnlyNode != "" { // no alternatives exist
		if g.Nodes > 1 {
			g.Refusals = []cluster.RefusalCount{{Refusal: elsewhere(c.task.OnlyNode), Nodes: g.Nodes - 1}}
		}
		return g
	}
	open := make([]int32, 0, len(c.filter.feasible))
	for i := range x.nodes.fleet.catalog.classes {
		kind := &x.nodes.fleet.catalog.classes[i]
		others := kind.count
		if found && x.nodes.fleet.classOf(taken) == int32(i) {
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
func (x inquiry) nodeClassRefusal(kind, taken int32) (r cluster.Refusal, refused bool) {
	c := x.c
	k := &x.nodes.fleet.catalog.classes[kind]
	if k.count == 0 {
		return r, true
	}
	if !c.filter.isFeasible[kind] {
		code, about := nodeRefusal(c.task, c.now, &k.like, x.nodes.fleet.catalog.labels.isPerNode)
		return cluster.Refusal{Code: code, Detail: about}, true
	}
	q := query{need: c.need}
	if !q.fits(x.nodes.fleet.catalog.trees[byFill][kind].maxFree) || c.isDynamic && c.refusesNodeClass(kind) ||
		c.devices.lacking != nil && c.devices.lacking[kind] {
		return x.emptiestRefusal(kind, taken), true
	}
	return r, false
}

// addAlternatives adds the best node beside the chosen one, and then the best of the node classes not listed yet.
func (x inquiry) addAlternatives(g *cluster.DecisionTrace, taken int32, open []int32) {
	c := x.c
	filter, excluded := c.filter, c.excluded
	c.excluded = append(slices.Clip(excluded), taken)
	left := &feasibilityFilter{
		feasible: open, isFeasible: slices.Clone(filter.isFeasible), mask: filter.mask, penalized: filter.penalized,
		perNode: filter.perNode, fine: filter.fine, nodes: filter.nodes,
	}
	for range maxAlternatives {
		c.filter, c.found.candidateHeaps = left, nil // heaps depend on the excluded nodes
		slot := x.search.byTrees(c)
		c.filter, c.found.candidateHeaps = filter, nil
		if slot < 0 {
			break
		}
		g.Best = append(g.Best, x.scoredCandidate(slot))
		g.More--
		for _, named := range []int32{taken, slot} {
			if named >= 0 {
				kind := x.nodes.fleet.classOf(named)
				left.feasible = slices.DeleteFunc(left.feasible, func(i int32) bool { return i == kind })
				left.isFeasible[kind] = false
			}
		}
	}
	c.excluded = excluded
}

// emptiestRefusal returns why the emptiest node of a node class refuses, the chosen node aside.
func (x inquiry) emptiestRefusal(kind, taken int32) cluster.Refusal {
	c := x.c
	r := cluster.Refusal{Code: cluster.ReasonConstraint}
	for p := x.nodes.fleet.catalog.trees[byFill][kind].page; p != nil; p = p.children[0].page {
		for i := range p.entries {
			if slot := p.entries[i].slot; slot != taken || len(p.entries) == 1 {
				return x.eval.refusal(c, slot)
			}
		}
		if p.children == nil {
			break
		}
	}
	return r
}

// scoredCandidate returns a node with the parts of its rank.
func (x inquiry) scoredCandidate(slot int32) cluster.Candidate {
	v := cluster.Candidate{Node: x.nodes.fleet.name(slot)}
	for _, p := range x.parts(slot) {
		v.Parts = append(v.Parts, cluster.RankPart(p))
	}
	return v
}
