package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// ownerUsage is the total usage of the tasks of one service or job.
type ownerUsage struct {
	cluster.OwnerRef
	Tasks int `json:"tasks"`
	// Measured counts the tasks with a measurement. The sums only include these.
	Measured int `json:"measured"`
	// Detailed counts the tasks with measured rates.
	Detailed int              `json:"detailed"`
	CPU      cluster.MilliCPU `json:"cpu"`
	Memory   cluster.Bytes    `json:"memory"`
	// MaxMemory is the memory of the task that uses the most.
	MaxMemory cluster.Bytes `json:"most_memory"`
	// Requests is the number of requests per second, if they are counted.
	Requests float64 `json:"requests"`
	cluster.Rates
}

// sumByOwner sums the usage of tasks by owner, sorted by name.
func sumByOwner(tasks []api.TaskView) (all []ownerUsage) {
	byOwner := map[cluster.OwnerRef]int{}
	for i := range tasks {
		t := &tasks[i]
		at, known := byOwner[t.Owner]
		if !known {
			at = len(all)
			byOwner[t.Owner] = at
			all = append(all, ownerUsage{OwnerRef: t.Owner, Requests: -1})
		}
		o := &all[at]
		o.Tasks++
		u := t.Used
		if u == nil {
			continue
		}
		o.Measured++
		o.CPU += u.CPU
		o.Memory += u.Memory
		o.MaxMemory = max(o.MaxMemory, u.Memory)
		if u.Requests >= 0 {
			o.Requests = max(o.Requests, 0) + u.Requests
		}
		if u.Detail != nil {
			o.Detailed++
			o.Rates = o.With(u.Detail.Rates, false)
		}
	}
	slices.SortFunc(all, func(x, y ownerUsage) int {
		return cmp.Compare(session.OwnerName(x.OwnerRef).String(), session.OwnerName(y.OwnerRef).String())
	})
	return all
}

// sort sorts the rows in an order of the view, descending or ascending.
func (l topUsage) sort(by string, least bool) {
	switch l.view {
	case topNodes:
		sortByAmount(l.nodes, least, nodeShare(by), func(n api.NodeView) string { return n.Name })
	case topServices:
		sortByAmount(l.owners, least, func(o ownerUsage) float64 {
			return sortAmount(by, o.CPU, o.Memory, 0, o.Requests, o.Tasks, o.Rates)
		},
			func(o ownerUsage) string { return session.OwnerName(o.OwnerRef).String() })
	default:
		sortByAmount(l.tasks, least, func(t api.TaskView) float64 {
			u := t.Used
			if u == nil {
				return math.Inf(-1)
			}
			var r cluster.Rates
			if u.Detail != nil {
				r = u.Detail.Rates
			}
			return sortAmount(by, u.CPU, u.Memory, u.Growth, u.Requests, 1, r)
		}, func(t api.TaskView) string { return string(t.ID) })
	}
}

// sortByAmount sorts by an amount, descending unless least is set, and then by name.
func sortByAmount[T any](all []T, least bool, amount func(T) float64, name func(T) string) {
	slices.SortStableFunc(all, func(x, y T) int {
		c := cmp.Or(cmp.Compare(amount(y), amount(x)), cmp.Compare(name(x), name(y)))
		if least {
			return -c
		}
		return c
	})
}

// sortAmount returns the amount that tasks are sorted by. For the order by name it is always 0.
func sortAmount(by string, cpu cluster.MilliCPU, memory, growth cluster.Bytes, requests float64, tasks int,
	r cluster.Rates,
) float64 {
	switch by {
	case "cpu":
		return float64(cpu)
	case "memory":
		return float64(memory)
	case "growth":
		return float64(growth)
	case "requests":
		return requests
	case "tasks":
		return float64(tasks)
	case "throttled":
		return r.Throttled
	case "network":
		if r.Network != nil {
			return float64(r.Network.Received + r.Network.Sent)
		}
		return -1
	case "disk":
		if r.Disk != nil {
			return float64(r.Disk.Read + r.Disk.Written)
		}
		return -1
	case "stall":
		if r.Stall != nil {
			return max(r.Stall.CPU, r.Stall.Memory, r.Stall.IO)
		}
		return -1
	}
	return 0
}

// headline summarizes the view in one line.
func (l topUsage) headline() string {
	if l.view == topNodes {
		return tables.NodesText(l.nodes)
	}
	var cpu cluster.MilliCPU
	var memory cluster.Bytes
	tasks := len(l.tasks)
	for i := range l.tasks {
		if u := l.tasks[i].Used; u != nil {
			cpu, memory = cpu+u.CPU, memory+u.Memory
		}
	}
	for i := range l.owners {
		tasks, cpu, memory = tasks+l.owners[i].Tasks, cpu+l.owners[i].CPU, memory+l.owners[i].Memory
	}
	what := wording.Count(tasks, "task")
	if l.view == topServices {
		what += " of " + wording.Count(len(l.owners), "service or job")
		if len(l.owners) != 1 {
			what = wording.Count(tasks, "task") + " of " + strconv.Itoa(len(l.owners)) + " services and jobs"
		}
	}
	return fmt.Sprintf("%s: %s CPUs, %s memory in use", what, output.CPUs(cpu), memory)
}

// usageTable returns the table of a usage in its order. The most important columns come first.
func usageTable(sess *session.Session, l topUsage, containers bool) output.Table {
	switch l.view {
	case topNodes:
		return nodesTable(sess, l.nodes)
	case topServices:
		return ownerTable(l.owners)
	}
	return taskUseTable(l.tasks, containers)
}

// rateTitles are the titles of the rate columns.
func rateTitles() []string {
	return []string{
		"THROTTLED>", "NET IN/S>", "NET OUT/S>", "READ/S>", "WRITE/S>", "CPU STALL>", "MEM STALL>",
		"IO STALL>", "+READS/S>", "+WRITES/S>",
	}
}

// rateCells formats rates. Without known rates the cells are "-".
func rateCells(r cluster.Rates, known bool) []string {
	cells := slices.Repeat([]string{"-"}, len(rateTitles()))
	if !known {
		return cells
	}
	cells[0] = formatWhole(r.Throttled) + "%"
	switch {
	case r.Network != nil:
		cells[1], cells[2] = output.Size(r.Network.Received), output.Size(r.Network.Sent)
	case r.HostNetwork:
		cells[1], cells[2] = "host", "host"
	}
	if d := r.Disk; d != nil {
		cells[3], cells[4], cells[8], cells[9] = output.Size(d.Read), output.Size(d.Written), formatWhole(d.Reads),
			formatWhole(d.Writes)
	}
	if s := r.Stall; s != nil {
		cells[5], cells[6], cells[7] = formatWhole(s.CPU)+"%", formatWhole(s.Memory)+"%", formatWhole(s.IO)+"%"
	}
	return cells
}

func formatWhole(f float64) string { return strconv.Itoa(int(math.Round(f))) }

// taskUseTable returns the table of tasks. With containers it has a row for each container of a task with several.
func taskUseTable(tasks []api.TaskView, containers bool) output.Table {
	t := output.Table{
		StateColumn: 1,
		Titles: append([]string{"TASK", "STATE", "NODE", "CPU>", "MEMORY>", "GROWTH/M>", "REQ/S>"},
			rateTitles()...),
	}
	row := func(cells []string, r cluster.Rates, known bool) { t.Add(append(cells, rateCells(r, known)...)...) }
	for i := range tasks {
		v := &tasks[i]
		u := v.Used
		if u == nil {
			row([]string{string(v.ID), taskview.State(*v), v.Node, "?", "?", "", ""}, cluster.Rates{},
				false)
			continue
		}
		growth, requests := "", ""
		if u.Growth >= cluster.MiB || u.Growth <= -cluster.MiB {
			growth = output.Size(u.Growth)
		}
		if u.Requests >= 0 {
			requests = formatWhole(u.Requests)
		}
		d := u.Detail
		if d == nil {
			d = &cluster.UseDetail{}
		}
		row([]string{
			string(v.ID), taskview.State(*v), v.Node, output.CPUs(u.CPU), output.Size(u.Memory),
			growth, requests,
		}, d.Rates,
			u.Detail != nil)
		for _, c := range d.Containers {
			if containers {
				row([]string{"  " + c.Name, "", "", output.CPUs(c.CPU), output.Size(c.Memory), "", ""}, c.Rates, true)
			}
		}
	}
	return t
}

// ownerTable returns the table of services and jobs.
func ownerTable(all []ownerUsage) output.Table {
	t := output.Table{Titles: append([]string{"SERVICE OR JOB", "TASKS>", "CPU>", "MEMORY>", "MOST BY ONE>", "REQ/S>"},
		rateTitles()...)}
	for _, o := range all {
		cpu, memory, most, requests := "?", "?", "", ""
		if o.Measured > 0 {
			cpu, memory, most = output.CPUs(o.CPU), output.Size(o.Memory), output.Size(o.MaxMemory)
		}
		if o.Requests >= 0 {
			requests = formatWhole(o.Requests)
		}
		t.Add(append([]string{
			session.OwnerName(o.OwnerRef).String(), strconv.Itoa(o.Tasks), cpu, memory, most,
			requests,
		},
			rateCells(o.Rates, o.Detailed > 0)...)...)
	}
	return t
}
