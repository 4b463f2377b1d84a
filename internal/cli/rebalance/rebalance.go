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

// rebalanceCommand is `berth rebalance`.
type rebalanceCommand struct {
	*session.Session
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
	o := &rebalanceCommand{
		Session: sess, maxMoves: 100, minAge: 5 * time.Minute, parallel: cluster.DefaultRebalanceParallel,
	}
	cmd := &cobra.Command{
		Use:   "rebalance [--apply | --undo [ID]]",
		Short: "Show tasks that have a better node, as an ordered list of moves, or carry the moves out",
		Long: "Show tasks that have a better node, as an ordered list of moves with their gain. An emptied node is\n" +
			"worth 1000 points. Tasks that violate their constraints come first. Without --apply and --undo the\n" +
			"command changes nothing.\n\n" +
			"Tasks of jobs, tasks of daemons and tasks with volumes are not moved. Neither are tasks that are not\n" +
			"healthy, that have run for less than --settle, or whose service has a rollout or no budget for a\n" +
			"move.\n\n" +
			"--apply carries the moves out, --parallel at a time. The new task runs before the old one stops.\n" +
			"Where both must not run together, the old task stops first, if the budget of its service allows it.\n" +
			"Moves that are no longer valid are skipped. The command waits for the end; an interrupt ends only\n" +
			"the wait. --undo reverses the moves of the last rebalancing, or of the one with that ID; add\n" +
			"--dry-run to see these moves first.\n\n" +
			"Exit code 0: all possible moves are done; 1: no move was done, or the rebalancing was cancelled.",
		Args: session.Arguments(0, 1, "the number of one rebalancing, with --undo"),
		RunE: o.run,
	}
	o.register(cmd)
	cmd.AddCommand(newRebalanceStatusCommand(sess), newRebalanceCancelCommand(sess), newRebalanceListCommand(sess))
	return cmd
}

func (o *rebalanceCommand) run(cmd *cobra.Command, args []string) error {
	id, err := o.check(cmd, args)
	if err != nil {
		return err
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	if o.undo {
		return o.reverse(cmd.Context(), c, id)
	}
	o.RebalanceOptions.Cluster, o.Max, o.Settle = o.ChosenCluster(), &o.maxMoves, &o.minAge
	v, err := c.Rebalance(cmd.Context(), o.RebalanceOptions)
	if err != nil {
		return err
	}
	if !o.apply || len(v.Moves) == 0 {
		return printPlan(o.Session, v)
	}
	return o.carryOut(cmd.Context(), c, v)
}

func (o *rebalanceCommand) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.dry, "dry-run", false, "show the moves and change nothing; the default without --apply and --undo")
	f.BoolVar(&o.apply, "apply", false, "carry out the moves")
	f.BoolVar(&o.undo, "undo", false, "reverse the moves of the last rebalancing, or of the one with that ID")
	f.IntVar(&o.parallel, "parallel", o.parallel, "number of moves at the same time")
	session.AddDetachFlag(cmd, &o.detach)
	f.IntVar(&o.maxMoves, "max", o.maxMoves, "show at most this number of moves; 0 for all")
	f.IntVar(&o.MinGain, "min-gain", 20, "leave out moves with a gain of fewer `points`")
	f.DurationVar(&o.minAge, "settle", o.minAge, "keep tasks that have run for less than this duration")
	f.BoolVar(&o.KeepViolations, "keep-violations", false,
		"keep healthy tasks that only violate constraints")
}

// check returns the id of the rebalancing to undo, or 0 for the last one. An error lists all faults of the flags.
func (o *rebalanceCommand) check(cmd *cobra.Command, args []string) (id uint64, err error) {
	var list session.Faults
	if o.maxMoves < 0 {
		list.Add("--max is %d, want 0 for all, or a positive number", o.maxMoves)
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
		list.Add("--apply and --dry-run exclude each other: leave out one")
	}
	if len(args) > 0 && !o.undo {
		list.Add("%q is not a command of berth rebalance, and a number needs --undo: want berth "+
			"rebalance --undo ID, or berth rebalance status ID", args[0])
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
		return 0, fmt.Errorf("%q is not a rebalancing: want its number, as berth rebalance list shows it", text)
	}
	return id, nil
}

func printPlan(sess *session.Session, v api.Rebalance) error {
	if sess.WantsData() {
		v.Moves, v.Violations = output.EmptyIfNil(v.Moves), output.EmptyIfNil(v.Violations)
		return sess.PrintData(v)
	}
	if len(v.Moves) == 0 {
		sess.Printf("no task has a better node; %s may be moved", wording.Count(v.Considered, "task"))
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
			if m.Cause == cluster.CauseViolation {
				gain = ""
			}
			t.Add(string(m.Task), m.From, m.To, gain, why)
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
		sess.Printf("there may be more moves: the list is limited (--max)")
	}
	return printRemaining(sess, v)
}

// printRemaining prints the violations that remain, and how many tasks were left out for each reason.
func printRemaining(sess *session.Session, v api.Rebalance) error {
	stay := output.Table{Titles: []string{"TASK", "NODE", "STAYS IN VIOLATION OF", "MESSAGE"}}
	for _, x := range v.Violations {
		if x.To == "" {
			stay.Add(string(x.Task), x.Node, string(x.Code), x.Message)
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
	sess.Printf("not moved:")
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
