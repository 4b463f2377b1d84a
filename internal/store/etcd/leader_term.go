package etcd

import (
	"context"
	"sync"
	"time"
)

// leaderGrace is how long a call in flight may continue after a change of the engine's leader. etcd drops such calls
// without an answer, and would let them wait for 6 s.
const leaderGrace = 150 * time.Millisecond

// leaderTerm ends the calls in flight leaderGrace after each change of the engine's leader.
type leaderTerm struct {
	mu      sync.Mutex
	current context.Context //nolint:containedctx // ends with the term; nil where the server runs elsewhere
}

// follow begins a new term at each change of the leader, until the engine ends.
func (t *leaderTerm) follow(c *core) {
	for {
		term, end := context.WithCancel(c.lifetime)
		t.mu.Lock()
		t.current = term //nolint:fatcontext // the contexts are not nested
		t.mu.Unlock()
		select {
		case <-c.lifetime.Done():
			end()
			return
		case <-c.server.Server.LeaderChangedNotify():
			time.AfterFunc(leaderGrace, end)
		}
	}
}

// bind returns ctx, which also ends leaderGrace after the engine's present leader lost its leadership.
func (t *leaderTerm) bind(ctx context.Context) (context.Context, func()) {
	t.mu.Lock()
	term := t.current
	t.mu.Unlock()
	if term == nil {
		return ctx, func() {}
	}
	call, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(term, cancel)
	return call, func() { stop(); cancel() }
}
