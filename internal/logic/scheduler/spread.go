package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

type spreadTerm struct {
	cluster.Spread
	view *view
	// parts are the target shares by number of the value, out of wholes; -1 for values without a feasible node.
	parts  []int32
	wholes int32
	cached []cachedPoints // by number of the value
	// openCount and namedPercent are set for per-node attributes: the number of feasible values that no target names,
	// and the sum of the targets in percent.
	openCount, namedPercent int64
	// targeted and emptyPoints are set for per-node attributes: the nodes with a target's value, and the points of
	// other nodes that have no task.
	targeted    []int32
	emptyPoints int64
	minimum     int32 // valid at changes
	changes     int
	// minimum of a per-node attribute holds for fewer than margin increases, and while decreases and undoCount stay the
	// same.
	margin, decreases, undoCount int
}

// cachedPoints is the result of spreadPoints for a value with a number of tasks.
type cachedPoints struct {
	tasks  int32 // the number + 1; 0 means empty
	points int64
}

// points returns the points of the spread for all nodes of a node class.
func (t *spreadTerm) points(c *taskClass, class int32) int64 {
	v := t.view.table.of[class]
	said, tasks := &t.cached[v], t.view.values[v]
	if said.tasks != tasks+1 {
		*said = cachedPoints{
			tasks + 1,
			spreadPoints(int64(t.Weight), int64(tasks), int64(c.task.Count), int64(t.parts[v]), int64(t.wholes)),
		}
	}
	return said.points
}

// minTasks returns the least number of tasks of any value with a feasible node.
func (t *spreadTerm) minTasks() int32 {
	if t.changes != t.view.changes {
		t.changes, t.minimum = t.view.changes, -1
		for v, part := range t.parts {
			if n := t.view.values[v]; part >= 0 && (t.minimum < 0 || n < t.minimum) {
				t.minimum = n
			}
		}
	}
	return t.minimum
}

// spreadScored yields the nodes with individual scores by spreads, some more than once.
func (c *taskClass) spreadScored(yield func(slot int32) bool) {
	for i := range c.spreads {
		t := &c.spreads[i]
		if t.view.table != nil {
			continue
		}
		for slot := range t.view.nodes { // order-free: each for itself
			if !yield(slot) {
				return
			}
		}
		for _, slot := range t.targeted {
			if !yield(slot) {
				return
			}
		}
	}
}

// isSpreadScored reports whether spreadScored yields the node.
func (c *taskClass) isSpreadScored(slot int32) bool {
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table == nil && (t.view.nodes[slot] > 0 || slices.Contains(t.targeted, slot)) {
			return true
		}
	}
	return false
}

func targetOf(targets []cluster.SpreadTarget, value string) int {
	return slices.IndexFunc(targets, func(t cluster.SpreadTarget) bool { return t.Value == value })
}

// spreadPoints returns the points of a spread for a value that has so many tasks, and whose share of count is
// part/wholes. Without tasks it is the whole weight, at the share 0, and beyond it negative.
func spreadPoints(weight, tasks, count, part, wholes int64) int64 {
	if part <= 0 || count <= 0 {
		return -weight * point
	}
	return max(weight*point-weight*point*tasks*wholes/(count*part), -8*weight*point)
}
