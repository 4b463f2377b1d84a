package rebalance

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// carryOut starts the rebalancing with the moves of the plan and follows it.
func (o *rebalanceCommand) carryOut(ctx context.Context, c *client.Client, v api.Rebalance) error {
	if len(v.Moves) > cluster.MaxRebalanceMoves {
		v.Moves, v.More = v.Moves[:cluster.MaxRebalanceMoves], true
		o.Messagef("A rebalancing has at most %d moves: these are the first.", cluster.MaxRebalanceMoves)
	}
	if !o.WantsData() {
		if err := printPlan(o.Session, v); err != nil {
			return err
		}
		o.Printf("")
	}
	made, err := c.ApplyRebalance(ctx, api.RebalanceRequest{Moves: v.Moves, Parallel: o.parallel})
	if err != nil {
		return addRunningHint(err)
	}
	o.Messagef("rebalancing %d: carrying out %s", made.ID, wording.Count(len(made.Moves), "move"))
	return followRebalancing(ctx, o.Session, c, made, o.detach)
}

// reverse takes back a rebalancing, or prints the undo moves with --dry-run. Id 0 is the last one.
func (o *rebalanceCommand) reverse(ctx context.Context, c *client.Client, id uint64) error {
	v, err := c.UndoRebalancing(ctx, id, api.UndoRebalanceRequest{Parallel: o.parallel, DryRun: o.dry})
	if err != nil {
		return addRunningHint(err)
	}
	if o.WantsData() && (o.dry || o.detach) {
		return o.PrintData(v)
	}
	if !o.WantsData() {
		if err := printUndo(o.Session, v); err != nil || o.dry {
			return err
		}
		o.Printf("")
	}
	o.Messagef("rebalancing %d: reversing %s of rebalancing %d", v.ID, wording.Count(len(v.Moves), "move"),
		v.Undoes)
	return followRebalancing(ctx, o.Session, c, v, o.detach)
}

// addRunningHint adds the command that lists rebalancings.
func addRunningHint(err error) error {
	return session.HintOn(err, http.StatusConflict, "See 'berth rebalance list'.")
}

// printUndo prints the moves of an undo, and the tasks that stay.
func printUndo(sess *session.Session, v api.RebalancingView) error {
	t := output.Table{Titles: []string{"TASK", "FROM", "TO", "GAIN>"}}
	for i := range v.Moves {
		m := &v.Moves[i]
		t.Add(string(m.Task), m.From, m.To, strconv.Itoa(m.Gain))
	}
	if err := sess.PrintTable(t); err != nil {
		return err
	}
	for _, l := range v.Left {
		sess.Printf("%s stays: it %s", string(l.Task), l.Why)
	}
	if v.ID == 0 {
		sess.Printf("")
		sess.Printf("%s of rebalancing %d would be reversed", wording.Count(len(v.Moves), "move"), v.Undoes)
	}
	return nil
}

// followRebalancing shows the progress until the rebalancing ends, then its result.
func followRebalancing(ctx context.Context, sess *session.Session, c *client.Client, v api.RebalancingView,
	detach bool,
) error {
	if detach {
		if sess.WantsData() {
			return sess.PrintData(v)
		}
		sess.Messagef("See 'berth rebalance status'; 'berth rebalance cancel' ends it.")
		return nil
	}
	v, err := awaitRebalancing(ctx, sess, c, v)
	if err != nil {
		return sess.StoppedWaiting(ctx, err, fmt.Sprintf(
			"rebalancing %d continues. See 'berth rebalance status'; 'berth rebalance cancel' ends it.", v.ID))
	}
	if sess.WantsData() {
		if err := sess.PrintData(v); err != nil {
			return err
		}
	} else if err := printResult(sess, v); err != nil {
		return err
	}
	return exitOf(v)
}

// exitOf returns an exit code if no move was carried out or the rebalancing was cancelled.
func exitOf(v api.RebalancingView) error {
	if v.State == cluster.RebalancingCancelled || v.State == cluster.RebalancingDone && v.Counts.Done == 0 {
		return &session.ExitError{Code: session.ExitNo}
	}
	return nil
}

// awaitRebalancing shows the progress until the rebalancing ends.
func awaitRebalancing(ctx context.Context, sess *session.Session, c *client.Client,
	v api.RebalancingView) (api.RebalancingView,
	error,
) {
	t := &wait.Target{Name: session.Name{Kind: "rebalancing", Name: strconv.FormatUint(v.ID, 10)}}
	progress := wait.NewProgress(sess, []*wait.Target{t})
	loop := wait.Loop{
		Session: sess, Progress: progress, Changes: []func(context.Context) client.Changes{c.RebalancingChanges},
		Read: func(ctx context.Context) (bool, error) {
			next, err := c.Rebalancing(ctx, v.ID)
			if err == nil {
				v = next
				t.Brief, t.Line = countsText(&v), progressText(&v)
			}
			progress.Show()
			return v.State == cluster.RebalancingRunning, err
		},
	}
	t.Brief, t.Line = countsText(&v), progressText(&v)
	progress.Show()
	err := loop.Run(ctx)
	return v, err
}

// countsText counts the moves: "3 of 12 moves done, 2 in progress, 1 skipped".
func countsText(v *api.RebalancingView) string {
	text := fmt.Sprintf("%d of %s done", v.Counts.Done, wording.Count(len(v.Moves), "move"))
	if n := v.Counts.Moving; n == 1 {
		text += ", 1 in progress"
	} else if n > 1 {
		text += fmt.Sprintf(", %d in progress", n)
	}
	if v.Counts.Passed > 0 {
		text += fmt.Sprintf(", %d skipped", v.Counts.Passed)
	}
	return text
}

// BriefText describes a running rebalancing in one line.
func BriefText(b *api.RebalancingBrief) string {
	v := api.RebalancingView{Counts: b.Counts}
	v.Moves = make([]cluster.RebalancingMove, b.Moves)
	return fmt.Sprintf("Rebalancing %d is in progress: %s", b.ID, countsText(&v))
}

// progressText adds what the first open move waits for.
func progressText(v *api.RebalancingView) string {
	text := countsText(v)
	if v.Cancelled && v.State == cluster.RebalancingRunning {
		text += "; cancelled, it ends after the moves in progress"
	}
	for i := range v.Moves {
		if m := &v.Moves[i]; m.State == cluster.MoveMoving {
			if why := v.Waits[m.Task]; why != "" {
				return fmt.Sprintf("%s; %s to %s: %s", text, string(m.Task), m.To,
					wording.OneLine(why))
			}
			return fmt.Sprintf("%s; %s to %s", text, string(m.Task), m.To)
		}
	}
	return text
}

// printResult prints the result and the skipped moves.
func printResult(sess *session.Session, v api.RebalancingView) error {
	sess.Printf("rebalancing %d is %s: %s, a gain of %d points", v.ID, v.State, countsText(&v), v.Counts.Gain)
	if v.Counts.Passed == 0 {
		return nil
	}
	sess.Printf("")
	sess.Printf("skipped:")
	t := output.Table{Indent: "  ", Titles: []string{"TASK", "FROM", "TO", "REASON", "WHY"}}
	for i := range v.Moves {
		if m := &v.Moves[i]; m.State == cluster.MovePassed {
			t.Add(string(m.Task), m.From, m.To, string(m.Reason), wording.OneLine(m.Why))
		}
	}
	return sess.PrintTable(t)
}

// rebalancingCommand returns a command about one rebalancing. Without an argument it is the newest.
func rebalancingCommand(sess *session.Session, use, short, long string,
	do func(context.Context, *client.Client, uint64) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " [ID]", Short: short, Long: long, Args: session.Arguments(0, 1, "the number of a rebalancing"),
		ValidArgsFunction: sess.CompleteNames(session.KindRebalancing),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := uint64(0)
			if len(args) > 0 {
				var err error
				if id, err = parseRebalancing(args[0]); err != nil {
					return &session.UsageError{Command: cmd.CommandPath(), Message: err.Error()}
				}
			}
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, id)
		},
	}
}

// statusCommand is `berth rebalance status`.
type statusCommand struct {
	*session.Session
	watch bool
}

func newRebalanceStatusCommand(sess *session.Session) *cobra.Command {
	s := &statusCommand{Session: sess}
	cmd := rebalancingCommand(sess, "status", "Show the progress of a rebalancing, move by move",
		"Show the progress of a rebalancing, move by move: the one with the ID, or the newest. With --watch,\n"+
			"show the progress until the end.",
		s.run)
	session.AddWatchFlag(cmd, &s.watch)
	return cmd
}

func (s *statusCommand) run(ctx context.Context, c *client.Client, id uint64) error {
	v, err := c.Rebalancing(ctx, id)
	if err != nil {
		return err
	}
	if s.watch {
		return followRebalancing(ctx, s.Session, c, v, false)
	}
	return printRebalancing(s.Session, v)
}

// printRebalancing prints a rebalancing with its moves.
func printRebalancing(sess *session.Session, v api.RebalancingView) error {
	if sess.WantsData() {
		v.Moves = output.EmptyIfNil(v.Moves)
		return sess.PrintData(v)
	}
	about := ""
	if v.Undoes != 0 {
		about = fmt.Sprintf(", which reverses rebalancing %d,", v.Undoes)
	}
	sess.Printf("rebalancing %d%s is %s: %s, a gain of %d points", v.ID, about, v.State, countsText(&v), v.Counts.Gain)
	if v.Cancelled && v.State == cluster.RebalancingRunning {
		sess.Printf("it was cancelled, and ends after the moves in progress")
	}
	sess.Printf("")
	t := output.Table{StateColumn: 4, Titles: []string{"TASK", "FROM", "TO", "GAIN>", "STATE", "AGE>", "WHY"}}
	for i := range v.Moves {
		m := &v.Moves[i]
		why := m.Message
		switch m.State {
		case cluster.MovePassed:
			why = m.Why
		case cluster.MoveMoving:
			why = v.Waits[m.Task]
		}
		t.Add(string(m.Task), m.From, m.To, strconv.Itoa(m.Gain), string(m.State), sess.Age(m.At),
			wording.OneLine(why))
	}
	return sess.PrintTable(t)
}

func newRebalanceCancelCommand(sess *session.Session) *cobra.Command {
	return rebalancingCommand(sess, "cancel", "Cancel a rebalancing",
		"Cancel the running rebalancing, or the one with the ID. No further move begins; moves in progress\n"+
			"are completed. Moved tasks stay on their new nodes; 'berth rebalance --undo' moves them back.",
		func(ctx context.Context, c *client.Client, id uint64) error {
			v, err := c.CancelRebalancing(ctx, id, client.Condition{})
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(v)
			}
			sess.Printf("rebalancing %d begins no further move: %s", v.ID, countsText(&v))
			return nil
		})
}

// listCommand is `berth rebalance list`.
type listCommand struct{ *session.Session }

func newRebalanceListCommand(sess *session.Session) *cobra.Command {
	l := &listCommand{sess}
	return &cobra.Command{
		Use: "list", Short: "List running and past rebalancings, the newest first",
		Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(l.run),
	}
}

func (l *listCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	all, _, err := client.All(ctx, client.ListOptions{}, c.Rebalancings)
	if err != nil {
		return err
	}
	return session.PrintList(l.Session, all, "No rebalancings yet.", l.table)
}

func (l *listCommand) table(all []api.RebalancingBrief) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{
		"ID", "STATE", "MOVES>", "DONE>", "SKIPPED>", "GAIN>", "UNDOES",
		"AGE>", "TOOK>", "BY",
	}}
	for i := len(all) - 1; i >= 0; i-- {
		v := &all[i]
		took, undoes := "", ""
		if !v.Ended.IsZero() {
			took = wording.Span(v.Ended.Sub(v.Created))
		}
		if v.Undoes != 0 {
			undoes = strconv.FormatUint(v.Undoes, 10)
		}
		t.Add(strconv.FormatUint(v.ID, 10), string(v.State), strconv.Itoa(v.Moves), strconv.Itoa(v.Counts.Done),
			strconv.Itoa(v.Counts.Passed),
			strconv.Itoa(v.Counts.Gain), undoes, l.Age(v.Created), took, v.By)
	}
	return t
}
