package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berthd/berth/api"
)

// Host sends requests to the API of one node. It is safe for concurrent use.
type Host struct{ c *Client }

// NewHost returns a client of the API of a node, such as at "unix:///run/berth-host/host.sock". It connects with its
// first request.
func NewHost(cfg Config) (*Host, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Host{c}, nil
}

// Close closes idle connections.
func (h *Host) Close() { h.c.Close() }

// State returns all that runs on the node, with its resources.
func (h *Host) State(ctx context.Context) (v api.HostState, err error) {
	_, err = h.c.call(ctx, get("tasks"), &v)
	return v, err
}

// Task returns a task by its name, its id, or the UUID of its attempt.
func (h *Host) Task(ctx context.Context, name string) (v api.HostTask, err error) {
	_, err = h.c.call(ctx, get("tasks", name), &v)
	return v, err
}

// Resources returns what the node has, what its tasks reserve, and what it uses.
func (h *Host) Resources(ctx context.Context) (v api.HostResources, err error) {
	_, err = h.c.call(ctx, get("resources"), &v)
	return v, err
}

// HostLogOptions select lines of a task's output.
type HostLogOptions struct {
	// History is how many of the newest lines come first.
	History int
	// Follow continues with new lines until the attempt or the context ends.
	Follow bool
	// Container and Stream select one each; empty selects all.
	Container string
	Stream    api.LogStream
}

// Logs streams the lines of a task's output. An error ends the sequence.
func (h *Host) Logs(ctx context.Context, name string, o HostLogOptions) iter.Seq2[api.LogLine, error] {
	q := url.Values{"history": {strconv.Itoa(max(o.History, 0))}}
	if o.Follow {
		q.Set("follow", "true")
	}
	if o.Container != "" {
		q.Set("container", o.Container)
	}
	if o.Stream != "" {
		q.Set("stream", string(o.Stream))
	}
	return lines[api.LogLine](ctx, h.c, get("tasks", name, "logs").with(q), "log of "+name)
}

// HostEvent is an event of the stream of a node. The first has State, and each later one has Change.
type HostEvent struct {
	State  *api.HostState  `json:"state,omitempty"`
	Change *api.HostChange `json:"change,omitempty"`
}

// Events streams all that runs on the node, and then each change, until the context ends. An error ends the sequence.
func (h *Host) Events(ctx context.Context) iter.Seq2[HostEvent, error] {
	return func(yield func(HostEvent, error) bool) {
		r := get("tasks")
		r.header = http.Header{"Accept": {"text/event-stream"}}
		res, err := h.c.send(ctx, r)
		if err != nil {
			yield(HostEvent{}, err)
			return
		}
		defer res.Body.Close()
		for msg, err := range messages(res.Body) {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(HostEvent{}, err)
				return
			}
			e, err := hostEvent(msg.event, msg.data)
			if (err != nil || e.State != nil || e.Change != nil) && (!yield(e, err) || err != nil) {
				return
			}
		}
		if ctx.Err() != nil {
			yield(HostEvent{}, ctx.Err())
			return
		}
		yield(HostEvent{}, errEnded)
	}
}

// hostEvent decodes an event. An event of another kind is empty.
func hostEvent(kind string, data []byte) (e HostEvent, err error) {
	switch kind {
	case "state":
		e.State = &api.HostState{}
		err = json.Unmarshal(data, e.State)
	case "change":
		e.Change = &api.HostChange{}
		err = json.Unmarshal(data, e.Change)
	}
	if err != nil {
		return HostEvent{}, fmt.Errorf("decode an event of the node: %w", err)
	}
	return e, nil
}

// Create makes a task without starting it. A repetition with the same content changes nothing.
func (h *Host) Create(ctx context.Context, name string, d api.InlineDefinition) error {
	return h.c.act(ctx, http.MethodPut, d, Condition{}, "tasks", name)
}

// Replace makes and starts a task, which replaces another one once it is healthy.
func (h *Host) Replace(ctx context.Context, name, old string, d api.InlineDefinition) error {
	r := request{method: http.MethodPut, path: []string{"tasks", name}, body: d, query: url.Values{"replace": {old}}}
	_, err := h.c.call(ctx, r, nil)
	return err
}

// Start starts a task.
func (h *Host) Start(ctx context.Context, name string) error {
	return h.c.act(ctx, http.MethodPost, nil, Condition{}, "tasks", name, "start")
}

// Stop stops a task, which keeps its room.
func (h *Host) Stop(ctx context.Context, name string) error {
	return h.c.act(ctx, http.MethodPost, nil, Condition{}, "tasks", name, "stop")
}

// Delete deletes a stopped task and frees its room.
func (h *Host) Delete(ctx context.Context, name string) error {
	return h.c.act(ctx, http.MethodDelete, nil, Condition{}, "tasks", name)
}

// Handover returns how far a move of the node to another owner is.
func (h *Host) Handover(ctx context.Context) (v api.HostHandover, err error) {
	_, err = h.c.call(ctx, get("handover"), &v)
	return v, err
}

// HandoverObjects returns what moves with a node that drives itself. The error lists what is in the way.
func (h *Host) HandoverObjects(ctx context.Context) (v api.NodeObjects, err error) {
	_, err = h.c.call(ctx, get("handover", "objects"), &v)
	return v, err
}

// PrepareHandover prepares the node for its next owner. The tasks and the present owner notice nothing.
func (h *Host) PrepareHandover(ctx context.Context, r api.HostPrepareRequest) error {
	return h.c.act(ctx, http.MethodPost, r, Condition{}, "handover", "prepare")
}

// CompleteHandover makes the next owner drive the node.
func (h *Host) CompleteHandover(ctx context.Context, r api.HostCompleteRequest) error {
	return h.c.act(ctx, http.MethodPost, r, Condition{}, "handover", "complete")
}

// CancelHandover ends a move before the present owner has released the node.
func (h *Host) CancelHandover(ctx context.Context) error {
	return h.c.act(ctx, http.MethodPost, nil, Condition{}, "handover", "cancel")
}
