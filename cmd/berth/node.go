package main

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
	"github.com/berthd/berth/internal/cluster"
)

func (a *app) newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Look at nodes and empty them", Args: cobra.ArbitraryArgs, RunE: a.group}
	cmd.AddCommand(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List nodes, trouble first", Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			nodes, err := allNodes(cmd.Context(), c)
			if err != nil {
				return err
			}
			if a.data() {
				return a.printData(emptyIsList(nodes))
			}
			if len(nodes) == 0 {
				a.tell("No nodes. Run 'berth agent' on a machine to make it one.")
				return nil
			}
			return a.printTable(a.nodeTable(nodes, a.serverNames(cmd.Context(), c)))
		},
	}, &cobra.Command{
		Use: "status NODE", Short: "Show a node, its facts and its tasks", Args: arguments(1, 1, "the name of a node"),
		ValidArgsFunction: a.completeNames(wordNode),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.nodeStatus(cmd.Context(), c, strings.TrimPrefix(args[0], wordNode+"/"))
		},
	}, a.newNodeTopCommand(), a.newNodeCordonCommand(), a.newNodeUncordonCommand(), a.newNodeDrainCommand(),
		a.newNodeForgetCommand(),
		a.newNodeTaintCommand(), a.newNodeUntaintCommand(), a.newNodePoolCommand(), a.newNodePoolsCommand())
	return cmd
}

func allNodes(ctx context.Context, c *client.Client) ([]api.NodeView, error) {
	nodes, _, err := client.All(ctx, client.ListOptions{}, c.Nodes)
	slices.SortStableFunc(nodes, func(x, y api.NodeView) int {
		return cmp.Or(cmp.Compare(nodeRank(x), nodeRank(y)), cmp.Compare(x.Name, y.Name))
	})
	return nodes, err
}

func nodeRank(n api.NodeView) int {
	switch n.State {
	case cluster.NodeDown:
		return 0
	case cluster.NodeSuspect:
		return 1
	case cluster.NodeReady:
		return 3
	}
	return 2
}

// serverNames returns what people call the servers, by id, for a wide table; without them ids are shown.
func (a *app) serverNames(ctx context.Context, c *client.Client) map[string]string {
	names := map[string]string{}
	if a.output != outputWide {
		return names
	}
	servers, err := allServers(ctx, c)
	if err != nil {
		return names
	}
	for _, v := range servers {
		names[v.ID] = v.Name
	}
	return names
}

// nodeTable shows nodes, with the server that each is connected to by its name in servers.
func (a *app) nodeTable(nodes []api.NodeView, servers map[string]string) table {
	t := table{state: 1, titles: []string{
		"NODE", "STATE", "TASKS>", "CPU>", "MEMORY>", "DISK>", "ADDRESS", "EXECUTOR", "SINCE>", "+POOL", "+TAINTS",
		"+OS", "+KERNEL", "+VERSION", "+SERVER", "MESSAGE",
	}}
	for _, n := range nodes {
		message := oneLine(n.Reason)
		if n.State == cluster.NodeReady {
			message = "" // how it became so is an event
		}
		t.add(n.Name, nodeState(n), strconv.Itoa(n.Tasks),
			share(cpus(n.Reserved.CPU), cpus(n.Total.CPU)), share(size(n.Reserved.Memory), size(n.Total.Memory)),
			share(size(n.Reserved.Disk), size(n.Total.Disk)), n.Facts.Address, executors(n.Facts.Executors),
			a.age(n.Since), n.Pool, taintList(n.Taints),
			strings.Trim(n.Facts.OS+"/"+n.Facts.Arch, "/"), n.Facts.Kernel, n.Facts.Version,
			cmp.Or(servers[n.Server], shortID(n.Server)), message)
	}
	return t
}

func nodeState(n api.NodeView) string {
	switch {
	case n.Gone:
		return string(n.State) + " forgotten"
	case n.Cordon && n.Drain == nil:
		return string(n.State) + " cordoned"
	}
	return string(n.State)
}

func share(part, whole string) string { return part + "/" + whole }

// cpus writes CPUs with at most two decimals: "0.5", "4".
func cpus(m cluster.MilliCPU) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", float64(m)/1000), "0"), ".")
}

// size writes a size without a space: "512MiB".
func size(b cluster.Bytes) string {
	if b == 0 {
		return "0"
	}
	return strings.ReplaceAll(b.String(), " ", "")
}

func executors(facts []cluster.ExecutorFact) string {
	names := make([]string, len(facts))
	for i, f := range facts {
		names[i] = f.Name
	}
	return strings.Join(names, ",")
}

// nodeStatus shows one node.
func (a *app) nodeStatus(ctx context.Context, c *client.Client, text string) error {
	nodes, err := allNodes(ctx, c)
	if err != nil {
		return err
	}
	n, err := pickNode(nodes, text)
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(n)
	}
	tasks, err := allTasks(ctx, c, client.TaskFilter{Node: n.Name})
	if err != nil {
		return err
	}
	if err := a.printTable(a.nodeTable([]api.NodeView{n}, a.serverNames(ctx, c))); err != nil {
		return err
	}
	if err := a.printTable(a.nodeFacts(n)); err != nil {
		return err
	}
	if err := a.printOwnTroubles(a.nodeTroubles(n), "berth node status "+n.Name); err != nil {
		return err
	}
	if len(tasks) == 0 {
		return nil
	}
	a.say("")
	return a.printTasks(tasks, nil)
}

// nodeFacts is what a node's page says of it.
func (a *app) nodeFacts(n api.NodeView) table {
	facts := table{titles: []string{"", ""}, indent: "  "}
	machineFacts(&facts, n)
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		facts.add("label", k+"="+n.Labels[k])
	}
	if n.Pool != "" {
		facts.add("pool", n.Pool)
	}
	for _, t := range n.Taints {
		facts.add("taint", t.String())
	}
	facts.add("agent", n.Facts.Version)
	if n.Drain != nil {
		facts.add("drain", drainText(n))
	}
	if h := n.Heartbeat; h != nil {
		facts.add("heard", fmt.Sprintf("%s ago, every %s", span(time.Duration(h.Age)), time.Duration(h.Interval)))
	}
	if u := n.Used; u != nil {
		facts.add("uses", fmt.Sprintf("%s of %s CPUs, %s of %s memory, %s of %s disk; load %.2f",
			cpus(u.CPU), cpus(n.Total.CPU), u.Memory, n.Total.Memory, u.Disk, n.Total.Disk, u.Load))
	}
	if u := n.Used; u != nil && u.DiskFull != nil {
		facts.add("disk full", u.DiskFull.Message)
	}
	if pressureOf(n) != nil {
		facts.add("pressure", a.pressureCell(n))
	}
	return facts
}

// machineFacts says what the machine has.
func machineFacts(facts *table, n api.NodeView) {
	facts.add("machine", strings.TrimSpace(fmt.Sprintf("%s/%s, kernel %s", n.Facts.OS, n.Facts.Arch, n.Facts.Kernel)))
	if len(n.Facts.Addresses) > 0 {
		facts.add("addresses", strings.Join(n.Facts.Addresses, ", "))
	}
	for _, e := range n.Facts.Executors {
		facts.add("executor", strings.TrimSpace(e.Name+" "+e.Version))
		switch {
		case e.NoIsolation != "":
			facts.add("isolation", "not here: "+e.NoIsolation)
		case e.Isolation != "":
			facts.add("isolation", "by "+e.Isolation)
		}
	}
	if len(n.Facts.ReservedPorts) > 0 {
		facts.add("reserved ports", portRanges(n.Facts.ReservedPorts))
	}
	for _, f := range n.Facts.Networks {
		text := string(f.Mode)
		switch {
		case f.Lacks != "":
			text += ", not here: " + f.Lacks
		case f.Subnet != "":
			text += " of " + f.Subnet
		}
		facts.add("network", text)
	}
	for _, d := range n.Facts.Disks {
		facts.add("disk", fmt.Sprintf("%s: %s free of %s", d.Mount, d.Free, d.Total))
	}
	for _, line := range deviceLines(n.Facts.Devices) {
		facts.add("devices", line)
	}
	for _, d := range n.LostDevices {
		facts.add("lost", fmt.Sprintf("device %s is gone, and %s holds it", d.ID, d.Task))
	}
}

// pickNode returns the node of a name, or of the only name that begins so.
func pickNode(nodes []api.NodeView, text string) (found api.NodeView, err error) {
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
		return found, unknown(wordNode, text, known)
	case 1:
		return found, nil
	}
	return found, ambiguous(text, hits)
}
