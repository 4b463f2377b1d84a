package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Verdict is what one node says to a task: a refusal, or of what its rank is made.
type Verdict struct {
	Node    string
	Refusal *cluster.Refusal
	// Parts are those of its rank, the most important first, but for such of 0 points; nil with a Refusal. Of two nodes that one is better that has more
	// points in the first part in which they differ, where all wishes are one part.
	Parts []Part
	// Wins says that the task would run there.
	Wins bool
}

// Part is a part of the rank of a node. More points are better.
type Part struct {
	// Name is "failed" and "avoid" (-1 for a node that comes last for that), "affinity …", "spread …" and "relation …" (wishes, in thousandths of
	// their weights), "siblings" (less the tasks of the group there), "balance" (less the steps that free CPU and memory would be apart), "images" and
	// "fill" (in millionths of a resource: what is free for who spreads, what is used for others; they are one part), "tasks" (less, or more for who
	// fills nodes).
	Name   string
	Points int64
}

// Explain asks every node about one task, in the order of their names. Unlike Schedule it asks for
// held tasks, too, and does not ask for the others of a gang.
func Explain(f *Fleet, p cluster.Pending, opts Options) []Verdict {
	pending := []cluster.Pending{p}
	pending[0].Gang = ""
	y := newCycle(f, pending, opts)
	y.order = []int32{0}
	y.classify(y.order)
	c := y.classOf[0]
	y.relate()
	wins := y.best(c)
	y.ready(c)
	verdicts := make([]Verdict, 0, f.names.count)
	for slot := range f.names.all {
		v := Verdict{Node: f.name(slot), Wins: slot == wins}
		if r := y.refusal(c, slot); r.Code != "" {
			v.Refusal = &r
		} else {
			v.Parts = y.parts(c, slot)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// parts takes a rank apart.
func (y *cycle) parts(c *class, slot int32) (list []Part) {
	add := func(name string, points int64) {
		if points != 0 {
			list = append(list, Part{name, points})
		}
	}
	l := y.load(slot)
	if slices.Contains(c.shunned, slot) {
		add("failed", -1)
	}
	if c.sieve.avoids(l.class) {
		add("avoid", -1)
	}
	y.wishParts(c, slot, add)
	if c.affinity == cluster.AntiAffinityPrefer {
		add("siblings", -int64(c.group.near(slot)))
	}
	more := y.shapeShares(c.demand)[y.fleet.catalog.classes[l.class].shape]
	fill, tasks := int64(l.key[byFill]>>taskBits)+int64(more.fill()), int64(l.tasks)
	if c.strategy == cluster.StrategyWhole {
		level := int64(l.key[byBalance]>>levelShift) - balanceZero + int64(more.balance())
		add("balance", -max(level, -level))
	}
	add("images", int64(c.imageWorth(c.present(slot))>>taskBits))
	if c.strategy == cluster.StrategySpread {
		add("fill", 3*parts-fill)
		add("tasks", -tasks)
		return list
	}
	add("fill", fill)
	add("tasks", tasks)
	return list
}

// wishParts says what each wish says to the node.
func (y *cycle) wishParts(c *class, slot int32, add func(name string, points int64)) {
	for _, a := range c.Placement.Affinities {
		if a.Weight == 0 {
			a.Weight = cluster.DefaultWeight
		}
		if Matches(a.Constraint, y.node(slot)) {
			add("affinity "+Text(a.Constraint), int64(a.Weight)*point)
		}
	}
	for i := range c.spreads {
		add("spread "+c.spreads[i].Attribute, y.spreadPart(c, &c.spreads[i], slot))
	}
	for i := range c.relations {
		t := &c.relations[i]
		add("relation "+relationText(&t.Relation), t.pointsFor(t.at(y, slot)))
	}
}

// spreadPart is what one spread says to a node.
func (y *cycle) spreadPart(c *class, t *spreadTerm, slot int32) int64 {
	if t.view == nil {
		part, wholes := y.nodePart(c, t, slot)
		return spreadPoints(int64(t.Weight), int64(c.group.near(slot)), int64(c.Count), part, wholes)
	}
	v := t.view.table.of[y.load(slot).class]
	return spreadPoints(int64(t.Weight), int64(t.view.values[v]), int64(c.Count), int64(t.parts[v]), int64(t.wholes))
}
