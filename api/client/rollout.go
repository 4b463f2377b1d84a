package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Rollout returns where the rollout of a service's newest version stands.
func (c *Client) Rollout(ctx context.Context, in, name string) (v api.RolloutView, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name, "rollout"), &v)
	return v, err
}

// RolloutHistory returns the versions of a service that are remembered, with what each changed.
func (c *Client) RolloutHistory(ctx context.Context, in, name string) (v api.RolloutHistory, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name, "rollout", "history"), &v)
	return v, err
}

// PauseRollout holds a service's rollout where it is; a later version waits as well.
func (c *Client) PauseRollout(ctx context.Context, in, name string, cond Condition) (api.RolloutView, error) {
	return c.rollout(ctx, nil, cond, in, name, "pause")
}

// ResumeRollout lets a paused rollout go on.
func (c *Client) ResumeRollout(ctx context.Context, in, name string, cond Condition) (api.RolloutView, error) {
	return c.rollout(ctx, nil, cond, in, name, "resume")
}

// PromoteRollout goes on with a rollout whose canaries wait. One without such canaries, or of another generation than
// the one that is named, is refused with 409; canaries that were promoted already are no error.
func (c *Client) PromoteRollout(ctx context.Context, in, name string, p api.PromoteRequest,
	cond Condition,
) (api.RolloutView, error) {
	return c.rollout(ctx, p, cond, in, name, "promote")
}

// UndoRollout asks for an earlier version of a service again. Where there is none it is refused with 409, with the
// versions that are known. With From it may be asked for twice: what was undone already is no error.
func (c *Client) UndoRollout(ctx context.Context, in, name string, u api.UndoRequest, cond Condition) (api.RolloutView,
	error,
) {
	return c.rollout(ctx, u, cond, in, name, "undo")
}

func (c *Client) rollout(ctx context.Context, body any, cond Condition, in, name, verb string) (v api.RolloutView,
	err error,
) {
	path := []string{"clusters", in, "services", name, "rollout", verb}
	_, err = c.call(ctx, request{method: http.MethodPost, path: path, body: body}.given(cond), &v)
	return v, err
}

// Scale returns the count of a service and what changes it.
func (c *Client) Scale(ctx context.Context, in, name string) (v api.ScaleView, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name, "scale"), &v)
	return v, err
}

// SetScale sets a service's count, and the bounds of its scaling; what is nil stays.
func (c *Client) SetScale(ctx context.Context, in, name string, s api.ScaleRequest, cond Condition) error {
	return c.act(ctx, http.MethodPost, s, cond, "clusters", in, "services", name, "scale")
}

// SuspendScaling leaves the count of a service with scaling where it is. A service without scaling is refused with 409.
func (c *Client) SuspendScaling(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "services", name, "scale", "suspend")
}

// ResumeScaling lets scaling change the count again.
func (c *Client) ResumeScaling(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "services", name, "scale", "resume")
}

// ExplainService says why a service is as it is.
func (c *Client) ExplainService(ctx context.Context, in, name string) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name, "explain"), &v)
	return v, err
}

// ExplainJob says why a job is as it is.
func (c *Client) ExplainJob(ctx context.Context, in, name string) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("clusters", in, "jobs", name, "explain"), &v)
	return v, err
}

// ExplainTask says why a task is as it is: what it waits for, what its stop waits for, why it moves, how it crashes.
func (c *Client) ExplainTask(ctx context.Context, id api.TaskID) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("tasks", string(id), "explain"), &v)
	return v, err
}

// ExplainTaskOn is ExplainTask with a word on one node: why the task is not there, or whether it could be.
func (c *Client) ExplainTaskOn(ctx context.Context, id api.TaskID, node string) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("tasks", string(id), "explain").with(onNode(node)), &v)
	return v, err
}
