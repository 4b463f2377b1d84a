package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/whatif"
	"github.com/berthd/berth/internal/wording"
)

// maxTasksWithSummary bounds the tasks beside a summary. --show tasks alone prints all.
const maxTasksWithSummary = 40

// print prints a simulation.
func (s *simulation) print(traced *whatif.Traced) error {
	v := traced.Simulation
	switch {
	case s.WantsData() && traced.Replayed == nil:
		return s.PrintData(v)
	case s.WantsData():
		return s.PrintData(traced)
	}
	shows := func(part string) bool { return slices.Contains(s.show, part) }
	first := true
	for _, part := range []struct {
		name  string
		print func(*api.Simulation) (printed bool, err error)
	}{
		{"summary", s.printSteps},
		{"summary", func(*api.Simulation) (bool, error) { return s.printReplay(traced.Replayed) }},
		{"tasks", s.printTasks},
		{"summary", s.printWaiting},
		{"nodes", s.printNodes},
		{"summary", s.printSummary},
	} {
		if !shows(part.name) {
			continue
		}
		if !first {
			s.Printf("")
		}
		printed, err := part.print(v)
		if err != nil {
			return err
		}
		first = !printed
	}
	return nil
}

// printSteps prints the effect of each change.
func (s *simulation) printSteps(v *api.Simulation) (bool, error) {
	t := output.Table{Titles: []string{"CHANGE", "PLACED>", "MOVED>", "ENDED>", "WAITING>"}}
	for _, x := range v.Steps {
		t.Add(x.Change, strconv.Itoa(x.Placed), strconv.Itoa(x.Moved), strconv.Itoa(x.Ended), strconv.Itoa(x.Waiting))
	}
	return true, s.PrintTable(t)
}

// printTasks prints the tasks with a new placement.
func (s *simulation) printTasks(v *api.Simulation) (bool, error) {
	shown := v.Tasks
	if len(s.show) > 1 && len(shown) > maxTasksWithSummary {
		shown = shown[:maxTasksWithSummary]
	}
	if len(shown) == 0 {
		s.Printf("no task moves")
		return true, nil
	}
	t := output.Table{Titles: []string{"TASK", "WHAT", "FROM", "TO", "+DEFINITION", "+PORTS", "+DEVICES"}}
	for i := range shown {
		x := &shown[i]
		t.Add(string(x.Task), string(x.What), x.From, x.To, x.Definition.String(), portsText(x.Ports),
			devicesText(x.Devices))
	}
	if err := s.PrintTable(t); err != nil {
		return true, err
	}
	if n := len(v.Tasks) - len(shown); n > 0 {
		s.Printf("and %s more: --show tasks", wording.Count(n, "task"))
	}
	return true, nil
}

// printWaiting prints the pending tasks with their reasons.
func (s *simulation) printWaiting(v *api.Simulation) (bool, error) {
	if len(v.Waiting) == 0 {
		return false, nil
	}
	t := output.Table{Titles: []string{"WAITING", "NEW>", "WHY"}}
	for _, x := range v.Waiting {
		if len(x.Tasks) == 0 {
			continue
		}
		what := string(x.Tasks[0])
		if n := len(x.Tasks) - 1; n > 0 {
			what += fmt.Sprintf(" and %d more", n)
		}
		t.Add(what, strconv.Itoa(x.New), wording.OneLine(x.Sentence))
	}
	return true, s.PrintTable(t)
}

// printNodes prints the reserved share of the nodes, before and after.
func (s *simulation) printNodes(v *api.Simulation) (bool, error) {
	t := output.Table{
		Titles:      []string{"NODE", "STATE", "CHANGE", "TASKS>", "CPU>", "MEMORY>", "DISK>", "DEVICES>"},
		StateColumn: 1,
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		b, a := n.Before, n.After
		devices := ""
		if n.Devices > 0 {
			devices = beforeAfter(fmt.Sprint(float64(b.Devices)/cluster.WholeDevice),
				fmt.Sprint(float64(a.Devices)/cluster.WholeDevice)) + fmt.Sprintf(" of %d", n.Devices)
		}
		t.Add(n.Name, string(n.State), string(n.Change), beforeAfter(strconv.Itoa(b.Tasks), strconv.Itoa(a.Tasks)),
			reservedPercents(int64(b.Reserved.CPU), int64(a.Reserved.CPU), int64(n.Total.CPU)),
			reservedPercents(int64(b.Reserved.Memory), int64(a.Reserved.Memory), int64(n.Total.Memory)),
			reservedPercents(int64(b.Reserved.Disk), int64(a.Reserved.Disk), int64(n.Total.Disk)), devices)
	}
	return true, s.PrintTable(t)
}

// beforeAfter joins two values by an arrow, or returns the value if they are equal.
func beforeAfter(before, after string) string {
	if before == after {
		return after
	}
	return before + " → " + after
}

// reservedPercents returns the reserved percentage of a total, before and after.
func reservedPercents(before, after, total int64) string {
	if total <= 0 {
		return ""
	}
	percent := func(n int64) string { return fmt.Sprintf("%.0f%%", float64(n)*100/float64(total)) }
	return beforeAfter(percent(before), percent(after))
}

// printSummary prints the totals.
func (s *simulation) printSummary(v *api.Simulation) (bool, error) {
	var before, after api.SimulateLoad
	var totalBefore, totalAfter cluster.Demand
	nodesBefore, nodesAfter := 0, 0
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Change != api.SimulateAdded {
			nodesBefore++
			totalBefore = totalBefore.Add(n.Total)
			before.Tasks += n.Before.Tasks
			before.Reserved = before.Reserved.Add(n.Before.Reserved)
		}
		if n.Change != api.SimulateRemoved {
			nodesAfter++
			totalAfter = totalAfter.Add(n.Total)
			after.Tasks += n.After.Tasks
			after.Reserved = after.Reserved.Add(n.After.Reserved)
		}
	}
	full := func(part, of int64) string {
		if of <= 0 {
			return "0%"
		}
		return fmt.Sprintf("%.0f%%", float64(part)*100/float64(of))
	}
	s.Printf("nodes %s; tasks %s; CPU reserved %s; memory reserved %s",
		beforeAfter(strconv.Itoa(nodesBefore), strconv.Itoa(nodesAfter)),
		beforeAfter(strconv.Itoa(before.Tasks), strconv.Itoa(after.Tasks)),
		beforeAfter(full(int64(before.Reserved.CPU), int64(totalBefore.CPU)),
			full(int64(after.Reserved.CPU), int64(totalAfter.CPU))),
		beforeAfter(full(int64(before.Reserved.Memory), int64(totalBefore.Memory)),
			full(int64(after.Reserved.Memory), int64(totalAfter.Memory))))
	for _, n := range v.Notes {
		s.Printf("%s", wording.OneLine(n))
	}
	waiting := 0
	for _, w := range v.Waiting {
		waiting += w.New
	}
	switch {
	case v.Fits:
		s.Printf("all tasks are placed")
	case waiting == 0:
		s.Printf("all tasks are placed")
	case waiting == 1:
		s.Printf("1 task cannot be placed")
	default:
		s.Printf("%d tasks cannot be placed", waiting)
	}
	return true, nil
}

// portsText lists ports by name.
func portsText(ports map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		parts = append(parts, fmt.Sprintf("%s:%d", name, ports[name]))
	}
	return strings.Join(parts, " ")
}

// devicesText lists device ids, with the share of partly held devices.
func devicesText(devices []cluster.DeviceUse) string {
	var parts []string
	for _, d := range devices {
		text := d.ID
		if d.Share != cluster.WholeDevice {
			text += fmt.Sprintf(" (%.1f%%)", float64(d.Share)*100/cluster.WholeDevice)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}
