package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
)

// TaskFilter selects tasks; an empty field selects all.
type TaskFilter struct {
	Cluster, Service, Job, Node, State string
	// All includes the attempts that have ended.
	All bool
}

// Tasks lists tasks, including waiting ones.
func (c *Client) Tasks(ctx context.Context, f TaskFilter, o ListOptions) (api.Page[api.TaskView], error) {
	return list[api.TaskView](ctx, c, get("tasks").with(f.query()), o)
}

func (f TaskFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"cluster": f.Cluster, "service": f.Service, "job": f.Job, "node": f.Node, "state": f.State,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.All {
		q.Set("all", "true")
	}
	return q
}

// Task returns the newest attempt of a task, or the waiting task.
func (c *Client) Task(ctx context.Context, id api.TaskID) (v api.TaskView, err error) {
	_, err = c.call(ctx, get("tasks", string(id)), &v)
	return v, err
}

// LogOptions select lines of a task's output.
type LogOptions struct {
	// Follow continues with new lines until the task or the context ends.
	Follow bool
	// Tail begins this many lines before the end; a negative value begins at the start.
	Tail int
	// Since, unless 0, omits older lines.
	Since time.Duration
	// Attempt is the number of an attempt; 0 is the newest.
	Attempt int
	// Container and Stream select one each; empty selects all.
	Container string
	Stream    api.LogStream
}

// Logs streams the lines of a task's output. An error ends the sequence.
func (c *Client) Logs(ctx context.Context, id api.TaskID, o LogOptions) iter.Seq2[api.LogLine, error] {
	q := url.Values{}
	if o.Follow {
		q.Set("follow", "true")
	}
	if o.Tail >= 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Since > 0 {
		q.Set("since", o.Since.String())
	}
	if o.Attempt != 0 {
		q.Set("attempt", strconv.Itoa(o.Attempt))
	}
	if o.Container != "" {
		q.Set("container", o.Container)
	}
	if o.Stream != "" {
		q.Set("stream", string(o.Stream))
	}
	return lines[api.LogLine](ctx, c, get("tasks", string(id), "logs").with(q), "log of "+string(id))
}

// UpdateCheck reports a result to a TTL check of a task. Attempt is the number of the attempt, 0 for the newest. It
// returns once the task's node has accepted the report.
func (c *Client) UpdateCheck(ctx context.Context, id api.TaskID, attempt int, check string, word api.CheckWord) error {
	r := post(word, "tasks", string(id), "checks", check).once()
	if attempt != 0 {
		r = r.with(url.Values{"attempt": {strconv.Itoa(attempt)}})
	}
	_, err := c.call(ctx, r, nil)
	return err
}
