package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Rollout returns the state of the rollout of a service's newest version.
func (c *Client) Rollout(ctx context.Context, in, name string) (v api.RolloutView, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name, "rollout"), &v)
	return v, err
}

// RolloutHistory returns the recorded versions of a service, with the changes of each.
func (c *Client) RolloutHistory(ctx context.Context, in, name string) (v api.RolloutHistory, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name, "rollout", "history"), &v)
	return v, err
}

// PauseRollout pauses a service's rollout; a later version waits as well.
func (c *Client) PauseRollout(ctx context.Context, in, name string, cond Condition) (api.RolloutView, error) {
	return c.rollout(ctx, nil, cond, in, name, "pause")
}

// ResumeRollout continues a paused rollout.
func (c *Client) ResumeRollout(ctx context.Context, in, name string, cond Condition) (api.RolloutView, error) {
	return c.rollout(ctx, nil, cond, in, name, "resume")
}

// PromoteRollout continues a rollout whose canaries wait. It is refused with 409 without such canaries, or for another
// generation than the requested one. A repetition is no error.
func (c *Client) PromoteRollout(ctx context.Context, in, name string, p api.PromoteRequest,
	cond Condition,
) (api.RolloutView, error) {
	return c.rollout(ctx, p, cond, in, name, "promote")
}

// UndoRollout asks a service to return to an earlier version. Without one it is refused with 409 and the known
// versions. With From, a repetition is no error.
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

// SetScale sets a service's count and the bounds of its scaling; nil fields stay unchanged.
func (c *Client) SetScale(ctx context.Context, in, name string, s api.ScaleRequest, cond Condition) error {
	return c.act(ctx, http.MethodPost, s, cond, "clusters", in, "services", name, "scale")
}

// SuspendScaling fixes the count of a service with scaling. A service without scaling is refused with 409.
func (c *Client) SuspendScaling(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "services", name, "scale", "suspend")
}

// ResumeScaling lets scaling change the count again.
func (c *Client) ResumeScaling(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "services", name, "scale", "resume")
}

// ExplainService returns the reasons for the state of a service.
func (c *Client) ExplainService(ctx context.Context, in, name string) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("clusters", in, "services", name, "explain"), &v)
	return v, err
}

// ExplainJob returns the reasons for the state of a job.
func (c *Client) ExplainJob(ctx context.Context, in, name string) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("clusters", in, "jobs", name, "explain"), &v)
	return v, err
}

// ExplainTask returns the reasons for the state of a task: a wait, a pending stop, a move, a crash.
func (c *Client) ExplainTask(ctx context.Context, id api.TaskID) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("tasks", string(id), "explain"), &v)
	return v, err
}

// ExplainTaskOn is ExplainTask with an answer about one node: why the task is not there, or whether it could be.
func (c *Client) ExplainTaskOn(ctx context.Context, id api.TaskID, node string) (v api.Explanation, err error) {
	_, err = c.call(ctx, get("tasks", string(id), "explain").with(onNode(node)), &v)
	return v, err
}
