package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/berthd/berth/api"
)

// Version returns the server's version.
func (c *Client) Version(ctx context.Context) (v api.Version, err error) {
	_, err = c.call(ctx, get("version"), &v)
	return v, err
}

// Apply writes a set of objects, all or none. With DryRun it writes nothing and returns the changes.
func (c *Client) Apply(ctx context.Context, req api.ApplyRequest) (reply api.ApplyReply, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: []string{"apply"}, body: req}, &reply)
	return reply, err
}

// Clusters lists the clusters.
func (c *Client) Clusters(ctx context.Context, o ListOptions) (api.Page[api.ClusterView], error) {
	return list[api.ClusterView](ctx, c, get("clusters"), o)
}

// Cluster returns a cluster.
func (c *Client) Cluster(ctx context.Context, name string) (v api.ClusterView, err error) {
	_, err = c.call(ctx, get("clusters", name), &v)
	return v, err
}

// PutCluster writes a cluster and returns its revision.
func (c *Client) PutCluster(ctx context.Context, v api.Cluster, cond Condition) (uint64, error) {
	return c.put(ctx, v, cond, "clusters", v.Name)
}

// DeleteCluster deletes an empty cluster.
func (c *Client) DeleteCluster(ctx context.Context, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "clusters", name)
}

// Definitions lists all versions of all task definitions.
func (c *Client) Definitions(ctx context.Context, o ListOptions) (api.Page[api.DefinitionView], error) {
	return list[api.DefinitionView](ctx, c, get("definitions"), o)
}

// DefinitionVersions lists all versions of a task definition.
func (c *Client) DefinitionVersions(ctx context.Context, name string, o ListOptions) (api.Page[api.DefinitionView],
	error,
) {
	return list[api.DefinitionView](ctx, c, get("definitions", name), o)
}

// Definition returns one version of a task definition.
func (c *Client) Definition(ctx context.Context, ref api.Ref) (v api.DefinitionView, err error) {
	_, err = c.call(ctx, get("definitions", ref.Name, strconv.Itoa(ref.Version)), &v)
	return v, err
}

// PutDefinition writes a version of a task definition. A repetition changes nothing. Other content under the same
// version is refused with 409.
func (c *Client) PutDefinition(ctx context.Context, v api.TaskDefinition) (uint64, error) {
	return c.put(ctx, v, Condition{}, "definitions", v.Name, strconv.Itoa(v.Version))
}

// DeleteDefinition removes an unused version of a task definition; one in use is refused with 409.
func (c *Client) DeleteDefinition(ctx context.Context, ref api.Ref, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "definitions", ref.Name, strconv.Itoa(ref.Version))
}

// Services lists the services of a cluster, or of all clusters if it is "".
func (c *Client) Services(ctx context.Context, in string, o ListOptions) (api.Page[api.ServiceView], error) {
	return list[api.ServiceView](ctx, c, get(within(in, "services")...), o)
}

// Service returns a service with its status.
func (c *Client) Service(ctx context.Context, in, name string) (v api.ServiceView, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name), &v)
	return v, err
}

// PutService writes a service and returns its revision.
func (c *Client) PutService(ctx context.Context, v api.Service, cond Condition) (uint64, error) {
	v.Cluster = orDefault(v.Cluster)
	return c.put(ctx, v, cond, "clusters", v.Cluster, "services", v.Name)
}

// DeleteService stops a service's tasks and removes it.
func (c *Client) DeleteService(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "clusters", in, "services", name)
}

// ScaleService sets a service's count.
func (c *Client) ScaleService(ctx context.Context, in, name string, count int, cond Condition) error {
	return c.act(ctx, http.MethodPost, api.ScaleRequest{Count: &count}, cond, "clusters", in, "services", name, "scale")
}

// StopService ends a service's tasks and keeps its spec and count.
func (c *Client) StopService(ctx context.Context, in, name string) error {
	return c.act(ctx, http.MethodPost, nil, Condition{}, "clusters", in, "services", name, "stop")
}

// StartService runs a stopped service's tasks again.
func (c *Client) StartService(ctx context.Context, in, name string) error {
	return c.act(ctx, http.MethodPost, nil, Condition{}, "clusters", in, "services", name, "start")
}

// RestartService replaces a service's tasks, one at a time.
func (c *Client) RestartService(ctx context.Context, in, name string) error {
	return c.act(ctx, http.MethodPost, nil, Condition{}, "clusters", in, "services", name, "restart")
}

// Jobs lists the jobs of a cluster, or of all clusters if it is "".
func (c *Client) Jobs(ctx context.Context, in string, o ListOptions) (api.Page[api.JobView], error) {
	return list[api.JobView](ctx, c, get(within(in, "jobs")...), o)
}

// Job returns a job with its status.
func (c *Client) Job(ctx context.Context, in, name string) (v api.JobView, err error) {
	_, err = c.call(ctx, get("clusters", in, "jobs", name), &v)
	return v, err
}

// PutJob writes a job and returns its revision.
func (c *Client) PutJob(ctx context.Context, v api.Job, cond Condition) (uint64, error) {
	v.Cluster = orDefault(v.Cluster)
	return c.put(ctx, v, cond, "clusters", v.Cluster, "jobs", v.Name)
}

// DeleteJob stops a job's tasks and removes it.
func (c *Client) DeleteJob(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "clusters", in, "jobs", name)
}

// StopJob cancels a job.
func (c *Client) StopJob(ctx context.Context, in, name string) error {
	return c.act(ctx, http.MethodPost, nil, Condition{}, "clusters", in, "jobs", name, "stop")
}

// RestartJob runs all tasks of a job again.
func (c *Client) RestartJob(ctx context.Context, in, name string) error {
	return c.act(ctx, http.MethodPost, nil, Condition{}, "clusters", in, "jobs", name, "restart")
}

// HoldJob lets no task of a job begin any more. Running tasks continue.
func (c *Client) HoldJob(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "jobs", name, "hold")
}

// ReleaseJob ends the hold of a job.
func (c *Client) ReleaseJob(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "jobs", name, "release")
}

// SetJobPriority sets the priority of a job's tasks that are not placed yet, 1 to api.MaxPriority.
func (c *Client) SetJobPriority(ctx context.Context, in, name string, priority api.Priority, cond Condition) error {
	return c.act(ctx, http.MethodPost, api.PriorityRequest{Priority: priority}, cond, "clusters", in, "jobs", name,
		"priority")
}

// RetryJob has failed tasks of a job tried again: those with the ids, or without ids all of them. It returns a problem
// with status 409 if one of them has not failed, or none has.
func (c *Client) RetryJob(ctx context.Context, in, name string, tasks []api.TaskID, cond Condition) error {
	return c.act(ctx, http.MethodPost, api.RetryRequest{Tasks: tasks}, cond, "clusters", in, "jobs", name, "retry")
}

// Nodes lists the nodes.
func (c *Client) Nodes(ctx context.Context, o ListOptions) (api.Page[api.NodeView], error) {
	return list[api.NodeView](ctx, c, get("nodes"), o)
}

// Node returns a node.
func (c *Client) Node(ctx context.Context, name string) (v api.NodeView, err error) {
	_, err = c.call(ctx, get("nodes", name), &v)
	return v, err
}

// PutHost writes the operator's settings of a node.
func (c *Client) PutHost(ctx context.Context, v api.Host, cond Condition) (uint64, error) {
	return c.put(ctx, v, cond, "nodes", v.Name)
}

func (c *Client) put(ctx context.Context, v any, cond Condition, path ...string) (uint64, error) {
	return c.call(ctx, request{method: http.MethodPut, path: path, body: v}.given(cond), nil)
}

// act sends a request and ignores the body of its answer.
func (c *Client) act(ctx context.Context, method string, body any, cond Condition, path ...string) error {
	_, err := c.call(ctx, request{method: method, path: path, body: body}.given(cond), nil)
	return err
}

// within returns the path of a list in one cluster or in all.
func within(in, noun string) []string {
	if in == "" {
		return []string{noun}
	}
	return []string{"clusters", in, noun}
}

func orDefault(name string) string {
	if name == "" {
		return api.DefaultCluster
	}
	return name
}
