// Package batching commits the writes of many callers together.
package batching

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/berthd/berth/internal/store"
)

// maxGatheredCalls limits how many calls are committed as one.
const maxGatheredCalls = 256

// Engine is a store.Engine that merges concurrent calls of Commit with one group each, so that many requests share one
// write to disk. The group of each call is still applied or refused by itself. An Engine is safe for concurrent use.
type Engine struct {
	store.Engine

	mu      sync.Mutex
	waiting []*pendingCommit
	busy    bool
}

// pendingCommit is one call of Commit that waits for its result.
type pendingCommit struct {
	group store.Group
	done  chan struct{}
	res   store.Result
	err   error
}

// New returns an Engine that commits through e.
func New(e store.Engine) *Engine { return &Engine{Engine: e} }

// Commit is part of store.Engine. A call whose context ends while it waits returns an error that wraps
// store.ErrUnknown, since its group may be in flight.
func (g *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if len(groups) != 1 || ctx.Err() != nil {
		return g.Engine.Commit(ctx, groups)
	}
	call := &pendingCommit{group: groups[0], done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, call)
	first := !g.busy
	g.busy = true
	g.mu.Unlock()
	if first {
		go g.drain(context.WithoutCancel(ctx)) // ends when no call waits: the engine bounds each of its calls
	}
	select {
	case <-call.done:
		return call.res, call.err
	case <-ctx.Done():
		return store.Result{}, errors.Join(store.ErrUnknown, ctx.Err())
	}
}

// yieldToCallers yields the processor to goroutines that are about to call Commit, for as long as that brings new
// calls. Requests that were answered together come back together.
func (g *Engine) yieldToCallers() {
	for before := 0; ; {
		g.mu.Lock()
		n := len(g.waiting)
		g.mu.Unlock()
		if n <= before || n >= maxGatheredCalls {
			return
		}
		before = n
		runtime.Gosched()
	}
}

// drain commits the waiting calls until there are none.
func (g *Engine) drain(ctx context.Context) {
	for {
		g.yieldToCallers()
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.busy = false
			g.mu.Unlock()
			return
		}
		calls := g.takeIndependent()
		g.mu.Unlock()
		g.commit(ctx, calls)
	}
}

// takeIndependent removes and returns the first waiting calls, up to the first conflict. Two calls conflict if one
// writes a key that the other writes or compares. The lock is held.
func (g *Engine) takeIndependent() []*pendingCommit {
	limits := g.Limits()
	written, compared := map[string]bool{}, map[string]bool{}
	operations, size := 0, 0
	for i, c := range g.waiting {
		conflicts := false
		for _, compare := range c.group.Compares {
			conflicts = conflicts || written[compare.Key]
			size += len(compare.Key)
		}
		for _, op := range c.group.Ops {
			conflicts = conflicts || written[op.Key] || compared[op.Key]
			size += len(op.Key) + len(op.Value)
		}
		operations += len(c.group.Compares) + len(c.group.Ops) + 1
		if i > 0 && (conflicts || i == maxGatheredCalls || operations > limits.Operations || size > limits.Bytes) {
			taken := g.waiting[:i:i]
			g.waiting = g.waiting[i:]
			return taken
		}
		for _, compare := range c.group.Compares {
			compared[compare.Key] = true
		}
		for _, op := range c.group.Ops {
			written[op.Key] = true
		}
	}
	taken := g.waiting
	g.waiting = nil
	return taken
}

// commit merges several calls into one. If the engine refuses the merged call for its form, commit sends each call by
// itself.
func (g *Engine) commit(ctx context.Context, calls []*pendingCommit) {
	groups := make([]store.Group, len(calls))
	for i, c := range calls {
		groups[i] = c.group
	}
	res, err := g.Engine.Commit(ctx, groups)
	if len(calls) > 1 && (errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrInvalid)) {
		for _, c := range calls {
			g.commit(ctx, []*pendingCommit{c})
		}
		return
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.res = store.Result{Applied: res.Applied[i : i+1 : i+1], Revision: res.Revision}
		}
		close(c.done)
	}
}
