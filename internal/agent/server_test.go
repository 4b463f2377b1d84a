package agent

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// server is a Source that a test controls.
type server struct {
	mu       sync.Mutex
	sessions uint64
	live     uint64
	// recoveries counts how often the store went back.
	recoveries uint64
	down       bool
	have       []transport.AssignmentsRequest // of all streams, in order
	// All messages in order. Each new stream sends again those that the agent does not have.
	sent    []transport.Message
	streams map[*stream]bool
	regs    []transport.Registration
	reports []transport.Report
	seen    map[string]cluster.Observed // newest report of each attempt
	states  map[string][]string         // reported states of each attempt
	// puts holds the UUIDs of attempts that no registration accepts.
	puts map[string]bool
	// answer, unless nil, makes the reply.
	answer  func(*server, transport.Report) (transport.ReportReply, error)
	carried map[string]io.ReadWriteCloser
	learned []string
	crash   func(point string)
}

func newServer() *server {
	return &server{
		streams: map[*stream]bool{}, seen: map[string]cluster.Observed{}, states: map[string][]string{},
		carried: map[string]io.ReadWriteCloser{},
	}
}

var errDown = errors.New("no server answers")

func (s *server) Register(_ context.Context, r transport.Registration) (transport.Welcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return transport.Welcome{}, errDown
	}
	if r.Previous != s.sessions {
		return transport.Welcome{}, &transport.SessionError{Newest: s.sessions}
	}
	s.regs = append(s.regs, r)
	var again []string
	for i := range r.Tasks {
		if s.puts[r.Tasks[i].UUID] {
			again = append(again, r.Tasks[i].UUID)
			continue
		}
		s.see(&r.Tasks[i])
	}
	s.sessions++
	s.live = s.sessions
	return transport.Welcome{
		Session: s.live, Token: cluster.Token{Generation: 1, Incarnation: 1 + s.recoveries, Epoch: 1},
		Heartbeat: cluster.Duration(5 * time.Second), Again: again,
	}, nil
}

func (s *server) see(o *cluster.Observed) {
	was := s.seen[o.UUID]
	s.seen[o.UUID] = *o
	text := string(o.State)
	if o.Health != "" && o.Health != cluster.HealthUnknown {
		text += "/" + string(o.Health)
	}
	if o.Gone {
		text += " gone"
	}
	if story := s.states[o.UUID]; len(story) == 0 || story[len(story)-1] != text || was.Restarts != o.Restarts {
		s.states[o.UUID] = append(story, text)
	}
}

func (s *server) Learn(servers []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learned = servers
}

type stream struct {
	server *server
	in     chan transport.Message
	broken chan struct{}
}

func (s *server) Assignments(_ context.Context, r transport.AssignmentsRequest) (AssignmentStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	if r.Session != s.live {
		return nil, &transport.SessionError{Newest: s.sessions}
	}
	s.have = append(s.have, r)
	st := &stream{server: s, in: make(chan transport.Message, 10_000), broken: make(chan struct{})}
	for _, m := range s.sent {
		switch {
		case m.Assignment != nil && r.Have[m.Assignment.UUID].Revision >= m.Assignment.Revision:
		case m.Open != nil:
		default:
			st.in <- m
		}
	}
	s.streams[st] = true
	return st, nil
}

func (st *stream) Next(ctx context.Context) (transport.Message, error) {
	select {
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	case <-st.broken:
		return transport.Message{}, io.EOF
	case m := <-st.in:
		return m, nil
	}
}

func (st *stream) Close() error {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	delete(st.server.streams, st)
	return nil
}

func (s *server) Report(_ context.Context, r transport.Report) (transport.ReportReply, error) {
	if s.crash != nil {
		s.crash("before report")
		defer s.crash("after report")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return transport.ReportReply{}, errDown
	}
	if r.Session != s.live {
		return transport.ReportReply{}, &transport.SessionError{Newest: s.sessions}
	}
	s.reports = append(s.reports, r)
	if s.answer != nil {
		reply, err := s.answer(s, r)
		if err != nil {
			return reply, err
		}
		for i := range r.Tasks {
			if _, no := reply.Refused[r.Tasks[i].UUID]; !no {
				s.see(&r.Tasks[i])
			}
		}
		return reply, nil
	}
	for i := range r.Tasks {
		s.see(&r.Tasks[i])
	}
	return transport.ReportReply{}, nil
}

func (s *server) Stream(_ context.Context, id string) (io.ReadWriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.carried[id]
	if c == nil {
		return nil, errors.New("no such stream")
	}
	return c, nil
}

// say sends messages on all streams, also on later ones.
func (s *server) say(messages ...transport.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, messages...)
	for st := range s.streams {
		for _, m := range messages {
			st.in <- m
		}
	}
}

// cut breaks all streams and, unless up, answers nothing any more.
func (s *server) cut(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = !up
	for st := range s.streams {
		close(st.broken)
		delete(s.streams, st)
	}
}
