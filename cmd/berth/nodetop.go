package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

func (a *app) newNodeTopCommand() *cobra.Command {
	var every time.Duration
	var times int
	var by string
	cmd := &cobra.Command{
		Use: "top", Short: "Show what nodes have, what is reserved and what is used",
		Long: "Shows for each node what it has, what tasks have reserved, what the machine uses, and which nodes are short of memory. On a\n" +
			"terminal it goes on until it is interrupted; elsewhere it prints once.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list faults
			if every < 100*time.Millisecond {
				list.add("--interval %v: want at least 100ms", every)
			}
			if !slices.Contains(topOrders(), by) {
				list.add("--sort %q: want one of name, cpu, memory, disk or tasks", by)
			}
			if err := list.err(cmd); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			live := terminalWidth(a.stdout) > 0 && !a.data()
			if !live && times == 0 {
				times = 1
			}
			return a.nodeTop(cmd.Context(), c, topView{every: every, times: times, by: by, live: live})
		},
	}
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "how often to look")
	cmd.Flags().IntVarP(&times, "times", "n", 0, "end after so many looks; default never on a terminal, else 1")
	cmd.Flags().StringVar(&by, "sort", "cpu", "what to order by, the most used first: name, cpu, memory, disk or tasks")
	mustComplete(cmd, "sort", cobra.FixedCompletions(topOrders(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func topOrders() []string { return []string{"name", "cpu", "memory", "disk", "tasks"} }

// topView is how often, in which order and where `berth node top` shows.
type topView struct {
	every time.Duration
	times int // 0 is without end
	by    string
	live  bool // over what was shown before
}

// nodeTop looks and shows, again and again.
func (a *app) nodeTop(ctx context.Context, c *client.Client, v topView) error {
	for n := 1; ; n++ {
		nodes, err := allNodes(ctx, c)
		switch {
		case err != nil && n > 1 && errors.Is(err, client.ErrUnreachable) && v.live:
			a.say("\x1b[H\x1b[J%s", err) // it is looked for again
		case err != nil:
			return endOfStream(err)
		default:
			if err := a.showTop(nodes, v); err != nil {
				return err
			}
		}
		if n == v.times {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(v.every):
		}
	}
}

// showTop shows one look.
func (a *app) showTop(nodes []api.NodeView, v topView) error {
	if a.data() {
		return a.printData(emptyIsList(nodes))
	}
	if v.live {
		fmt.Fprint(a.stdout, "\x1b[H\x1b[J") // home, and clear what follows
	}
	if len(nodes) == 0 {
		a.tell("No nodes. Run 'berth agent' on a machine to make it one.")
		return nil
	}
	a.say("%s", nodesLine(nodes))
	sortTop(nodes, v.by)
	return a.printTable(a.topTable(nodes))
}

// sortTop orders by the share that is used, the most first; without a measurement by what is reserved.
func sortTop(nodes []api.NodeView, by string) {
	share := func(n api.NodeView) float64 {
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
	slices.SortStableFunc(nodes, func(x, y api.NodeView) int {
		return cmp.Or(cmp.Compare(share(y), share(x)), cmp.Compare(x.Name, y.Name))
	})
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
		"NODE", "STATE", "TASKS>", "CPU USED>", "RESERVED>", "TOTAL>", "USE>", "MEMORY USED>", "RESERVED>", "TOTAL>", "USE>",
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
			memory, size(n.Reserved.Memory), size(n.Total.Memory), memoryUse, disk, size(n.Total.Disk), load, heard, every, n.Server, a.pressureCell(n))
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
