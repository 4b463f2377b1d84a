package store

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// gatherMost is how many calls are committed as one.
const gatherMost = 256

// Gathered is an Engine whose calls of Commit with one group are committed together with others that wait at the same
// time, so that many requests share one write to disk. Each call's group stands or falls by itself, as before. It is
// safe for concurrent use.
type Gathered struct {
	Engine

	mu      sync.Mutex
	waiting []*gathered
	busy    bool
}

// gathered is a call on its way.
type gathered struct {
	group Group
	done  chan struct{}
	res   Result
	err   error
}

// NewGathered returns an engine that commits through e.
func NewGathered(e Engine) *Gathered { return &Gathered{Engine: e} }

// Commit is part of Engine. A call whose context ends while it waits returns an error that wraps ErrUnknown: it may be
// on its way.
func (g *Gathered) Commit(ctx context.Context, groups []Group) (Result, error) {
	if len(groups) != 1 || ctx.Err() != nil {
		return g.Engine.Commit(ctx, groups)
	}
	call := &gathered{group: groups[0], done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, call)
	first := !g.busy
	g.busy = true
	g.mu.Unlock()
	if first {
		go g.drain(context.WithoutCancel(ctx)) // ends when nobody waits: the engine bounds each of its calls
	}
	select {
	case <-call.done:
		return call.res, call.err
	case <-ctx.Done():
		return Result{}, errors.Join(ErrUnknown, ctx.Err())
	}
}

// assemble lets those go on who are about to call, for as long as calls come of it: requests that were answered
// together come back together.
func (g *Gathered) assemble() {
	for before := 0; ; {
		g.mu.Lock()
		n := len(g.waiting)
		g.mu.Unlock()
		if n <= before || n >= gatherMost {
			return
		}
		before = n
		runtime.Gosched()
	}
}

// drain commits what waits, again and again, until nothing does.
func (g *Gathered) drain(ctx context.Context) {
	for {
		g.assemble()
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.busy = false
			g.mu.Unlock()
			return
		}
		calls := g.next()
		g.mu.Unlock()
		g.commit(ctx, calls)
	}
}

// next takes the first calls that wait, up to one that meddles with those before it. The lock is held.
func (g *Gathered) next() []*gathered {
	limits := g.Limits()
	written, compared := map[string]bool{}, map[string]bool{}
	operations, size := 0, 0
	for i, c := range g.waiting {
		meddles := false
		for _, demand := range c.group.Compares {
			meddles = meddles || written[demand.Key]
			size += len(demand.Key)
		}
		for _, op := range c.group.Ops {
			meddles = meddles || written[op.Key] || compared[op.Key]
			size += len(op.Key) + len(op.Value)
		}
		operations += len(c.group.Compares) + len(c.group.Ops) + 1
		if i > 0 && (meddles || i == gatherMost || operations > limits.Operations || size > limits.Bytes) {
			taken := g.waiting[:i:i]
			g.waiting = g.waiting[i:]
			return taken
		}
		for _, demand := range c.group.Compares {
			compared[demand.Key] = true
		}
		for _, op := range c.group.Ops {
			written[op.Key] = true
		}
	}
	taken := g.waiting
	g.waiting = nil
	return taken
}

// commit makes one call of several. What is refused as a whole for its form is sent one by one.
func (g *Gathered) commit(ctx context.Context, calls []*gathered) {
	groups := make([]Group, len(calls))
	for i, c := range calls {
		groups[i] = c.group
	}
	res, err := g.Engine.Commit(ctx, groups)
	if len(calls) > 1 && (errors.Is(err, ErrTooLarge) || errors.Is(err, ErrInvalid) ||
		errors.Is(err, ErrSessionExpired)) {
		for _, c := range calls {
			g.commit(ctx, []*gathered{c})
		}
		return
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.res = Result{Applied: res.Applied[i : i+1 : i+1], Revision: res.Revision}
		}
		close(c.done)
	}
}
