package evaluation

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// UnmetTerm returns the code of the first distinct, spread, relation or exclusion that the node does not meet, and its
// index; or no code.
func (e *Evaluator) UnmetTerm(c *taskclass.Class, slot int32) (cluster.ReasonCode, int64) {
	for i := range c.Distincts {
		if t := &c.Distincts[i]; int(t.View.At(e.nodes, slot)) >= t.Most {
			return cluster.ReasonDistinct, int64(i)
		}
	}
	for i := range c.Spreads {
		if t := &c.Spreads[i]; t.MaxSkew > 0 && int(t.View.At(e.nodes, slot)+1-e.MinTasksOf(c, t)) > t.MaxSkew {
			return cluster.ReasonSkew, int64(i)
		}
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; !t.Met(t.At(e.nodes, slot)) {
			return cluster.ReasonRelation, int64(i)
		}
	}
	for i := range c.Exclusions {
		if c.Exclusions[i].At(e.nodes, slot) > 0 {
			return cluster.ReasonRelation, int64(len(c.Relations) + i)
		}
	}
	return "", 0
}

// UnmetTermDetail returns the result of UnmetTerm as text.
func (e *Evaluator) UnmetTermDetail(c *taskclass.Class, code cluster.ReasonCode, number int64, slot int32) string {
	value := func(attribute string) string {
		if attribute == fleet.NodeName {
			return "node.name is the same"
		}
		return attribute + " = " + e.nodes.Node(slot).Value(attribute)
	}
	switch {
	case code == cluster.ReasonDistinct:
		return value(c.Distincts[number].Attribute)
	case code == cluster.ReasonSkew:
		return value(c.Spreads[number].Attribute)
	case int(number) < len(c.Relations):
		return taskclass.RelationText(&c.Relations[number].Relation)
	}
	return c.Exclusions[int(number)-len(c.Relations)].Text
}

// MinTasksOf is SpreadTerm.MinTasks for any attribute, also for per-node attributes.
func (e *Evaluator) MinTasksOf(c *taskclass.Class, t *taskclass.SpreadTerm) int32 {
	v := t.View
	if v.Table != nil {
		return t.MinTasks()
	}
	if s := c.Filter; !s.Fine && s.Nodes > len(v.Nodes) { // some nodes have no task
		return 0
	}
	if t.Changes >= 0 && t.Decreases == v.Decreases && t.UndoCount == e.nodes.UndoCount &&
		v.Changes-t.Changes < t.Margin {
		return t.Minimum
	}
	t.Minimum = -1
	values := map[string]bool{} // values with the minimum
	c.Filter.VisitNodes(e.nodes, func(slot int32) {
		n := v.Nodes[slot]
		if t.Minimum < 0 || n < t.Minimum {
			t.Minimum = n
			clear(values)
		}
		if n == t.Minimum {
			values[e.nodes.Node(slot).Value(t.Attribute)] = true
		}
	})
	t.Changes, t.Decreases, t.UndoCount, t.Margin = v.Changes, v.Decreases, e.nodes.UndoCount, len(values)
	return t.Minimum
}

// SpreadMinimums adds up the minimums of the spreads over per-node attributes. When a minimum rises, nodes that refused
// may become feasible.
func (e *Evaluator) SpreadMinimums(c *taskclass.Class) (sum int64) {
	for i := range c.Spreads {
		if t := &c.Spreads[i]; t.MaxSkew > 0 && t.View.Table == nil {
			sum += int64(e.MinTasksOf(c, t))
		}
	}
	return sum
}
