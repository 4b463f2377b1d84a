package main

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
	"github.com/berthd/berth/internal/cluster"
)

// What may be waited for.
const (
	untilHealthy = "healthy"
	untilDone    = "done"
	untilRunning = "running"
	untilGone    = "gone"
)

// waitable says for which kinds something may be waited for.
func waitable(until string) []string {
	switch until {
	case untilHealthy:
		return []string{wordService, wordTask, wordNode}
	case untilDone:
		return []string{wordService, wordJob, wordTask}
	case untilRunning:
		return []string{wordService, wordJob, wordTask}
	case untilGone:
		return []string{wordService, wordJob, wordCron, wordTask, wordNode, wordCluster}
	}
	return nil
}

const waitLong = `Wait until objects are as --for says, all of them:

  healthy  a service: all its tasks are healthy and of its newest version; a task: it runs and its checks pass; a node: it is ready
  done     a job or task: it succeeded; a service: the rollout of its newest version is complete
  running  a service: as many tasks run as it wants; a job: a task of it runs, or all have succeeded; a task: it runs
  gone     it is deleted and nothing of it is left; a task: no attempt of it lives

Without --for that is done for jobs and healthy for all others. It looks at what is so now and changes nothing.

Exit code 0: so it is; 1: it is not so by the end of --timeout, or can never come, and why: the job failed, the rollout was rolled back, the
service is stopped or was deleted; 2: it could not be found out.`

func (a *app) newWaitCommand() *cobra.Command {
	var until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait OBJECT...", Short: "Wait until objects are healthy, done, running or gone", Long: waitLong,
		Args:              arguments(1, -1, "an object, such as service/web, job/squares, task/web.1.0 or node/n1"),
		ValidArgsFunction: a.completeObjects(-1, wordService, wordJob, wordTask, wordNode, wordCron, wordCluster),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := awaited(cmd, until, args)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.await(cmd.Context(), c, targets, timeout)
		},
	}
	all := []string{untilHealthy, untilDone, untilRunning, untilGone}
	cmd.Flags().StringVar(&until, "for", "",
		"what to wait for: "+strings.Join(all, ", ")+"; default done for jobs, healthy for others")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this `duration`; default never")
	mustComplete(cmd, "for", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// awaited reads the arguments of a wait. All faults are told at once.
func awaited(cmd *cobra.Command, until string, args []string) ([]*waitTarget, error) {
	var targets []*waitTarget
	var faults []string
	if until != "" && waitable(until) == nil {
		return nil, &usageError{cmd.CommandPath(), fmt.Sprintf("--for %s: want healthy, done, running or gone", until)}
	}
	for _, text := range args {
		n, err := parseName(cmd, text, wordService, wordJob, wordTask, wordNode, wordCron, wordCluster)
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		t := &waitTarget{target: &target{name: n}, until: until}
		if t.until == "" {
			t.until = untilHealthy
			if n.kind == wordJob {
				t.until = untilDone
			}
		}
		if kinds := waitable(t.until); !slices.Contains(kinds, n.kind) {
			var ways []string
			for _, u := range []string{untilHealthy, untilDone, untilRunning, untilGone} {
				if slices.Contains(waitable(u), n.kind) {
					ways = append(ways, u)
				}
			}
			faults = append(faults, fmt.Sprintf("%s: a %s is never %s: wait --for %s", text, n.kind, t.until,
				strings.Join(ways, " or ")))
		}
		targets = append(targets, t)
	}
	if len(faults) > 0 {
		return nil, &usageError{cmd.CommandPath(), strings.Join(faults, "\n  ")}
	}
	return targets, nil
}

// waitTarget is an object that is waited for. The target in it is what progress shows.
type waitTarget struct {
	*target
	until string
	seen  bool // it was there once
	// trouble is what stands in the way as far as is known, or nil.
	trouble *trouble
	id      cluster.TaskID // the whole id of a task
}

// waitResult is what a wait tells programs of an object.
type waitResult struct {
	Object string `json:"object"`
	For    string `json:"for"`
	Met    bool   `json:"met"`
	State  string `json:"state,omitempty"`
	Why    string `json:"why,omitempty"`
	Next   string `json:"next,omitempty"`
}

// await looks at the targets until each is as it should be or never will be, and says why those are not that are not.
func (a *app) await(ctx context.Context, c *client.Client, targets []*waitTarget, timeout time.Duration) error {
	shown := make([]*target, len(targets))
	for i, t := range targets {
		shown[i] = t.target
	}
	began, pause, outage := a.now(), firstLook, time.Time{}
	p := a.newProgress(shown)
	for {
		open, err := lookAtTargets(ctx, c, targets, a.now())
		switch {
		case ctx.Err() != nil:
			p.end()
			return ctx.Err()
		case err == nil:
			outage = time.Time{}
		case !errors.Is(err, client.ErrUnreachable) && client.StatusOf(err) != http.StatusServiceUnavailable:
			p.end()
			return err
		case outage.IsZero():
			outage = a.now()
			p.note(said(err) + "; trying again")
		case a.now().Sub(outage) > outagePatience:
			p.end()
			return err
		}
		if late := timeout > 0 && a.now().Sub(began) >= timeout; late && open {
			for _, t := range targets {
				if !t.done {
					t.giveUp(fmt.Sprintf("not %s after %v", t.until, timeout))
				}
			}
			open = false
		}
		p.show()
		if !open {
			p.end()
			return a.reportWait(ctx, c, targets)
		}
		pause = min(pause*5/4, lastLook)
		select {
		case <-ctx.Done():
			p.end()
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// lookAtTargets looks at those that are open and reports whether any still is.
func lookAtTargets(ctx context.Context, c *client.Client, targets []*waitTarget, now time.Time) (open bool, err error) {
	for _, t := range targets {
		if t.done {
			continue
		}
		if e := t.look(ctx, c, now); e != nil {
			err = e
		}
		open = open || !t.done
	}
	return open, err
}

// look reads the object once. What is not there is gone; for anything else it is a fault, unless it was there before.
func (t *waitTarget) look(ctx context.Context, c *client.Client, now time.Time) error {
	err := t.lookAt(ctx, c, now)
	if client.StatusOf(err) != http.StatusNotFound && !errors.Is(err, errUnknown) {
		if err == nil {
			t.seen = true
		}
		return err
	}
	switch {
	case t.until == untilGone:
		t.done, t.trouble = true, nil
		t.set("gone", "")
	case t.seen:
		t.trouble = nil
		t.set("gone", "")
		t.giveUp("it was deleted meanwhile")
	default:
		return err
	}
	return nil
}

func (t *waitTarget) lookAt(ctx context.Context, c *client.Client, now time.Time) error {
	switch t.name.kind {
	case wordService:
		return t.lookAtService(ctx, c)
	case wordJob:
		return t.lookAtJob(ctx, c)
	case wordTask:
		return t.lookAtTask(ctx, c, now)
	case wordNode:
		return t.lookAtNode(ctx, c)
	case wordCron:
		v, err := t.name.cron(ctx, c)
		t.set(v.Status.State, "")
		return err
	}
	_, err := c.Cluster(ctx, t.name.name)
	t.set("there", "")
	return err
}

// set notes how the object is, in a word and a sentence.
func (t *waitTarget) set(state, message string) {
	t.brief, t.line = state, state
	if message != "" {
		t.line = fmt.Sprintf("%-11s  %s", state, message)
	}
}

// first finds an object by its name where nothing is known of it yet, and then looks at that one.
func first[T any](known *T, find, look func() (T, error)) (T, error) {
	if known == nil {
		return find()
	}
	return look()
}

func (t *waitTarget) lookAtService(ctx context.Context, c *client.Client) error {
	v, err := first(t.service, func() (api.ServiceView, error) { return t.name.service(ctx, c) },
		func() (api.ServiceView, error) { return c.Service(ctx, t.name.cluster, t.name.name) })
	if err != nil {
		return err
	}
	t.name.cluster = v.Cluster
	t.service = &v
	s := v.Status
	counts := fmt.Sprintf("%d of %s healthy", s.Healthy, count(s.Desired, "task"))
	t.set(s.State, joinNonEmpty("; ", counts, shortTasks(oneLine(s.Message))))
	stopped := s.State == "stopped" || s.State == "stopping"
	settled := s.Rollout == "" || s.Rollout == cluster.RolloutComplete
	switch {
	case t.until == untilGone:
	case s.State == "deleting":
		t.giveUp("it is being deleted")
	case stopped:
		t.trouble = &trouble{
			cause: "its tasks are stopped until somebody starts it",
			next:  "berth start " + t.name.String(),
		}
		t.giveUp("it is " + s.State)
	case s.Rollout == cluster.RolloutFailed && t.until != untilRunning,
		s.Rollout == cluster.RolloutRolledBack && t.until == untilDone:
		t.giveUp("its rollout " + rolloutEnd(cluster.Version{Definition: v.Definition, State: s.Rollout}))
	case t.until == untilDone && v.Rollout.Reverted != 0 && v.Rollout.Reverted != v.Generation && t.generation != 0 &&
		v.Generation != t.generation:
		t.giveUp("its rollout failed and was rolled back: " + v.Definition.String() + " is asked for again")
	case t.until == untilRunning:
		t.done = s.Running >= s.Desired
	case t.until == untilDone:
		t.done = settled && s.Updated >= s.Desired
	default:
		t.done = s.State == "healthy" && s.Healthy >= s.Desired && s.Updated >= s.Desired && settled
	}
	if t.generation == 0 {
		t.generation = v.Generation
	}
	return nil
}

func (t *waitTarget) lookAtJob(ctx context.Context, c *client.Client) error {
	v, err := first(t.job, func() (api.JobView, error) { return t.name.job(ctx, c) },
		func() (api.JobView, error) { return c.Job(ctx, t.name.cluster, t.name.name) })
	if err != nil {
		return err
	}
	t.name.cluster = v.Cluster
	t.job = &v
	s := v.Status
	counts := fmt.Sprintf("%d of %s done", s.Succeeded, count(s.Total, "task"))
	t.set(s.State, joinNonEmpty("; ", counts, shortTasks(oneLine(s.Message))))
	switch {
	case t.until == untilGone:
	case s.State == string(cluster.StateSucceeded), t.until == untilRunning && s.Running > 0:
		t.done = true
	case s.Done(), s.State == "deleting":
		t.giveUp("it is " + s.State)
	}
	return nil
}

func (t *waitTarget) lookAtTask(ctx context.Context, c *client.Client, now time.Time) error {
	var v api.TaskView
	var err error
	if t.id == "" {
		v, err = findTask(ctx, c, t.name.name)
		t.id = v.ID
	} else {
		v, err = c.Task(ctx, t.id)
	}
	if err != nil {
		return err
	}
	t.set(shownState(v), oneLine(reasonOf(v)))
	switch {
	case !v.State.Terminal():
		t.failing = time.Time{}
	case t.failing.IsZero():
		t.failing = now
	}
	switch {
	case t.until == untilGone:
		t.done = v.State.Terminal()
	case v.State == cluster.StateSucceeded && t.until != untilHealthy:
		t.done = true
	case v.State == cluster.StateSucceeded, v.State.Terminal() && now.Sub(t.failing) >= failingPatience:
		t.trouble = taskTrouble(v)
		t.giveUp("it has ended, and no next attempt is on its way: " + string(v.State))
	case t.until == untilRunning:
		t.done = v.State == cluster.StateRunning && !unreachable(v)
	case t.until == untilHealthy:
		t.done = v.State == cluster.StateRunning && v.Health == cluster.HealthHealthy && !unreachable(v)
	}
	if !t.done {
		t.trouble = taskTrouble(v)
	}
	return nil
}

// taskTrouble says what stands in a task's way, or is nil.
func taskTrouble(v api.TaskView) *trouble {
	if reasonOf(v) == "" {
		return nil
	}
	owner := ownerName(v.Owner)
	return explain(trouble{object: owner.String(), state: string(v.State)}, "", []api.TaskView{v})
}

func (t *waitTarget) lookAtNode(ctx context.Context, c *client.Client) error {
	v, err := c.Node(ctx, t.name.name)
	if err != nil {
		return err
	}
	t.set(string(v.State), oneLine(v.Reason))
	if t.until == untilHealthy {
		t.done = v.State == cluster.NodeReady
		t.trouble = nil
		if !t.done && v.Reason != "" {
			t.trouble = &trouble{cause: oneLine(v.Reason), next: "berth node status " + v.Name}
		}
		if v.Gone {
			t.giveUp("the operator forgot it")
		}
	}
	return nil
}

// reportWait says how it ended: for people on standard error, for programs as a list.
func (a *app) reportWait(ctx context.Context, c *client.Client, targets []*waitTarget) error {
	failed := 0
	results := make([]waitResult, len(targets))
	for i, t := range targets {
		results[i] = waitResult{Object: t.name.String(), For: t.until, Met: t.failure == "", State: t.brief}
		if t.failure == "" {
			if !a.data() {
				a.tell("%s is %s", t.name, t.until)
			}
			continue
		}
		failed++
		tr, err := a.troubleOf(ctx, c, t)
		if err != nil {
			return err
		}
		results[i].Why = joinNonEmpty(": ", t.failure, shortTasks(tr.cause))
		results[i].Next = tr.next
		if a.data() {
			continue
		}
		a.tell("%s: %s", t.name, t.failure)
		if tr.cause != "" {
			a.tell("  %s", shortTasks(tr.cause))
		} else if t.line != "" {
			a.tell("  it is %s", joinNonEmpty(": ", t.brief,
				strings.TrimSpace(strings.TrimPrefix(oneLine(t.line), t.brief))))
		}
		if tr.task != nil {
			printLines(a.stderr, tr.task.ID, tailOf(ctx, c, *tr.task))
		}
		a.tell("  → %s", tr.next)
	}
	if a.data() {
		if err := a.printData(results); err != nil {
			return err
		}
	}
	if failed == 0 {
		return nil
	}
	return &exitError{exitNo, fmt.Errorf("%d of %s not as waited for", failed, count(len(targets), "object"))}
}

// troubleOf says why a target is not as it should be, and what to do next.
func (a *app) troubleOf(ctx context.Context, c *client.Client, t *waitTarget) (trouble, error) {
	found := t.trouble
	if found == nil && (t.service != nil || t.job != nil) && t.line != "gone" {
		tasks, err := tasksOf(ctx, c, t.name, true)
		if err != nil {
			return trouble{}, err
		}
		if tasks = newest(tasks); t.service != nil {
			found = serviceTrouble(*t.service, tasks)
		} else {
			found = jobTrouble(*t.job, tasks)
		}
	}
	if found == nil {
		found = &trouble{}
	}
	if found.next == "" {
		found.next = "berth events --" + t.name.kind + " " + t.name.name
		switch {
		case t.line == "gone": // what happened is told by events alone
		case t.name.kind == wordNode:
			found.next = "berth node status " + t.name.name
		default:
			found.next = "berth status " + t.name.String()
		}
	}
	return *found, nil
}
