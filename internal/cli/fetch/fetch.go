// Package fetch has the API reads that several commands share.
package fetch

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// ListCronJobs returns the jobs that a cron made, the newest first.
func ListCronJobs(ctx context.Context, c *client.Client, v api.CronView) ([]api.JobView, error) {
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

// ListServers returns the servers. Servers that are down come first.
func ListServers(ctx context.Context, c *client.Client) ([]api.ServerView, error) {
	servers, _, err := client.All(ctx, client.ListOptions{}, c.Servers)
	slices.SortStableFunc(servers, func(x, y api.ServerView) int {
		return cmp.Or(cmp.Compare(session.ServerRank(x), session.ServerRank(y)), cmp.Compare(x.Name, y.Name),
			cmp.Compare(x.ID, y.ID))
	})
	return servers, err
}

// ListTasks returns the tasks of an owner. With all, attempts that ended are included.
func ListTasks(ctx context.Context, c *client.Client, n session.Name, all bool) ([]api.TaskView, error) {
	return session.ListTasks(ctx, c, TasksOf(n, all))
}

// TasksOf returns the filter of the tasks of an owner. With all, attempts that ended are included.
func TasksOf(n session.Name, all bool) client.TaskFilter {
	f := client.TaskFilter{Cluster: n.Cluster, All: all}
	if n.Kind == wording.KindJob {
		f.Job = n.Name
	} else {
		f.Service = n.Name
	}
	return f
}

// Overview is the content of `berth status` without an argument.
type Overview struct {
	// Status has the alarms, the servers and the store.
	Status api.Status `json:"status"`
	// Troubles are sorted by urgency.
	Troubles []api.Trouble     `json:"troubles"`
	Services []api.ServiceView `json:"services"`
	Jobs     []api.JobView     `json:"jobs"`
	Nodes    []api.NodeView    `json:"nodes"`
	Crons    []api.CronView    `json:"crons"`
}

// ReadOverview reads the overview, with the services, jobs and crons of a cluster, or of all for "", that the options
// select, and their troubles. In each list the objects that need attention come first.
func ReadOverview(ctx context.Context, c *client.Client, in string, o client.ListOptions) (all Overview, err error) {
	if all.Status, err = c.Status(ctx); err != nil {
		return all, err
	}
	all.Troubles, _, err = client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.Trouble], error) {
			return c.Troubles(ctx, client.TroubleFilter{}, o)
		})
	if err != nil {
		return all, err
	}
	if all.Nodes, err = session.ListNodes(ctx, c, ""); err != nil {
		return all, err
	}
	all.Troubles = slices.DeleteFunc(all.Troubles, func(t api.Trouble) bool { return !isAbout(t, in) })
	owners, err := ListOwners(ctx, c, in, o)
	all.Services, all.Jobs, all.Crons = owners.Services, owners.Jobs, owners.Crons
	if o.Selector != "" {
		all.keepOwnTroubles()
	}
	all.Troubles, all.Nodes = output.EmptyIfNil(all.Troubles), output.EmptyIfNil(all.Nodes)
	return all, err
}

// keepOwnTroubles removes the troubles of others than the services, jobs and crons of the overview.
func (o *Overview) keepOwnTroubles() {
	kept := map[string]bool{}
	for _, v := range o.Services {
		kept[session.ServiceName(v).String()] = true
	}
	for _, v := range o.Jobs {
		kept[session.Name{Kind: wording.KindJob, Cluster: v.Cluster, Name: v.Name}.String()] = true
	}
	for _, v := range o.Crons {
		kept[session.CronName(v).String()] = true
	}
	o.Troubles = slices.DeleteFunc(o.Troubles, func(t api.Trouble) bool { return !kept[t.Object] })
}

// isAbout reports whether a trouble is about a cluster, or about an object without a cluster, such as a node.
func isAbout(t api.Trouble, in string) bool {
	parts := strings.Split(t.Object, "/")
	switch {
	case in == "":
		return true
	case len(parts) == 3:
		return parts[0] == in
	case parts[0] == wording.KindTask:
		p, ok := cluster.TaskID(parts[1]).Parts()
		return ok && p.Cluster == in
	}
	return parts[0] == wording.KindNode
}

// Owners are the services, jobs and crons.
type Owners struct {
	Services []api.ServiceView
	Jobs     []api.JobView
	Crons    []api.CronView
}

// ListOwners reads the services, jobs and crons of a cluster, or of all for "", that the options select. Those that
// need attention come first.
func ListOwners(ctx context.Context, c *client.Client, in string, o client.ListOptions) (all Owners, err error) {
	if all.Services, _, err = client.All(ctx, client.ListOptions{Selector: o.Selector},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, in, o)
		}); err != nil {
		return all, err
	}
	if all.Jobs, _, err = client.All(ctx, client.ListOptions{Selector: o.Selector, Brief: o.Brief},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, in, o)
		}); err != nil {
		return all, err
	}
	if all.Crons, err = session.ListCrons(ctx, c, in, o.Selector); err != nil {
		return all, err
	}
	slices.SortStableFunc(all.Services, func(x, y api.ServiceView) int {
		return cmp.Or(cmp.Compare(serviceRank(x.Status.State), serviceRank(y.Status.State)),
			cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Name, y.Name))
	})
	slices.SortStableFunc(all.Jobs, func(x, y api.JobView) int {
		return cmp.Or(cmp.Compare(jobRank(x.Status.State), jobRank(y.Status.State)),
			cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Name, y.Name))
	})
	all.Services = output.EmptyIfNil(all.Services)
	all.Jobs = output.EmptyIfNil(all.Jobs)
	all.Crons = output.EmptyIfNil(all.Crons)
	return all, nil
}

// serviceRank returns the sort rank of a service's state. States that need attention come first.
func serviceRank(s api.ServiceState) int {
	return rank(s, cluster.ServiceFailing, cluster.ServiceRolloutFailed, cluster.ServiceCrashLooping,
		cluster.ServiceDegraded, cluster.ServiceCanary, cluster.ServicePaused, cluster.ServiceStarting,
		cluster.ServiceRollingOut, cluster.ServiceStopping, cluster.ServiceDeleting, cluster.ServiceHealthy,
		cluster.ServiceStopped)
}

// jobRank returns the sort rank of a job's state. States that need attention come first.
func jobRank(s api.JobState) int {
	return rank(s, cluster.JobFailed, cluster.JobPending, cluster.JobDeleting, cluster.JobRunning, cluster.JobSucceeded,
		cluster.JobCancelled)
}

// rank returns the position of a state in an order. States that the order lacks come last.
func rank[S ~string](state S, order ...S) int {
	if i := slices.Index(order, state); i >= 0 {
		return i
	}
	return len(order)
}

// ListAttempts returns the known attempts of a task: first the pending one, then the newest.
func ListAttempts(ctx context.Context, c *client.Client, t api.TaskView) ([]api.TaskView, error) {
	all, err := ListTasks(ctx, c, session.OwnerName(t.Owner), true)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v api.TaskView) bool { return v.ID != t.ID })
	if !slices.ContainsFunc(all, func(v api.TaskView) bool { return v.Attempt == t.Attempt }) {
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(x, y api.TaskView) int {
		return cmp.Or(-session.CompareBools(x.State == cluster.StatePending, y.State == cluster.StatePending),
			cmp.Compare(y.Attempt, x.Attempt))
	})
	return all, nil
}
