package stream

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// pickTask returns the task of an argument: a task, or a service or job. Of a service or job it picks the first healthy
// task, or the first running one, and prints which.
func pickTask(cmd *cobra.Command, sess *session.Session, c *client.Client, text string) (api.TaskView, error) {
	n, err := sess.FindObject(cmd, c, text, wording.KindService, wording.KindJob, wording.KindTask)
	if err != nil {
		return api.TaskView{}, err
	}
	if n.Kind == wording.KindTask {
		return sess.FindTask(cmd.Context(), c, n.Name)
	}
	if n, err = n.Resolve(cmd.Context(), c); err != nil {
		return api.TaskView{}, err
	}
	return pickOwnersTask(cmd.Context(), sess, c, n)
}

// pickOwnersTask picks a task of a service or job and prints which.
func pickOwnersTask(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) (api.TaskView,
	error,
) {
	tasks, err := fetch.ListTasks(ctx, c, n, false)
	if err != nil {
		return api.TaskView{}, err
	}
	running := slices.DeleteFunc(session.KeepNewest(tasks), func(v api.TaskView) bool {
		return v.State != cluster.StateRunning || taskview.Unreachable(v)
	})
	if len(running) == 0 {
		return api.TaskView{}, &hinted.Error{
			Err: fmt.Errorf("%s has no running task", n), Hint: "See 'berth explain " + n.String() + "'.",
		}
	}
	healthy := slices.DeleteFunc(slices.Clone(running), func(v api.TaskView) bool {
		return v.Health != cluster.HealthHealthy
	})
	picked, choice := running[0], wording.Count(len(running), "running task")
	if len(healthy) > 0 {
		picked, choice = healthy[0], wording.Count(len(healthy), "healthy task")
	}
	sess.Messagef("berth: task %s (%s has %s)", string(picked.ID), n, choice)
	return picked, nil
}
