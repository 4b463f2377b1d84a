package main

import (
	"strconv"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// nodeShare returns the share of a node that is used, by an order; without a measurement what is reserved.
func nodeShare(by string) func(api.NodeView) float64 {
	return func(n api.NodeView) float64 {
		used := usedOf(n)
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

func usedOf(n api.NodeView) cluster.Demand {
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

// topTable shows used, reserved and total of each resource, and the share that is used.
func (a *app) topTable(nodes []api.NodeView) table {
	t := table{state: 1, titles: []string{
		"NODE", "STATE", "TASKS>", "CPU USED>", "RESERVED>", "TOTAL>", "USE>", "MEMORY USED>", "RESERVED>", "TOTAL>",
		"USE>",
		"DISK USED>", "TOTAL>", "LOAD>", "HEARD>", "+EVERY>", "+SERVER", "PRESSURE",
	}}
	for _, n := range nodes {
		cpu, cpuUse, memory, memoryUse, disk, load := "?", "", "?", "", "?", ""
		if u := n.Used; u != nil {
			cpu, cpuUse = cpus(u.CPU), percent(ratio(u.CPU, n.Total.CPU))
			memory, memoryUse = size(u.Memory), percent(ratio(u.Memory, n.Total.Memory))
			disk, load = size(u.Disk), strconv.FormatFloat(u.Load, 'f', 2, 64)
		}
		heard, every := "", ""
		if h := n.Heartbeat; h != nil {
			heard, every = span(time.Duration(h.Age)), time.Duration(h.Interval).String()
		}
		t.add(n.Name, nodeState(n), strconv.Itoa(n.Tasks), cpu, cpus(n.Reserved.CPU), cpus(n.Total.CPU), cpuUse,
			memory, size(n.Reserved.Memory), size(n.Total.Memory), memoryUse, disk, size(n.Total.Disk), load, heard,
			every, n.Server, a.pressureCell(n))
	}
	return t
}

func percent(share float64) string { return strconv.Itoa(int(share*100+0.5)) + "%" }

// pressureCell says for how long a node has been short of memory, and why.
func (a *app) pressureCell(n api.NodeView) string {
	p := pressureOf(n)
	if p == nil {
		return ""
	}
	return joinNonEmpty(": ", "for "+a.age(p.Since), pressureText(p))
}
