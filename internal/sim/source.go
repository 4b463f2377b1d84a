package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/transport"
)

// maxFailedReports is the number of consecutive failed reports after which an agent connects to another server.
const maxFailedReports = 2

// source is an agent's connection to one server at a time. If the server fails, the next one follows.
type source struct {
	fleet *fleet
	n     *node

	mu     sync.Mutex
	at     int // index of the server that is tried next
	server *server
	failed int
}

func newSource(n *node) *source {
	d := n.fleet.random.roll(n.name + ":first")
	return &source{fleet: n.fleet, n: n, at: d.below(len(n.fleet.hosts))}
}

// Register is part of agent.Source.
func (s *source) Register(ctx context.Context, r transport.Registration) (transport.Welcome, error) {
	s.mu.Lock()
	h := s.fleet.hosts[s.at%len(s.fleet.hosts)]
	s.mu.Unlock()
	far := h.liveServer()
	if far == nil {
		s.moveToNextServer()
		return transport.Welcome{}, errUndelivered
	}
	ctx, cancel := context.WithTimeout(ctx, 2*connectionTimeout)
	defer cancel()
	w, err := call(
		ctx,
		s.fleet.net,
		s.n.name,
		h.id,
		"register",
		far,
		func(ctx context.Context) (transport.Welcome, error) {
			w, err := far.dispatch.Register(ctx, r)
			if err == nil {
				s.fleet.checker.noteRequest(s.n.name)
				s.fleet.checker.liveness.checkRegistration(r.Node, r.Previous, w.Session)
			}
			return w, err
		},
	)
	switch {
	case err == nil:
		s.mu.Lock()
		s.server, s.failed = far, 0
		s.mu.Unlock()
		s.n.connected.Store(&h.id)
		s.fleet.checker.noteAnswer(s.n.name)
	case !errors.Is(err, transport.ErrSession):
		s.moveToNextServer()
	}
	return w, err
}

// moveToNextServer selects the next server.
func (s *source) moveToNextServer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at++
	s.server = nil
}

// errMoved makes the agent register again at another server.
func errMoved() error { return fmt.Errorf("the server cannot be reached: %w", transport.ErrElsewhere) }

// session returns the server of the session.
func (s *source) session() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// Report is part of agent.Source.
func (s *source) Report(ctx context.Context, r transport.Report) (transport.ReportReply, error) {
	far := s.session()
	if far == nil {
		return transport.ReportReply{}, errMoved()
	}
	s.n.falseReports.addTo(&r, s.fleet)
	limited, cancel := context.WithTimeout(ctx, 3*connectionTimeout)
	defer cancel()
	reply, err := call(limited, s.fleet.net, s.n.name, far.id, "report", far,
		func(ctx context.Context) (transport.ReportReply, error) {
			reply, err := far.dispatch.Report(ctx, r)
			if err == nil {
				s.fleet.checker.noteRequest(s.n.name)
			}
			return reply, err
		})
	if err == nil {
		s.mu.Lock()
		s.failed = 0
		s.mu.Unlock()
		s.fleet.checker.noteAnswer(s.n.name)
		s.fleet.checker.lifecycle.checkAcknowledgedReport(
			s.n,
			r.Tasks,
			func(uuid string) bool { _, no := reply.Refused[uuid]; return no },
		)
		return reply, nil
	}
	if errors.Is(err, transport.ErrElsewhere) {
		s.moveToNextServer()
	}
	if ctx.Err() != nil || errors.Is(err, transport.ErrSession) || errors.Is(err, transport.ErrElsewhere) {
		return reply, err
	}
	s.mu.Lock()
	s.failed++
	over := far.ctx.Err() != nil || s.failed >= maxFailedReports && len(s.fleet.hosts) > 1
	s.mu.Unlock()
	if over {
		s.moveToNextServer()
		return reply, errMoved()
	}
	return reply, err
}

// Stream is part of agent.Source.
func (s *source) Stream(context.Context, string) (io.ReadWriteCloser, error) {
	return nil, errUndelivered
}

// Assignments is part of agent.Source.
func (s *source) Assignments(ctx context.Context, r transport.AssignmentsRequest) (agent.AssignmentStream, error) {
	far := s.session()
	if far == nil {
		return nil, errMoved()
	}
	net, me := s.fleet.net, s.n.name
	f := net.decideDelivery(me, far.id, "stream")
	if pause.For(ctx, f.delay) != nil {
		return nil, ctx.Err()
	}
	if f.lost {
		return nil, errUndelivered
	}
	if err := net.waitOpen(ctx, me, far.id, connectionTimeout); err != nil {
		return nil, err
	}
	if far.ctx.Err() != nil {
		return nil, errUndelivered
	}
	conn, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(far.ctx, cancel)
	a := &assignments{ctx: conn, in: make(chan timedMessage, 4096), over: make(chan struct{}), detectionDelay: f.delay}
	a.end = func() { stop(); cancel() }
	far.fleet.background.Go(func() {
		net.waitBroken(conn, me, far.id)
		cancel()
	})
	far.fleet.background.Go(func() {
		defer cancel()
		defer close(a.over)
		a.err = far.dispatch.Assign(conn, r, func(ms []transport.Message) error {
			f := net.decideDelivery(far.id, me, "message") // late, never lost: the connection retries
			for i, m := range ms {                         // no two arrive at one moment
				select {
				case a.in <- timedMessage{time.Now().Add(f.delay + time.Duration(i)*time.Microsecond), m}:
				case <-conn.Done():
					return conn.Err()
				}
			}
			return far.crashAfterSend(conn, ms)
		})
	})
	a.pass = func(ctx context.Context) error { return net.waitOpen(ctx, far.id, me, connectionTimeout) }
	return a, nil
}

// timedMessage is a message with the time of its arrival.
type timedMessage struct {
	at time.Time
	m  transport.Message
}

// assignments is an open assignment stream.
type assignments struct {
	ctx  context.Context //nolint:containedctx // the connection
	in   chan timedMessage
	over chan struct{} // closed when the server has ended it, with err
	err  error
	end  func()
	pass func(context.Context) error
	// detectionDelay is the time in which the agent notices the end of the connection.
	detectionDelay time.Duration
}

// Next is part of agent.AssignmentStream.
func (a *assignments) Next(ctx context.Context) (transport.Message, error) {
	select {
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	case p := <-a.in:
		return a.arrive(ctx, p)
	case <-a.over:
	case <-a.ctx.Done():
	}
	if pause.For(ctx, a.detectionDelay) != nil { // the two halves of a connection do not end at one moment
		return transport.Message{}, ctx.Err()
	}
	select {
	case <-a.over:
		if (errors.Is(a.err, transport.ErrSession) || errors.Is(a.err, transport.ErrElsewhere)) && a.pass(ctx) == nil {
			return transport.Message{}, a.err
		}
	default:
	}
	return transport.Message{}, io.EOF
}

func (a *assignments) arrive(ctx context.Context, p timedMessage) (transport.Message, error) {
	if pause.For(ctx, time.Until(p.at)) != nil {
		return transport.Message{}, ctx.Err()
	}
	if err := a.pass(ctx); err != nil {
		return transport.Message{}, err
	}
	return p.m, nil
}

// Close is part of agent.AssignmentStream.
func (a *assignments) Close() error {
	a.end()
	return nil
}
