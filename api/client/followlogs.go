package client

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/pause"
)

// skew is by how much the clocks of a node and of this machine may differ for a stream to be taken up without a line
// left out.
const skew = time.Minute

// FollowLogs streams the lines of a task's output as Logs with Follow does, until the attempt that it begins with
// ends, or ctx. A stream that breaks, because the server or the node's agent went away, is taken up
// where it was: no line is left out and none comes twice. Lost, unless nil, is told of each break.
func (c *Client) FollowLogs(ctx context.Context, id api.TaskID, o LogOptions,
	lost func(error),
) iter.Seq2[api.LogLine, error] {
	o.Follow = true
	return func(yield func(api.LogLine, error) bool) {
		var at place
		var attempt string
		began := false
		err := reconnect(ctx, func(backoff *pause.Backoff) (bool, error) {
			wanted, err := c.readOn(ctx, id, o, &at, func(line api.LogLine) bool {
				backoff.Reset()
				return yield(line, nil)
			})
			return !wanted, err
		}, func(err error) (bool, error) {
			if !began && err != nil && at.lines == 0 || isRefused(err) {
				return true, err
			}
			began = true
			over, why := c.over(ctx, id, &attempt)
			if over && err == nil {
				return true, nil
			}
			if over {
				o.Follow = false // what was written between the break and the end
			} else if lost != nil {
				lost(errors.Join(err, why))
			}
			return false, nil
		})
		if err != nil {
			yield(api.LogLine{}, err)
		}
	}
}

// readOn reads one stream from a place; wanted is false once yield wanted no more.
func (c *Client) readOn(ctx context.Context, id api.TaskID, o LogOptions, at *place,
	yield func(api.LogLine) bool,
) (wanted bool, err error) {
	if at.lines > 0 {
		o.Tail, o.Since = -1, time.Since(at.newest)+skew
	}
	at.begin()
	for line, err := range c.Logs(ctx, id, o) {
		if err != nil {
			return true, err
		}
		if at.pass(line) && !yield(line) {
			return false, nil
		}
	}
	return true, nil
}

// over reports whether the attempt has ended that the first call found, or why that is not known.
func (c *Client) over(ctx context.Context, id api.TaskID, attempt *string) (bool, error) {
	v, err := c.Task(ctx, id)
	if err != nil {
		return StatusOf(err) == http.StatusNotFound, err
	}
	if *attempt == "" {
		*attempt = v.UUID
	}
	return v.State.Terminal() || v.UUID != *attempt, nil
}

// place is how far a log was read.
type place struct {
	lines  int
	newest time.Time
	seen   map[string]mark // by container and stream
	skip   map[string]mark // what a stream that was taken up repeats
}

// mark is the time of the newest line of one output, and how many lines had it.
type mark struct {
	at time.Time
	n  int
}

// begin makes the place ready for a stream that may repeat what was read.
func (p *place) begin() {
	if p.seen == nil {
		p.seen = map[string]mark{}
	}
	p.skip = maps.Clone(p.seen)
}

// pass notes a line and reports whether it is new.
func (p *place) pass(line api.LogLine) bool {
	key := line.Container + "/" + line.Stream
	if old, ok := p.skip[key]; ok {
		switch {
		case line.Time.Before(old.at):
			return false
		case line.Time.Equal(old.at) && old.n > 0:
			old.n--
			p.skip[key] = old
			return false
		}
	}
	m := p.seen[key]
	if line.Time.Equal(m.at) {
		m.n++
	} else {
		m = mark{line.Time, 1}
	}
	p.seen[key] = m
	p.lines++
	if line.Time.After(p.newest) {
		p.newest = line.Time
	}
	return true
}
