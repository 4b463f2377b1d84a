// Package tables has the tables that several commands print.
package tables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NodeState returns the state of a node for tables.
func NodeState(n api.NodeView) string {
	switch {
	case n.Gone:
		return string(n.State) + " forgotten"
	case n.Cordon && n.Drain == nil:
		return string(n.State) + " cordoned"
	}
	return string(n.State)
}

// DeviceLines lists the devices of a node, equal ones on one line: "4 × gpu A100, 80 GiB".
func DeviceLines(devices []cluster.Device) []string {
	var lines []string
	counts := map[string]int{}
	for _, d := range devices {
		text := strings.TrimSpace(d.Type + " " + d.Model)
		if d.Memory > 0 {
			text += ", " + d.Memory.String()
		}
		if counts[text]++; counts[text] == 1 {
			lines = append(lines, text)
		}
	}
	for i, text := range lines {
		lines[i] = fmt.Sprintf("%d × %s", counts[text], text)
	}
	return lines
}

// NodesText counts nodes by state: "3 nodes: 2 ready, 1 down; 4.5 of 12 CPUs and …".
func NodesText(nodes []api.NodeView) string {
	if len(nodes) == 0 {
		return "No nodes."
	}
	states := map[cluster.NodeState]int{}
	var total, reserved cluster.Demand
	for _, n := range nodes {
		states[n.State]++
		if n.State == cluster.NodeReady {
			total, reserved = total.Add(n.Total), reserved.Add(n.Reserved)
		}
	}
	var parts []string
	for _, s := range []cluster.NodeState{
		cluster.NodeReady, cluster.NodeDown, cluster.NodeSuspect, cluster.NodeJoining, cluster.NodeDraining,
		cluster.NodeDrained,
		cluster.NodeAbsent,
	} {
		if states[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", states[s], s))
		}
	}
	return fmt.Sprintf("%s: %s; reserved %s of %s CPUs, %s of %s memory", wording.Count(len(nodes), "node"),
		strings.Join(parts, ", "),
		output.CPUs(reserved.CPU), output.CPUs(total.CPU), reserved.Memory, total.Memory)
}

// ServiceTable returns the table of services in the given order. It shows the mode of daemons, and versions if there
// are several.
func ServiceTable(sess *session.Session, services []api.ServiceView) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{
		"SERVICE", "STATE", "HEALTHY>", "DEFINITION", "MODE", "VERSIONS", "AGE>", "+RUNNING>", "+UPDATED>", "+WAITING>",
		"+PRIORITY>", "MESSAGE",
	}}
	for _, v := range services {
		s := v.Status
		mode, versions := strings.TrimPrefix(string(v.Mode), string(cluster.ModeReplicas)), ""
		if mode == "" && v.Scaling != nil {
			mode = "scaled"
		}
		if len(s.Versions) > 1 {
			versions = HealthyByVersion(s.Versions)
		}
		t.Add(sess.Argument(v.Cluster, v.Name), string(s.State),
			output.Share(strconv.Itoa(s.Healthy), strconv.Itoa(s.Desired)), v.Definition.String(), mode, versions,
			sess.Age(v.Created),
			strconv.Itoa(s.Running), strconv.Itoa(s.Updated), strconv.Itoa(s.Waiting), strconv.Itoa(int(v.Priority)),
			wording.OneLine(s.Message))
	}
	return t
}

// StepTable returns the table of the steps of a job, at most so many: those that failed, then those that run, then the
// first ones, in the order of the job. The text says which steps are left out: "9000 steps (8000 succeeded, 1000
// waiting)".
func StepTable(v *api.JobView, most int) (t output.Table, hidden string) {
	t = output.Table{StateColumn: 1, Titles: []string{
		"STEP", "STATE", "DONE>", "RUNNING>", "FAILED>", "NEEDS", "+PENDING>", "+CANCELLED>", "MESSAGE",
	}}
	shown := stepsToShow(v.Status.Steps, most)
	left := map[cluster.StepState]int{}
	for i := range v.Status.Steps {
		s := &v.Status.Steps[i]
		if !shown[i] {
			left[s.State]++
			continue
		}
		needs := ""
		if i < len(v.Steps) && v.Steps[i].Name == s.Name {
			needs = strings.Join(v.Steps[i].Needs, ", ")
		}
		t.Add(s.Name, string(s.State), output.Share(strconv.Itoa(s.Succeeded), strconv.Itoa(s.Total)),
			output.FormatAbove(s.Running, 0), output.FormatAbove(s.Failed, 0), needs, strconv.Itoa(s.Pending),
			strconv.Itoa(s.Cancelled), wording.OneLine(s.Message))
	}
	var states []string
	total := 0
	for _, state := range cluster.StepState("").Values() {
		if n := left[state]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, state))
			total += n
		}
	}
	if total > 0 {
		hidden = fmt.Sprintf("%d steps (%s)", total, strings.Join(states, ", "))
	}
	return t, hidden
}

// stepsToShow returns which steps are shown, at most so many.
func stepsToShow(steps []api.StepStatus, most int) []bool {
	shown := make([]bool, len(steps))
	show := func(of func(s *api.StepStatus) bool) {
		for i := range steps {
			if most > 0 && !shown[i] && of(&steps[i]) {
				shown[i] = true
				most--
			}
		}
	}
	show(func(s *api.StepStatus) bool { return s.Failed > 0 || s.State == cluster.StepFailed })
	show(func(s *api.StepStatus) bool { return s.Running > 0 || s.State == cluster.StepRunning })
	show(func(*api.StepStatus) bool { return true })
	return shown
}

// JobTable returns the table of jobs in the given order.
func JobTable(sess *session.Session, jobs []api.JobView) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{
		"JOB", "STATE", "DONE>", "RUNNING>", "FAILED>", "AGE>", "+PENDING>",
		"+CANCELLED>", "+PRIORITY>", "MESSAGE",
	}}
	for _, v := range jobs {
		s := v.Status
		t.Add(sess.Argument(v.Cluster, v.Name), string(s.State),
			output.Share(strconv.Itoa(s.Succeeded), strconv.Itoa(s.Total)), output.FormatAbove(s.Running, 0),
			output.FormatAbove(s.Failed, 0),
			sess.Age(v.Created),
			strconv.Itoa(s.Pending), strconv.Itoa(s.Cancelled), strconv.Itoa(int(v.Priority)),
			wording.OneLine(s.Message))
	}
	return t
}
