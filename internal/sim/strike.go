package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Moments of a write at which a server can be killed, see CrashAt.
const (
	strikeBefore = "before" // it was decided, and has not reached the engine
	strikeAfter  = "after"  // it is durable, and the server does not know
	strikeSeen   = "seen"   // the server's own tables show it
	strikeTold   = "told"   // an agent was told of it: only for plans
)

// Kinds of writes that have no noun of their own: the deletion of a plan record.
const strikeTrim = "trim"

// strike kills a server at a moment of the nth write of a kind.
type strike struct {
	server, kind, moment string
	left                 int
	down                 time.Duration
}

// strikeOf reads the argument of an event: the kind of the write, the moment, and which of them counts from now on.
func strikeOf(e Event) (*strike, error) {
	f := strings.Fields(e.Arg)
	if len(f) != 3 {
		return nil, fmt.Errorf("%q: want \"<noun> before|after|seen|told <n>\"", e.Arg)
	}
	n, err := strconv.Atoi(f[2])
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%q: want a number from 1", f[2])
	}
	switch f[1] {
	case strikeBefore, strikeAfter, strikeSeen:
	case strikeTold:
		if f[0] != "plan" {
			return nil, fmt.Errorf("%q: agents are told of plans alone", e.Arg)
		}
	default:
		return nil, fmt.Errorf("%q is no moment of a write", f[1])
	}
	return &strike{server: e.Target, kind: f[0], moment: f[1], left: n, down: max(e.For, 100*time.Millisecond)}, nil
}

// matches reports whether any of the operations is of the kind.
func (s *strike) matches(ops []store.Op) bool {
	for i := range ops {
		key, ok := strings.CutPrefix(ops[i].Key, string(prefix))
		switch {
		case !ok:
		case s.kind == strikeTrim:
			if ops[i].Delete && strings.HasPrefix(key, "plan/") {
				return true
			}
		case !ops[i].Delete && strings.HasPrefix(key, s.kind+"/"):
			return true
		}
	}
	return false
}

// strike kills the server if one of the strikes is for this moment of this write, and reports that it did.
func (s *server) strike(moment string, matches func(*strike) bool) bool {
	hit := s.w.disk.struck(s.id, moment, matches)
	if hit == nil {
		return false
	}
	s.w.struck.Add(1)
	s.w.witness.storm(1)
	s.w.late.Go(func() {
		s.host.hold(1)
		sleep(s.w.ctx, hit.down)
		s.w.witness.storm(-1)
		s.host.release()
	})
	<-s.ctx.Done() // nothing of this life goes on
	return true
}

// release ends one event that kept the machine down, unless all of them were called off.
func (h *host) release() {
	h.mu.Lock()
	held := h.down > 0
	h.mu.Unlock()
	if held {
		h.hold(-1)
	}
}

func (k *disk) struck(server, moment string, matches func(*strike) bool) *strike {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.strikes {
		if s.left == 0 || s.server != server || s.moment != moment || !matches(s) {
			continue
		}
		if s.left--; s.left == 0 {
			return s
		}
	}
	return nil
}

// commits reports whether a server is to be killed at this moment of a commit.
func (l *line) strike(moment string, groups []store.Group) bool {
	return l.server.strike(moment, func(s *strike) bool {
		for i := range groups {
			if s.matches(groups[i].Ops) {
				return true
			}
		}
		return false
	})
}

// sees kills the server once its tables show what the last batch brought, which is when they ask for the next.
func (s *stream) sees() bool {
	last := s.last
	s.last = nil
	if len(last) == 0 {
		return false
	}
	return s.line.server.strike(strikeSeen, func(k *strike) bool { return k.matches(last) })
}

// keep remembers what a batch brought.
func (s *stream) keep(b *store.Batch) {
	if !s.line.w.disk.awaits() {
		return
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		s.last = append(s.last, store.Op{Key: c.Key, Delete: c.Deleted})
	}
}

// awaits reports whether any strike is to come.
func (k *disk) awaits() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.strikes) > 0
}

// told kills a server that has just told an agent of placements.
func (s *server) told(ctx context.Context, ms []transport.Message) error {
	for i := range ms {
		if ms[i].Assignment != nil && s.strike(strikeTold, func(k *strike) bool { return k.kind == "plan" }) {
			return ctx.Err()
		}
	}
	return nil
}
