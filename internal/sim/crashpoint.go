package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Moments of a write at which CrashAt can kill a server.
const (
	crashBefore = "before" // the write has not reached the engine
	crashAfter  = "after"  // the write is durable, and the server has no answer
	crashSeen   = "seen"   // the server's own tables show it
	crashSent   = "told"   // an agent got the placement: only for plans
)

// planDeletion is a kind of write without a noun: the deletion of a plan record. It is not the noun of trim/event.
const planDeletion = "trim"

// crashPoint kills a server at a moment of the nth write of a kind.
type crashPoint struct {
	server, kind, moment string
	left                 int
	down                 time.Duration
}

// parseCrashPoint parses the argument of an event: the kind of the write, the moment, and which write from now on
// counts.
func parseCrashPoint(e Event) (*crashPoint, error) {
	f := strings.Fields(e.Arg)
	if len(f) != 3 {
		return nil, fmt.Errorf("%q: want \"<noun> before|after|seen|told <n>\"", e.Arg)
	}
	n, err := strconv.Atoi(f[2])
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%q: want a number from 1", f[2])
	}
	switch f[1] {
	case crashBefore, crashAfter, crashSeen:
	case crashSent:
		if f[0] != "plan" {
			return nil, fmt.Errorf("%q: agents get messages of plans only", e.Arg)
		}
	default:
		return nil, fmt.Errorf("%q: want before, after, seen or told", f[1])
	}
	return &crashPoint{server: e.Target, kind: f[0], moment: f[1], left: n, down: max(e.For, 100*time.Millisecond)}, nil
}

// matches reports whether any of the operations is of the kind.
func (s *crashPoint) matches(ops []store.Op) bool {
	for i := range ops {
		key, ok := strings.CutPrefix(ops[i].Key, string(prefix))
		switch {
		case !ok:
		case s.kind == planDeletion:
			if ops[i].Delete && strings.HasPrefix(key, "plan/") {
				return true
			}
		case !ops[i].Delete && strings.HasPrefix(key, s.kind+"/"):
			return true
		}
	}
	return false
}

// crashIfDue kills the server if a crash point matches this moment of this write, and reports whether it did.
func (s *server) crashIfDue(moment string, matches func(*crashPoint) bool) bool {
	hit := s.fleet.disk.dueCrash(s.id, moment, matches)
	if hit == nil {
		return false
	}
	s.fleet.crashes.Add(1)
	s.fleet.checker.liveness.countLeaderFaults(1)
	s.fleet.background.Go(func() {
		s.host.countHold(1)
		_ = pause.For(s.fleet.ctx, hit.down)
		s.fleet.checker.liveness.countLeaderFaults(-1)
		s.host.release()
	})
	<-s.ctx.Done() // wait until this process has ended
	return true
}

// release ends one event that kept the machine down, unless all of them were cancelled.
func (h *host) release() {
	h.mu.Lock()
	held := h.down > 0
	h.mu.Unlock()
	if held {
		h.countHold(-1)
	}
}

func (k *disk) dueCrash(server, moment string, matches func(*crashPoint) bool) *crashPoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.crashPoints {
		if s.left == 0 || s.server != server || s.moment != moment || !matches(s) {
			continue
		}
		if s.left--; s.left == 0 {
			return s
		}
	}
	return nil
}

// crashAtCommit kills the server if a crash point matches this moment of a commit, and reports whether it did.
func (l *engineLink) crashAtCommit(moment string, groups []store.Group) bool {
	return l.server.crashIfDue(moment, func(s *crashPoint) bool {
		for i := range groups {
			if s.matches(groups[i].Ops) {
				return true
			}
		}
		return false
	})
}

// crashOnceSeen kills the server once its tables show the last batch. The tables then request the next batch.
func (s *stream) crashOnceSeen() bool {
	last := s.last
	s.last = nil
	if len(last) == 0 {
		return false
	}
	return s.link.server.crashIfDue(crashSeen, func(k *crashPoint) bool { return k.matches(last) })
}

// rememberBatch remembers the changes of a batch.
func (s *stream) rememberBatch(b *store.Batch) {
	if !s.link.fleet.disk.hasCrashPoints() {
		return
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		s.last = append(s.last, store.Op{Key: c.Key, Delete: c.Deleted})
	}
}

// hasCrashPoints reports whether a crash point is set.
func (k *disk) hasCrashPoints() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.crashPoints) > 0
}

// crashAfterSend kills a server that has just sent placements to an agent.
func (s *server) crashAfterSend(ctx context.Context, ms []transport.Message) error {
	for i := range ms {
		if ms[i].Assignment != nil && s.crashIfDue(crashSent, func(k *crashPoint) bool { return k.kind == "plan" }) {
			return ctx.Err()
		}
	}
	return nil
}
