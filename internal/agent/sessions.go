package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/reports"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/streams"
	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/transport"
)

// failuresForMaxBackoff makes the next backoff the longest one.
const failuresForMaxBackoff = 20

// Backoff of an agent that repeatedly loses its session to another agent of the same name: two such agents would
// displace each other forever. A session that lasted for displacedResetAge proves that the other agent is gone.
const (
	minDisplacedBackoff = 10 * time.Second
	maxDisplacedBackoff = 4 * time.Minute
	displacedResetAge   = 10 * time.Minute
)

// sessions keeps a session with a server: the assignment stream, the reports and the requests for addresses. One
// goroutine calls run.
type sessions struct {
	node        *node.Node
	source      Source
	machine     *machine.Machine
	stats       *usage.Statistics
	reports     *reports.Reports
	directory   *addresses.Directory
	orphans     *orphans
	attempts    *attempts
	assignments *assignments
	streams     *streams.Server
	window      *ttlWindow
	marks       *state.Marks
	ownership   *ownership

	// displaced counts how often in a row another agent took the session over.
	displaced int
}

// begin prepares for a run of the agent.
func (s *sessions) begin(marks *state.Marks) { s.marks, s.assignments.marks = marks, marks }

// run registers and keeps a session, again and again, until ctx ends.
func (s *sessions) run(ctx context.Context) {
	p := s.node.NewBackoff(node.MinDialBackoff, node.MaxDialBackoff)
	for ctx.Err() == nil {
		registration, versions := s.registration()
		welcome, err := s.source.Register(ctx, registration)
		if err != nil {
			s.unregistered(ctx, err)
			if errors.Is(err, transport.ErrRefused) {
				p.SetFailures(failuresForMaxBackoff)
			}
			if p.Wait(ctx) != nil {
				return
			}
			continue
		}
		s.node.Logger.Info("registered", "session", welcome.Session, "tasks", len(registration.Tasks))
		s.marks.Raise(welcome.Token, welcome.Session)
		s.marks.RememberServers(welcome.Servers)
		s.ownership.registered(&welcome)
		s.attempts.beginSession(attempt.Session{
			Number: welcome.Session,
			Asks:   !s.node.Without.Off(clause.Permit),
		})
		s.stats.NoteReported(registration.Stats, true)
		s.reports.Registered(versions, welcome.Again)
		began := time.Now()
		err = s.runSession(ctx, welcome)
		if ctx.Err() != nil {
			return
		}
		s.unregistered(ctx, err)
		if time.Since(began) > node.MaxDialBackoff {
			p.Reset()
		}
		if s.afterSession(err, welcome.Session, time.Since(began)).OrElse(p).Wait(ctx) != nil {
			return
		}
	}
}

// afterSession returns the backoff after a session that another agent ended, or nil after any other end.
func (s *sessions) afterSession(err error, session uint64, lasted time.Duration) *pause.Backoff {
	if lasted > displacedResetAge {
		s.displaced = 0
	}
	var over *transport.SessionError
	if !errors.As(err, &over) || over.Newest <= session {
		return nil
	}
	s.displaced++
	if s.displaced < 2 {
		return nil // a lost reply to our own registration has the same effect, once
	}
	s.node.Logger.Error("another agent registered under this node's name and took over its session; each machine "+
		"needs a name of its own",
		"node", s.node.Name, "times", s.displaced)
	p := s.node.NewBackoff(minDisplacedBackoff, maxDisplacedBackoff)
	p.SetFailures(s.displaced - 2)
	return p
}

// unregistered logs why the agent has no session.
func (s *sessions) unregistered(ctx context.Context, err error) {
	var over *transport.SessionError
	if errors.As(err, &over) && over.Newest != 0 {
		s.marks.Raise(cluster.Token{}, over.Newest)
	}
	if ctx.Err() == nil {
		s.node.Logger.Warn("no session with the server", "error", plain.Text(err))
	}
}

// errUnreported ends a session: the next registration reports containers that were found late.
var errUnreported = errors.New(
	"containers without a record were found; the node registers again to report them")

// runSession runs the stream and the reports of one session until either says that the session is over. Work that
// begins in it, such as tasks, outlives it and ends with life.
func (s *sessions) runSession(life context.Context, welcome transport.Welcome) error {
	ctx, end := context.WithCancelCause(life)
	defer end(nil)
	var both sync.WaitGroup
	both.Go(func() { end(s.reports.Send(ctx, welcome)) })
	both.Go(func() { end(s.listen(ctx, life, welcome.Session)) })
	if source, ok := s.source.(addresses.Source); ok {
		both.Go(func() { end(s.directory.Poll(ctx, source, welcome.Session)) })
	}
	both.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.orphans.unreported:
			end(errUnreported)
		}
	})
	both.Wait()
	return context.Cause(ctx)
}

// listen keeps an assignment stream open.
func (s *sessions) listen(ctx, life context.Context, session uint64) error {
	p := s.node.NewBackoff(node.MinDialBackoff, node.MaxDialBackoff)
	for {
		err := s.stream(ctx, life, session, p)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, transport.ErrSession), errors.Is(err, transport.ErrElsewhere):
			return err
		}
		s.node.Logger.Info("the assignment stream ended", "error", err)
		if p.Wait(ctx) != nil {
			return ctx.Err()
		}
	}
}

// stream reads one assignment stream to its end.
func (s *sessions) stream(ctx, life context.Context, session uint64, p *pause.Backoff) error {
	stream, err := s.source.Assignments(ctx, s.resumption(session))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	defer s.countConnection(life)()
	s.window.open()
	defer s.window.close()
	for {
		m, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		p.Reset()
		s.handle(life, m)
	}
}

// countConnection counts an assignment stream. The returned function counts its end, unless the agent ends.
func (s *sessions) countConnection(life context.Context) (end func()) {
	m := s.node.Metrics
	if m == nil {
		return func() {}
	}
	m.Connected()
	return func() {
		if life.Err() == nil {
			m.Interrupted()
		}
	}
}

// registration returns the complete state of the node (P6.4).
func (s *sessions) registration() (transport.Registration, []reports.Item) {
	mark := s.marks.Current()
	tasks, versions := s.reports.All()
	tasks = append(tasks, s.orphans.observed()...)
	return transport.Registration{
		Node: s.node.Name, Previous: mark.Session, Token: mark.Token, Facts: s.machine.Facts(), Tasks: tasks,
		Stats: s.stats.Latest(), Displaced: s.displaced, Wire: transport.WireVersion, WireMin: transport.WireMin,
	}, versions
}

// resumption describes what the agent has, so that the server sends the rest.
func (s *sessions) resumption(session uint64) transport.AssignmentsRequest {
	r := transport.AssignmentsRequest{Node: s.node.Name, Session: session}
	r.Have = s.attempts.known()
	return r
}

// handle handles one message without waiting for any task. Work that begins here ends with ctx.
func (s *sessions) handle(ctx context.Context, m transport.Message) {
	switch {
	case m.Definition != nil:
		s.attempts.define(m.Definition)
	case m.Assignment != nil:
		s.assignments.take(ctx, m.Assignment)
	case m.Forget != nil:
		if t := s.attempts.find(m.Forget.Task, m.Forget.UUID); t != nil {
			t.Forget()
		}
	case m.Secrets != nil:
		if t := s.attempts.find(m.Secrets.Task, m.Secrets.UUID); t != nil {
			t.SetStamps(ctx, m.Secrets.Stamps)
		}
	case m.Open != nil:
		s.streams.Serve(ctx, *m.Open)
	}
}
