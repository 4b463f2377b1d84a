package dispatcher

import (
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// life counts a call of an agent as signs of life for as long as it takes: an agent that waits for the store's disk is
// not silent. The call's context ends with the agent's connection.
type life struct {
	mu    sync.Mutex
	over  bool
	timer *time.Timer
}

// lives begins to count. The caller ends it before it makes the promise that the reply carries.
func (d *Dispatcher) lives(s *session, seq uint64) *life {
	d.promise(s, seq, Heartbeat)
	l := &life{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(Heartbeat, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			d.promise(s, seq, Heartbeat)
			l.timer.Reset(Heartbeat)
		}
	})
	return l
}

// end ends the count; it may be called again, and for none.
func (l *life) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.timer.Stop()
}

// promise records a sign of life, and how soon the agent is asked to give the next one, which it returns. A long
// promise is made only to an agent whose assignment stream is open: its end tells when the agent or its machine goes
// away.
func (d *Dispatcher) promise(s *session, seq uint64, next time.Duration) time.Duration {
	s.promiseMu.Lock()
	defer s.promiseMu.Unlock()
	if s.stream == nil {
		next = min(next, Heartbeat)
	}
	s.asked = next
	s.heard = max(s.heard, seq) // a call that came before another one still counts while it waits
	d.config.Tables.SetPulse(s.node, cluster.Pulse{
		Session: s.number,
		Seq:     s.heard,
		At:      d.config.Clock(),
		Next:    next,
		Stats:   s.usage.last(),
	})
	return next
}

// takeStream ends the session's present assignment stream, and returns what ends the new one. A promise that the end of
// an earlier stream cut is what the agent was asked again, since the time of its last report: it lives, and nothing
// else has it report sooner than it was asked to.
func (d *Dispatcher) takeStream(s *session) chan struct{} {
	s.promiseMu.Lock()
	defer s.promiseMu.Unlock()
	if s.stream != nil {
		close(s.stream)
	}
	s.stream = make(chan struct{})
	if p, ok := d.config.Tables.Pulse(s.node); ok && p.Session == s.number && p.Next < s.asked {
		p.Next = s.asked
		d.config.Tables.SetPulse(s.node, p)
	}
	return s.stream
}

// dropStream notes that a stream ended. Where no newer one took its place the agent may be gone: it is expected to be
// heard within a Heartbeat, whatever was promised, unless it opens another one (see takeStream).
func (d *Dispatcher) dropStream(s *session, stream chan struct{}) {
	s.promiseMu.Lock()
	defer s.promiseMu.Unlock()
	if s.stream != stream {
		return
	}
	s.stream = nil
	p, ok := d.config.Tables.Pulse(s.node)
	if !ok || p.Session != s.number {
		return
	}
	if soon := d.config.Clock() + Heartbeat - p.At; soon < p.Next {
		p.Next = soon
		d.config.Tables.SetPulse(s.node, p)
	}
}
