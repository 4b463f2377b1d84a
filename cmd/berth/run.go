package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// Patience of run. A service that makes no progress for patience is given up, and one that the
// server calls failing for failingPatience.
const (
	patience        = 5 * time.Minute
	failingPatience = 20 * time.Second
	outagePatience  = 30 * time.Second
)

// Time between two looks while run waits: the longer the less changes.
const (
	firstLook = 200 * time.Millisecond
	lastLook  = time.Second
)

func (a *app) newRunCommand() *cobra.Command {
	var detach bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run what manifests say and wait until it is healthy or has succeeded",
		Long: `Write the objects of manifests, all or none, and wait until every service in them is healthy and every
job has succeeded. Exit code 0: all is well; 1: it is not, and why; 2: it could not be written.

A rollout is waited for until it is complete, or has failed and was rolled back, which is told with its cause.
Canaries that are healthy and wait to be promoted end the waiting well.

Without --timeout a job may take as long as it needs, a rollout as long as its deadlines say, and a service that is
new is given up after five minutes without progress. Giving up, like interrupting, stops the waiting and nothing else.

` + filesHelp,
		Args:              arguments(1, -1, "a manifest: a file, a folder or - for standard input"),
		ValidArgsFunction: completeManifests,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), args, detach, timeout)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up waiting after this `duration`")
	return cmd
}

func (a *app) run(ctx context.Context, files []string, detach bool, timeout time.Duration) error {
	reply, err := a.apply(ctx, files, false)
	if err != nil {
		return err
	}
	var targets []*target
	for _, c := range reply.Changes {
		a.tellChange(c)
		if c.Kind == cluster.KindService || c.Kind == cluster.KindJob {
			n := name{wordService, c.Cluster, c.Name}
			if c.Kind == cluster.KindJob {
				n.kind = wordJob
			}
			targets = append(targets, &target{name: n, revision: c.Revision, moved: a.now()})
		}
	}
	if detach || len(targets) == 0 {
		if a.data() {
			return a.printData(reply)
		}
		return nil
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	w := waiter{app: a, client: c, targets: targets, timeout: timeout, progress: a.newProgress(targets)}
	return w.await(ctx, "what was written goes on. See 'berth status'.")
}

// tellChange says what was written.
func (a *app) tellChange(c api.Change) {
	word := map[api.Action]string{
		api.ActionCreate: "created", api.ActionUpdate: "updated",
		api.ActionNone: "unchanged",
	}[c.Action]
	text := fmt.Sprintf("%-9s  %s", word, changeName(c))
	if c.Effect != "" && c.Action == api.ActionUpdate {
		text += "  (" + c.Effect + ")"
	}
	a.tell("%s", text)
	if c.Note != "" {
		a.tell("           %s", c.Note)
	}
}

// target is a service or job that run waits for.
type target struct {
	name     name
	revision uint64 // of the write; what is read at an earlier one is not about it
	// least is the generation that a service has at the least, for writes that tell no revision.
	least   uint64
	service *api.ServiceView
	job     *api.JobView
	// generation is the service's that is waited for, 0 before it is known, and rollout where it stands; nil
	// for a server that knows of no rollouts, and for one that ended.
	generation uint64
	rollout    *api.RolloutView
	// tail are the last lines of the task tailOf of that generation, which was not well at tailAt: a rollback takes it
	// away.
	tail   []string
	tailOf cluster.TaskID
	tailAt time.Time

	// preparing is what tasks do that are being prepared, asked at preparedAt, and added what the line ends with for
	// it.
	preparing, added string
	preparedAt       time.Time

	line    string    // the newest that is known of it, for people
	brief   string    // the same without what changes often
	best    int       // the most healthy new tasks that were seen
	moved   time.Time // when that last grew
	failing time.Time // since when the server calls it failing
	done    bool
	failure string // why it is done without being well
	notice  string // what is to be done next although it is done
	watch   bool   // it is looked at until the rollout ends, whoever has to do something for that
	// promoted says that canaries are no end: the user has just promoted them.
	promoted bool
}

// waiter looks at targets until each is done.
type waiter struct {
	*app
	client   *client.Client
	targets  []*target
	timeout  time.Duration
	progress *progress
}

// await waits for the targets and reports how they are; an interruption is told with what goes on without it.
func (w *waiter) await(ctx context.Context, goesOn string) error {
	if err := w.wait(ctx); err != nil {
		if ctx.Err() != nil {
			w.tell("Stopped waiting; %s", goesOn)
		}
		return err
	}
	return w.report(ctx)
}

// wait returns once all targets are done, one way or the other.
func (w *waiter) wait(ctx context.Context) error {
	began := w.now()
	pause := firstLook
	var outage time.Time
	defer w.progress.end()
	for {
		changed, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			outage = time.Time{}
		case !errors.Is(err, client.ErrUnreachable) && client.StatusOf(err) != http.StatusServiceUnavailable:
			return err
		case outage.IsZero():
			outage = w.now()
			w.progress.note(said(err) + "; trying again")
		case w.now().Sub(outage) > outagePatience:
			return err
		}
		w.progress.show()
		if w.finished(began) {
			return nil
		}
		if pause = min(pause*5/4, lastLook); changed {
			pause = firstLook
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// finished reports whether there is nothing left to wait for, and gives up what took too long.
func (w *waiter) finished(began time.Time) bool {
	all := true
	for _, t := range w.targets {
		if t.done {
			continue
		}
		switch now := w.now(); {
		case w.timeout > 0 && now.Sub(began) >= w.timeout:
			t.giveUp(fmt.Sprintf("not well after %v", w.timeout))
		case t.rolling(now): // its deadlines are the control plane's to keep
			all = false
		case w.timeout == 0 && t.name.kind == wordService && now.Sub(t.moved) >= patience:
			t.giveUp(fmt.Sprintf("no progress for %v", patience))
		case !t.failing.IsZero() && now.Sub(t.failing) >= failingPatience:
			t.giveUp("keeps failing")
		default:
			all = false
		}
	}
	return all
}

func (t *target) giveUp(why string) { t.done, t.failure = true, why }

// look reads every target that is not done and reports whether anything changed.
func (w *waiter) look(ctx context.Context) (changed bool, err error) {
	for _, t := range w.targets {
		if t.done {
			continue
		}
		line, best := t.line, t.best
		if t.name.kind == wordJob {
			err = t.lookAtJob(ctx, w.client)
		} else {
			err = t.lookAtService(ctx, w.client, w.now())
		}
		if client.StatusOf(err) == http.StatusNotFound {
			t.giveUp("was deleted")
			err = nil
		}
		if err != nil {
			return changed, err
		}
		t.lookAtPreparing(ctx, w.client, w.now())
		if t.best > best {
			t.moved = w.now()
		}
		changed = changed || t.line != line
	}
	return changed, nil
}

func (t *target) lookAtService(ctx context.Context, c *client.Client, now time.Time) error {
	v, err := c.Service(ctx, t.name.cluster, t.name.name)
	if err != nil || v.Revision < t.revision || v.Generation < t.least {
		return err
	}
	s := v.Status
	t.service = &v
	t.best = max(t.best, min(s.Healthy, s.Updated))
	t.brief = fmt.Sprintf("%s %d", s.State, s.Healthy)
	t.line = fmt.Sprintf("%-11s  %s", s.State, shortTasks(oneLine(s.Message)))
	if s.Message == "" {
		t.line = fmt.Sprintf("%-11s  %d of %s healthy", s.State, s.Healthy, count(s.Desired, "task"))
	}
	switch {
	case s.State != "failing":
		t.failing = time.Time{}
	case t.failing.IsZero():
		t.failing = now
	}
	if err := t.lookAtRollout(ctx, c, now); err != nil || t.done {
		return err
	}
	switch s.State {
	case "stopped":
		t.done = true
	case "healthy":
		t.done = s.Healthy >= s.Desired && s.Updated >= s.Desired && t.rollout == nil
	case "deleting":
		t.giveUp("was deleted")
	}
	return nil
}

func (t *target) lookAtJob(ctx context.Context, c *client.Client) error {
	v, err := c.Job(ctx, t.name.cluster, t.name.name)
	if err != nil || v.Revision < t.revision {
		return err
	}
	s := v.Status
	t.job = &v
	t.line = fmt.Sprintf("%-11s  %d of %s done", s.State, s.Succeeded, count(s.Total, "task"))
	if s.Running > 0 {
		t.line += fmt.Sprintf(", %d running", s.Running)
	}
	if s.Failed > 0 {
		t.line += fmt.Sprintf(", %d failed", s.Failed)
	}
	t.brief = t.line
	switch {
	case s.State == "succeeded":
		t.done = true
	case s.Done() || s.State == "deleting":
		t.giveUp(s.State)
	}
	return nil
}

// report prints how the targets are, and why those that are not well are not.
func (w *waiter) report(ctx context.Context) error {
	if err := w.printTargets(); err != nil {
		return err
	}
	failed := 0
	for _, t := range w.targets {
		if t.failure == "" {
			if t.notice != "" {
				w.tell("%s: %s", t.name, t.notice)
			}
			continue
		}
		failed++
		if err := w.explain(ctx, t); err != nil {
			return err
		}
	}
	if failed == 0 {
		return nil
	}
	verb := "are"
	if failed == 1 {
		verb = "is"
	}
	return &exitError{exitNo, fmt.Errorf("%d of %d %s not well", failed, len(w.targets), verb)}
}

// explain tells why a target is not well.
func (w *waiter) explain(ctx context.Context, t *target) error {
	w.tell("")
	w.tell("%s: %s", t.name, t.failure)
	tasks, err := tasksOf(ctx, w.client, t.name, true)
	if err != nil {
		return err
	}
	tasks = newest(tasks)
	var tr *trouble
	switch {
	case t.fell():
		tr = rolloutTrouble(t, tasks)
	case t.service != nil:
		tr = serviceTrouble(*t.service, tasks)
	case t.job != nil:
		tr = jobTrouble(*t.job, tasks)
	}
	if tr == nil {
		return nil
	}
	w.tell("  %s", shortTasks(tr.cause))
	var lines []string
	if tr.task != nil {
		lines = tailOf(ctx, w.client, *tr.task)
		printLines(w.stderr, tr.task.ID, lines)
	}
	if len(lines) == 0 && t.fell() { // the task is gone, with its output
		lines = t.tail
		printLines(w.stderr, t.tailOf, lines)
	}
	if len(lines) > 0 || tr.task != nil {
		w.tell("")
	}
	w.tell("  → %s", tr.next)
	return nil
}

// printTargets prints the final state of the targets.
func (w *waiter) printTargets() error {
	all := everything{Services: []api.ServiceView{}, Jobs: []api.JobView{}}
	for _, t := range w.targets {
		if t.service != nil {
			all.Services = append(all.Services, *t.service)
		}
		if t.job != nil {
			all.Jobs = append(all.Jobs, *t.job)
		}
	}
	if w.data() {
		return w.printData(map[string]any{"services": all.Services, "jobs": all.Jobs})
	}
	if len(all.Services) > 0 {
		if err := w.printTable(w.serviceTable(all.Services).brief()); err != nil {
			return err
		}
		if len(all.Jobs) > 0 {
			w.say("")
		}
	}
	if len(all.Jobs) > 0 {
		return w.printTable(w.jobTable(all.Jobs).brief())
	}
	return nil
}
