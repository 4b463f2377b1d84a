package workertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/transport"
)

// heartbeat is the interval of reports that the server asks for.
const heartbeat = time.Second

// server is a scripted server: the case says what it assigns and answers.
type server struct {
	address string
	http    *http.Server

	mu      sync.Mutex
	changed chan struct{} // closed at each change, and replaced
	session uint64        // the newest
	token   cluster.Token
	rev     uint64
	sent    []transport.Message // all messages, which each stream gets from the beginning
	held    bool                // answers to start barriers wait
	refuse  *transport.Refused  // the answer to start barriers, unless nil

	assigned map[string]transport.Assignment // the newest, by UUID
	order    []string                        // UUIDs in the order of their first assignment
	seen     map[string]cluster.Observed     // newest report of each attempt
	regs     []transport.Registration
	calls    int // reports
	seq      uint64
	faults   []string
}

func newServer() *server {
	return &server{
		changed: make(chan struct{}), token: cluster.Token{Generation: 1, Incarnation: 1000, Epoch: 1},
		assigned: map[string]transport.Assignment{}, seen: map[string]cluster.Observed{},
	}
}

// listen serves, at the same address as before.
func (s *server) listen() error {
	if s.address == "" {
		s.address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", s.address) //nolint:noctx // close ends it
	if err != nil {
		return fmt.Errorf("serve the worker protocol: %w", err)
	}
	s.address = l.Addr().String()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{Handler: transport.Handler(s), ReadHeaderTimeout: time.Minute, Protocols: &protocols}
	go func(h *http.Server) { _ = h.Serve(l) }(s.http) // until close
	return nil
}

// close breaks all connections and refuses new ones.
func (s *server) close() { _ = s.http.Close() }

func (s *server) url() string { return "http://" + s.address }

// set changes the script.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// hold withholds answers to start barriers until release.
func (s *server) hold() { s.set(func() { s.held = true }) }

func (s *server) release() { s.set(func() { s.held = false }) }

// endSession ends the session, as a newer one does.
func (s *server) endSession() { s.set(func() { s.session += 2 }) }

// say sends messages on the present stream and on all later ones.
func (s *server) say(all ...transport.Message) { s.set(func() { s.sent = append(s.sent, all...) }) }

// repeat sends all messages again, oldest first.
func (s *server) repeat() { s.set(func() { s.sent = append(s.sent, s.sent...) }) }

// assign assigns a new attempt of a job to a node. Its program is a script.
func (s *server) assign(node, script string) (uuid string) {
	s.set(func() {
		n := len(s.order)
		s.rev++
		uuid = fmt.Sprintf("%08d-0000-4000-8000-%012d", n, time.Now().UnixNano()%1e12)
		def := cluster.TaskDefinition{
			Name: fmt.Sprintf("work-%d", n), Version: 1, Grace: cluster.Duration(time.Second),
			Containers: []cluster.Container{{Name: "main", Command: []string{"/bin/sh", "-c", script}}},
		}
		a := transport.Assignment{
			Desired: cluster.Desired{
				Task: cluster.TaskID(fmt.Sprintf("default.work.1.main.%d", n)), Attempt: 1, UUID: uuid, Node: node,
				Owner:      cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "work"},
				Definition: cluster.Ref{Name: def.Name, Version: 1}, Count: 1, Priority: 50, Token: s.token,
				Placed: time.Now(), Plan: s.rev,
			},
			Revision: s.rev,
		}
		s.order = append(s.order, uuid)
		s.assigned[uuid] = a
		s.sent = append(s.sent, transport.Message{Definition: &def}, transport.Message{Assignment: &a})
	})
	return uuid
}

// stop assigns the stop of an attempt.
func (s *server) stop(uuid string, stop cluster.Stop) {
	s.set(func() {
		s.rev++
		a := s.assigned[uuid]
		a.Revision, a.Stop = s.rev, &stop
		s.assigned[uuid] = a
		s.sent = append(s.sent, transport.Message{Assignment: &a})
	})
}

// sayOldStop sends a stop that a leader of an earlier epoch wrote.
func (s *server) sayOldStop(uuid string) {
	s.set(func() {
		a := s.assigned[uuid]
		a.Token.Epoch--
		a.Revision++
		a.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonReplaced}
		s.sent = append(s.sent, transport.Message{Assignment: &a})
	})
}

func (s *server) uuids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// newest returns the newest report of an attempt.
func (s *server) newest(uuid string) cluster.Observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[uuid]
}

// wasBegun says whether an attempt was reported.
func (s *server) wasBegun(uuid string) bool { return s.newest(uuid).UUID != "" }

func (s *server) registrations() []transport.Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.regs)
}

func (s *server) reports() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// noFaults fails the case if the worker sent something that no order of messages permits.
func (b *bench) noFaults() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		b.Errorf("%s", f)
	}
}

// Register implements transport.Dispatch.
func (s *server) Register(_ context.Context, r transport.Registration) (transport.Welcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Previous != s.session {
		return transport.Welcome{}, &transport.SessionError{Newest: s.session, Detail: "a newer session has begun"}
	}
	wire, err := r.Speaks()
	if err != nil {
		return transport.Welcome{}, err
	}
	s.session++
	s.seq = 0
	s.regs = append(s.regs, r)
	for i := range r.Tasks {
		s.see(&r.Tasks[i])
	}
	return transport.Welcome{
		Session: s.session, Token: s.token, Heartbeat: cluster.Duration(heartbeat), Wire: wire,
	}, nil
}

// see notes a report of an attempt. s.mu is held.
func (s *server) see(o *cluster.Observed) {
	if was := s.seen[o.UUID]; was.State.Terminal() && was.State != o.State {
		s.faults = append(s.faults, fmt.Sprintf("an attempt that was %s is reported as %s", was.State, o.State))
	}
	s.seen[o.UUID] = *o
}

// Assign implements transport.Dispatch.
func (s *server) Assign(ctx context.Context, r transport.AssignmentsRequest,
	send func([]transport.Message) error,
) error {
	synced := transport.Message{Synced: true}
	for sent := 0; ; {
		s.mu.Lock()
		newest, changed := s.session, s.changed
		messages := slices.Clone(s.sent[min(sent, len(s.sent)):])
		sent = len(s.sent)
		s.mu.Unlock()
		if r.Session != newest {
			return &transport.SessionError{Newest: newest, Detail: "a newer session has begun"}
		}
		if synced.Synced {
			messages, synced = append(messages, synced), transport.Message{}
		}
		if len(messages) > 0 {
			if err := send(messages); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Report implements transport.Dispatch.
func (s *server) Report(ctx context.Context, r transport.Report) (transport.ReportReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Session != s.session {
		return transport.ReportReply{}, &transport.SessionError{Newest: s.session, Detail: "a newer session has begun"}
	}
	if r.Seq != s.seq && r.Seq != s.seq+1 {
		s.faults = append(s.faults, fmt.Sprintf("report %d came after report %d", r.Seq, s.seq))
	}
	s.seq = r.Seq
	s.calls++
	reply := transport.ReportReply{Heartbeat: cluster.Duration(heartbeat), Token: s.token}
	for i := range r.Tasks {
		o := &r.Tasks[i]
		s.see(o)
		if o.State != cluster.StateStarting {
			continue
		}
		for s.held {
			changed := s.changed
			s.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-changed:
			}
			s.mu.Lock()
			if ctx.Err() != nil {
				return reply, ctx.Err()
			}
		}
		if s.refuse != nil {
			if reply.Refused == nil {
				reply.Refused = map[string]transport.Refused{}
			}
			reply.Refused[o.UUID] = *s.refuse
		}
	}
	return reply, nil
}

// errNoStream refuses byte streams, which no case requests.
var errNoStream = errors.New("no request waits for the stream")

// Carry implements transport.Dispatch.
func (s *server) Carry(context.Context, string, io.ReadWriter) error { return errNoStream }

var _ suite.T = (*bench)(nil)
