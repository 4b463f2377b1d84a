package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/pause"
)

// EventOptions select events.
type EventOptions struct {
	// After is the id of the event before the first one; empty begins with the oldest available event.
	After string
	// Types are types such as "task.failed", or nouns such as "task" for all of their types; none selects all.
	Types []string
	EventFilter
	// Lost, unless nil, is called each time a stream breaks, before it is resumed.
	Lost func(error)
	// Gap, unless nil, is called with events that a stream left out because the reader was too slow.
	Gap func(api.EventGap)
}

// EventFilter selects events by their subject; an empty field selects all. The server does the filtering.
type EventFilter struct {
	// Reasons are codes such as "oom".
	Reasons []string
	// Cluster, Service, Job, Cron, Task and Node are names. At most one of Service, Job and Cron may be set. The events
	// of an owner include those of its tasks.
	Cluster, Service, Job, Cron, Task, Node string
	// Since, unless 0, omits older events, by the server's clock.
	Since time.Duration
}

func (f *EventFilter) into(q url.Values) {
	for name, value := range map[string]string{
		"reasons": strings.Join(f.Reasons, ","), "cluster": f.Cluster, "service": f.Service, "job": f.Job,
		"cron": f.Cron, "task": f.Task, "node": f.Node,
	} { // order-free: each has a place of its own
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Since > 0 {
		q.Set("since", f.Since.String())
	}
}

func (o EventOptions) query() url.Values {
	q := url.Values{}
	if o.After != "" {
		q.Set("after", o.After)
	}
	if len(o.Types) > 0 {
		q.Set("types", strings.Join(o.Types, ","))
	}
	o.into(q)
	return q
}

// Now, as EventOptions.After, omits past events.
const Now = "now"

// Events lists events, the oldest first. It uses Limit and Wait of the options. The next page comes after Next of the
// page before.
func (c *Client) Events(ctx context.Context, e EventOptions, o ListOptions) (page api.Page[api.EventView], err error) {
	q := e.query()
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Wait != 0 {
		q.Set("wait", o.Wait.String())
	}
	_, err = c.call(ctx, get("events").with(q), &page)
	return page, err
}

// maxEvent is the maximum size of one event of a stream, in bytes.
const maxEvent = 1 << 20

// errEnded says that the server ended a stream.
var errEnded = errors.New("the server ended the stream")

// FollowEvents streams the available events and then new ones. A broken stream is resumed after the last received event
// until ctx ends, without a gap or a repetition. A refusal by the server ends the sequence. Status 410 means that the
// events after After are no longer available.
func (c *Client) FollowEvents(ctx context.Context, o EventOptions) iter.Seq2[api.EventView, error] {
	return func(yield func(api.EventView, error) bool) {
		last, seen := o.After, false
		err := reconnect(ctx, func(backoff *pause.Backoff) (bool, error) {
			err := c.stream(ctx, o, last, func(e api.EventView) bool {
				last, seen = e.ID, true
				backoff.Reset()
				return yield(e, nil)
			})
			return err == nil, err
		}, func(err error) (bool, error) {
			if isRefused(err) || !seen && errors.Is(err, ErrUnreachable) {
				return true, err
			}
			seen = true // it was reached once
			if o.Lost != nil {
				o.Lost(err)
			}
			return false, nil
		})
		if err != nil {
			yield(api.EventView{}, err)
		}
	}
}

// stream reads the events of one connection; nil means that yield has stopped the iteration.
func (c *Client) stream(ctx context.Context, o EventOptions, last string, yield func(api.EventView) bool) error {
	r := get("events").with(o.query())
	r.header = http.Header{"Accept": {"text/event-stream"}}
	if last != "" {
		r.header.Set("Last-Event-ID", last)
	}
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for msg, err := range messages(res.Body) {
		if err != nil {
			return err
		}
		switch msg.event {
		case "", "event":
		case "gap":
			var gap api.EventGap
			if json.Unmarshal(msg.data, &gap) == nil && o.Gap != nil {
				o.Gap(gap)
			}
			continue
		default: // "reset": what follows is an end, and 410 for the one who comes back
			continue
		}
		var e api.EventView
		if err := json.Unmarshal(msg.data, &e); err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		if msg.id != "" {
			e.ID = msg.id
		}
		if !yield(e) {
			return nil
		}
	}
	return errEnded
}

// message is one message of a stream of server-sent events.
type message struct {
	id, event string
	data      []byte
}

// messages reads a stream of server-sent events as the HTML standard defines it: lines of fields, an empty line
// ends a message, a line that begins with ":" is a comment. Messages without data are left out.
func messages(in io.Reader) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxEvent)
		var msg message
		var data [][]byte
		for lines.Scan() {
			line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
			if len(line) == 0 {
				if data != nil {
					msg.data = bytes.Join(data, []byte("\n"))
					if !yield(msg, nil) {
						return
					}
				}
				msg, data = message{id: msg.id}, nil
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "id":
				msg.id = string(value)
			case "event":
				msg.event = string(value)
			case "data":
				data = append(data, bytes.Clone(value))
			}
		}
		if err := lines.Err(); err != nil {
			yield(message{}, fmt.Errorf("read stream: %w", err))
		}
	}
}
