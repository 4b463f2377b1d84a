package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

func (a *app) newRolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollout", Short: "Look at how a service goes from version to version, and steer it",
		Args: cobra.ArbitraryArgs, RunE: a.group,
	}
	cmd.AddCommand(a.newRolloutStatusCommand(), a.newRolloutPauseCommand(), a.newRolloutResumeCommand(),
		a.newRolloutUndoCommand(),
		a.newRolloutHistoryCommand())
	return cmd
}

// serviceCommand returns a command about one service.
func (a *app) serviceCommand(use, short, long string,
	do func(context.Context, *client.Client, api.ServiceView) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " SERVICE", Short: short, Long: long,
		Args:              arguments(1, 1, "a service, such as web or service/prod/web"),
		ValidArgsFunction: a.completeNames(wordService),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseName(cmd, args[0], wordService)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			v, err := n.service(cmd.Context(), c)
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, v)
		},
	}
}

// serviceName returns the argument that names a service.
func serviceName(v api.ServiceView) name { return name{wordService, v.Cluster, v.Name} }

func (a *app) newRolloutStatusCommand() *cobra.Command {
	var watch bool
	cmd := a.serviceCommand("status", "Show where the rollout of a service's newest version stands",
		"Show where the rollout of a service's newest version stands: how many tasks of each version there "+
			"are, its canaries and gates, and\n"+
			"what it waits for. With --watch it shows progress until the rollout has ended, however long "+
			"that takes.\n\n"+
			"Exit code 0: it is complete or goes on; 1: it failed or was rolled back.",
		func(ctx context.Context, c *client.Client, v api.ServiceView) error {
			if watch {
				return a.watchRollout(ctx, c, v)
			}
			return a.rolloutStatus(ctx, c, v.Cluster, v.Name)
		})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show progress until it has ended")
	return cmd
}

// rolloutStatus shows a rollout, and returns an error that only asks for an exit code where it did not end well.
func (a *app) rolloutStatus(ctx context.Context, c *client.Client, in, own string) error {
	v, err := c.Rollout(ctx, in, own)
	if err != nil {
		return err
	}
	back, err := rolledBack(ctx, c, v)
	if err != nil {
		return err
	}
	if err := a.printRollout(v, back); err != nil {
		return err
	}
	if back != nil || v.State.Ended() && v.State != cluster.RolloutComplete {
		return &exitError{code: exitNo}
	}
	return nil
}

// rolledBack returns the version that failed and that the present one takes back by itself, or nil: then what was asked
// for is not what runs. A user's own undo is none.
func rolledBack(ctx context.Context, c *client.Client, v api.RolloutView) (*api.VersionView, error) {
	if v.Reverted == 0 {
		return nil, nil //nolint:nilnil // nothing failed
	}
	h, err := c.RolloutHistory(ctx, v.Cluster, v.Service)
	if err != nil {
		return nil, err
	}
	for _, old := range h.Versions {
		if old.Generation == v.Reverted && old.State == cluster.RolloutRolledBack {
			return &old, nil
		}
	}
	return nil, nil //nolint:nilnil // nothing failed
}

// watchRollout shows progress until the rollout has ended, and then how it stands.
func (a *app) watchRollout(ctx context.Context, c *client.Client, v api.ServiceView) error {
	t := &target{name: serviceName(v), watch: true, moved: a.now()}
	targets := []*target{t}
	w := waiter{app: a, client: c, targets: targets, progress: a.newProgress(targets)}
	if err := w.wait(ctx); err != nil {
		if ctx.Err() != nil {
			a.tell("Stopped watching; the rollout goes on.")
		}
		return err
	}
	if t.failure == "" {
		return a.rolloutStatus(ctx, c, v.Cluster, v.Name)
	}
	if err := a.rolloutStatus(ctx, c, v.Cluster, v.Name); err != nil {
		if exit, ok := err.(*exitError); !ok || exit.err != nil { //nolint:errorlint // it comes from the line above
			return err
		}
	}
	if err := w.explain(ctx, t); err != nil {
		return err
	}
	return &exitError{code: exitNo}
}

func (a *app) newRolloutPauseCommand() *cobra.Command {
	return a.serviceCommand("pause", "Hold a service's rollout where it is",
		"Hold a service's rollout where it is: no task is begun or given up for it, and a later version "+
			"waits as well. Tasks that end are\n"+
			"replaced as before.",
		func(ctx context.Context, c *client.Client, v api.ServiceView) error {
			r, err := c.PauseRollout(ctx, v.Cluster, v.Name, client.Condition{})
			return a.tellRollout(r, err, "paused")
		})
}

func (a *app) newRolloutResumeCommand() *cobra.Command {
	return a.serviceCommand("resume", "Let a paused rollout go on", "",
		func(ctx context.Context, c *client.Client, v api.ServiceView) error {
			r, err := c.ResumeRollout(ctx, v.Cluster, v.Name, client.Condition{})
			return a.tellRollout(r, err, "goes on")
		})
}

// tellRollout says what was done to a rollout.
func (a *app) tellRollout(v api.RolloutView, err error, what string) error {
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(v)
	}
	a.tell("%s: %s, %s", name{wordService, v.Cluster, v.Service}, what, healthyOf(v.Versions))
	return nil
}

func (a *app) newRolloutUndoCommand() *cobra.Command {
	var to uint64
	var detach bool
	cmd := a.serviceCommand("undo", "Ask for an earlier version of a service again",
		"Ask for an earlier version of a service again, as a rollout of its own: by default the last "+
			"version before the present one of which\n"+
			"all tasks were healthy, with --to one of those that 'berth rollout history' lists. Tasks of "+
			"that version that still run stay. It\n"+
			"waits for the end, as 'berth run' does; an undo that fails is not taken back, but one to a "+
			"version that failed before is tried out like\n"+
			"a new one. An undo that is still on its way is undone with --to alone.",
		func(ctx context.Context, c *client.Client, v api.ServiceView) error {
			r, err := c.UndoRollout(ctx, v.Cluster, v.Name, api.UndoRequest{Generation: to, From: v.Generation},
				client.Condition{})
			if err != nil {
				return err
			}
			a.tell("%s: %s → %s (generation %d)", serviceName(v), v.Definition, r.Definition, r.Generation)
			if detach {
				return a.dataOf(r)
			}
			return a.awaitService(ctx, c, &target{name: serviceName(v), least: r.Generation})
		})
	cmd.Flags().Uint64Var(&to, "to", 0, "the `generation` of the version to go back to")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	return cmd
}

func (a *app) newPromoteCommand() *cobra.Command {
	var detach bool
	cmd := a.serviceCommand("promote", "Go on with a rollout whose canaries wait",
		"Go on with a rollout whose canaries are healthy and wait, and wait for its end, as 'berth run' does.",
		func(ctx context.Context, c *client.Client, v api.ServiceView) error {
			r, err := c.PromoteRollout(ctx, v.Cluster, v.Name, api.PromoteRequest{Generation: v.Generation},
				client.Condition{})
			if err != nil {
				return err
			}
			a.tell("%s: promoted %s (generation %d)", serviceName(v), r.Definition, r.Generation)
			if detach {
				return a.dataOf(r)
			}
			return a.awaitService(ctx, c, &target{name: serviceName(v), least: r.Generation, promoted: true})
		})
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	return cmd
}

// dataOf prints a value for programs, and for people nothing.
func (a *app) dataOf(v any) error {
	if a.data() {
		return a.printData(v)
	}
	return nil
}

func (a *app) newRolloutHistoryCommand() *cobra.Command {
	var diff bool
	cmd := a.serviceCommand("history", "List the versions of a service, the newest first",
		"List the versions of a service that are remembered, the newest first, each with how its rollout "+
			"ended. With --diff it tells what each\n"+
			"changed in the task definition.",
		func(ctx context.Context, c *client.Client, v api.ServiceView) error {
			h, err := c.RolloutHistory(ctx, v.Cluster, v.Name)
			if err != nil {
				return err
			}
			if a.data() {
				h.Versions = emptyIsList(h.Versions)
				return a.printData(h)
			}
			return a.printHistory(h, diff)
		})
	cmd.Flags().BoolVar(&diff, "diff", false, "what each version changed")
	return cmd
}

func (a *app) printHistory(h api.RolloutHistory, diff bool) error {
	if len(h.Versions) == 0 {
		a.tell("No version of service/%s is remembered yet.", h.Service)
		return nil
	}
	t := table{state: 2, titles: []string{"GENERATION", "DEFINITION", "STATE", "NOW", "AGE>", "TOOK>", "MESSAGE"}}
	for _, v := range h.Versions {
		took, now := "", ""
		if !v.Ended.IsZero() {
			took = span(v.Ended.Sub(v.Started))
		}
		if v.Current {
			now = "asked for"
		}
		t.add(fmt.Sprint(v.Generation), v.Definition.String(), string(v.State), now, a.age(v.Started), took,
			shortTasks(oneLine(v.Message)))
	}
	if !diff {
		return a.printTable(t)
	}
	for i, v := range h.Versions {
		row := t
		row.rows = t.rows[i : i+1]
		if i > 0 {
			a.say("")
		}
		if err := a.printTable(row); err != nil {
			return err
		}
		for _, f := range v.Fields {
			a.say("    %s: %s", f.Path, difference(f))
		}
		switch {
		case v.Note != "":
			a.say("    %s", v.Note)
		case len(v.Fields) == 0:
			a.say("    the definition is the same")
		}
	}
	return nil
}

// printRollout shows where a rollout stands, and the failed version that it takes back, if there is one.
func (a *app) printRollout(v api.RolloutView, back *api.VersionView) error {
	if a.data() {
		return a.printData(v)
	}
	n := name{wordService, v.Cluster, v.Service}
	state := string(v.State)
	if v.Paused && !v.State.Ended() {
		state += " paused"
	}
	head := table{state: 1, titles: []string{"SERVICE", "STATE", "DEFINITION", "GENERATION>", "AGE>", "MESSAGE"}}
	head.add(n.short(), state, v.Definition.String(), fmt.Sprint(v.Generation), a.age(v.Started),
		shortTasks(oneLine(v.Message)))
	if err := a.printTable(head); err != nil {
		return err
	}
	a.say("")
	if err := a.printTable(versionTable(v.Versions)); err != nil {
		return err
	}
	facts := table{titles: []string{"", ""}, indent: "  "}
	width := terminalWidth(a.stdout) - 14
	fact := func(title, text string) {
		for _, line := range wrapped(text, width) {
			facts.add(title, line)
			title = ""
		}
	}
	if back != nil {
		fact("takes back", joinNonEmpty(": ",
			fmt.Sprintf("%s (generation %d), which failed", back.Definition, back.Generation),
			shortTasks(oneLine(back.Message))))
	}
	if !v.State.Ended() {
		fact("limits", fmt.Sprintf("at most %s, at least %d healthy, %d at a time", count(v.Desired+v.Surge, "task"),
			v.Least, v.Parallelism))
		if !v.Deadline.IsZero() && !v.Paused && v.State != cluster.RolloutCanary {
			fact("deadline", deadlineText(v.Deadline.Sub(a.now())))
		}
		if c := v.Canaries; c != nil {
			fact("canaries", canaryText(*c, n))
		}
		for _, g := range v.Gates {
			fact("gate", gateText(g))
		}
		for _, w := range v.Waits {
			fact("waits", becauseText(w))
		}
	}
	if v.LastHealthy != nil && v.State != cluster.RolloutComplete {
		fact("goes back to", fmt.Sprintf("%s (generation %d)", v.LastHealthy.Definition, v.LastHealthy.Generation))
	}
	if len(facts.rows) == 0 {
		return nil
	}
	a.say("")
	return a.printTable(facts)
}

// versionTable counts the tasks of each version.
func versionTable(versions []api.VersionCount) table {
	t := table{titles: []string{"VERSION", "GENERATION>", "WANTED>", "BEGUN>", "RUNNING>", "HEALTHY>"}}
	for _, v := range versions {
		label := v.Definition.String()
		if v.Newest {
			label += " (newest)"
		}
		t.add(label, fmt.Sprint(v.Generation), fmt.Sprint(v.Desired), fmt.Sprint(v.Begun), fmt.Sprint(v.Running),
			fmt.Sprint(v.Healthy))
	}
	return t
}

func deadlineText(left time.Duration) string {
	if left <= 0 {
		return "has passed: the control plane is about to see it"
	}
	return "another task has to become healthy within " + span(left)
}

func canaryText(c api.CanaryView, n name) string {
	text := fmt.Sprintf("%d of %d healthy", c.Healthy, c.Count)
	switch {
	case c.Promoted:
		return text + ", promoted"
	case c.Waiting && c.Auto:
		return text + ", promoted once all gates pass"
	case c.Waiting:
		return text + ", wait: 'berth promote " + n.argument() + "' goes on"
	}
	return text
}

func gateText(g api.GateView) string {
	text := g.Name + ": " + string(g.State)
	if g.Result != nil {
		text = joinNonEmpty(", ", text, oneLine(g.Result.Message))
		if g.Result.Failures > 0 && g.Failures > 0 {
			text += fmt.Sprintf(" (%d of %s that end the rollout)", g.Result.Failures, count(g.Failures, "failure"))
		}
	}
	return text
}

// becauseText writes a reason with what it is about.
func becauseText(b api.Because) string {
	text := shortTasks(oneLine(b.Message))
	if b.Task != "" && !strings.Contains(text, shortTask(b.Task)) {
		text = shortTask(b.Task) + ": " + text
	}
	return text
}
