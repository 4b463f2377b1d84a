// Package wait waits until objects reach a state, and shows the progress.
package wait

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/trouble"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// States to wait for.
const (
	untilHealthy = "healthy"
	untilDone    = "done"
	untilRunning = "running"
	untilGone    = "gone"
)

// kindsFor returns the kinds of objects that have the state.
func kindsFor(until string) []string {
	switch until {
	case untilHealthy:
		return []string{wording.KindService, wording.KindTask, wording.KindNode}
	case untilDone:
		return []string{wording.KindService, wording.KindJob, wording.KindTask}
	case untilRunning:
		return []string{wording.KindService, wording.KindJob, wording.KindTask}
	case untilGone:
		return []string{
			wording.KindService, wording.KindJob, wording.KindCron, wording.KindTask, wording.KindNode,
			wording.KindCluster,
		}
	}
	return nil
}

const waitLong = "Wait until all the given objects are in the state of --for:\n\n" +
	"  healthy  service: all tasks are healthy and of the newest version; task: it runs and its\n" +
	"           checks pass; node: it is ready\n" +
	"  done     job or task: it succeeded; service: the rollout of the newest version is complete\n" +
	"  running  service: all its tasks run; job: one of its tasks runs, or all have succeeded;\n" +
	"           task: it runs\n" +
	"  gone     the object is deleted and nothing of it is left; task: none of its attempts runs. An\n" +
	"           object that does not exist is gone if an event of it is kept; otherwise its name is\n" +
	"           refused, because it may be misspelt\n\n" +
	"Without --for, the command waits until jobs are done and all other objects are healthy. The command\n" +
	"checks the present state and changes nothing.\n\n" +
	"Exit code 0: the state is reached; 1: it is not reached by the end of --timeout, or it cannot be\n" +
	"reached, for example because the job failed, the rollout was rolled back, or the service is stopped\n" +
	"or deleted; the command prints the reason; 2: the state could not be determined."

// waitCommand is `berth wait`.
type waitCommand struct {
	*session.Session
	until   string
	timeout time.Duration
}

// NewWaitCommand returns the command `berth wait`.
func NewWaitCommand(sess *session.Session) *cobra.Command {
	w := &waitCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "wait OBJECT...", Short: "Wait until objects are healthy, done, running or gone", Long: waitLong,
		Args: session.Arguments(1, -1,
			"an object, such as web, job/squares, web.1.0 or node/n1"),
		ValidArgsFunction: sess.CompleteObjects(-1, wording.KindService, wording.KindJob, wording.KindTask,
			wording.KindNode, wording.KindCron, wording.KindCluster),
		RunE: w.run,
	}
	all := []string{untilHealthy, untilDone, untilRunning, untilGone}
	cmd.Flags().StringVar(&w.until, "for", "",
		"state to wait for: "+strings.Join(all, ", ")+"; default done for jobs, healthy for others")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "give up after this `duration`; default never")
	session.RegisterCompletion(cmd, "for", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (w *waitCommand) run(cmd *cobra.Command, args []string) error {
	c, err := w.Connect()
	if err != nil {
		return err
	}
	targets, err := w.parseTargets(cmd, c, args)
	if err != nil {
		return err
	}
	waiter := Waiter{Session: w.Session, Client: c, Targets: targets, Timeout: w.timeout}
	if err := waiter.Wait(cmd.Context()); err != nil {
		return err
	}
	return waiter.printResults(cmd.Context())
}

// parseTargets parses the arguments of a wait. The error lists all faults.
func (w *waitCommand) parseTargets(cmd *cobra.Command, c *client.Client, args []string) ([]*Target, error) {
	until := w.until
	var targets []*Target
	var faults []string
	if until != "" && kindsFor(until) == nil {
		return nil, &session.UsageError{
			Command: cmd.CommandPath(),
			Message: session.UnknownWord("--for", until, []string{untilHealthy, untilDone, untilRunning, untilGone}),
		}
	}
	for _, text := range args {
		n, err := w.FindObject(cmd, c, text, wording.KindService, wording.KindJob, wording.KindTask, wording.KindNode,
			wording.KindCron, wording.KindCluster)
		if until == untilGone && n.Kind == "" && errors.Is(err, session.ErrUnknown) {
			n, err = findDeleted(cmd.Context(), c, n, err)
		}
		if _, wrong := errors.AsType[*session.UsageError](err); err != nil && !wrong {
			return nil, err
		}
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		t := &Target{Name: n, until: until, findTask: w.FindTask}
		if t.until == "" {
			t.until = untilHealthy
			if n.Kind == wording.KindJob {
				t.until = untilDone
			}
		}
		if kinds := kindsFor(t.until); !slices.Contains(kinds, n.Kind) {
			var ways []string
			for _, u := range []string{untilHealthy, untilDone, untilRunning, untilGone} {
				if slices.Contains(kindsFor(u), n.Kind) {
					ways = append(ways, u)
				}
			}
			faults = append(faults, fmt.Sprintf("%s: a %s is never %s: wait --for %s", text, n.Kind, t.until,
				strings.Join(ways, " or ")))
		}
		targets = append(targets, t)
	}
	if len(faults) > 0 {
		return nil, &session.UsageError{Command: cmd.CommandPath(), Message: strings.Join(faults, "\n  ")}
	}
	return targets, nil
}

// findDeleted returns the deleted object of a bare name: the first of whose kind an event is kept. Otherwise it returns
// the error.
func findDeleted(ctx context.Context, c *client.Client, n session.Name, missing error) (session.Name, error) {
	for _, kind := range []string{wording.KindService, wording.KindJob, wording.KindCron, wording.KindNode} {
		deleted := session.Name{Kind: kind, Cluster: n.Cluster, Name: n.Name}
		if kind == wording.KindNode {
			deleted.Cluster = ""
		}
		if kept, err := hasEvents(ctx, c, deleted); err != nil || kept {
			return deleted, err
		}
	}
	return n, missing
}

// waitResult is the result for one object, for programs.
type waitResult struct {
	Object string `json:"object"`
	For    string `json:"for"`
	Met    bool   `json:"met"`
	State  string `json:"state,omitempty"`
	Why    string `json:"why,omitempty"`
	Next   string `json:"next,omitempty"`
}

// readState reads the object of `berth wait` once. A missing object is gone. For other states that is an error, unless
// an earlier read found the object.
func (t *Target) readState(ctx context.Context, c *client.Client, now time.Time) error {
	err := t.readObject(ctx, c, now)
	if client.StatusOf(err) != http.StatusNotFound && !errors.Is(err, session.ErrUnknown) {
		if err == nil {
			t.existed = true
		}
		return err
	}
	switch {
	case t.until == untilGone && !t.existed:
		if err := t.checkExisted(ctx, c, err); err != nil {
			return err
		}
		fallthrough
	case t.until == untilGone:
		t.done, t.trouble = true, nil
		t.setLine("gone", "")
	case t.existed:
		t.trouble = nil
		t.setLine("gone", "")
		t.giveUpAs("was deleted")
	default:
		return err
	}
	return nil
}

// checkExisted returns the error for an object that does not exist and of which no event is kept: its name is probably
// misspelt. Otherwise the object is gone.
func (t *Target) checkExisted(ctx context.Context, c *client.Client, missing error) error {
	kept, err := hasEvents(ctx, c, t.Name)
	if err != nil || kept {
		return err
	}
	if t.Name.Kind != wording.KindTask && !errors.Is(missing, session.ErrUnknown) { // of a node or a cluster
		return session.UnknownError(t.Name.Kind, t.Name.Name, session.ListKnownNames(ctx, c, t.Name.Kind))
	}
	return missing
}

// hasEvents reports whether an event of the object is kept.
func hasEvents(ctx context.Context, c *client.Client, n session.Name) (bool, error) {
	if _, ok := cluster.TaskID(n.Name).Parts(); n.Kind == wording.KindTask && !ok {
		return false, nil
	}
	var f client.EventFilter
	n.SelectEvents(&f)
	page, err := c.Events(ctx, client.EventOptions{EventFilter: f}, client.ListOptions{Limit: 1})
	return len(page.Items) > 0, err
}

func (t *Target) readObject(ctx context.Context, c *client.Client, now time.Time) error {
	switch t.Name.Kind {
	case wording.KindService:
		return t.readServiceState(ctx, c)
	case wording.KindJob:
		return t.readJobState(ctx, c)
	case wording.KindTask:
		return t.readTaskState(ctx, c, now)
	case wording.KindNode:
		return t.readNodeState(ctx, c)
	case wording.KindCron:
		v, err := t.Name.Cron(ctx, c)
		t.setLine(string(v.Status.State), "")
		return err
	}
	_, err := c.Cluster(ctx, t.Name.Name)
	t.setLine("there", "")
	return err
}

// findOrRead calls find while the object is unknown, and read afterwards.
func findOrRead[T any](known *T, find, fetch func() (T, error)) (T, error) {
	if known == nil {
		return find()
	}
	return fetch()
}

func (t *Target) readServiceState(ctx context.Context, c *client.Client) error {
	v, err := findOrRead(t.service, func() (api.ServiceView, error) { return t.Name.Service(ctx, c) },
		func() (api.ServiceView, error) { return c.Service(ctx, t.Name.Cluster, t.Name.Name) })
	if err != nil {
		return err
	}
	t.Name.Cluster = v.Cluster
	t.service = &v
	s := v.Status
	counts, message := "", wording.OneLine(s.Message)
	if !strings.HasPrefix(message, fmt.Sprintf("%d/%d ", s.Healthy, s.Desired)) {
		counts = fmt.Sprintf("%d of %s healthy", s.Healthy, wording.Count(s.Desired, "task"))
	}
	t.setLine(string(s.State), wording.JoinNonEmpty("; ", counts, message))
	stopped := s.State == cluster.ServiceStopped || s.State == cluster.ServiceStopping
	settled := s.Rollout == "" || s.Rollout == cluster.RolloutComplete
	switch {
	case t.until == untilGone:
	case s.State == cluster.ServiceDeleting:
		t.giveUpAs("is being deleted")
	case stopped:
		t.trouble = &api.Trouble{Next: "berth start " + t.Name.String()}
		t.giveUpAs("is " + string(s.State))
	case s.Rollout == cluster.RolloutFailed && t.until != untilRunning,
		s.Rollout == cluster.RolloutRolledBack && t.until == untilDone:
		t.giveUp("its rollout " + rolloutEnd(cluster.Version{Definition: v.Definition, State: s.Rollout}))
	case t.until == untilDone && v.Rollout.Reverted != 0 && v.Rollout.Reverted != v.Generation && t.generation != 0 &&
		v.Generation != t.generation:
		t.giveUp("its rollout failed and was rolled back to " + v.Definition.String())
	case t.until == untilRunning:
		t.done = s.Running >= s.Desired
	case t.until == untilDone:
		t.done = settled && s.Updated >= s.Desired
	default:
		t.done = s.State == cluster.ServiceHealthy && s.Healthy >= s.Desired && s.Updated >= s.Desired && settled
	}
	if t.generation == 0 {
		t.generation = v.Generation
	}
	return nil
}

func (t *Target) readJobState(ctx context.Context, c *client.Client) error {
	v, err := findOrRead(t.job, func() (api.JobView, error) { return t.Name.Job(ctx, c) },
		func() (api.JobView, error) { return c.Job(ctx, t.Name.Cluster, t.Name.Name) })
	if err != nil {
		return err
	}
	t.Name.Cluster = v.Cluster
	t.job = &v
	s := v.Status
	counts := fmt.Sprintf("%d of %s done", s.Succeeded, wording.Count(s.Total, "task"))
	t.setLine(string(s.State), wording.JoinNonEmpty("; ", counts, wording.OneLine(s.Message)))
	switch {
	case t.until == untilGone:
	case s.State == cluster.JobSucceeded, t.until == untilRunning && s.Running > 0:
		t.done = true
	case s.Done(), s.State == cluster.JobDeleting:
		t.giveUpAs(jobEnd(s.State))
	}
	return nil
}

func (t *Target) readTaskState(ctx context.Context, c *client.Client, now time.Time) error {
	var v api.TaskView
	var err error
	if t.id == "" {
		v, err = t.findTask(ctx, c, t.Name.Name)
		t.id = v.ID
	} else {
		v, err = c.Task(ctx, t.id)
	}
	if err != nil {
		return err
	}
	t.setLine(taskview.State(v), wording.OneLine(taskview.Reason(v)))
	switch {
	case !v.State.Terminal():
		t.failingSince = time.Time{}
	case t.failingSince.IsZero():
		t.failingSince = now
	}
	switch {
	case t.until == untilGone:
		t.done = v.State.Terminal()
	case v.State == cluster.StateSucceeded && t.until != untilHealthy:
		t.done = true
	case v.State == cluster.StateSucceeded, v.State.Terminal() && now.Sub(t.failingSince) >= failingTimeout:
		t.giveUpAs("has ended, and no other attempt follows: " + string(v.State))
	case t.until == untilRunning:
		t.done = v.State == cluster.StateRunning && !taskview.Unreachable(v)
	case t.until == untilHealthy:
		t.done = v.State == cluster.StateRunning && v.Health == cluster.HealthHealthy && !taskview.Unreachable(v)
	}
	return nil
}

func (t *Target) readNodeState(ctx context.Context, c *client.Client) error {
	v, err := c.Node(ctx, t.Name.Name)
	if err != nil {
		return err
	}
	t.setLine(string(v.State), wording.OneLine(v.Reason))
	if t.until == untilHealthy {
		t.done = v.State == cluster.NodeReady
		t.trouble = nil
		if !t.done && v.Reason != "" {
			t.trouble = &api.Trouble{Cause: wording.OneLine(v.Reason), Next: "berth node status " + v.Name}
		}
		if v.Gone {
			t.giveUpAs("was forgotten by the operator")
		}
	}
	return nil
}

// printResults prints the results: messages on standard error, or a list for programs.
func (w *Waiter) printResults(ctx context.Context) error {
	failed := 0
	results := make([]waitResult, len(w.Targets))
	for i, t := range w.Targets {
		results[i] = waitResult{Object: t.Name.String(), For: t.until, Met: t.Failure == "", State: t.Brief}
		if t.Failure == "" {
			if !w.WantsData() {
				w.Messagef("%s is %s", t.Name, t.until)
			}
			continue
		}
		failed++
		tr, err := w.unmetTrouble(ctx, t)
		if err != nil {
			return err
		}
		results[i].Why = wording.JoinNonEmpty(": ", t.Failure, tr.Cause)
		results[i].Next = tr.Next
		if w.WantsData() {
			continue
		}
		w.Messagef("%s", t.failureText())
		if tr.Cause != "" {
			w.Messagef("  %s", tr.Cause)
		} else if t.Line != "" && t.isLate {
			w.Messagef("  it is %s", wording.JoinNonEmpty(": ", t.Brief,
				strings.TrimSpace(strings.TrimPrefix(wording.OneLine(t.Line), t.Brief))))
		}
		if tr.Task != "" {
			trouble.PrintTail(ctx, w.Session, w.Client, tr.Task, w.Stderr)
		}
		w.Messagef("  → %s", tr.Next)
	}
	if w.WantsData() {
		if err := w.PrintData(results); err != nil {
			return err
		}
	}
	if failed == 0 {
		return nil
	}
	return &session.ExitError{Code: session.ExitNo} // each failure was printed
}

// unmetTrouble returns why a target did not reach its state, and the next step.
func (w *Waiter) unmetTrouble(ctx context.Context, t *Target) (api.Trouble, error) {
	found := t.trouble
	if found == nil && t.existed && t.Line != "gone" {
		n := t.Name
		if t.id != "" {
			n.Name = string(t.id)
		}
		var err error
		if found, err = trouble.MostUrgent(ctx, w.Client, n); err != nil {
			return api.Trouble{}, err
		}
	}
	if found == nil {
		found = &api.Trouble{}
	}
	if found.Next == "" {
		switch {
		case t.Line == "gone":
			found.Next = "berth events --" + t.Name.Kind + " " + t.Name.Name
		case t.Name.Kind == wording.KindNode:
			found.Next = "berth node status " + t.Name.Name
		default:
			found.Next = "berth status " + t.Name.String()
		}
	}
	return *found, nil
}
