package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// applyRebalance hands in the list that was found, and follows it.
func (a *app) applyRebalance(ctx context.Context, c *client.Client, v api.Rebalance, o *rebalanceFlags) error {
	if len(v.Moves) > cluster.MaxRebalanceMoves {
		v.Moves, v.More = v.Moves[:cluster.MaxRebalanceMoves], true
		a.tell("A rebalancing has at most %d moves: these are the first.", cluster.MaxRebalanceMoves)
	}
	if !a.data() {
		if err := a.printRebalance(v); err != nil {
			return err
		}
		a.say("")
	}
	made, err := c.ApplyRebalance(ctx, api.RebalanceRequest{Moves: v.Moves, Parallel: o.parallel})
	if err != nil {
		return a.hintRunning(err)
	}
	a.tell("rebalancing %d: carrying out %s", made.ID, count(len(made.Moves), "move"))
	return a.followRebalancing(ctx, c, made, o.detach)
}

// undoRebalance takes a rebalancing back, or shows what that would be; 0 is the last one.
func (a *app) undoRebalance(ctx context.Context, c *client.Client, id uint64, o *rebalanceFlags) error {
	v, err := c.UndoRebalancing(ctx, id, api.UndoRebalanceRequest{Parallel: o.parallel, DryRun: o.dry})
	if err != nil {
		return a.hintRunning(err)
	}
	if a.data() && (o.dry || o.detach) {
		return a.printData(v)
	}
	if !a.data() {
		if err := a.printUndo(v); err != nil || o.dry {
			return err
		}
		a.say("")
	}
	a.tell("rebalancing %d: taking back %s of rebalancing %d", v.ID, count(len(v.Moves), "move"), v.Undoes)
	return a.followRebalancing(ctx, c, v, o.detach)
}

// hintRunning adds how to see what is in the way.
func (a *app) hintRunning(err error) error {
	if client.StatusOf(err) == http.StatusConflict {
		return &hintedError{err, "See 'berth rebalance list'."}
	}
	return err
}

// printUndo shows the moves that take others back, and which tasks are left where they are.
func (a *app) printUndo(v api.RebalancingView) error {
	t := table{titles: []string{"TASK", "FROM", "TO", "GAIN>"}}
	for i := range v.Moves {
		m := &v.Moves[i]
		t.add(shortTask(m.Task), m.From, m.To, strconv.Itoa(m.Gain))
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	for _, l := range v.Left {
		a.say("%s stays: it %s", shortTask(l.Task), l.Why)
	}
	if v.ID == 0 {
		a.say("")
		a.say("%s of rebalancing %d would be taken back", count(len(v.Moves), "move"), v.Undoes)
	}
	return nil
}

// followRebalancing shows progress until the rebalancing has ended, and then how.
func (a *app) followRebalancing(ctx context.Context, c *client.Client, v api.RebalancingView, detach bool) error {
	if detach {
		if a.data() {
			return a.printData(v)
		}
		a.tell("See 'berth rebalance status'; 'berth rebalance cancel' ends it.")
		return nil
	}
	v, err := a.awaitRebalancing(ctx, c, v)
	if err != nil {
		if ctx.Err() != nil {
			a.tell("Stopped waiting; rebalancing %d goes on. See 'berth rebalance status'; 'berth rebalance "+
				"cancel' ends it.", v.ID)
		}
		return err
	}
	if a.data() {
		if err := a.printData(v); err != nil {
			return err
		}
	} else if err := a.reportRebalancing(v); err != nil {
		return err
	}
	return rebalancingExit(v)
}

// rebalancingExit asks for an exit code where nothing was carried out, or somebody ended it before its time.
func rebalancingExit(v api.RebalancingView) error {
	if v.State == cluster.RebalancingCancelled || v.State == cluster.RebalancingDone && v.Counts.Done == 0 {
		return &exitError{code: exitNo}
	}
	return nil
}

// awaitRebalancing shows progress until the rebalancing has ended.
func (a *app) awaitRebalancing(ctx context.Context, c *client.Client, v api.RebalancingView) (api.RebalancingView,
	error,
) {
	t := &target{name: name{kind: "rebalancing", name: strconv.FormatUint(v.ID, 10)}}
	p := a.newProgress([]*target{t})
	defer p.end()
	var outage time.Time
	for {
		t.brief, t.line = countsText(&v), progressText(&v)
		p.show()
		if v.State != cluster.RebalancingRunning {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(lastLook):
		}
		next, err := c.Rebalancing(ctx, v.ID)
		switch {
		case err == nil:
			v, outage = next, time.Time{}
		case ctx.Err() != nil:
			return v, ctx.Err()
		case !errors.Is(err, client.ErrUnreachable) && client.StatusOf(err) != http.StatusServiceUnavailable:
			return v, err
		case outage.IsZero():
			outage = a.now()
			p.note(said(err) + "; trying again")
		case a.now().Sub(outage) > outagePatience:
			return v, err
		}
	}
}

// countsText says how far it got: "3 of 12 moves done, 2 on their way, 1 passed over".
func countsText(v *api.RebalancingView) string {
	text := fmt.Sprintf("%d of %s done", v.Counts.Done, count(len(v.Moves), "move"))
	if n := v.Counts.Moving; n == 1 {
		text += ", 1 on its way"
	} else if n > 1 {
		text += fmt.Sprintf(", %d on their way", n)
	}
	if v.Counts.Passed > 0 {
		text += fmt.Sprintf(", %d passed over", v.Counts.Passed)
	}
	return text
}

// briefText says in a line that a rebalancing runs, and how far it got.
func briefText(b *api.RebalancingBrief) string {
	v := api.RebalancingView{Counts: b.Counts}
	v.Moves = make([]cluster.RebalancingMove, b.Moves)
	return fmt.Sprintf("Rebalancing %d is carried out: %s", b.ID, countsText(&v))
}

// progressText adds what the first move that is open waits for.
func progressText(v *api.RebalancingView) string {
	text := countsText(v)
	if v.Cancelled && v.State == cluster.RebalancingRunning {
		text += "; cancelled, it ends with those on their way"
	}
	for i := range v.Moves {
		if m := &v.Moves[i]; m.State == cluster.MoveMoving {
			if why := v.Waits[m.Task]; why != "" {
				return fmt.Sprintf("%s; %s to %s: %s", text, shortTask(m.Task), m.To, shortTasks(oneLine(why)))
			}
			return fmt.Sprintf("%s; %s to %s", text, shortTask(m.Task), m.To)
		}
	}
	return text
}

// reportRebalancing says how it ended, and what was passed over.
func (a *app) reportRebalancing(v api.RebalancingView) error {
	a.say("rebalancing %d is %s: %s, a gain of %d points", v.ID, v.State, countsText(&v), v.Counts.Gain)
	if v.Counts.Passed == 0 {
		return nil
	}
	a.say("")
	a.say("passed over:")
	t := table{indent: "  ", titles: []string{"TASK", "FROM", "TO", "REASON", "WHY"}}
	for i := range v.Moves {
		if m := &v.Moves[i]; m.State == cluster.MovePassed {
			t.add(shortTask(m.Task), m.From, m.To, string(m.Reason), shortTasks(oneLine(m.Why)))
		}
	}
	return a.printTable(t)
}

// rebalancingCommand returns a command about one rebalancing: the one that is named, or the newest.
func (a *app) rebalancingCommand(use, short, long string,
	do func(context.Context, *client.Client, uint64) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " [ID]", Short: short, Long: long, Args: arguments(0, 1, "the number of a rebalancing"),
		ValidArgsFunction: a.completeNames(wordRebalancing),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := uint64(0)
			if len(args) > 0 {
				var err error
				if id, err = parseRebalancing(args[0]); err != nil {
					return &usageError{cmd.CommandPath(), err.Error()}
				}
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, id)
		},
	}
}

func (a *app) newRebalanceStatusCommand() *cobra.Command {
	var watch bool
	cmd := a.rebalancingCommand("status", "Show how far a rebalancing got, move by move",
		"Show how far a rebalancing got, move by move: the one with the ID, or the newest. With --watch it "+
			"shows progress until the end.",
		func(ctx context.Context, c *client.Client, id uint64) error {
			v, err := c.Rebalancing(ctx, id)
			if err != nil {
				return err
			}
			if watch {
				return a.followRebalancing(ctx, c, v, false)
			}
			return a.printRebalancing(v)
		})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show progress until it has ended")
	return cmd
}

// printRebalancing shows a rebalancing with its moves.
func (a *app) printRebalancing(v api.RebalancingView) error {
	if a.data() {
		v.Moves = emptyIsList(v.Moves)
		return a.printData(v)
	}
	about := ""
	if v.Undoes != 0 {
		about = fmt.Sprintf(", which takes back rebalancing %d,", v.Undoes)
	}
	a.say("rebalancing %d%s is %s: %s, a gain of %d points", v.ID, about, v.State, countsText(&v), v.Counts.Gain)
	if v.Cancelled && v.State == cluster.RebalancingRunning {
		a.say("it was cancelled, and ends with what is on its way")
	}
	a.say("")
	t := table{state: 4, titles: []string{"TASK", "FROM", "TO", "GAIN>", "STATE", "AGE>", "WHY"}}
	for i := range v.Moves {
		m := &v.Moves[i]
		why := m.Message
		switch m.State {
		case cluster.MovePassed:
			why = m.Why
		case cluster.MoveMoving:
			why = v.Waits[m.Task]
		}
		t.add(shortTask(m.Task), m.From, m.To, strconv.Itoa(m.Gain), string(m.State), a.age(m.At),
			shortTasks(oneLine(why)))
	}
	return a.printTable(t)
}

func (a *app) newRebalanceCancelCommand() *cobra.Command {
	return a.rebalancingCommand("cancel", "End a rebalancing before its time",
		"End a rebalancing, the one that runs or the one with the ID: no further move begins, and those "+
			"that are on their way get there. What\n"+
			"was moved stays where it is; 'berth rebalance --undo' takes it back.",
		func(ctx context.Context, c *client.Client, id uint64) error {
			v, err := c.CancelRebalancing(ctx, id, client.Condition{})
			if err != nil {
				return err
			}
			if a.data() {
				return a.printData(v)
			}
			a.say("rebalancing %d begins no further move: %s", v.ID, countsText(&v))
			return nil
		})
}

func (a *app) newRebalanceListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the rebalancings that run or are remembered, the newest first",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, _, err := client.All(cmd.Context(), client.ListOptions{}, c.Rebalancings)
			if err != nil {
				return err
			}
			if a.data() {
				return a.printData(emptyIsList(all))
			}
			if len(all) == 0 {
				a.tell("There was no rebalancing yet.")
				return nil
			}
			t := table{state: 1, titles: []string{
				"ID", "STATE", "MOVES>", "DONE>", "PASSED OVER>", "GAIN>", "UNDOES",
				"AGE>", "TOOK>", "BY",
			}}
			for i := len(all) - 1; i >= 0; i-- {
				v := &all[i]
				took, undoes := "", ""
				if !v.Ended.IsZero() {
					took = span(v.Ended.Sub(v.Created))
				}
				if v.Undoes != 0 {
					undoes = strconv.FormatUint(v.Undoes, 10)
				}
				t.add(strconv.FormatUint(v.ID, 10), string(v.State), strconv.Itoa(v.Moves), strconv.Itoa(v.Counts.Done),
					strconv.Itoa(v.Counts.Passed),
					strconv.Itoa(v.Counts.Gain), undoes, a.age(v.Created), took, v.By)
			}
			return a.printTable(t)
		},
	}
}
