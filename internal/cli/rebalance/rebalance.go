// Package rebalance implements berth rebalance and its subcommands.
package rebalance

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// rebalanceFlags are the flags of the command.
type rebalanceFlags struct {
	client.RebalanceOptions
	maxMoves int
	minAge   time.Duration
	apply    bool
	undo     bool
	dry      bool
	detach   bool
	parallel int
}

// NewRebalanceCommand returns the command `berth rebalance`.
func NewRebalanceCommand(sess *session.Session) *cobra.Command {
	o := rebalanceFlags{maxMoves: 100, minAge: 5 * time.Minute, parallel: cluster.DefaultRebalanceParallel}
	cmd := &cobra.Command{
		Use:   "rebalance [--apply | --undo [ID]]",
		Short: "Show which tasks would stand better on other nodes, and move them",
		Long: "Show which tasks would stand better on other nodes, as moves in the order in which they can " +
			"be carried out, each with what it\n" +
			"gains: 1000 points are what it is worth to empty a node. First come tasks whose nodes do not " +
			"meet their constraints any more. Nothing\n" +
			"is changed.\n\n" +
			"Tasks of jobs, of daemons and with volumes are not moved, nor those that are not well, have " +
			"run for less than --settle, or belong\n" +
			"to a service that is rolled out or cannot spare them.\n\n" +
			"With --apply the list is carried out: a few moves at a time (--parallel), each task in its new " +
			"place before it leaves the old one\n" +
			"or, where two of it must not live at once, only while its service can spare it. What has gone " +
			"another way meanwhile is passed\n" +
			"over. It waits for the end, and interrupting it stops the waiting and nothing else. --undo " +
			"takes back what the last rebalancing\n" +
			"moved, or the one with that ID; with --dry-run it shows what that would be.\n\n" +
			"Exit code 0: what could be done is done; 1: nothing was, or it was cancelled.",
		Args: session.Arguments(0, 1, "the number of one rebalancing, with --undo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := o.check(cmd, args)
			if err != nil {
				return err
			}
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			if o.undo {
				return undoRebalance(cmd.Context(), sess, c, id, &o)
			}
			o.Max, o.Settle = &o.maxMoves, &o.minAge
			v, err := c.Rebalance(cmd.Context(), o.RebalanceOptions)
			if err != nil {
				return err
			}
			if !o.apply || len(v.Moves) == 0 {
				return printPlan(sess, v)
			}
			return applyRebalance(cmd.Context(), sess, c, v, &o)
		},
	}
	o.register(cmd)
	sess.CompleteFlags(cmd, map[string]string{"cluster": wording.KindCluster})
	cmd.AddCommand(newRebalanceStatusCommand(sess), newRebalanceCancelCommand(sess), newRebalanceListCommand(sess))
	return cmd
}

func (o *rebalanceFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "move only tasks of this `cluster`")
	f.BoolVar(&o.dry, "dry-run", false, "show the moves and change nothing, as it does without --apply and --undo")
	f.BoolVar(&o.apply, "apply", false, "carry the moves out")
	f.BoolVar(&o.undo, "undo", false, "take back what the last rebalancing moved, or the one with that ID")
	f.IntVar(&o.parallel, "parallel", o.parallel, "how many moves are on their way at the same time")
	f.BoolVarP(&o.detach, "detach", "d", false, "do not wait")
	f.IntVar(&o.maxMoves, "max", o.maxMoves, "show at most so many moves; 0 for all")
	f.IntVar(&o.MinGain, "min-gain", 20, "leave out moves that gain fewer `points`")
	f.DurationVar(&o.minAge, "settle", o.minAge, "leave alone tasks that have run for less")
	f.BoolVar(&o.KeepViolations, "keep-violations", false,
		"leave tasks in place of which nothing is wrong but their constraints")
}

// check returns the id of the rebalancing to undo, or 0 for the last one. An error lists all faults of the flags.
func (o *rebalanceFlags) check(cmd *cobra.Command, args []string) (id uint64, err error) {
	var list session.Faults
	if o.maxMoves < 0 {
		list.Add("--max is %d, want 0 for all, or more", o.maxMoves)
	}
	if o.MinGain < 1 {
		list.Add("--min-gain is %d, want 1 or more", o.MinGain)
	}
	if o.minAge < 0 {
		list.Add("--settle is %s, want 0s or more", o.minAge)
	}
	if o.parallel < 1 || o.parallel > cluster.MaxRebalanceParallel {
		list.Add("--parallel is %d, want a number from 1 to %d", o.parallel, cluster.MaxRebalanceParallel)
	}
	if o.apply && o.dry {
		list.Add("--apply carries the moves out and --dry-run only shows them: leave out one")
	}
	if len(args) > 0 && !o.undo {
		list.Add("%q is no command of berth rebalance, and a number goes with --undo: want berth rebalance "+
			"--undo ID, or berth rebalance status ID", args[0])
	}
	if len(args) > 0 && o.undo {
		id, err = parseRebalancing(args[0])
		list.AddError("--undo", err)
	}
	return id, list.Err(cmd)
}

// parseRebalancing reads the id of a rebalancing.
func parseRebalancing(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("%q is no rebalancing: want its number, as berth rebalance list shows it", text)
	}
	return id, nil
}

func printPlan(sess *session.Session, v api.Rebalance) error {
	if sess.WantsData() {
		v.Moves, v.Violations = output.EmptyIfNil(v.Moves), output.EmptyIfNil(v.Violations)
		return sess.PrintData(v)
	}
	if len(v.Moves) == 0 {
		sess.Printf("no task would stand better elsewhere; %s may be moved", wording.Count(v.Considered, "task"))
	} else {
		t := output.Table{Titles: []string{"TASK", "FROM", "TO", "GAIN>", "WHY"}}
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
			t.Add(wording.ShortTask(m.Task), m.From, m.To, gain, why)
			sum += m.Gain
		}
		if err := sess.PrintTable(t); err != nil {
			return err
		}
		sess.Printf("")
		sess.Printf("%s of %s, a gain of %d points%s", wording.Count(len(v.Moves), "move"),
			wording.Count(v.Considered, "task"), sum,
			scoreText(v.Before, v.After))
	}
	if v.More {
		sess.Printf("there may be more: the list is cut off (--max)")
	}
	return printRemaining(sess, v)
}

// causeViolation is the cause of a move from a node that no longer meets the task's constraints.
const causeViolation = "violation"

// printRemaining prints the violations that remain, and how many tasks were left out for each reason.
func printRemaining(sess *session.Session, v api.Rebalance) error {
	stay := output.Table{Titles: []string{"TASK", "NODE", "STAYS IN VIOLATION OF", "MESSAGE"}}
	for _, x := range v.Violations {
		if x.To == "" {
			stay.Add(wording.ShortTask(x.Task), x.Node, string(x.Code), x.Message)
		}
	}
	if len(stay.Rows) > 0 {
		sess.Printf("")
		if err := sess.PrintTable(stay); err != nil {
			return err
		}
	}
	if len(v.Stays) == 0 {
		return nil
	}
	alone := output.Table{Titles: []string{"", ""}, Indent: "  "}
	for _, s := range v.Stays {
		alone.Add(strconv.Itoa(s.Tasks), s.Why)
	}
	sess.Printf("")
	sess.Printf("left alone:")
	return sess.PrintTable(alone)
}

// scoreText lists the numbers that go down.
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
