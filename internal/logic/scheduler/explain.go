package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Verdict is one node's answer for a task: a refusal, or the parts of its rank.
type Verdict struct {
	Node    string
	Refusal *cluster.Refusal
	// Parts are the parts of the rank other than 0, the most important first; nil with a Refusal. The first part in
	// which two nodes differ decides: more points are better. All preferences count as one part.
	Parts []Part
	// Wins says that the task would run on this node.
	Wins bool
}

// Part is a part of the rank of a node. More points are better.
type Part struct {
	// Name is one of these, with Points in the unit given:
	//
	//   - "failed", "avoid": -1 for a node that comes last, because attempts failed there or because of a taint.
	//   - "affinity …", "spread …", "relation …": a preference, in thousandths of its weight.
	//   - "data": a copy of the task's own volume, weighed like a preference.
	//   - "siblings": minus the number of the group's tasks.
	//   - "worth": minus the value that its devices lose, in ten-thousandths of a device.
	//   - "balance": minus the steps between free CPU and free memory.
	//   - "images", "fill": millionths of a resource; they are one part. For spread, fill is what stays free, else what
	//     is used.
	//   - "tasks": minus the number of tasks for spread, else the number.
	Name   string
	Points int64
}

// inquiry asks nodes about one task class, beside the turns of a cycle. The class must be prepared.
type inquiry struct {
	*cycle.Cycle
	c *taskclass.Class
}

// inquire starts a cycle for one task, without its gang.
func inquire(f *fleet.Fleet, p cluster.Pending, opts taskclass.Options) inquiry {
	p.Gang = ""
	y := cycle.New(f, []cluster.Pending{p}, opts)
	y.Start([]int32{0})
	return inquiry{y, y.Classes.At[0]}
}

// Explain asks every node about one task, in the order of node names. Unlike Schedule it also answers for tasks that a
// hold or a limit of their cluster keeps waiting, and ignores the other members of a gang.
func Explain(f *fleet.Fleet, p cluster.Pending, opts taskclass.Options) []Verdict {
	x := inquire(f, p, opts)
	wins := x.Search.Best(x.c)
	x.Preparer.Prepare(x.c)
	verdicts := make([]Verdict, 0, f.Names.Count)
	for slot := range f.Names.All {
		v := Verdict{Node: f.Name(slot), Wins: slot == wins}
		if r := x.Eval.Refusal(x.c, slot); r.Code != "" {
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
	l := x.Nodes.Load(slot)
	if slices.Contains(c.Penalized, slot) {
		add("failed", -1)
	}
	if c.Filter.IsPenalized(l.Class) {
		add("avoid", -1)
	}
	x.preferenceParts(slot, add)
	if c.Affinity == cluster.AntiAffinityPrefer {
		add("siblings", -int64(c.Group.TasksOn(slot)))
	}
	add("worth", packing.NoLoss-int64(x.Eval.ValueLoss(c, slot)))
	more := x.Nodes.ShapeShares(c.Demand)[x.Nodes.Fleet.Catalog.Classes[l.Class].Shape]
	fill, tasks := int64(l.Key[fleet.ByFill]>>index.TaskBits)+int64(more.Fill()), int64(l.Tasks)
	if c.Strategy == cluster.StrategyWhole {
		level := int64(l.Key[fleet.ByBalance]>>index.LevelShift) - index.BalanceZero + int64(more.Balance())
		add("balance", -max(level, -level))
	}
	add("images", int64(c.Images.Bonus(c.Images.Present(slot))>>index.TaskBits))
	if c.Strategy == cluster.StrategySpread {
		add("fill", 3*index.Parts-fill)
		add("tasks", -tasks)
		return list
	}
	add("fill", fill)
	add("tasks", tasks)
	return list
}

// preferenceParts adds the points of each preference for the node.
func (x inquiry) preferenceParts(slot int32, add func(name string, points int64)) {
	c := x.c
	for _, a := range c.Task.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if fleet.IsCopy(&a) && feasibility.Matches(a.Constraint, x.Nodes.Node(slot)) {
			add("data", int64(a.Weight)*taskclass.Point)
		} else if feasibility.Matches(a.Constraint, x.Nodes.Node(slot)) {
			add("affinity "+feasibility.Text(a.Constraint), int64(a.Weight)*taskclass.Point)
		}
	}
	for i := range c.Spreads {
		add("spread "+c.Spreads[i].Attribute, x.spreadPart(&c.Spreads[i], slot))
	}
	for i := range c.Relations {
		t := &c.Relations[i]
		add("relation "+taskclass.RelationText(&t.Relation), t.PointsFor(t.At(&x.Nodes, slot)))
	}
}

// spreadPart returns the points of one spread for a node.
func (x inquiry) spreadPart(t *taskclass.SpreadTerm, slot int32) int64 {
	c := x.c
	if t.View.Table == nil {
		part, wholes := x.Eval.NodePart(t, slot)
		return taskclass.SpreadPoints(int64(t.Weight), int64(t.View.Nodes[slot]), int64(c.Task.Count), part, wholes)
	}
	v := t.View.Table.Of[x.Nodes.Load(slot).Class]
	tasks, part := int64(t.View.Values[v]), int64(t.Parts[v])
	return taskclass.SpreadPoints(int64(t.Weight), tasks, int64(c.Task.Count), part, int64(t.Wholes))
}
