package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
)

func (a *app) newRebalanceCommand() *cobra.Command {
	var o client.RebalanceOptions
	most, settle := 100, 5*time.Minute
	cmd := &cobra.Command{
		Use: "rebalance", SuggestFor: []string{"balance", "defrag", "optimize"},
		Short: "Show which tasks would stand better on other nodes",
		Long: "Show which tasks would stand better on other nodes, as moves in the order in which they can be carried out, each with what it\n" +
			"gains: 1000 points are what it is worth to empty a node. First come tasks whose nodes do not meet their constraints any more. Nothing\n" +
			"is changed.\n\n" +
			"Tasks of jobs, of daemons and with volumes are not moved, nor those that are not well, have run for less than --settle, or belong\n" +
			"to a service that is rolled out or cannot spare them.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list faults
			if most < 0 {
				list.add("--max is %d, want 0 for all, or more", most)
			}
			if o.MinGain < 1 {
				list.add("--min-gain is %d, want 1 or more", o.MinGain)
			}
			if settle < 0 {
				list.add("--settle is %s, want 0s or more", settle)
			}
			if err := list.err(cmd); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			o.Max, o.Settle = &most, &settle
			v, err := c.Rebalance(cmd.Context(), o)
			if err != nil {
				return err
			}
			return a.printRebalance(v)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "move only tasks of this `cluster`")
	f.Bool("dry-run", false, "show the moves and change nothing, as it does without this")
	f.IntVar(&most, "max", most, "show at most so many moves; 0 for all")
	f.IntVar(&o.MinGain, "min-gain", 20, "leave out moves that gain fewer `points`")
	f.DurationVar(&settle, "settle", settle, "leave alone tasks that have run for less")
	f.BoolVar(&o.KeepViolations, "keep-violations", false, "leave tasks in place of which nothing is wrong but their constraints")
	return cmd
}

func (a *app) printRebalance(v api.Rebalance) error {
	if a.data() {
		v.Moves, v.Violations = emptyIsList(v.Moves), emptyIsList(v.Violations)
		return a.printData(v)
	}
	if len(v.Moves) == 0 {
		a.say("no task would stand better elsewhere; %s may be moved", count(v.Considered, "task"))
	} else {
		t := table{titles: []string{"TASK", "FROM", "TO", "GAIN>", "WHY"}}
		sum := 0
		for i := range v.Moves {
			m := &v.Moves[i]
			why := m.Message
			if m.StopFirst {
				why += "; it stops first"
			}
			gain := strconv.Itoa(m.Gain)
			if m.Cause == causeViolation {
				gain = ""
			}
			t.add(shortTask(m.Task), m.From, m.To, gain, why)
			sum += m.Gain
		}
		if err := a.printTable(t); err != nil {
			return err
		}
		a.say("")
		a.say("%s of %s, a gain of %d points%s", count(len(v.Moves), "move"), count(v.Considered, "task"), sum, scoreText(v.Before, v.After))
	}
	if v.More {
		a.say("there may be more: the list is cut off (--max)")
	}
	return a.printStays(v)
}

// causeViolation is the cause of a move away from a node that does not meet the task's constraints.
const causeViolation = "violation"

// printStays prints the violations that stay, and how many tasks are left alone for what.
func (a *app) printStays(v api.Rebalance) error {
	stay := table{titles: []string{"TASK", "NODE", "STAYS IN VIOLATION OF", "MESSAGE"}}
	for _, x := range v.Violations {
		if x.To == "" {
			stay.add(shortTask(x.Task), x.Node, string(x.Code), x.Message)
		}
	}
	if len(stay.rows) > 0 {
		a.say("")
		if err := a.printTable(stay); err != nil {
			return err
		}
	}
	if len(v.Stays) == 0 {
		return nil
	}
	alone := table{titles: []string{"", ""}, indent: "  "}
	for _, s := range v.Stays {
		alone.add(strconv.Itoa(s.Tasks), s.Why)
	}
	a.say("")
	a.say("left alone:")
	return a.printTable(alone)
}

// scoreText tells which of the numbers go down.
func scoreText(before, after api.RebalanceScore) string {
	var text strings.Builder
	for _, n := range []struct {
		what          string
		before, after int
	}{
		{"violations", before.Violations, after.Violations},
		{"nodes in use", before.Used, after.Used},
		{"stranded", before.Stranded, after.Stranded},
		{"uneven", before.Uneven, after.Uneven},
	} {
		if n.before != n.after {
			fmt.Fprintf(&text, "; %s %d → %d", n.what, n.before, n.after)
		}
	}
	return text.String()
}
