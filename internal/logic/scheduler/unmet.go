package scheduler

import "github.com/berthd/berth/internal/cluster"

// unmetTerm returns the code of the first distinct, spread, relation or exclusion that the node does not meet, and its
// index; or no code.
func (e *evaluator) unmetTerm(c *taskClass, slot int32) (cluster.ReasonCode, int64) {
	for i := range c.distincts {
		if t := &c.distincts[i]; int(t.view.at(e.nodes, slot)) >= t.Most {
			return cluster.ReasonDistinct, int64(i)
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && int(t.view.at(e.nodes, slot)+1-e.minTasksOf(c, t)) > t.MaxSkew {
			return cluster.ReasonSkew, int64(i)
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.met(t.at(e.nodes, slot)) {
			return cluster.ReasonRelation, int64(i)
		}
	}
	for i := range c.exclusions {
		if c.exclusions[i].at(e.nodes, slot) > 0 {
			return cluster.ReasonRelation, int64(len(c.relations) + i)
		}
	}
	return "", 0
}

// unmetTermDetail returns the result of unmetTerm as text.
func (e *evaluator) unmetTermDetail(c *taskClass, code cluster.ReasonCode, number int64, slot int32) string {
	value := func(attribute string) string {
		if attribute == nodeName {
			return "node.name is the same"
		}
		return attribute + " = " + e.nodes.node(slot).Value(attribute)
	}
	switch {
	case code == cluster.ReasonDistinct:
		return value(c.distincts[number].Attribute)
	case code == cluster.ReasonSkew:
		return value(c.spreads[number].Attribute)
	case int(number) < len(c.relations):
		return relationText(&c.relations[number].Relation)
	}
	return c.exclusions[int(number)-len(c.relations)].text
}

// minTasksOf is minTasks for any attribute, also for per-node attributes.
func (e *evaluator) minTasksOf(c *taskClass, t *spreadTerm) int32 {
	v := t.view
	if v.table != nil {
		return t.minTasks()
	}
	if s := c.filter; !s.fine && s.nodes > len(v.nodes) { // some nodes have no task
		return 0
	}
	if t.changes >= 0 && t.decreases == v.decreases && t.undoCount == e.nodes.undoCount &&
		v.changes-t.changes < t.margin {
		return t.minimum
	}
	t.minimum = -1
	values := map[string]bool{} // values with the minimum
	c.filter.visitNodes(e.nodes, func(slot int32) {
		n := v.nodes[slot]
		if t.minimum < 0 || n < t.minimum {
			t.minimum = n
			clear(values)
		}
		if n == t.minimum {
			values[e.nodes.node(slot).Value(t.Attribute)] = true
		}
	})
	t.changes, t.decreases, t.undoCount, t.margin = v.changes, v.decreases, e.nodes.undoCount, len(values)
	return t.minimum
}

// spreadMinimums adds up the minimums of the spreads over per-node attributes. When a minimum rises, nodes that refused
// may become feasible.
func (e *evaluator) spreadMinimums(c *taskClass) (sum int64) {
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && t.view.table == nil {
			sum += int64(e.minTasksOf(c, t))
		}
	}
	return sum
}
