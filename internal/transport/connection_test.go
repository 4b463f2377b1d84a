package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// script is a Dispatch with functions of the test.
type script struct {
	register func(Registration) (Welcome, error)
	assign   func(context.Context, AssignmentsRequest, func([]Message) error) error
	report   func(Report) (ReportReply, error)
	carry    func(context.Context, string, io.ReadWriter) error
}

func (s *script) Register(_ context.Context, r Registration) (Welcome, error) { return s.register(r) }
func (s *script) Report(_ context.Context, r Report) (ReportReply, error)     { return s.report(r) }

func (s *script) Assign(ctx context.Context, r AssignmentsRequest, send func([]Message) error) error {
	return s.assign(ctx, r, send)
}

func (s *script) Carry(ctx context.Context, id string, stream io.ReadWriter) error {
	return s.carry(ctx, id, stream)
}

// serve listens on a unix socket until the returned function is called.
func serve(t *testing.T, path string, d Dispatch) (stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: Handler(d), Protocols: protocols, ReadHeaderTimeout: time.Second}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(listener) })
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = s.Close()
			running.Wait()
		})
	}
	t.Cleanup(stop)
	return stop
}

// dial returns a client of a server with a script.
func dial(t *testing.T, d Dispatch) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, d)
	return connect(t, path)
}

func connect(t *testing.T, path string) *Client {
	t.Helper()
	c, err := NewClient(ClientConfig{Addresses: []string{"unix://" + path}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRegisterAndReport(t *testing.T) {
	c := dial(t, &script{
		register: func(r Registration) (Welcome, error) {
			return Welcome{Session: r.Previous + 1, Wire: WireVersion, Heartbeat: cluster.Duration(time.Second)}, nil
		},
		report: func(r Report) (ReportReply, error) {
			return ReportReply{Refused: map[string]Refused{
				r.Tasks[0].UUID: {Reason: cluster.ReasonBarrier, Message: "no"},
			}}, nil
		},
	})
	w, err := c.Register(t.Context(), Registration{Node: "n1", Previous: 4})
	if err != nil || w.Session != 5 {
		t.Errorf("register: got %+v %v, want session 5", w, err)
	}
	reply, err := c.Report(t.Context(), Report{Node: "n1", Session: 5, Seq: 1, Tasks: []cluster.Observed{{UUID: "u"}}})
	if err != nil || reply.Refused["u"].Message != "no" {
		t.Errorf("report: got %+v %v, want u refused", reply, err)
	}
}

func TestErrorsTravel(t *testing.T) {
	for name, c := range map[string]struct{ sent, want error }{
		"session": {&SessionError{Newest: 7, Detail: "older"}, ErrSession},
		"refused": {ErrRefused, ErrRefused},
		"other":   {errors.New("disk"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, &script{
				register: func(Registration) (Welcome, error) { return Welcome{}, c.sent },
				assign:   func(context.Context, AssignmentsRequest, func([]Message) error) error { return c.sent },
			})
			_, err := client.Register(t.Context(), Registration{})
			_, streamErr := client.Assignments(t.Context(), AssignmentsRequest{})
			for _, err := range []error{err, streamErr} {
				var over *SessionError
				switch {
				case err == nil, c.want != nil && !errors.Is(err, c.want):
					t.Errorf("got %v, want %v", err, c.want)
				case errors.As(err, &over) && over.Newest != 7:
					t.Errorf("newest session: got %d, want 7", over.Newest)
				case c.want == nil && (errors.Is(err, ErrSession) || errors.Is(err, ErrRefused)):
					t.Errorf("got %v, want a fault that may pass", err)
				}
			}
		})
	}
}

func TestAssignmentsArriveInOrder(t *testing.T) {
	c := dial(t, &script{assign: func(_ context.Context, r AssignmentsRequest, send func([]Message) error) error {
		if r.Have["u"].Revision != 3 {
			return errors.New("the request did not arrive whole")
		}
		for i := range 1000 {
			if err := send([]Message{{Forget: &Forget{UUID: strings.Repeat("x", i)}}, {Ping: true}}); err != nil {
				return err
			}
		}
		return &SessionError{Newest: 9, Detail: "a newer one began"}
	}})
	a, err := c.Assignments(t.Context(), AssignmentsRequest{Node: "n1", Have: map[string]Known{"u": {Revision: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	for i := range 1000 {
		m, err := a.Next(t.Context())
		if err != nil || m.Forget == nil || len(m.Forget.UUID) != i {
			t.Fatalf("message %d: got %+v %v", i, m, err)
		}
		if m, err = a.Next(t.Context()); err != nil || !m.Ping {
			t.Fatalf("message after %d: got %+v %v, want a ping", i, m, err)
		}
	}
	var over *SessionError
	if _, err := a.Next(t.Context()); !errors.As(err, &over) || over.Newest != 9 {
		t.Errorf("the end: got %v, want a session error that names 9", err)
	}
}

// A server that goes away ends the streams; the same client then talks to its successor.
func TestServerRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := &script{
		register: func(Registration) (Welcome, error) { return Welcome{Session: 1, Wire: WireVersion}, nil },
		assign: func(ctx context.Context, _ AssignmentsRequest, send func([]Message) error) error {
			if err := send([]Message{{Synced: true}}); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}
	stop := serve(t, path, d)
	c := connect(t, path)
	a, err := c.Assignments(t.Context(), AssignmentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := a.Next(t.Context()); err != nil || !m.Synced {
		t.Fatalf("first message: got %+v %v", m, err)
	}
	stop()
	if _, err := a.Next(t.Context()); err == nil || errors.Is(err, ErrSession) {
		t.Errorf("the stream of a server that went away: got %v, want a fault that may pass", err)
	}
	if _, err := c.Register(t.Context(), Registration{}); err == nil {
		t.Error("registered at a server that is away")
	}
	serve(t, path, d)
	testkit.Eventually(t, 5*time.Second, func() error {
		_, err := c.Register(t.Context(), Registration{})
		return err
	})
}

func TestNextEndsWithItsContext(t *testing.T) {
	gone := make(chan struct{})
	c := dial(t, &script{assign: func(ctx context.Context, _ AssignmentsRequest, send func([]Message) error) error {
		defer close(gone)
		if err := send([]Message{{Synced: true}}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}})
	a, err := c.Assignments(t.Context(), AssignmentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := a.Next(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := a.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("next: got %v, want the context's error", err)
	}
	<-gone // the server's call ends too
}

func TestStreamBothWays(t *testing.T) {
	c := dial(t, &script{carry: func(_ context.Context, id string, stream io.ReadWriter) error {
		got, err := io.ReadAll(stream)
		if err != nil {
			return err
		}
		_, err = stream.Write(append([]byte(id+": "), bytes.ToUpper(got)...))
		return err
	}})
	s, err := c.Stream(t.Context(), "id1")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := s.Write(bytes.Repeat([]byte("a"), 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(s)
	if want := "id1: " + strings.Repeat("A", 1_000_000); err != nil || string(got) != want {
		t.Errorf("answer: got %d bytes %v, want %d", len(got), err, len(want))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// When the server has had enough, the agent's writes end, and so does its reading.
func TestStreamThatTheServerEnds(t *testing.T) {
	c := dial(t, &script{carry: func(_ context.Context, _ string, stream io.ReadWriter) error {
		_, err := stream.Read(make([]byte, 10))
		return err
	}})
	s, err := c.Stream(t.Context(), "id1")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = s.Write(make([]byte, 64<<10))
	}
	if n, err := io.Copy(io.Discard, s); n != 0 {
		t.Errorf("read after the end: got %d bytes %v, want none", n, err)
	}
	_ = s.Close()
}

// An agent that does not read cannot block the server's call without limit: the end of the stream ends its writes.
func TestStreamOfAnAgentThatDoesNotRead(t *testing.T) {
	returned := make(chan struct{})
	d := &script{carry: func(_ context.Context, _ string, stream io.ReadWriter) error {
		go func() {
			defer close(returned)
			for err := error(nil); err == nil; {
				_, err = stream.Write(make([]byte, 64<<20)) // more than any window takes
			}
		}()
		_, err := stream.Read(make([]byte, 1)) // until the write has begun
		return err                             // the requester of the stream has gone
	}}
	c := dial(t, d)
	s, err := c.Stream(t.Context(), "id1")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func([]byte) (int, error){s.Read, s.Write} {
		if _, err := step(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-returned:
	case <-testkit.Context(t, 10*time.Second).Done():
		t.Error("the write continues after the end of the call")
	}
	_ = s.Close()
}

// An unread byte stream blocks only itself.
func TestUnreadStreamBlocksNoReport(t *testing.T) {
	c := dial(t, &script{
		carry: func(ctx context.Context, _ string, _ io.ReadWriter) error {
			<-ctx.Done()
			return ctx.Err()
		},
		report: func(r Report) (ReportReply, error) { return ReportReply{}, nil },
	})
	var blocked sync.WaitGroup
	var written atomic.Int64
	defer blocked.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		s, err := c.Stream(ctx, "id1")
		if err != nil {
			t.Fatal(err)
		}
		blocked.Go(func() {
			for err := error(nil); err == nil; {
				_, err = s.Write(make([]byte, 64<<10))
				written.Add(1)
			}
		})
	}
	last := int64(0)
	testkit.Eventually(t, 10*time.Second, func() error { // all of them wait for a reader
		n := written.Load()
		if n > 0 && n == last {
			return nil
		}
		last = n
		return errors.New("something is still being written")
	})
	brief := testkit.Context(t, 5*time.Second)
	for i := range 10 {
		if _, err := c.Report(brief, Report{Node: strings.Repeat("n", 100_000), Seq: uint64(i)}); err != nil {
			t.Fatalf("a report beside streams without a reader: %v", err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON": "x", "truncated": `{"node":`, "wrong type": `{"node":1}`, "empty": "",
		"huge": `{"node":"` + strings.Repeat("n", maxReply) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, &script{register: func(r Registration) (Welcome, error) {
				return Welcome{}, errors.New("it was taken")
			}})
			l, err := c.servers.currentLink()
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.base()+PathRegister,
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.send(l.http, req) //nolint:bodyclose // it is an error
			if err == nil || !strings.Contains(err.Error(), "400") {
				t.Errorf("got %v, want 400", err)
			}
		})
	}
}
