package fetch

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// JobsOf returns the jobs that a cron made, the newest first.
func JobsOf(ctx context.Context, c *client.Client, v api.CronView) ([]api.JobView, error) {
	jobs, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, v.Cluster, o)
		})
	jobs = slices.DeleteFunc(jobs, func(j api.JobView) bool { return j.Cron != v.Name })
	slices.SortStableFunc(jobs, func(x, y api.JobView) int {
		return cmp.Or(y.Created.Compare(x.Created), y.At.Compare(x.At), cmp.Compare(y.Name, x.Name))
	})
	return jobs, err
}

// AllServers returns the servers, trouble first.
func AllServers(ctx context.Context, c *client.Client) ([]api.ServerView, error) {
	servers, _, err := client.All(ctx, client.ListOptions{}, c.Servers)
	slices.SortStableFunc(servers, func(x, y api.ServerView) int {
		return cmp.Or(cmp.Compare(session.ServerRank(x), session.ServerRank(y)), cmp.Compare(x.Name, y.Name),
			cmp.Compare(x.ID, y.ID))
	})
	return servers, err
}

// TasksOf returns the tasks of an owner.
func TasksOf(ctx context.Context, c *client.Client, n session.Name, all bool) ([]api.TaskView, error) {
	f := client.TaskFilter{Cluster: n.Cluster, All: all}
	if n.Kind == session.KindJob {
		f.Job = n.Name
	} else {
		f.Service = n.Name
	}
	return session.AllTasks(ctx, c, f)
}

// Everything is what an overview shows, and prints as JSON.
type Everything struct {
	// Status is the head: alarms, servers, the store; nil where the server is too old to tell.
	Status   *api.Status       `json:"status,omitempty"`
	Services []api.ServiceView `json:"services"`
	Jobs     []api.JobView     `json:"jobs"`
	Nodes    []api.NodeView    `json:"nodes"`
	Tasks    []api.TaskView    `json:"tasks"`
	Crons    []api.CronView    `json:"crons,omitempty"`
}

// All reads everything that the status page shows. A server without a status answers with the objects alone.
func All(ctx context.Context, c *client.Client) (all Everything, err error) {
	none := client.ListOptions{}
	switch head, err := c.Status(ctx); {
	case err == nil:
		all.Status = &head
	case client.StatusOf(err) != http.StatusNotFound:
		return all, err
	}
	if all.Services, _, err = client.All(ctx, none,
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, "", o)
		}); err != nil {
		return all, err
	}
	if all.Jobs, _, err = client.All(ctx, none,
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, "", o)
		}); err != nil {
		return all, err
	}
	// an older server has none
	if all.Crons, err = session.AllCrons(ctx, c, ""); err != nil && client.StatusOf(err) != http.StatusNotFound {
		return all, err
	}
	if all.Nodes, err = session.AllNodes(ctx, c); err != nil {
		return all, err
	}
	tasks, err := session.AllTasks(ctx, c, client.TaskFilter{})
	all.Tasks = session.Newest(tasks)
	slices.SortStableFunc(all.Services, func(x, y api.ServiceView) int {
		return cmp.Or(cmp.Compare(session.StateRank(x.Status.State), session.StateRank(y.Status.State)),
			cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Name, y.Name))
	})
	slices.SortStableFunc(all.Jobs, func(x, y api.JobView) int {
		return cmp.Or(cmp.Compare(session.StateRank(x.Status.State), session.StateRank(y.Status.State)),
			cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Name, y.Name))
	})
	return all, err
}

// AttemptsOf returns all attempts of a task that are known: one that it waits for first, then the newest.
func AttemptsOf(ctx context.Context, c *client.Client, t api.TaskView) ([]api.TaskView, error) {
	all, err := TasksOf(ctx, c, session.OwnerName(t.Owner), true)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v api.TaskView) bool { return v.ID != t.ID })
	if !slices.ContainsFunc(all, func(v api.TaskView) bool { return v.Attempt == t.Attempt }) {
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(x, y api.TaskView) int {
		return cmp.Or(-session.BoolCompare(x.State == cluster.StatePending, y.State == cluster.StatePending),
			cmp.Compare(y.Attempt, x.Attempt))
	})
	return all, nil
}
