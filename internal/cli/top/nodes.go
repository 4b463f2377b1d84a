package top

import (
	"strconv"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// nodeShare returns the share of a node's resource that is used, for sorting. Without a measurement it is the reserved
// share.
func nodeShare(by string) func(api.NodeView) float64 {
	return func(n api.NodeView) float64 {
		used := usedOrReserved(n)
		switch by {
		case "cpu":
			return ratio(used.CPU, n.Total.CPU)
		case "memory":
			return ratio(used.Memory, n.Total.Memory)
		case "disk":
			return ratio(used.Disk, n.Total.Disk)
		case "tasks":
			return float64(n.Tasks)
		}
		return 0
	}
}

func usedOrReserved(n api.NodeView) cluster.Demand {
	if n.Used == nil {
		return n.Reserved
	}
	return cluster.Demand{CPU: n.Used.CPU, Memory: n.Used.Memory, Disk: n.Used.Disk}
}

func ratio[T ~int | ~int64](part, whole T) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// nodesTable returns the used, reserved and total amount of each resource, and the used share.
func nodesTable(sess *session.Session, nodes []api.NodeView) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{
		"NODE", "STATE", "TASKS>", "CPU USED>", "RESERVED>", "TOTAL>", "USE>", "MEMORY USED>", "RESERVED>", "TOTAL>",
		"USE>",
		"DISK USED>", "TOTAL>", "LOAD>", "HEARD>", "+EVERY>", "+SERVER", "PRESSURE",
	}}
	for _, n := range nodes {
		cpu, cpuUse, memory, memoryUse, disk, load := "?", "", "?", "", "?", ""
		if u := n.Used; u != nil {
			cpu, cpuUse = output.CPUs(u.CPU), output.Percent(ratio(u.CPU, n.Total.CPU))
			memory, memoryUse = output.Size(u.Memory), output.Percent(ratio(u.Memory, n.Total.Memory))
			disk, load = output.Size(u.Disk), strconv.FormatFloat(u.Load, 'f', 2, 64)
		}
		heard, every := "", ""
		if h := n.Heartbeat; h != nil {
			heard, every = wording.Span(time.Duration(h.Age)), h.Interval.String()
		}
		t.Add(n.Name, tables.NodeState(n), strconv.Itoa(n.Tasks), cpu, output.CPUs(n.Reserved.CPU),
			output.CPUs(n.Total.CPU), cpuUse,
			memory, output.Size(n.Reserved.Memory), output.Size(n.Total.Memory), memoryUse, disk,
			output.Size(n.Total.Disk), load, heard,
			every, n.Server, PressureCell(sess, n))
	}
	return t
}

// PressureCell describes how long a node has been short of memory, and why.
func PressureCell(sess *session.Session, n api.NodeView) string {
	if n.Used == nil || n.Used.Pressure == nil {
		return ""
	}
	p := n.Used.Pressure
	return wording.JoinNonEmpty(": ", "for "+sess.Age(p.Since), wording.Pressure(p))
}
