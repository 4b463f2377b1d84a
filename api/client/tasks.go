package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
)

// TaskFilter chooses tasks; an empty field chooses all.
type TaskFilter struct {
	Cluster, Service, Job, Node, State string
	// All includes the attempts that have ended.
	All bool
}

// Tasks lists tasks, those that wait among them.
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

// Task returns the newest attempt of a task, or how it waits for one.
func (c *Client) Task(ctx context.Context, id api.TaskID) (v api.TaskView, err error) {
	_, err = c.call(ctx, get("tasks", string(id)), &v)
	return v, err
}

// LogOptions say which lines of a task's output are wanted.
type LogOptions struct {
	// Follow goes on with new lines until the task or the context ends.
	Follow bool
	// Tail begins this many lines before the end; below 0 at the beginning.
	Tail int
	// Since, unless 0, leaves out lines that are older.
	Since time.Duration
	// Attempt is the number of an attempt; 0 is the newest.
	Attempt int
	// Container and Stream ("stdout", "stderr") choose one; empty is all.
	Container, Stream string
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
		q.Set("stream", o.Stream)
	}
	return func(yield func(api.LogLine, error) bool) {
		res, err := c.send(ctx, get("tasks", string(id), "logs").with(q))
		if err != nil {
			yield(api.LogLine{}, err)
			return
		}
		defer res.Body.Close()
		dec := json.NewDecoder(bufio.NewReader(res.Body))
		for {
			var line api.LogLine
			switch err := dec.Decode(&line); {
			case errors.Is(err, io.EOF):
				return
			case ctx.Err() != nil:
				yield(api.LogLine{}, ctx.Err())
				return
			case err != nil:
				yield(api.LogLine{}, fmt.Errorf("read log of %s: %w", id, err))
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// SayCheck says to a check of type ttl of a task how the task is. Attempt is the number of the attempt that is meant, 0
// for the newest. It returns once the task's node has kept the word.
func (c *Client) SayCheck(ctx context.Context, id api.TaskID, attempt int, check string, word api.CheckWord) error {
	r := post(word, "tasks", string(id), "checks", check).once()
	if attempt != 0 {
		r = r.with(url.Values{"attempt": {strconv.Itoa(attempt)}})
	}
	_, err := c.call(ctx, r, nil)
	return err
}
