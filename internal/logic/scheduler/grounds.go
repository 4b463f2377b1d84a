package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// mostBest is how many nodes grounds name, beside the one that was taken.
const mostBest = 3

// Grounds says why tasks were placed on nodes: the best of the others, and why kinds of nodes refuse. The fleet is the
// one that Schedule looked at. A kind of nodes, a class of the index, is looked at once, or each node where a task's
// wishes are about names: looks bounds how often that is done for all tasks together. Tasks for which it does not
// suffice have no grounds: those returned are of the first tasks. At, Like and Before are the caller's to fill in.
func Grounds(f *Fleet, tasks []cluster.Pending, nodes []string, looks int, opts Options) []cluster.Grounds {
	kinds := len(f.catalog.classes) - len(f.catalog.vacant)
	tasks = slices.Clone(tasks[:min(len(tasks), looks/max(kinds, 1))])
	if len(tasks) == 0 {
		return nil
	}
	y := newCycle(f, tasks, opts)
	y.order = make([]int32, len(tasks))
	for i := range tasks {
		tasks[i].Gang = ""
		y.order[i] = int32(i)
	}
	y.classify(y.order)
	y.relate()
	all := make([]cluster.Grounds, 0, len(tasks))
	for i := range tasks {
		c := y.classOf[i]
		y.ready(c)
		if looks -= kinds; c.each {
			looks -= y.fleet.names.count
		}
		if looks < 0 {
			break
		}
		g := y.grounds(c, nodes[i])
		g.Task, g.Attempt = tasks[i].Task, tasks[i].Attempt
		all = append(all, g)
	}
	return all
}

// grounds looks at each kind of nodes for one task that went to a node.
func (y *cycle) grounds(c *class, node string) cluster.Grounds {
	g := cluster.Grounds{Node: node, Nodes: y.fleet.names.count}
	taken, found := y.fleet.search(node)
	if found {
		g.Best = append(g.Best, y.weighed(c, taken))
	} else {
		taken = -1
	}
	if c.Only != "" { // there is no choice
		if g.Nodes > 1 {
			g.Refusals = []cluster.RefusalCount{{Refusal: elsewhere(c), Nodes: g.Nodes - 1}}
		}
		return g
	}
	open := make([]int32, 0, len(c.sieve.takes))
	for i := range y.fleet.catalog.classes {
		kind := &y.fleet.catalog.classes[i]
		others := kind.count
		if found && y.fleet.loads[taken].class == int32(i) {
			others--
		}
		if r, refused := y.kindRefuses(c, int32(i), taken); refused {
			if others > 0 {
				g.Refusals = tally(g.Refusals, r, others)
			}
			continue
		}
		open = append(open, int32(i))
		g.More += others
	}
	slices.SortFunc(g.Refusals, mostNodes)
	y.nextBest(c, &g, taken, open)
	return g
}

// kindRefuses reports whether all nodes of a kind refuse the class for one reason: for what they are, for what stands
// near, or because there is no room on any.
func (y *cycle) kindRefuses(c *class, kind, taken int32) (r cluster.Refusal, refused bool) {
	k := &y.fleet.catalog.classes[kind]
	if k.count == 0 {
		return r, true
	}
	if !c.sieve.passes[kind] {
		code, about := bars(c, &k.like, y.fleet.parts)
		return cluster.Refusal{Code: code, Detail: about}, true
	}
	q := query{need: c.need}
	if !q.fits(y.fleet.catalog.trees[byFill][kind].most) || c.dynamic && c.closed(kind) || c.deviceless != nil &&
		c.deviceless[kind] {
		return y.refusalOf(c, kind, taken), true
	}
	return r, false
}

// nextBest adds the best node beside the one that was taken, and then the best of the kinds that are not named yet.
func (y *cycle) nextBest(c *class, g *cluster.Grounds, taken int32, open []int32) {
	whole, avoided := c.sieve, c.avoided
	c.avoided = append(slices.Clip(avoided), taken)
	left := &sieve{
		takes: open, passes: slices.Clone(whole.passes), mask: whole.mask, avoid: whole.avoid,
		named: whole.named, fine: whole.fine, nodes: whole.nodes,
	}
	for range mostBest {
		c.sieve, c.rosters = left, nil // of what was avoided before
		slot := y.search(c)
		c.sieve, c.rosters = whole, nil
		if slot < 0 {
			break
		}
		g.Best = append(g.Best, y.weighed(c, slot))
		g.More--
		for _, named := range []int32{taken, slot} {
			if named >= 0 {
				kind := y.fleet.loads[named].class
				left.takes = slices.DeleteFunc(left.takes, func(i int32) bool { return i == kind })
				left.passes[kind] = false
			}
		}
	}
	c.avoided = avoided
}

// refusalOf returns why the emptiest node of a kind refuses, that was taken left out.
func (y *cycle) refusalOf(c *class, kind, taken int32) cluster.Refusal {
	r := cluster.Refusal{Code: cluster.ReasonConstraint}
	for p := y.fleet.catalog.trees[byFill][kind].page; p != nil; p = p.kids[0].page {
		for i := range p.entries {
			if slot := p.entries[i].slot; slot != taken || len(p.entries) == 1 {
				return y.refusal(c, slot)
			}
		}
		if p.kids == nil {
			break
		}
	}
	return r
}

// weighed takes the rank of a node apart.
func (y *cycle) weighed(c *class, slot int32) cluster.Candidate {
	v := cluster.Candidate{Node: y.fleet.name(slot)}
	for _, p := range y.parts(c, slot) {
		v.Parts = append(v.Parts, cluster.RankPart(p))
	}
	return v
}
