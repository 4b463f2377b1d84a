// Package node implements the commands about nodes, their taints and their pools.
package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/machine"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/top"
	"github.com/berthd/berth/internal/cli/trouble"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewNodeCommand returns the command `berth node`.
func NewNodeCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Short: "Show and manage nodes", Args: cobra.ArbitraryArgs,
		RunE: session.RunGroup,
	}
	cmd.AddCommand(newNodeListCommand(sess), newNodeStatusCommand(sess), top.NewNodeTopCommand(sess),
		newNodeCordonCommand(sess), newNodeUncordonCommand(sess), newNodeDrainCommand(sess), newNodeForgetCommand(sess),
		newNodeTaintCommand(sess), newNodeUntaintCommand(sess), newNodePoolCommand(sess),
		newNodeReservePortsCommand(sess), newNodeUnreservePortsCommand(sess), newNodeDialCommand(sess),
		newNodeDomainCommand(sess),
		machine.NewNodeAddCommand(sess), machine.NewNodeDriftCommand(sess), machine.NewNodeRepairCommand(sess),
		machine.NewNodeUpgradeCommand(sess), newNodeAdoptCommand(sess), newNodeReleaseCommand(sess))
	return cmd
}

// listCommand is `berth node ls`.
type listCommand struct {
	*session.Session
	labels fetch.Labels
}

func newNodeListCommand(sess *session.Session) *cobra.Command {
	l := &listCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List nodes, problems first", Args: session.Arguments(0, 0, ""),
		RunE: l.labels.WithClient(sess, l.run),
	}
	l.labels.AddFlags(cmd, "nodes")
	return cmd
}

func (l *listCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	nodes, err := session.ListNodes(ctx, c, l.labels.Selector())
	if err != nil {
		return err
	}
	none := l.labels.EmptyText("No nodes. 'berth agent' on a machine makes it a node.")
	return session.PrintList(l.Session, nodes, none,
		func([]api.NodeView) output.Table {
			t := nodeTable(l.Session, nodes, serverNames(ctx, l.Session, c))
			l.labels.AddColumns(&t, func(row int) cluster.Labels { return nodes[row].Labels })
			return t
		})
}

// statusCommand is `berth node status`.
type statusCommand struct {
	*session.Session
	all bool
}

func newNodeStatusCommand(sess *session.Session) *cobra.Command {
	s := &statusCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "status NODE", Short: "Show a node, its facts and its tasks",
		Long: "Show a node, its facts, its troubles, and its tasks as 'berth ps' lists them: those that have not\n" +
			"ended, and recent failures. --all also lists the other ended tasks.",
		Args:              session.Arguments(1, 1, "the name of a node"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
		RunE:              sess.WithClient(s.run),
	}
	cmd.Flags().BoolVarP(&s.all, "all", "a", false, "include all ended tasks and attempts")
	return cmd
}

func (s *statusCommand) run(ctx context.Context, c *client.Client, args []string) error {
	n, err := readNode(ctx, c, strings.TrimPrefix(args[0], wording.KindNode+"/"))
	if err != nil {
		return err
	}
	if s.all {
		return printStatus(ctx, s.Session, c, n, &fetch.CurrentTasks{Now: s.Now(), All: true}, "")
	}
	return printStatus(ctx, s.Session, c, n, &fetch.CurrentTasks{Now: s.Now()}, "-a")
}

// serverNames returns the names of the servers by id, for a wide table. On an error the table shows ids.
func serverNames(ctx context.Context, sess *session.Session, c *client.Client) map[string]string {
	names := map[string]string{}
	if sess.Format != output.OutputWide {
		return names
	}
	servers, err := fetch.ListServers(ctx, c)
	if err != nil {
		return names
	}
	for _, v := range servers {
		names[v.ID] = v.Name
	}
	return names
}

// nodeTable returns the table of nodes. servers maps the id of a server to its name.
func nodeTable(sess *session.Session, nodes []api.NodeView, servers map[string]string) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{
		"NODE", "STATE", "TASKS>", "CPU>", "MEMORY>", "DISK>", "ADDRESS", "EXECUTOR", "SINCE>", "+POOL", "+TAINTS",
		"+OS", "+KERNEL", "+VERSION", "+SERVER", "MESSAGE",
	}}
	for _, n := range nodes {
		message := wording.OneLine(n.Reason)
		if n.State == cluster.NodeReady {
			message = "" // an event has the cause of this state
		}
		t.Add(n.Name, tables.NodeState(n), strconv.Itoa(n.Tasks),
			output.Share(output.CPUs(n.Reserved.CPU), output.CPUs(n.Total.CPU)),
			output.Share(output.Size(n.Reserved.Memory), output.Size(n.Total.Memory)),
			output.Share(output.Size(n.Reserved.Disk), output.Size(n.Total.Disk)), n.Facts.Address,
			executorsText(n.Facts.Executors),
			sess.Age(n.Since), n.Pool, taintList(n.Taints),
			strings.Trim(n.Facts.OS+"/"+n.Facts.Arch, "/"), n.Facts.Kernel, n.Facts.Version,
			cmp.Or(servers[n.Server], output.ShortID(n.Server)), message)
	}
	return t
}

func executorsText(facts []cluster.ExecutorFact) string {
	names := make([]string, len(facts))
	for i, f := range facts {
		names[i] = f.Name
	}
	return strings.Join(names, ",")
}

// PrintStatus prints one node with its troubles, and its tasks that have not ended or failed recently.
func PrintStatus(ctx context.Context, sess *session.Session, c *client.Client, text string) error {
	n, err := readNode(ctx, c, text)
	if err != nil {
		return err
	}
	return printStatus(ctx, sess, c, n, &fetch.CurrentTasks{Now: sess.Now()}, "'berth node status "+n.Name+" -a'")
}

// readNode reads the node with a name, or the only one whose name begins with it.
func readNode(ctx context.Context, c *client.Client, text string) (api.NodeView, error) {
	nodes, err := session.ListNodes(ctx, c, "")
	if err != nil {
		return api.NodeView{}, err
	}
	n, err := findNode(nodes, text)
	if err != nil {
		return n, err
	}
	return c.Node(ctx, n.Name) // lists lack what is costly to find for all nodes
}

// printStatus prints a node with its troubles and the tasks of the list. Way says how to show the other tasks.
func printStatus(ctx context.Context, sess *session.Session, c *client.Client, n api.NodeView,
	list *fetch.CurrentTasks, way string,
) error {
	if sess.WantsData() {
		return sess.PrintData(n)
	}
	if err := list.Read(ctx, c, client.TaskFilter{Node: n.Name, All: list.All}); err != nil {
		return err
	}
	if err := sess.PrintTable(nodeTable(sess, []api.NodeView{n}, serverNames(ctx, sess, c))); err != nil {
		return err
	}
	if err := sess.PrintTable(nodeFactsTable(sess, n)); err != nil {
		return err
	}
	own := session.Name{Kind: wording.KindNode, Name: n.Name}
	troubles, err := trouble.List(ctx, c, own)
	if err != nil {
		return err
	}
	if err := trouble.PrintSection(sess, own, troubles, "berth node status "+n.Name); err != nil {
		return err
	}
	if len(list.Tasks)+list.Hidden == 0 {
		return nil
	}
	sess.Printf("")
	return tables.PrintCurrentTasks(sess, list, tables.TaskOptions{}, way)
}

// nodeFactsTable returns the facts about a node.
func nodeFactsTable(sess *session.Session, n api.NodeView) output.Table {
	facts := output.Table{Titles: []string{"", ""}, Indent: "  "}
	addMachineFacts(&facts, n)
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		facts.Add("label", k+"="+n.Labels[k])
	}
	if n.Pool != "" {
		facts.Add("pool", n.Pool)
	}
	for _, t := range n.Taints {
		facts.Add("taint", t.String())
	}
	facts.Add("agent", n.Facts.Version)
	if n.Drain != nil {
		facts.Add("drain", drainProgress(n))
	}
	if h := n.Heartbeat; h != nil {
		facts.Add("heard", fmt.Sprintf("%s ago, every %s", wording.Span(time.Duration(h.Age)),
			h.Interval.String()))
	}
	if u := n.Used; u != nil {
		facts.Add("uses", fmt.Sprintf("%s of %s CPUs, %s of %s memory, %s of %s disk; load %.2f",
			output.CPUs(u.CPU), output.CPUs(n.Total.CPU), u.Memory, n.Total.Memory, u.Disk, n.Total.Disk, u.Load))
	}
	if u := n.Used; u != nil && u.DiskFull != nil {
		facts.Add("disk full", u.DiskFull.Message)
	}
	if n.Used != nil && n.Used.Pressure != nil {
		facts.Add("pressure", top.PressureCell(sess, n))
	}
	return facts
}

// addMachineFacts adds the facts about the machine.
func addMachineFacts(facts *output.Table, n api.NodeView) {
	facts.Add("machine", strings.TrimSpace(fmt.Sprintf("%s/%s, kernel %s", n.Facts.OS, n.Facts.Arch, n.Facts.Kernel)))
	machine.AddHardware(facts, n.Facts.Hardware)
	machine.AddSetup(facts, n.Setup)
	if n.Dial != "" {
		facts.Add("dialed at", dialText(&n))
	}
	if len(n.Facts.Addresses) > 0 {
		facts.Add("addresses", strings.Join(n.Facts.Addresses, ", "))
	}
	for _, e := range n.Facts.Executors {
		facts.Add("executor", strings.TrimSpace(e.Name+" "+e.Version))
		switch {
		case e.NoIsolation != "":
			facts.Add("isolation", "not available: "+e.NoIsolation)
		case e.Isolation != "":
			facts.Add("isolation", "by "+e.Isolation)
		}
	}
	if d := n.Facts.Discovery; d.Name != "" {
		facts.Add("discovery", strings.TrimSpace(d.Name+" "+d.Version))
		if d.Problem != "" {
			facts.Add("discovery", "not available: "+d.Problem)
		}
	}
	if len(n.Facts.ReservedPorts) > 0 {
		facts.Add("reserved ports", output.PortRanges(n.Facts.ReservedPorts)+", by its agent")
	}
	if len(n.ReservedPorts) > 0 {
		facts.Add("reserved ports", cluster.JoinPortRanges(n.ReservedPorts)+", by an operator")
	}
	for _, f := range n.Facts.Networks {
		text := string(f.Mode)
		switch {
		case f.Lacks != "":
			text += ", not available: " + f.Lacks
		case f.Subnet != "":
			text += " of " + f.Subnet
		}
		facts.Add("network", text)
	}
	for _, d := range n.Facts.Disks {
		facts.Add("disk", fmt.Sprintf("%s: %s free of %s", d.Mount, d.Free, d.Total))
	}
	for _, line := range tables.DeviceLines(n.Facts.Devices) {
		facts.Add("devices", line)
	}
	for _, k := range n.KeptRoom {
		facts.Add("kept room", keptText(k))
	}
	for _, d := range n.LostDevices {
		facts.Add("lost", fmt.Sprintf("device %s is missing, and %s uses it", d.ID, cmp.Or(d.Task, "a task")))
	}
}

// keptText names the room that a service keeps.
func keptText(k api.KeptRoom) string {
	parts := []string{
		output.CPUs(k.Demand.CPU) + " CPUs", k.Demand.Memory.String() + " memory", k.Demand.Disk.String() + " disk",
	}
	if len(k.Ports) > 0 {
		parts = append(parts, "ports "+output.PortRanges(k.Ports))
	}
	for _, r := range k.Devices {
		parts = append(parts, deviceText(r))
	}
	text := strings.Join(parts, ", ")
	if k.Owner == nil {
		return text + ", for a service of another cluster"
	}
	return text + ", for " + k.Owner.Cluster + "/" + k.Owner.Name + " until it is deleted"
}

// deviceText names what a request for devices asks for: "2 gpu A100", or "25% of 1 gpu".
func deviceText(r api.DeviceRequest) string {
	text := cmp.Or(r.Type, cluster.DefaultDeviceType)
	if len(r.Models) > 0 {
		text += " " + strings.Join(r.Models, " or ")
	}
	text = fmt.Sprintf("%d %s", max(r.Count, 1), text)
	if r.Share > 0 {
		text = fmt.Sprintf("%g%% of %s", float64(r.Share)*100/cluster.WholeDevice, text)
	}
	return text
}

// findNode returns the node with this name, or the only node whose name begins with it.
func findNode(nodes []api.NodeView, text string) (found api.NodeView, err error) {
	var hits, known []string
	for _, n := range nodes {
		known = append(known, n.Name)
		if n.Name == text {
			return n, nil
		}
		if strings.HasPrefix(n.Name, text) {
			found = n
			hits = append(hits, n.Name)
		}
	}
	switch len(hits) {
	case 0:
		return found, session.UnknownError(wording.KindNode, text, known)
	case 1:
		return found, nil
	}
	return found, session.AmbiguousError(text, hits)
}
