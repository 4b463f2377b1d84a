// Package top implements berth top and berth node top, which show resource use.
package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/wording"
)

// Views of `berth top`.
const (
	topNodes    = "nodes"
	topServices = "services"
	topTasks    = "tasks"
)

func topViews() []string { return []string{topNodes, topServices, topTasks} }

// topOrders returns the sort orders of a view.
func topOrders(view string) []string {
	switch view {
	case topNodes:
		return []string{"cpu", "memory", "disk", "tasks", "name"}
	case topServices:
		return []string{"cpu", "memory", "throttled", "network", "disk", "tasks", "name"}
	}
	return []string{"cpu", "memory", "throttled", "network", "disk", "stall", "growth", "requests", "name"}
}

// topOptions are the arguments and flags of `berth top`.
type topOptions struct {
	view, sortBy string
	interval     time.Duration
	times        int // 0 for no limit
	filter       client.TaskFilter
	containers   bool
}

// topCommand is `berth top` or `berth node top`.
type topCommand struct {
	*session.Session
	topOptions
}

// NewTopCommand returns the command `berth top`.
func NewTopCommand(sess *session.Session) *cobra.Command {
	t := &topCommand{Session: sess, topOptions: topOptions{view: topTasks}}
	cmd := &cobra.Command{
		Use:   "top [nodes|services|tasks]",
		Short: "Show the resource usage of nodes, services and tasks",
		Long: "Shows the usage of tasks, of services and jobs, or of nodes, as their agents last reported it: CPU,\n" +
			"memory, the time that a CPU limit throttled them, the time that they waited for a resource, network\n" +
			"and disks. For nodes, it also shows the reservations of tasks.\n\n" +
			"On a terminal this is a live screen: tab shows the next view, s the next order, q quits. Elsewhere,\n" +
			"and with --times or -o json, it prints tables. A value that is not measured is shown as -. The\n" +
			"network columns show host for a task on its node's network, whose traffic is not measured for each\n" +
			"task.",
		Args: session.Arguments(0, 1, "one of "+strings.Join(topViews(), ", ")), ValidArgs: topViews(),
		RunE: t.run,
	}
	t.addFlags(cmd)
	sess.AddTaskFilterFlags(cmd, &t.filter)
	cmd.Flags().BoolVar(&t.containers, "containers", false, "also show each container of tasks with several containers")
	return cmd
}

// NewNodeTopCommand returns the command `berth node top`.
func NewNodeTopCommand(sess *session.Session) *cobra.Command {
	t := &topCommand{Session: sess, topOptions: topOptions{view: topNodes}}
	cmd := &cobra.Command{
		Use: "top", Short: "Show capacity, reservations and usage of nodes: 'berth top nodes'",
		Long: "Shows for each node its capacity, the reservations of tasks, the usage of the machine, and whether\n" +
			"it is short of memory. It is the same as 'berth top nodes'.",
		Args: session.Arguments(0, 0, ""),
		RunE: t.run,
	}
	t.addFlags(cmd)
	return cmd
}

// addFlags adds the flags that all views share.
func (t *topCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&t.interval, "interval", 2*time.Second, "how often to read the usage")
	cmd.Flags().IntVar(&t.times, "times", 0,
		"print N tables, then exit; default a live screen on a terminal, else 1")
	what := alternatives(topOrders(t.view))
	if t.view == topTasks {
		what += "; for services also tasks, for nodes cpu, memory, disk, tasks or name"
	}
	cmd.Flags().StringVar(&t.sortBy, "sort", "cpu", "order, the largest first: "+what)
	session.RegisterCompletion(cmd, "sort",
		cobra.FixedCompletions(topOrders(t.view), cobra.ShellCompDirectiveNoFileComp))
}

// alternatives joins words: "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// viewOf returns the view that an argument names. It takes the abbreviations of kubectl.
func viewOf(word string) string {
	switch word {
	case "no":
		return topNodes
	case "po":
		return topTasks
	}
	switch session.ParseKind(word) {
	case wording.KindNode:
		return topNodes
	case wording.KindService:
		return topServices
	case wording.KindTask:
		return topTasks
	}
	return word
}

func (t *topCommand) run(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		t.view = viewOf(args[0])
	}
	var list session.Faults
	if !slices.Contains(topViews(), t.view) {
		list.Add("%q: want one of %s", t.view, alternatives(topViews()))
	} else if !slices.Contains(topOrders(t.view), t.sortBy) {
		list.Add("--sort %q: want one of %s", t.sortBy, alternatives(topOrders(t.view)))
	}
	if t.interval < 100*time.Millisecond {
		list.Add("--interval %v: want at least 100ms", t.interval)
	}
	if t.times < 0 {
		list.Add("--times %d: want 1 or more", t.times)
	}
	if f := t.filter; t.view == topNodes && (f != (client.TaskFilter{}) || t.Cluster != "") {
		list.Add("--cluster, --service, --job and --node do not apply to nodes: use them with " +
			"services or tasks")
	}
	if err := list.Err(cmd); err != nil {
		return err
	}
	if t.view != topNodes { // nodes are in no cluster
		if err := t.ParseTaskFilter(cmd, &t.filter); err != nil {
			return err
		}
	}
	c, err := t.Connect()
	if err != nil {
		return err
	}
	only := session.Filter{
		Cluster: t.filter.Cluster, Service: t.filter.Service, Job: t.filter.Job, Node: t.filter.Node,
	}
	if err := only.CheckExists(cmd.Context(), c); err != nil {
		return err
	}
	if t.times == 0 && canShowScreen(t.Session) {
		return runScreen(cmd.Context(), t.Session, c, t.topOptions)
	}
	t.times = max(t.times, 1)
	return printTop(cmd.Context(), t.Session, c, t.topOptions)
}

// canShowScreen reports whether standard output can show a live screen.
func canShowScreen(sess *session.Session) bool {
	return output.TerminalWidth(sess.Stdout) > 0 && sess.Env("TERM") != "dumb" && !sess.WantsData()
}

// printTop prints the usage a number of times, or until ctx ends.
func printTop(ctx context.Context, sess *session.Session, c *client.Client, o topOptions) error {
	for n := 1; n == 1 || pause.For(ctx, o.interval) == nil; n++ {
		use, err := o.readUsage(ctx, c)
		if err != nil {
			return session.EndOfStream(err)
		}
		use.sort(o.sortBy, false)
		switch {
		case sess.WantsData():
			if err := sess.PrintData(use.data()); err != nil {
				return err
			}
		case use.emptyText() != "":
			sess.Messagef("%s", use.emptyText())
		default:
			sess.Printf("%s", use.headline())
			if err := sess.PrintTable(usageTable(sess, use, o.containers)); err != nil {
				return err
			}
		}
		if n == o.times {
			return nil
		}
	}
	return session.EndOfStream(ctx.Err())
}

// topUsage is the content of one view.
type topUsage struct {
	view   string
	nodes  []api.NodeView
	tasks  []api.TaskView
	owners []ownerUsage
}

// readUsage reads the content of the view.
func (o topOptions) readUsage(ctx context.Context, c *client.Client) (topUsage, error) {
	use := topUsage{view: o.view}
	var err error
	if o.view == topNodes {
		use.nodes, err = session.ListNodes(ctx, c, "")
		return use, err
	}
	tasks, err := session.ListTasks(ctx, c, o.filter)
	// Keep running tasks, and ended ones that still use resources.
	use.tasks = slices.DeleteFunc(tasks, func(t api.TaskView) bool {
		return t.Used == nil && t.State != cluster.StateRunning
	})
	if o.view == topServices {
		use.owners, use.tasks = sumByOwner(use.tasks), nil
	}
	return use, err
}

// data returns the value for programs.
func (l topUsage) data() any {
	switch l.view {
	case topNodes:
		return output.EmptyIfNil(l.nodes)
	case topServices:
		return output.EmptyIfNil(l.owners)
	}
	return output.EmptyIfNil(l.tasks)
}

// emptyText returns the message for an empty view, or "".
func (l topUsage) emptyText() string {
	switch {
	case l.view == topNodes && len(l.nodes) == 0:
		return "No nodes. 'berth agent' on a machine makes it a node."
	case l.view != topNodes && len(l.tasks)+len(l.owners) == 0:
		return "No tasks run."
	}
	return ""
}

// faultText describes a failed read in one line.
func faultText(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if errors.Is(err, client.ErrUnreachable) {
		return fmt.Sprintf("%s; trying again", text)
	}
	return text
}
