package dispatcher

import (
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// activeCall counts a call of an agent as signs of life while the call lasts. An agent that waits for the store's disk
// is not silent. The call's context ends with the agent's connection.
type activeCall struct {
	mu    sync.Mutex
	ended bool
	timer *time.Timer
}

// keepAlive records signs of life until the caller ends them. The caller does so before it records the pulse of the
// reply.
func (d *Dispatcher) keepAlive(s *session, seq uint64) *activeCall {
	d.recordPulse(s, seq, Heartbeat)
	l := &activeCall{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(Heartbeat, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.ended {
			d.recordPulse(s, seq, Heartbeat)
			l.timer.Reset(Heartbeat)
		}
	})
	return l
}

// end ends the signs of life. It may be called again, and on nil.
func (l *activeCall) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.timer.Stop()
}

// recordPulse records a sign of life, and returns the time until the agent's next one. A long time is granted only to
// an agent with an open assignment stream: the end of the stream shows that the agent or its machine is gone.
func (d *Dispatcher) recordPulse(s *session, seq uint64, next time.Duration) time.Duration {
	s.pulseMu.Lock()
	defer s.pulseMu.Unlock()
	if s.stream == nil {
		next = min(next, Heartbeat)
	}
	s.requestedInterval = next
	s.highestSeq = max(s.highestSeq, seq) // an earlier call still counts while it waits
	d.config.Tables.SetPulse(s.node, cluster.Pulse{
		Session: s.number,
		Seq:     s.highestSeq,
		At:      d.config.Clock(),
		Next:    next,
		Stats:   s.usage.latest(),
	})
	return next
}

// takeStream ends the session's present assignment stream, and returns the channel that ends the new one. If the end of
// an earlier stream shortened the interval, takeStream restores it: the agent lives, and reports no sooner than its
// granted interval.
func (d *Dispatcher) takeStream(s *session) chan struct{} {
	s.pulseMu.Lock()
	defer s.pulseMu.Unlock()
	if s.stream != nil {
		close(s.stream)
	}
	s.stream = make(chan struct{})
	if p, ok := d.config.Tables.Pulse(s.node); ok && p.Session == s.number && p.Next < s.requestedInterval {
		p.Next = s.requestedInterval
		d.config.Tables.SetPulse(s.node, p)
	}
	return s.stream
}

// dropStream notes that a stream ended. If no newer one replaced it, the agent may be gone. Whatever its granted
// interval, the agent must then report within a Heartbeat or open another stream (see takeStream).
func (d *Dispatcher) dropStream(s *session, stream chan struct{}) {
	s.pulseMu.Lock()
	defer s.pulseMu.Unlock()
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
