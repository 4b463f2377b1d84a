package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// awaitService waits until a service is as it should be, with the progress of its rollout, and reports how it is.
func (a *app) awaitService(ctx context.Context, c *client.Client, t *target) error {
	t.moved = a.now()
	targets := []*target{t}
	w := waiter{app: a, client: c, targets: targets, progress: a.newProgress(targets)}
	return w.await(ctx, "the rollout goes on. See 'berth rollout status "+t.name.argument()+"'.")
}

// argument returns the name as commands take it that are about services alone: without the kind where that is clear.
func (n name) argument() string {
	if n.cluster == "" || n.cluster == cluster.DefaultCluster {
		return n.name
	}
	return n.String()
}

// rolling reports whether a rollout goes on that has something to go back to, so that it may take as long as its
// deadlines say; a server that does not keep them is given up all the same. One that is watched may take for ever.
func (t *target) rolling(now time.Time) bool {
	if t.rollout == nil || t.rollout.State.Ended() {
		return t.watch
	}
	if t.watch {
		return true
	}
	late := !t.rollout.Deadline.IsZero() && now.After(t.rollout.Deadline.Add(patience))
	return !late && (len(t.rollout.Versions) > 1 || t.rollout.LastHealthy != nil)
}

// fell reports whether the target's rollout failed, or was taken back.
func (t *target) fell() bool {
	return t.rollout != nil &&
		(t.rollout.State == cluster.RolloutFailed || t.rollout.State == cluster.RolloutRolledBack)
}

// lookAtRollout reads where the rollout of the service's generation stands. What it finds is in t.rollout, and how it
// ended in t.done.
func (t *target) lookAtRollout(ctx context.Context, c *client.Client, now time.Time) error {
	s := t.service
	if t.generation == 0 {
		t.generation = s.Generation
		// it was taken back before it was looked at
		if !t.watch && s.Rollout.Reverted >= max(t.least, 1) && s.Revision > t.revision {
			t.generation = s.Rollout.Reverted
		}
	}
	t.rollout = nil
	if s.Status.Rollout == "" && s.Generation == t.generation {
		return nil
	}
	if s.Status.Rollout == cluster.RolloutComplete && s.Generation == t.generation {
		return nil
	}
	v, err := c.Rollout(ctx, t.name.cluster, t.name.name)
	switch {
	case client.StatusOf(err) == http.StatusNotFound:
		return nil
	case err != nil:
		return err
	}
	t.rollout = &v
	if v.Generation != t.generation {
		return t.superseded(ctx, c)
	}
	if len(v.Versions) > 1 || v.Canaries != nil || v.State.Ended() {
		t.brief, t.line = fmt.Sprintf("%s %s", v.State, healthyOf(v.Versions)), rolloutLine(v)
	}
	t.remember(ctx, c, now)
	switch {
	case v.State == cluster.RolloutFailed || v.State == cluster.RolloutRolledBack:
		t.giveUp("its rollout " + rolloutEnd(v.Version))
	case v.State == cluster.RolloutSuperseded:
		t.giveUp("another version was asked for meanwhile")
	case v.State.Ended():
		t.rollout = nil
	case t.watch:
	case v.Paused:
		t.giveUp("its rollout is paused; 'berth rollout resume " + t.name.argument() + "' lets it go on")
	case v.State == cluster.RolloutCanary && !t.promoted && (v.Canaries == nil || !v.Canaries.Auto):
		t.done = true
		t.notice = "the canaries are healthy and wait: 'berth promote " + t.name.argument() +
			"' goes on, 'berth rollout undo " +
			t.name.argument() + "' goes back"
	}
	return nil
}

// tailEvery is how often the output of a new task that is not well is looked at.
const tailEvery = 2 * time.Second

// remember keeps the last lines of a task of the rollout that is not well yet. What cannot be read is told by nobody.
func (t *target) remember(ctx context.Context, c *client.Client, now time.Time) {
	if t.rollout.State != cluster.RolloutRolling || now.Sub(t.tailAt) < tailEvery {
		return
	}
	t.tailAt = now
	tasks, err := tasksOf(ctx, c, t.name, false)
	if err != nil {
		return
	}
	tasks = slices.DeleteFunc(newest(tasks), func(v api.TaskView) bool { return v.Generation != t.generation })
	worst := worstTask(tasks)
	if worst == nil || neverRan(*worst) {
		return
	}
	if lines := tailOf(ctx, c, *worst); len(lines) > 0 {
		t.tail, t.tailOf = lines, worst.ID
	}
}

// superseded says how the generation that was waited for ended, once another one is the newest.
func (t *target) superseded(ctx context.Context, c *client.Client) error {
	h, err := c.RolloutHistory(ctx, t.name.cluster, t.name.name)
	if err != nil && client.StatusOf(err) != http.StatusNotFound {
		return err
	}
	i := slices.IndexFunc(h.Versions, func(v api.VersionView) bool { return v.Generation == t.generation })
	if i < 0 || h.Versions[i].State != cluster.RolloutRolledBack && h.Versions[i].State != cluster.RolloutFailed {
		t.rollout = nil
		t.giveUp("another version was asked for meanwhile")
		return nil
	}
	back := t.rollout.Version // what is asked for instead
	t.rollout.Version = h.Versions[i].Version
	t.brief, t.line = string(t.rollout.State),
		fmt.Sprintf("%-11s  %s", t.rollout.State, shortTasks(oneLine(t.rollout.Message)))
	t.giveUp(fmt.Sprintf("its rollout %s; %s is asked for again", rolloutEnd(t.rollout.Version), back.Definition))
	return nil
}

// rolloutEnd says that a version failed, or that it was rolled back.
func rolloutEnd(v cluster.Version) string {
	if v.State == cluster.RolloutRolledBack {
		return "of " + v.Definition.String() + " failed and was rolled back"
	}
	return "of " + v.Definition.String() + " failed"
}

// rolloutLine says in a line where a rollout stands: "rolling  web@2: 1 of 3 healthy, web@1: 3 healthy; …".
func rolloutLine(v api.RolloutView) string {
	text := healthyOf(v.Versions)
	switch {
	case v.State.Ended():
		text = joinNonEmpty("; ", text, shortTasks(oneLine(v.Message)))
	case v.Paused:
		text += "; paused"
	case len(v.Waits) > 0:
		text += "; " + shortTasks(oneLine(v.Waits[0].Message))
	}
	return fmt.Sprintf("%-11s  %s", v.State, text)
}

// healthyOf says how many tasks of each version are healthy. Old versions of one definition are one.
func healthyOf(versions []api.VersionCount) string {
	restart := sameDefinition(versions) // the definition does not tell old and new apart
	var parts []string
	var old []cluster.Ref
	healthy := map[cluster.Ref]int{}
	for _, v := range versions {
		switch {
		case v.Newest && restart:
			parts = append(parts, fmt.Sprintf("new: %d of %d healthy", v.Healthy, max(v.Desired, v.Begun)))
		case v.Newest:
			parts = append(parts, fmt.Sprintf("%s: %d of %d healthy", v.Definition, v.Healthy, max(v.Desired, v.Begun)))
		default:
			if !slices.Contains(old, v.Definition) {
				old = append(old, v.Definition)
			}
			healthy[v.Definition] += v.Healthy
		}
	}
	for _, ref := range old {
		label := ref.String()
		if restart {
			label = "old"
		}
		parts = append(parts, fmt.Sprintf("%s: %d healthy", label, healthy[ref]))
	}
	return strings.Join(parts, ", ")
}

// sameDefinition reports whether several versions run the same definition.
func sameDefinition(versions []api.VersionCount) bool {
	return len(versions) > 1 && !slices.ContainsFunc(versions, func(v api.VersionCount) bool {
		return v.Definition != versions[0].Definition
	})
}

// rolloutTrouble tells why a rollout failed, with the task of the failed version that tells most.
func rolloutTrouble(t *target, tasks []api.TaskView) *trouble {
	failed := slices.DeleteFunc(slices.Clone(tasks), func(v api.TaskView) bool {
		return v.Generation != t.rollout.Generation
	})
	tr := trouble{
		object: t.name.String(), state: string(t.rollout.State), cause: shortTasks(oneLine(t.rollout.Message)),
		next: "berth rollout history " + t.name.argument() + " --diff",
	}
	if told := namedTask(t.rollout.Message, failed); told != nil {
		tr.task = told
	} else if len(failed) > 0 {
		slices.SortStableFunc(failed, func(x, y api.TaskView) int { return rank(x) - rank(y) })
		tr.task = &failed[0]
	}
	if tr.cause == "" {
		tr.cause = rolloutEnd(t.rollout.Version)
	}
	return &tr
}
