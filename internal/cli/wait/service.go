package wait

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// readChanged reads a service or job that the command has changed.
func (t *Target) readChanged(ctx context.Context, c *client.Client, now time.Time) error {
	best := t.maxHealthy
	var err error
	if t.Name.Kind == wording.KindJob {
		err = t.readJob(ctx, c)
	} else {
		err = t.readService(ctx, c, now)
	}
	if client.StatusOf(err) == http.StatusNotFound {
		t.giveUpAs("was deleted")
		err = nil
	}
	if err != nil {
		return err
	}
	t.readPreparing(ctx, c, now)
	if t.maxHealthy > best {
		t.progressAt = now
	}
	return nil
}

func (t *Target) readService(ctx context.Context, c *client.Client, now time.Time) error {
	v, err := c.Service(ctx, t.Name.Cluster, t.Name.Name)
	if err != nil || v.Revision < t.Revision || v.Generation < t.MinGeneration {
		return err
	}
	s := v.Status
	t.service = &v
	t.maxHealthy = max(t.maxHealthy, min(s.Healthy, s.Updated))
	t.Brief = fmt.Sprintf("%s %d", s.State, s.Healthy)
	t.Line = fmt.Sprintf("%-11s  %s", s.State, wording.OneLine(s.Message))
	if s.Message == "" {
		t.Line = fmt.Sprintf("%-11s  %d of %s healthy", s.State, s.Healthy, wording.Count(s.Desired, "task"))
	}
	isFailing := s.State == cluster.ServiceFailing || s.State == cluster.ServiceCrashLooping
	switch {
	case isFailing && t.failingSince.IsZero():
		t.failingSince = now
	case !isFailing && t.steady.restarts == 0: // after a restart, a healthy service may fail again in a moment
		t.failingSince = time.Time{}
	}
	if t.Stop {
		t.done = s.State == cluster.ServiceStopped
		t.failingSince = time.Time{}
		return nil
	}
	if err := t.readRollout(ctx, c, now); err != nil || t.done {
		return err
	}
	switch s.State {
	case cluster.ServiceStopped:
		t.done = true
	case cluster.ServiceHealthy:
		if s.Healthy >= s.Desired && s.Updated >= s.Desired && t.rollout == nil {
			t.done, err = t.isSteady(ctx, c, now)
		}
	case cluster.ServiceDeleting:
		t.giveUpAs("was deleted")
	}
	return err
}

// keepsFailing reports whether the service has failed for too long. It does not end the wait while the service is
// healthy again.
func (t *Target) keepsFailing(now time.Time) bool {
	if t.failingSince.IsZero() || t.service.Status.State == cluster.ServiceHealthy {
		return false
	}
	limit := failingTimeout
	if s := t.service.Status; s.State == cluster.ServiceFailing && s.Running >= s.Desired {
		limit = checksTimeout
	}
	return now.Sub(t.failingSince) >= limit
}

// steadyTime is how long a service whose tasks have just restarted must be healthy without another restart.
const steadyTime = 10 * time.Second

// steadiness is what is known of the restarts of a healthy service.
type steadiness struct {
	restarts int       // of all tasks
	since    time.Time // when the service was first seen healthy with these restarts
}

// isSteady reports whether a healthy service may be reported as such. A program that ends after a few seconds is
// healthy after each restart.
func (t *Target) isSteady(ctx context.Context, c *client.Client, now time.Time) (bool, error) {
	tasks, err := fetch.ListTasks(ctx, c, t.Name, false)
	if err != nil {
		return false, err
	}
	restarted := t.justRestarted(tasks, now)
	if restarted == nil {
		return true, nil
	}
	t.setLine(string(t.service.Status.State), fmt.Sprintf("%s was restarted; waiting until it has run for %s",
		string(restarted.ID), cluster.Duration(steadyTime)))
	return false, nil
}

// justRestarted returns a task whose last restart is less than steadyTime ago, or nil. By the clock of this machine, it
// is nil steadyTime after the first call with the same restarts, whatever the clocks of the nodes say.
func (t *Target) justRestarted(tasks []api.TaskView, now time.Time) (last *api.TaskView) {
	restarts := 0
	for i := range tasks {
		v := &tasks[i]
		if v.Restarts == 0 || v.State.Terminal() {
			continue
		}
		restarts += v.Restarts
		for j := range v.Containers {
			if now.Sub(v.Containers[j].Started) < steadyTime {
				last = v
			}
		}
	}
	if restarts != t.steady.restarts || t.steady.since.IsZero() {
		t.steady = steadiness{restarts, now}
	}
	if now.Sub(t.steady.since) >= steadyTime {
		return nil
	}
	return last
}

func (t *Target) readJob(ctx context.Context, c *client.Client) error {
	v, err := c.Job(ctx, t.Name.Cluster, t.Name.Name)
	if err != nil || v.Revision < t.Revision {
		return err
	}
	s := v.Status
	if t.job == nil && t.Unchanged && s.Done() {
		t.notice = "it ended before this command; 'berth restart " + t.Name.String() + "' runs it again"
	}
	t.job = &v
	t.Line = fmt.Sprintf("%-11s  %d of %s done", s.State, s.Succeeded, wording.Count(s.Total, "task"))
	if s.Running > 0 {
		t.Line += fmt.Sprintf(", %d running", s.Running)
	}
	if s.Failed > 0 {
		t.Line += fmt.Sprintf(", %d failed", s.Failed)
	}
	t.Brief = t.Line
	if _, why, found := strings.Cut(s.Message, "; "); found && !s.Done() { // "0/1 succeeded; squares.1.all.0 was …"
		t.Line += "; " + wording.OneLine(why)
	}
	switch {
	case s.State == cluster.JobSucceeded, t.Stop && s.Done():
		t.done = true
	case s.Done() || s.State == cluster.JobDeleting:
		t.giveUpAs(jobEnd(s.State))
	}
	return nil
}

// jobEnd says how a job ended without success, as the continuation of its name.
func jobEnd(s api.JobState) string {
	switch s {
	case cluster.JobFailed:
		return "failed"
	case cluster.JobCancelled:
		return "was cancelled"
	case cluster.JobDeleting:
		return "is being deleted"
	default:
		return "is " + string(s)
	}
}
