package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Verdict is one node's answer for a task: a refusal, or the parts of its rank.
type Verdict struct {
	Node    string
	Refusal *cluster.Refusal
	// Parts are the parts of the rank other than 0, the most important first; nil with a Refusal. The first part in
	// which two nodes differ decides: more points are better. All wishes count as one part.
	Parts []Part
	// Wins says that the task would run on this node.
	Wins bool
}

// Part is a part of the rank of a node. More points are better.
type Part struct {
	// Name is one of these, with Points in the unit given:
	//
	//   - "failed", "avoid": -1 for a node that comes last, because attempts failed there or because of a taint.
	//   - "affinity …", "spread …", "relation …": a wish, in thousandths of its weight.
	//   - "data": a copy of the task's own volume, weighed like a wish.
	//   - "siblings": minus the number of the group's tasks.
	//   - "worth": minus the value that its devices lose, in ten-thousandths of a device.
	//   - "balance": minus the steps between free CPU and free memory.
	//   - "images", "fill": millionths of a resource; they are one part. For spread, fill is what stays free, else what
	//     is used.
	//   - "tasks": minus the number of tasks for spread, else the number.
	Name   string
	Points int64
}

// Explain asks every node about one task, in the order of node names. Unlike Schedule it also answers for held tasks,
// and ignores the other members of a gang.
func Explain(f *Fleet, p cluster.Pending, opts Options) []Verdict {
	x := inquire(f, p, opts)
	wins := x.search.best(x.c)
	x.preparer.prepare(x.c)
	verdicts := make([]Verdict, 0, f.names.count)
	for slot := range f.names.all {
		v := Verdict{Node: f.name(slot), Wins: slot == wins}
		if r := x.eval.refusal(x.c, slot); r.Code != "" {
			v.Refusal = &r
		} else {
			v.Parts = x.parts(slot)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// parts returns the parts of a node's rank.
func (x inquiry) parts(slot int32) (list []Part) {
	c := x.c
	add := func(name string, points int64) {
		if points != 0 {
			list = append(list, Part{name, points})
		}
	}
	l := x.nodes.load(slot)
	if slices.Contains(c.penalized, slot) {
		add("failed", -1)
	}
	if c.filter.isPenalized(l.class) {
		add("avoid", -1)
	}
	x.wishParts(slot, add)
	if c.affinity == cluster.AntiAffinityPrefer {
		add("siblings", -int64(c.group.tasksOn(slot)))
	}
	add("worth", packing.NoLoss-int64(x.eval.valueLoss(c, slot)))
	more := x.nodes.shapeShares(c.demand)[x.nodes.fleet.catalog.classes[l.class].shape]
	fill, tasks := int64(l.key[byFill]>>taskBits)+int64(more.fill()), int64(l.tasks)
	if c.strategy == cluster.StrategyWhole {
		level := int64(l.key[byBalance]>>levelShift) - balanceZero + int64(more.balance())
		add("balance", -max(level, -level))
	}
	add("images", int64(c.images.bonus(c.images.present(slot))>>taskBits))
	if c.strategy == cluster.StrategySpread {
		add("fill", 3*parts-fill)
		add("tasks", -tasks)
		return list
	}
	add("fill", fill)
	add("tasks", tasks)
	return list
}

// wishParts adds the points of each wish for the node.
func (x inquiry) wishParts(slot int32, add func(name string, points int64)) {
	c := x.c
	for _, a := range c.task.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if isCopy(&a) && Matches(a.Constraint, x.nodes.node(slot)) {
			add("data", int64(a.Weight)*point)
		} else if Matches(a.Constraint, x.nodes.node(slot)) {
			add("affinity "+Text(a.Constraint), int64(a.Weight)*point)
		}
	}
	for i := range c.spreads {
		add("spread "+c.spreads[i].Attribute, x.spreadPart(&c.spreads[i], slot))
	}
	for i := range c.relations {
		t := &c.relations[i]
		add("relation "+relationText(&t.Relation), t.pointsFor(t.at(&x.nodes, slot)))
	}
}

// spreadPart returns the points of one spread for a node.
func (x inquiry) spreadPart(t *spreadTerm, slot int32) int64 {
	c := x.c
	if t.view.table == nil {
		part, wholes := x.eval.nodePart(t, slot)
		return spreadPoints(int64(t.Weight), int64(t.view.nodes[slot]), int64(c.task.Count), part, wholes)
	}
	v := t.view.table.of[x.nodes.load(slot).class]
	tasks, part := int64(t.view.values[v]), int64(t.parts[v])
	return spreadPoints(int64(t.Weight), tasks, int64(c.task.Count), part, int64(t.wholes))
}
