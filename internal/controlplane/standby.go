package controlplane

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

const (
	// standByInterval is the time between two reads of changes on a server that does not lead.
	standByInterval = time.Second
	// standByResyncInterval is the time after which a server that does not lead learns everything again, to forget
	// owners that are gone.
	standByResyncInterval = 10 * time.Minute
)

// standBy keeps a loop up to date on a server that does not lead. After a takeover the server can decide immediately,
// however large the domain is. It follows the tables alone: a leader has to see the silence of nodes itself, in its own
// term.
type standBy struct {
	loop *loop
	stop context.CancelFunc
	done chan struct{}
}

// standBy begins to follow. The caller ends it.
func (p *Plane) standBy(ctx context.Context) *standBy {
	ctx, stop := context.WithCancel(ctx)
	s := &standBy{loop: newLoop(p, false), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.follow(ctx)
	}()
	return s
}

// end stops following and returns the loop, which the caller then owns.
func (s *standBy) end() *loop {
	s.stop()
	<-s.done
	return s.loop
}

func (s *standBy) follow(ctx context.Context) {
	l := s.loop
	select {
	case <-ctx.Done():
		return
	case <-l.config.Tables.Synced():
	}
	nextResync := l.config.Clock() + standByResyncInterval
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.follow.Wake():
		}
		changes := l.follow.Take()
		if now := l.config.Clock(); now >= nextResync {
			nextResync = now + standByResyncInterval
			changes.Resync = true
		}
		l.prepare(l.config.Tables.Snapshot(), changes)
		if pause.For(ctx, standByInterval) != nil {
			return
		}
	}
}

// prepare learns what changed, outside of a leadership term.
func (l *loop) prepare(snap *store.Snapshot, c store.Changes) {
	if c.Resync {
		l.queue.UnmarkAll()
	}
	l.learner.Postpone(l.clock.now) // only standByResyncInterval decides when to learn all
	l.learner.Learn(snap, c, l.clock.now)
}
