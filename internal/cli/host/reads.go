package host

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// namedTask is a task as an element of a list with names.
type namedTask struct{ api.HostTask }

// ObjectName returns the argument that names the task.
func (t namedTask) ObjectName() string { return t.Name }

func newPsCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "ps", Short: "List the tasks of this machine",
		Long: "List the tasks of this machine. NAME is what the other commands take. OWN says yes for tasks that\n" +
			"were made with 'berth host create', which 'berth host' changes.",
		Args: session.Arguments(0, 0, ""),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, _ []string) error {
			v, err := h.State(ctx)
			if err != nil {
				return err
			}
			return t.printTasks(&v)
		}),
	}
}

func (t *target) printTasks(v *api.HostState) error {
	if t.Format == output.OutputName {
		names := make([]namedTask, len(v.Tasks))
		for i := range v.Tasks {
			names[i] = namedTask{v.Tasks[i]}
		}
		return session.PrintNames(t.Session, names)
	}
	if t.WantsData() {
		return t.PrintData(v)
	}
	if len(v.Tasks) == 0 {
		t.Messagef("No tasks.")
		return nil
	}
	table := output.Table{
		Titles: []string{
			"NAME", "STATE", "OWN", "RESTARTS>", "CPU>", "MEMORY>", "PORTS", "AGE", "+OOMS>", "+ATTEMPT>",
			"+DEFINITION", "MESSAGE",
		},
		StateColumn: 1,
	}
	for i := range v.Tasks {
		task := &v.Tasks[i]
		own, age, attempt, definition := "", "", "", ""
		if task.Own {
			own = "yes"
		}
		if !task.Started.IsZero() && task.Finished.IsZero() {
			age = t.Age(task.Started)
		}
		if task.Attempt > 0 {
			attempt = strconv.Itoa(task.Attempt)
		}
		if task.Definition.Name != "" {
			definition = task.Definition.String()
		}
		table.Add(task.Name, stateText(task), own, strconv.Itoa(task.Restarts), output.CPUs(task.Demand.CPU),
			output.Size(task.Demand.Memory), portsText(task.Ports), age, strconv.Itoa(task.OOMs), attempt, definition,
			messageText(task))
	}
	return t.PrintTable(table)
}

// stateText is the state with the health of a running task.
func stateText(t *api.HostTask) string {
	if t.State == string(cluster.StateRunning) && t.Health != "" && t.Health != cluster.HealthUnknown {
		return string(t.Health)
	}
	return t.State
}

func messageText(t *api.HostTask) string {
	if t.Replaces != "" {
		return strings.TrimSuffix("replaces "+t.Replaces+": "+t.Message, ": ")
	}
	return t.Message
}

func portsText(ports map[string]int) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		texts = append(texts, name+":"+strconv.Itoa(ports[name]))
	}
	return strings.Join(texts, " ")
}

func newResourcesCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "resources", Short: "Show what this machine has, what its tasks reserve, and what it uses",
		Long: "Show what this machine has, what its tasks reserve, and what it uses. Stopped tasks that were made\n" +
			"with 'berth host create' reserve their room until they are removed.",
		Args: session.Arguments(0, 0, ""),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, _ []string) error {
			v, err := h.Resources(ctx)
			if err != nil {
				return err
			}
			if t.WantsData() {
				return t.PrintData(v)
			}
			return t.printResources(&v)
		}),
	}
}

func (t *target) printResources(v *api.HostResources) error {
	table := output.Table{Titles: []string{"RESOURCE", "TOTAL>", "RESERVED>", "USED>"}, KeepColumns: true}
	table.Add("CPU", output.CPUs(v.CPU.Total), output.CPUs(v.CPU.Reserved), output.CPUs(v.CPU.Used))
	table.Add("memory", output.Size(v.Memory.Total), output.Size(v.Memory.Reserved), output.Size(v.Memory.Used))
	table.Add("disk", output.Size(v.Disk.Total), output.Size(v.Disk.Reserved), output.Size(v.Disk.Used))
	addDevices(&table, v.Devices)
	if err := t.PrintTable(table); err != nil {
		return err
	}
	lines := []string{
		fmt.Sprintf("ports assigned from %d to %d, taken: %s", v.Ports.First, v.Ports.Last,
			cmp.Or(output.PortRanges(v.Ports.Taken), "none")),
	}
	if len(v.Ports.Reserved) > 0 {
		lines = append(lines, "ports kept from tasks: "+cluster.JoinPortRanges(v.Ports.Reserved))
	}
	for _, volume := range v.Volumes {
		text := "host volume " + volume.Name
		if volume.ReadOnly {
			text += ", read-only"
		}
		lines = append(lines, text)
	}
	_, err := io.WriteString(t.Stdout, "\n"+strings.Join(lines, "\n")+"\n")
	return err
}

// addDevices adds a row for each kind of devices, in the order of the first of each.
func addDevices(table *output.Table, devices []api.HostDevice) {
	var kinds []string
	counts, reserved := map[string]int{}, map[string]cluster.MilliCPU{}
	for i := range devices {
		d := &devices[i]
		kind := strings.TrimSpace(d.Type + " " + d.Model)
		if counts[kind]++; counts[kind] == 1 {
			kinds = append(kinds, kind)
		}
		reserved[kind] += cluster.MilliCPU(d.Reserved) // both count thousandths
	}
	for _, kind := range kinds {
		table.Add(kind, strconv.Itoa(counts[kind]), output.CPUs(reserved[kind]), "")
	}
}

// logsCommand is `berth host logs`.
type logsCommand struct {
	*target
	options   client.HostLogOptions
	withTimes bool
}

func newLogsCommand(t *target) *cobra.Command {
	l := &logsCommand{target: t}
	cmd := &cobra.Command{
		Use: "logs TASK", Short: "Show the output of a task of this machine",
		Long: "Show the output of a task of this machine. TASK is a name or an id from 'berth host ps'.",
		Args: session.Arguments(1, 1, "a task, such as web"), ValidArgsFunction: t.completeTasks(1),
		RunE: t.withHost(l.run),
	}
	cmd.Flags().IntVar(&l.options.History, "history", 10, "number of newest `lines` to begin with")
	cmd.Flags().BoolVarP(&l.options.Follow, "follow", "f", false, "wait for new lines until interrupted")
	cmd.Flags().StringVarP(&l.options.Container, "container", "c", "", "only this `container`")
	cmd.Flags().StringVar((*string)(&l.options.Stream), "stream", "", "only this `stream`: stdout or stderr")
	cmd.Flags().BoolVarP(&l.withTimes, "timestamps", "t", false, "begin each line with its time")
	return cmd
}

func (l *logsCommand) run(ctx context.Context, h *client.Host, args []string) error {
	for line, err := range h.Logs(ctx, args[0], l.options) {
		if err != nil {
			return session.EndOfStream(onMissing(err))
		}
		if err := l.print(&line); err != nil {
			return err
		}
	}
	return nil
}

// print prints a line on the stream that it came from.
func (l *logsCommand) print(line *api.LogLine) error {
	if l.WantsData() {
		return l.PrintItem(line)
	}
	if line.Lost > 0 {
		l.Messagef("%d lines were lost, because they were read too slowly", line.Lost)
		return nil
	}
	to, text := l.Stdout, line.Text
	if line.Stream == cluster.StreamStderr {
		to = l.Stderr
	}
	if l.withTimes {
		text = line.Time.Format(time.RFC3339Nano) + " " + text
	}
	if !line.Partial {
		text += "\n"
	}
	_, err := io.WriteString(to, text)
	return err
}

func newEventsCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "events", Short: "Show the tasks of this machine, and then each change",
		Long: "Show the tasks of this machine, and then each change with what the tasks reserve after it, until\n" +
			"interrupted. With -o json, the first line has everything, and each later line has what changed.",
		Args: session.Arguments(0, 0, ""),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, _ []string) error {
			for e, err := range h.Events(ctx) {
				if err != nil {
					return session.EndOfStream(err)
				}
				if err := t.printEvent(&e); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// printEvent prints an event: a line for each task.
func (t *target) printEvent(e *client.HostEvent) error {
	if t.WantsData() {
		return t.PrintItem(e)
	}
	var tasks []api.HostTask
	var removed []string
	var resources *api.HostResources
	if e.State != nil {
		tasks, resources = e.State.Tasks, &e.State.Resources
	} else {
		tasks, removed, resources = e.Change.Tasks, e.Change.Removed, &e.Change.Resources
	}
	now, reserved := t.Now().Local().Format(time.TimeOnly), fmt.Sprintf("reserved: %s CPU, %s memory",
		output.Share(output.CPUs(resources.CPU.Reserved), output.CPUs(resources.CPU.Total)),
		output.Share(output.Size(resources.Memory.Reserved), output.Size(resources.Memory.Total)))
	var lines []string
	for i := range tasks {
		line := now + "  " + tasks[i].Name + "  " + stateText(&tasks[i])
		if text := messageText(&tasks[i]); text != "" {
			line += "  " + text
		}
		lines = append(lines, line)
	}
	for _, name := range removed {
		lines = append(lines, now+"  "+name+"  removed")
	}
	lines = append(lines, now+"  "+reserved)
	_, err := io.WriteString(t.Stdout, strings.Join(lines, "\n")+"\n")
	return err
}
