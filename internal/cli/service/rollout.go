package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewRolloutCommand returns the command `berth rollout`.
func NewRolloutCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollout", Short: "Show and control the rollouts of a service",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newRolloutStatusCommand(sess), newRolloutPauseCommand(sess), newRolloutResumeCommand(sess),
		newRolloutUndoCommand(sess),
		newRolloutHistoryCommand(sess))
	return cmd
}

// serviceCommand returns a command about one service.
func serviceCommand(sess *session.Session, use, short, long string,
	do func(context.Context, *client.Client, api.ServiceView) error,
) *cobra.Command {
	return objectCommand(sess, wording.KindService, session.Name.Service, do, &cobra.Command{
		Use: use + " SERVICE", Short: short, Long: long,
		Args: session.Arguments(1, 1, "a service, such as web or prod/web"),
	})
}

// objectCommand completes a command about one object of a kind. read reads the object, and do carries the command out.
func objectCommand[V any](sess *session.Session, kind string,
	read func(session.Name, context.Context, *client.Client) (V, error),
	do func(context.Context, *client.Client, V) error, cmd *cobra.Command,
) *cobra.Command {
	cmd.ValidArgsFunction = sess.CompleteNames(kind)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := sess.ParseObject(cmd, args[0], kind)
		if err != nil {
			return err
		}
		c, err := sess.Connect()
		if err != nil {
			return err
		}
		v, err := read(n, cmd.Context(), c)
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, v)
	}
	return cmd
}

// rolloutStatusCommand is `berth rollout status`.
type rolloutStatusCommand struct {
	*session.Session
	watch bool
}

func newRolloutStatusCommand(sess *session.Session) *cobra.Command {
	r := &rolloutStatusCommand{Session: sess}
	cmd := serviceCommand(sess, "status", "Show the state of a service's newest rollout",
		"Show the state of a service's newest rollout: the number of tasks of each version, its canaries and\n"+
			"gates, and what it waits for. With --watch, show the progress until the rollout has ended, without a\n"+
			"time limit.\n\n"+
			"Exit code 0: the rollout is complete or continues; 1: it failed or was rolled back.",
		r.run)
	session.AddWatchFlag(cmd, &r.watch)
	return cmd
}

func (r *rolloutStatusCommand) run(ctx context.Context, c *client.Client, v api.ServiceView) error {
	if r.watch {
		return watchRollout(ctx, r.Session, c, v)
	}
	return rolloutResult(printRolloutStatus(ctx, r.Session, c, v))
}

// rolloutResult returns the error for a rollout without success, with exit code 1.
func rolloutResult(failure string, err error) error {
	if err != nil || failure == "" {
		return err
	}
	return &session.ExitError{Code: session.ExitNo, Err: errors.New(failure)}
}

// printRolloutStatus prints the rollout of a service. It returns how the rollout ended without success, or "".
func printRolloutStatus(ctx context.Context, sess *session.Session, c *client.Client, s api.ServiceView,
) (failure string, err error) {
	v, err := c.Rollout(ctx, s.Cluster, s.Name)
	if err != nil {
		return "", err
	}
	back, err := failedVersion(ctx, c, v)
	if err != nil {
		return "", err
	}
	if err := printRollout(sess, v, back); err != nil {
		return "", err
	}
	return unsuccessfulEnd(session.ServiceName(s), v, back), nil
}

// unsuccessfulEnd says how the rollout v ended without success, or "". back is the failed version that v takes back, or
// nil.
func unsuccessfulEnd(service session.Name, v api.RolloutView, back *api.VersionView) string {
	switch {
	case v.State == cluster.RolloutFailed:
		return fmt.Sprintf("%s: the rollout of %s failed", service, v.Definition)
	case back != nil && v.State.Ended():
		return fmt.Sprintf("%s: the rollout of %s failed and was rolled back to %s", service, back.Definition,
			v.Definition)
	case back != nil:
		return fmt.Sprintf("%s: the rollout of %s failed and is being rolled back to %s", service, back.Definition,
			v.Definition)
	case v.State == cluster.RolloutRolledBack:
		return fmt.Sprintf("%s: the rollout of %s failed and was rolled back", service, v.Definition)
	case v.State == cluster.RolloutSuperseded:
		return fmt.Sprintf("%s: a newer version replaced %s", service, v.Definition)
	}
	return ""
}

// failedVersion returns the failed version that the current one rolls back automatically, or nil. An undo by a user
// does not count.
func failedVersion(ctx context.Context, c *client.Client, v api.RolloutView) (*api.VersionView, error) {
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

// watchRollout shows the progress until the rollout ends, then its result.
func watchRollout(ctx context.Context, sess *session.Session, c *client.Client, v api.ServiceView) error {
	t := &wait.Target{Name: session.ServiceName(v), Watch: true}
	w := wait.Waiter{Session: sess, Client: c, Targets: []*wait.Target{t}}
	if err := w.Wait(ctx); err != nil {
		return sess.StoppedWaiting(ctx, err,
			"the rollout continues. See 'berth rollout status "+t.Name.String()+"'.")
	}
	failure, err := printRolloutStatus(ctx, sess, c, v)
	if t.Failure == "" || err != nil {
		return rolloutResult(failure, err)
	}
	if err := w.Explain(ctx, t); err != nil {
		return err
	}
	return &session.ExitError{Code: session.ExitNo}
}

func newRolloutPauseCommand(sess *session.Session) *cobra.Command {
	return serviceCommand(sess, "pause", "Pause a service's rollout",
		"Pause a service's rollout. The rollout starts and stops no task, and a later version waits as well.\n"+
			"Tasks that end are replaced as before.",
		func(ctx context.Context, c *client.Client, v api.ServiceView) error {
			r, err := c.PauseRollout(ctx, v.Cluster, v.Name, client.Condition{})
			return printRolloutChange(sess, r, err, "paused")
		})
}

// rolloutResumeCommand is `berth rollout resume`.
type rolloutResumeCommand struct {
	*session.Session
	detach bool
}

func newRolloutResumeCommand(sess *session.Session) *cobra.Command {
	r := &rolloutResumeCommand{Session: sess}
	cmd := serviceCommand(sess, "resume", "Resume a paused rollout",
		"Resume a paused rollout and wait for its end, as 'berth run' does. An interrupt ends only the wait.", r.run)
	session.AddDetachFlag(cmd, &r.detach)
	return cmd
}

func (r *rolloutResumeCommand) run(ctx context.Context, c *client.Client, v api.ServiceView) error {
	t := &wait.Target{Name: session.ServiceName(v), Revision: v.Revision, MinGeneration: v.Generation}
	if v.Rollout.Paused {
		t.Revision++ // the write of the change, at least
	}
	reply, err := c.ResumeRollout(ctx, v.Cluster, v.Name, client.Condition{})
	if err != nil || r.detach {
		return printRolloutChange(r.Session, reply, err, "is resumed")
	}
	r.Messagef("%s: is resumed, %s", t.Name, tables.HealthyByVersion(reply.Versions))
	return wait.AwaitService(ctx, r.Session, c, t)
}

// printRolloutChange prints what was done to a rollout.
func printRolloutChange(sess *session.Session, v api.RolloutView, err error, what string) error {
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	sess.Messagef("%s: %s, %s", session.Name{Kind: wording.KindService, Cluster: v.Cluster, Name: v.Service}, what,
		tables.HealthyByVersion(v.Versions))
	return nil
}

// rolloutUndoCommand is `berth rollout undo`.
type rolloutUndoCommand struct {
	*session.Session
	to     uint64
	detach bool
}

func newRolloutUndoCommand(sess *session.Session) *cobra.Command {
	u := &rolloutUndoCommand{Session: sess}
	cmd := serviceCommand(sess, "undo", "Roll a service back to an earlier version",
		"Roll a service back to an earlier version, with a rollout of its own. The default is the last\n"+
			"version before the present one with all tasks healthy. --to selects a version from 'berth rollout\n"+
			"history'. Running tasks of that version stay.\n\n"+
			"The command waits for the end, as 'berth run' does. If the undo fails, it is not rolled back; but an\n"+
			"undo to a version that failed before is tested like a new version. During an undo, only --to starts\n"+
			"another undo.",
		u.run)
	cmd.Flags().Uint64Var(&u.to, "to", 0, "the `generation` of the version to go back to")
	session.AddDetachFlag(cmd, &u.detach)
	return cmd
}

func (u *rolloutUndoCommand) run(ctx context.Context, c *client.Client, v api.ServiceView) error {
	r, err := c.UndoRollout(ctx, v.Cluster, v.Name, api.UndoRequest{Generation: u.to, From: v.Generation},
		client.Condition{})
	if err != nil {
		return err
	}
	u.Messagef("%s: %s → %s (generation %d)", session.ServiceName(v), v.Definition, r.Definition,
		r.Generation)
	if u.detach {
		return u.PrintDataOnly(r)
	}
	return wait.AwaitService(ctx, u.Session, c,
		&wait.Target{Name: session.ServiceName(v), MinGeneration: r.Generation})
}

// promoteCommand is `berth promote`.
type promoteCommand struct {
	*session.Session
	detach bool
}

// NewPromoteCommand returns the command `berth promote`.
func NewPromoteCommand(sess *session.Session) *cobra.Command {
	p := &promoteCommand{Session: sess}
	cmd := serviceCommand(sess, "promote", "Promote the canaries of a service's rollout",
		"Continue a rollout whose healthy canaries wait for promotion, and wait for its end, "+
			"as 'berth run' does.",
		p.run)
	session.AddDetachFlag(cmd, &p.detach)
	return cmd
}

func (p *promoteCommand) run(ctx context.Context, c *client.Client, v api.ServiceView) error {
	r, err := c.PromoteRollout(ctx, v.Cluster, v.Name, api.PromoteRequest{Generation: v.Generation},
		client.Condition{})
	if err != nil {
		return err
	}
	p.Messagef("%s: promoted %s (generation %d)", session.ServiceName(v), r.Definition, r.Generation)
	if p.detach {
		return p.PrintDataOnly(r)
	}
	return wait.AwaitService(ctx, p.Session, c,
		&wait.Target{Name: session.ServiceName(v), MinGeneration: r.Generation, Promoted: true})
}

// rolloutHistoryCommand is `berth rollout history`.
type rolloutHistoryCommand struct {
	*session.Session
	diff bool
}

func newRolloutHistoryCommand(sess *session.Session) *cobra.Command {
	r := &rolloutHistoryCommand{Session: sess}
	cmd := serviceCommand(sess, "history", "List the versions of a service, the newest first",
		"List the kept versions of a service, the newest first, and how each rollout ended. With --diff, show\n"+
			"what each version changed in the task definition.",
		r.run)
	cmd.Flags().BoolVar(&r.diff, "diff", false, "show what each version changed")
	return cmd
}

func (r *rolloutHistoryCommand) run(ctx context.Context, c *client.Client, v api.ServiceView) error {
	h, err := c.RolloutHistory(ctx, v.Cluster, v.Name)
	if err != nil {
		return err
	}
	if r.WantsData() {
		h.Versions = output.EmptyIfNil(h.Versions)
		return r.PrintData(h)
	}
	return printHistory(r.Session, h, r.diff)
}

func printHistory(sess *session.Session, h api.RolloutHistory, diff bool) error {
	if len(h.Versions) == 0 {
		sess.Messagef("service/%s has no kept versions yet.", h.Service)
		return nil
	}
	t := output.Table{
		StateColumn: 2,
		Titles:      []string{"GENERATION", "DEFINITION", "STATE", "NOW", "AGE>", "TOOK>", "MESSAGE"},
	}
	for _, v := range h.Versions {
		took, now := "", ""
		if !v.Ended.IsZero() {
			took = wording.Span(v.Ended.Sub(v.Started))
		}
		if v.Current {
			now = "current"
		}
		t.Add(fmt.Sprint(v.Generation), v.Definition.String(), string(v.State), now, sess.Age(v.Started), took,
			wording.OneLine(v.Message))
	}
	if !diff {
		return sess.PrintTable(t)
	}
	for i, v := range h.Versions {
		row := t
		row.Rows = t.Rows[i : i+1]
		if i > 0 {
			sess.Printf("")
		}
		if err := sess.PrintTable(row); err != nil {
			return err
		}
		for _, f := range v.Fields {
			sess.Printf("    %s: %s", f.Path, output.FormatChange(f))
		}
		switch {
		case v.Note != "":
			sess.Printf("    %s", v.Note)
		case len(v.Fields) == 0:
			sess.Printf("    the definition is the same")
		}
	}
	return nil
}

// printRollout prints the state of a rollout, and the failed version that it takes back if there is one.
func printRollout(sess *session.Session, v api.RolloutView, back *api.VersionView) error {
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	n := session.Name{Kind: wording.KindService, Cluster: v.Cluster, Name: v.Service}
	state := string(v.State)
	if v.Paused && !v.State.Ended() {
		state += " paused"
	}
	head := output.Table{StateColumn: 1, Titles: []string{
		"SERVICE", "STATE", "DEFINITION", "GENERATION>", "AGE>", "MESSAGE",
	}}
	head.Add(sess.Argument(n.Cluster, n.Name), state, v.Definition.String(), fmt.Sprint(v.Generation),
		sess.Age(v.Started), wording.OneLine(v.Message))
	if err := sess.PrintTable(head); err != nil {
		return err
	}
	sess.Printf("")
	if err := sess.PrintTable(versionTable(v.Versions)); err != nil {
		return err
	}
	facts := output.Table{Titles: []string{"", ""}, Indent: "  "}
	width := output.TerminalWidth(sess.Stdout) - 14
	fact := func(title, text string) {
		for _, line := range output.Wrap(text, width) {
			facts.Add(title, line)
			title = ""
		}
	}
	if back != nil {
		fact("takes back", wording.JoinNonEmpty(": ",
			fmt.Sprintf("%s (generation %d), which failed", back.Definition, back.Generation),
			wording.OneLine(back.Message)))
	}
	if !v.State.Ended() {
		fact("limits", fmt.Sprintf("at most %s, at least %d healthy, %d at a time",
			wording.Count(v.Desired+v.Surge, "task"),
			v.Least, v.Parallelism))
		if !v.Deadline.IsZero() && !v.Paused && v.State != cluster.RolloutCanary {
			fact("deadline", deadlineText(v.Deadline.Sub(sess.Now())))
		}
		if c := v.Canaries; c != nil {
			fact("canaries", canaryText(*c, n))
		}
		for _, g := range v.Gates {
			fact("gate", gateText(g))
		}
		for _, w := range v.Waits {
			fact("waits", ReasonText(w))
		}
	}
	if v.LastHealthy != nil && v.State != cluster.RolloutComplete {
		fact("goes back to", fmt.Sprintf("%s (generation %d)", v.LastHealthy.Definition, v.LastHealthy.Generation))
	}
	if len(facts.Rows) == 0 {
		return nil
	}
	sess.Printf("")
	return sess.PrintTable(facts)
}

// versionTable returns the table of versions with the number of tasks of each.
func versionTable(versions []api.VersionCount) output.Table {
	t := output.Table{Titles: []string{"VERSION", "GENERATION>", "WANTED>", "BEGUN>", "RUNNING>", "HEALTHY>"}}
	for _, v := range versions {
		label := v.Definition.String()
		if v.Newest {
			label += " (newest)"
		}
		t.Add(label, fmt.Sprint(v.Generation), fmt.Sprint(v.Desired), fmt.Sprint(v.Begun), fmt.Sprint(v.Running),
			fmt.Sprint(v.Healthy))
	}
	return t
}

func deadlineText(left time.Duration) string {
	if left <= 0 {
		return "has passed: the leader acts on it soon"
	}
	return "another task must become healthy within " + wording.Span(left)
}

func canaryText(c api.CanaryView, n session.Name) string {
	text := fmt.Sprintf("%d of %d healthy", c.Healthy, c.Count)
	switch {
	case c.Promoted:
		return text + ", promoted"
	case c.Waiting && c.Auto:
		return text + ", promoted once all gates pass"
	case c.Waiting:
		return text + ", wait: 'berth promote " + n.String() + "' continues"
	}
	return text
}

func gateText(g api.GateView) string {
	text := g.Name + ": " + string(g.State)
	if g.Result != nil {
		text = wording.JoinNonEmpty(", ", text, wording.OneLine(g.Result.Message))
		if g.Result.Failures > 0 && g.Failures > 0 {
			text += fmt.Sprintf(" (%d of %s that end the rollout)", g.Result.Failures,
				wording.Count(g.Failures, "failure"))
		}
	}
	return text
}

// ReasonText formats a reason with its subject.
func ReasonText(b api.Because) string {
	text := wording.OneLine(b.Message)
	if b.Task != "" && !strings.Contains(text, string(b.Task)) {
		text = string(b.Task) + ": " + text
	}
	return text
}
