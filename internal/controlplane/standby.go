package controlplane

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/store"
)

const (
	// standByEvery is how often a server that does not lead takes note of what changed.
	standByEvery = time.Second
	// standByAnew is how often it forgets the owners that are no more.
	standByAnew = 10 * time.Minute
)

// standBy keeps what a leader has to know of the store at hand on a server that does not lead, so that a takeover
// decides at once, however large the domain is. It follows the tables alone: what a leader must see itself, the silence
// of nodes, begins with its reign.
type standBy struct {
	loop *loop
	stop context.CancelFunc
	done chan struct{}
}

// standBy begins to follow. The caller ends it.
func (p *Plane) standBy(ctx context.Context) *standBy {
	ctx, stop := context.WithCancel(ctx)
	s := &standBy{loop: newLoop(p), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.follow(ctx)
	}()
	return s
}

// end stops following and returns the loop that learnt, which the caller then owns.
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
	anew := l.config.Clock() + standByAnew
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.follow.Wake():
		}
		changes := l.follow.Take()
		if now := l.config.Clock(); now >= anew {
			anew = now + standByAnew
			changes.Resync = true
		}
		l.prepare(l.config.Tables.Snapshot(), changes)
		if !sleep(ctx, standByEvery) {
			return
		}
	}
}

// prepare learns what changed before there is a reign.
func (l *loop) prepare(snap *store.Snapshot, c store.Changes) {
	if c.Resync {
		clear(l.dirty)
	}
	l.relearning.at = l.now // it is not the time that asks to learn all
	l.learn(snap, c)
}
