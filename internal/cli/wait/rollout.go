package wait

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/trouble"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// AwaitService waits until a service has its wanted state, shows the progress of its rollout, and prints the result.
func AwaitService(ctx context.Context, sess *session.Session, c *client.Client, t *Target) error {
	w := Waiter{Session: sess, Client: c, Targets: []*Target{t}}
	return w.Await(ctx, "the rollout continues. See 'berth rollout status "+t.Name.String()+"'.")
}

// isRolling reports whether a rollout with an older version is in progress. The control plane's deadlines end it, so
// the client does not. A client gives up a rollout that is progressTimeout past its deadline, unless it watches.
func (t *Target) isRolling(now time.Time) bool {
	if t.rollout == nil || t.rollout.State.Ended() {
		return t.Watch
	}
	if t.Watch {
		return true
	}
	late := !t.rollout.Deadline.IsZero() && now.After(t.rollout.Deadline.Add(progressTimeout))
	return !late && (len(t.rollout.Versions) > 1 || t.rollout.LastHealthy != nil)
}

// hasFailedRollout reports whether the target's rollout failed or was rolled back.
func (t *Target) hasFailedRollout() bool {
	return t.rollout != nil &&
		(t.rollout.State == cluster.RolloutFailed || t.rollout.State == cluster.RolloutRolledBack)
}

// readRollout reads the rollout of the service's generation. It sets t.rollout, and t.done if the rollout ended.
func (t *Target) readRollout(ctx context.Context, c *client.Client, now time.Time) error {
	s := t.service
	if t.generation == 0 {
		t.generation = s.Generation
		// The rollout was rolled back before the first read.
		if !t.Watch && s.Rollout.Reverted >= max(t.MinGeneration, 1) && s.Revision > t.Revision {
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
	v, err := c.Rollout(ctx, t.Name.Cluster, t.Name.Name)
	switch {
	case client.StatusOf(err) == http.StatusNotFound:
		return nil
	case err != nil:
		return err
	}
	t.rollout = &v
	if v.Generation != t.generation {
		return t.resolveSuperseded(ctx, c)
	}
	if len(v.Versions) > 1 || v.Canaries != nil || v.State.Ended() {
		t.Brief, t.Line = fmt.Sprintf("%s %s", v.State, tables.HealthyByVersion(v.Versions)), rolloutLine(v)
	}
	t.keepTail(ctx, c, now)
	switch {
	case v.State == cluster.RolloutFailed || v.State == cluster.RolloutRolledBack:
		t.giveUp("its rollout " + rolloutEnd(v.Version))
	case v.State == cluster.RolloutSuperseded:
		t.giveUp("a newer version replaced it")
	case v.State.Ended():
		t.rollout = nil
	case t.Watch:
	case v.Paused:
		t.giveUp("its rollout is paused; 'berth rollout resume " + t.Name.String() + "' continues it")
	case v.State == cluster.RolloutCanary && !t.Promoted && (v.Canaries == nil || !v.Canaries.Auto):
		t.done = true
		t.notice = "the canaries are healthy and wait: 'berth promote " + t.Name.String() + "' continues, " +
			"'berth rollout undo " + t.Name.String() + "' rolls back"
	}
	return nil
}

// tailInterval is the interval between reads of an unhealthy new task's output.
const tailInterval = 2 * time.Second

// keepTail keeps the last output lines of an unhealthy new task, because a rollback deletes it. Errors are ignored.
func (t *Target) keepTail(ctx context.Context, c *client.Client, now time.Time) {
	if t.rollout.State != cluster.RolloutRolling || now.Sub(t.tail.readAt) < tailInterval {
		return
	}
	t.tail.readAt = now
	tasks, err := fetch.ListTasks(ctx, c, t.Name, false)
	if err != nil {
		return
	}
	tasks = slices.DeleteFunc(session.KeepNewest(tasks), func(v api.TaskView) bool {
		return v.Generation != t.generation
	})
	worst := taskview.Worst(tasks)
	if worst == nil || taskview.NeverRan(*worst) {
		return
	}
	if lines := trouble.ReadTail(ctx, c, worst.ID); len(lines) > 0 {
		t.tail.lines, t.tail.task = lines, worst.ID
	}
}

// resolveSuperseded finds the result of the target's generation after a newer one replaced it.
func (t *Target) resolveSuperseded(ctx context.Context, c *client.Client) error {
	h, err := c.RolloutHistory(ctx, t.Name.Cluster, t.Name.Name)
	if err != nil && client.StatusOf(err) != http.StatusNotFound {
		return err
	}
	i := slices.IndexFunc(h.Versions, func(v api.VersionView) bool { return v.Generation == t.generation })
	if i < 0 || h.Versions[i].State != cluster.RolloutRolledBack && h.Versions[i].State != cluster.RolloutFailed {
		t.rollout = nil
		t.giveUp("a newer version replaced it")
		return nil
	}
	back := t.rollout.Version // the version that the service requests instead
	t.rollout.Version = h.Versions[i].Version
	// the failure says it
	t.rollout.Message = strings.TrimSuffix(t.rollout.Message, "; rolled back to "+back.Definition.String())
	t.Brief, t.Line = string(t.rollout.State),
		fmt.Sprintf("%-11s  %s", t.rollout.State, wording.OneLine(t.rollout.Message))
	t.giveUp(fmt.Sprintf("its rollout of %s failed; rolled back to %s", t.rollout.Version.Definition, back.Definition))
	return nil
}

// rolloutEnd says that a version failed or was rolled back.
func rolloutEnd(v cluster.Version) string {
	if v.State == cluster.RolloutRolledBack {
		return "of " + v.Definition.String() + " failed and was rolled back"
	}
	return "of " + v.Definition.String() + " failed"
}

// rolloutLine describes a rollout in one line: "rolling  web@2: 1 of 3 healthy, web@1: 3 healthy; …".
func rolloutLine(v api.RolloutView) string {
	text := tables.HealthyByVersion(v.Versions)
	switch {
	case v.State.Ended():
		text = wording.JoinNonEmpty("; ", text, wording.OneLine(v.Message))
	case v.Paused:
		text += "; paused"
	case len(v.Waits) > 0:
		text += "; " + wording.OneLine(v.Waits[0].Message)
	}
	return fmt.Sprintf("%-11s  %s", v.State, text)
}

// rolloutTrouble describes why a rollout failed, with the most severe task of the failed version.
func rolloutTrouble(t *Target, tasks []api.TaskView) *api.Trouble {
	failed := slices.DeleteFunc(slices.Clone(tasks), func(v api.TaskView) bool {
		return v.Generation != t.rollout.Generation
	})
	tr := api.Trouble{
		Object: t.Name.String(), State: string(t.rollout.State),
		Cause: wording.OneLine(t.rollout.Message),
		Next:  "berth rollout history " + t.Name.String() + " --diff",
	}
	if named := taskview.Named(t.rollout.Message, failed); named != nil {
		tr.Task = named.ID
	} else if len(failed) > 0 {
		slices.SortStableFunc(failed, func(x, y api.TaskView) int {
			return taskview.Severity(x) - taskview.Severity(y)
		})
		tr.Task = failed[0].ID
	}
	if tr.Cause == "" {
		tr.Cause = rolloutEnd(t.rollout.Version)
	}
	return &tr
}
