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

// EventOptions choose events.
type EventOptions struct {
	// After is the id of the event that the first one comes after; empty is the oldest that is kept.
	After string
	// Types such as "task.failed", or "task" for all of that noun; none is all.
	Types []string
	EventFilter
	// Lost, unless nil, is told each time a stream breaks, before it is taken up again.
	Lost func(error)
	// Gap, unless nil, is told of events that a stream left out because the reader was too slow.
	Gap func(api.EventGap)
}

// EventFilter says what events are to be about; an empty field leaves out none. The server does the filtering.
type EventFilter struct {
	// Reasons are codes such as "oom".
	Reasons []string
	// Cluster, Service, Job, Cron, Task and Node are names; of Service, Job and Cron at most one. An owner's events are
	// also those of its tasks.
	Cluster, Service, Job, Cron, Task, Node string
	// Since, unless 0, leaves out what happened longer ago, by the server's clock.
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

// Now, as EventOptions.After, leaves out what has happened.
const Now = "now"

// Events lists events, the oldest first. Of the options it takes Limit and Wait; the next page comes
// after the Next of the page before.
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

// maxEvent bounds one event of a stream.
const maxEvent = 1 << 20

// errEnded tells that the server ended a stream.
var errEnded = errors.New("the server ended the stream")

// FollowEvents streams events, those that are kept first and then each as it happens. A stream that
// breaks is taken up after the last event that was seen, until ctx ends; none is left out and none
// comes twice. What the server refuses ends the sequence: status 410 says that the events after After
// are no longer kept.
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

// stream reads one connection's events; nil says that yield wanted no more.
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
