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

// skew is the maximum difference between the clocks of a node and of this machine at which a resumed stream misses no
// line.
const skew = time.Minute

// FollowLogs streams the lines of a task's output, like Logs with Follow, until its first attempt or ctx ends. A stream
// that breaks with the server or the agent is resumed without a gap or a repetition. Lost, unless nil, is called for
// each break.
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

// readOn reads one stream from a place; wanted is false once yield has stopped the iteration.
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

// over reports whether the attempt of the first call has ended, or why that is unknown.
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

// place is a position in a log.
type place struct {
	lines  int
	newest time.Time
	seen   map[string]mark // by container and stream
	skip   map[string]mark // what a stream that was taken up repeats
}

// mark is the time of the newest line of one output, and the number of lines with that time.
type mark struct {
	at time.Time
	n  int
}

// begin prepares the place for a stream that may repeat lines.
func (p *place) begin() {
	if p.seen == nil {
		p.seen = map[string]mark{}
	}
	p.skip = maps.Clone(p.seen)
}

// pass records a line and reports whether it is new.
func (p *place) pass(line api.LogLine) bool {
	key := line.Container + "/" + string(line.Stream)
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
