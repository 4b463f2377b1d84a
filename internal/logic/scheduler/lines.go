package scheduler

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Lines returns the lines in which pending tasks wait (see lineOf): the nodes of each line, as positions in the order
// of node names, and the line of each pending task. Requirements of ports, devices and other tasks are not considered.
func Lines(f *fleet.Fleet, pending []cluster.Pending, opts taskclass.Options) (lines [][]int32, of []int) {
	y := cycle.New(f, pending, opts)
	order := make([]int32, len(pending))
	for i := range order {
		order[i] = int32(i)
	}
	y.Start(order)
	byName, byClass := map[string]int{}, map[*taskclass.Class]int{}
	of = make([]int, len(pending))
	for i, c := range y.Classes.At {
		line, known := byClass[c]
		if !known {
			y.Preparer.Prepare(c)
			name := nodesName(c)
			if line, known = byName[name]; !known {
				line = len(lines)
				byName[name] = line
				lines = append(lines, nodesOf(f, y, c))
			}
			byClass[c] = line
		}
		of[i] = line
	}
	return lines, of
}

// nodesName identifies the nodes on which tasks of the class may run.
func nodesName(c *taskclass.Class) string {
	var b strings.Builder
	b.WriteString(lineOf(c))
	b.WriteString("/" + string(c.Task.Queue) + "/" + c.Task.OnlyNode)
	for _, term := range c.Filter.PerNode {
		b.WriteString("/" + Text(term))
	}
	return b.String()
}

// nodesOf returns the nodes on which tasks of the class may run, as positions in the order of names.
func nodesOf(f *fleet.Fleet, y *cycle.Cycle, c *taskclass.Class) (nodes []int32) {
	position := int32(-1)
	for slot := range f.Names.All {
		position++
		class := f.ClassOf(slot)
		if class < 0 || !c.Filter.IsFeasible[class] || slices.Contains(c.Excluded, slot) {
			continue
		}
		n := y.Nodes.Node(slot)
		if (c.Task.OnlyNode == "" || c.Task.OnlyNode == n.Name) && c.Filter.MeetsPerNode(n) {
			nodes = append(nodes, position)
		}
	}
	return nodes
}
