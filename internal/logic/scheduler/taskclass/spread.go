package taskclass

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// SpreadTerm is a spread of a task class, with the target share of each value.
type SpreadTerm struct {
	cluster.Spread
	View *View
	// Parts are the target shares by number of the value, out of Wholes; -1 for values without a feasible node.
	Parts  []int32
	Wholes int32
	cached []cachedPoints // by number of the value
	// OpenCount and NamedPercent are set for per-node attributes: the number of feasible values that no target names,
	// and the sum of the targets in percent.
	OpenCount, NamedPercent int64
	// targeted and EmptyPoints are set for per-node attributes: the nodes with a target's value, and the points of
	// other nodes that have no task.
	targeted    []int32
	EmptyPoints int64
	Minimum     int32 // valid at Changes
	Changes     int
	// Minimum of a per-node attribute holds for fewer than Margin increases, and while Decreases and UndoCount stay the
	// same.
	Margin, Decreases, UndoCount int
}

// cachedPoints is the result of SpreadPoints for a value with a number of tasks.
type cachedPoints struct {
	tasks  int32 // the number + 1; 0 means empty
	points int64
}

// points returns the points of the spread for all nodes of a node class.
func (t *SpreadTerm) points(c *Class, class int32) int64 {
	v := t.View.Table.Of[class]
	known, tasks := &t.cached[v], t.View.Values[v]
	if known.tasks != tasks+1 {
		*known = cachedPoints{
			tasks + 1,
			SpreadPoints(int64(t.Weight), int64(tasks), int64(c.Task.Count), int64(t.Parts[v]), int64(t.Wholes)),
		}
	}
	return known.points
}

// MinTasks returns the least number of tasks of any value with a feasible node.
func (t *SpreadTerm) MinTasks() int32 {
	if t.Changes != t.View.Changes {
		t.Changes, t.Minimum = t.View.Changes, -1
		for v, part := range t.Parts {
			if n := t.View.Values[v]; part >= 0 && (t.Minimum < 0 || n < t.Minimum) {
				t.Minimum = n
			}
		}
	}
	return t.Minimum
}

// SpreadScored yields the nodes with individual scores by spreads, some more than once.
func (c *Class) SpreadScored(yield func(slot int32) bool) {
	for i := range c.Spreads {
		t := &c.Spreads[i]
		if t.View.Table != nil {
			continue
		}
		for slot := range t.View.Nodes { // order-free: each for itself
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

// IsSpreadScored reports whether SpreadScored yields the node.
func (c *Class) IsSpreadScored(slot int32) bool {
	for i := range c.Spreads {
		if t := &c.Spreads[i]; t.View.Table == nil && (t.View.Nodes[slot] > 0 || slices.Contains(t.targeted, slot)) {
			return true
		}
	}
	return false
}

// TargetOf returns the index of the target for a value, or -1.
func TargetOf(targets []cluster.SpreadTarget, value string) int {
	return slices.IndexFunc(targets, func(t cluster.SpreadTarget) bool { return t.Value == value })
}

// SpreadPoints returns the points of a spread for a value that has that many tasks, and whose share of count is
// part/wholes. Without tasks it is the whole weight, at the share 0, and beyond it negative.
func SpreadPoints(weight, tasks, count, part, wholes int64) int64 {
	if part <= 0 || count <= 0 {
		return -weight * Point
	}
	return max(weight*Point-weight*Point*tasks*wholes/(count*part), -8*weight*Point)
}
