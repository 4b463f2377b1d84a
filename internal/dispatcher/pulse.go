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
func (p *pulse) keepAlive(seq uint64) *activeCall {
	p.record(seq, Heartbeat)
	l := &activeCall{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(Heartbeat, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.ended {
			p.record(seq, Heartbeat)
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

// pulse holds the signs of life of a session's agent, and its use of resources. It writes them into the tables. A long
// time until the next one is granted only to an agent with an open assignment stream: the end of the stream shows that
// the agent or its machine is gone. Safe for concurrent use.
type pulse struct {
	config  *Config
	node    string
	session uint64
	usage   usage

	mu                sync.Mutex
	highestSeq        uint64        // the highest number of a report
	requestedInterval time.Duration // the requested time from the pulse to the next report
	// stream is closed when a newer assignment stream replaces the present one; it is nil without a stream.
	stream chan struct{}
}

// record records a sign of life, and returns the time until the agent's next one.
func (p *pulse) record(seq uint64, next time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream == nil {
		next = min(next, Heartbeat)
	}
	p.requestedInterval = next
	p.highestSeq = max(p.highestSeq, seq) // an earlier call still counts while it waits
	p.config.Tables.SetPulse(p.node, cluster.Pulse{
		Session: p.session,
		Seq:     p.highestSeq,
		At:      p.config.Clock(),
		Next:    next,
		Stats:   p.usage.latest(),
	})
	return next
}

// takeStream ends the session's present assignment stream, and returns the channel that ends the new one. If the end of
// an earlier stream shortened the interval, takeStream restores it: the agent lives, and reports no sooner than its
// granted interval.
func (p *pulse) takeStream() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != nil {
		close(p.stream)
	}
	p.stream = make(chan struct{})
	if last, ok := p.config.Tables.Pulse(p.node); ok && last.Session == p.session && last.Next < p.requestedInterval {
		last.Next = p.requestedInterval
		p.config.Tables.SetPulse(p.node, last)
	}
	return p.stream
}

// dropStream notes that a stream ended. If no newer one replaced it, the agent may be gone. Whatever its granted
// interval, the agent must then report within a Heartbeat or open another stream (see takeStream).
func (p *pulse) dropStream(stream chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != stream {
		return
	}
	p.stream = nil
	last, ok := p.config.Tables.Pulse(p.node)
	if !ok || last.Session != p.session {
		return
	}
	if soon := p.config.Clock() + Heartbeat - last.At; soon < last.Next {
		last.Next = soon
		p.config.Tables.SetPulse(p.node, last)
	}
}
