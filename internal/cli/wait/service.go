package wait

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
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
	t.Line = fmt.Sprintf("%-11s  %s", s.State, wording.ShortTasks(wording.OneLine(s.Message)))
	if s.Message == "" {
		t.Line = fmt.Sprintf("%-11s  %d of %s healthy", s.State, s.Healthy, wording.Count(s.Desired, "task"))
	}
	switch {
	case s.State != cluster.ServiceFailing:
		t.failingSince = time.Time{}
	case t.failingSince.IsZero():
		t.failingSince = now
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
		t.done = s.Healthy >= s.Desired && s.Updated >= s.Desired && t.rollout == nil
	case cluster.ServiceDeleting:
		t.giveUpAs("was deleted")
	}
	return nil
}

func (t *Target) readJob(ctx context.Context, c *client.Client) error {
	v, err := c.Job(ctx, t.Name.Cluster, t.Name.Name)
	if err != nil || v.Revision < t.Revision {
		return err
	}
	s := v.Status
	t.job = &v
	t.Line = fmt.Sprintf("%-11s  %d of %s done", s.State, s.Succeeded, wording.Count(s.Total, "task"))
	if s.Running > 0 {
		t.Line += fmt.Sprintf(", %d running", s.Running)
	}
	if s.Failed > 0 {
		t.Line += fmt.Sprintf(", %d failed", s.Failed)
	}
	t.Brief = t.Line
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
