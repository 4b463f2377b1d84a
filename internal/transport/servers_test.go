package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// recordingDispatch is a Dispatch that accepts everything and records its callers.
type recordingDispatch struct {
	name    string
	servers []string
	fail    func() error
	slow    time.Duration // over a report

	mu       sync.Mutex
	sessions uint64
	reports  []Report
}

func (d *recordingDispatch) err() error {
	if d.fail == nil {
		return nil
	}
	return d.fail()
}

func (d *recordingDispatch) Register(context.Context, Registration) (Welcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.err(); err != nil {
		return Welcome{}, err
	}
	d.sessions++
	return Welcome{Session: d.sessions, Servers: d.servers, Wire: WireVersion}, nil
}

func (d *recordingDispatch) Report(_ context.Context, r Report) (ReportReply, error) {
	time.Sleep(d.slow) // in-bubble: where it is not 0
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.err(); err != nil {
		return ReportReply{}, err
	}
	d.reports = append(d.reports, r)
	return ReportReply{}, nil
}

func (d *recordingDispatch) Assign(ctx context.Context, _ AssignmentsRequest, send func([]Message) error) error {
	if err := send([]Message{{Synced: true}}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second): // in-bubble: every test that opens a stream here is in one
			d.mu.Lock()
			err := d.err()
			d.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
}

func (d *recordingDispatch) Carry(context.Context, string, io.ReadWriter) error { return nil }

// three returns servers with each other's addresses, and their addresses.
func three(t *testing.T, f fabric) (dispatchers map[string]*recordingDispatch, addresses []string) {
	t.Helper()
	dispatchers = map[string]*recordingDispatch{}
	for i := range 3 {
		addresses = append(addresses, fmt.Sprintf("http://s%d:7071", i+1))
	}
	for _, a := range addresses {
		dispatchers[a] = &recordingDispatch{name: a, servers: addresses}
		f.serve(t, a, dispatchers[a])
	}
	return dispatchers, addresses
}

// Servers share their agents, whether those were given all addresses or all the same one.
func TestServersShareAgents(t *testing.T) {
	for name, given := range map[string]int{"all addresses": 3, "one address": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				_, addresses := three(t, f)
				at := map[string]int{}
				const agents = 300
				for range agents {
					c := f.client(t, addresses[:given]...)
					if _, err := c.Register(t.Context(), Registration{Node: "n"}); err != nil {
						t.Fatal(err)
					}
					at[c.Server()]++
				}
				for _, a := range addresses {
					if at[a] < agents/3-50 || at[a] > agents/3+50 {
						t.Errorf("the agents are at %v, want about %d at each", at, agents/3)
						break
					}
				}
			})
		})
	}
}

// Agents leave a server that goes away for another, and stay there when the first comes back.
func TestAgentsLeaveADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		dispatchers, addresses := three(t, f)
		c := f.client(t, addresses...)
		if _, err := c.Register(t.Context(), Registration{}); err != nil {
			t.Fatal(err)
		}
		first := c.Server()
		f.Stop(first)
		var err error
		for range maxUnanswered {
			_, err = c.Report(t.Context(), Report{Node: "n1"})
		}
		if !errors.Is(err, ErrElsewhere) {
			t.Fatalf("a report to a server that went away: got %v, want ErrElsewhere", err)
		}
		f.serve(t, first, dispatchers[first])
		if _, err := c.Register(t.Context(), Registration{}); err != nil {
			t.Fatal(err)
		}
		second := c.Server()
		if second == first {
			t.Error("the agent registered where it had turned away from")
		}
		for range 10 {
			if _, err := c.Report(t.Context(), Report{Node: "n1"}); err != nil {
				t.Fatal(err)
			}
		}
		if c.Server() != second || len(dispatchers[second].reports) != 10 {
			t.Errorf("the agent did not stay at the server that works")
		}
	})
}

// TestAbandonedConnectionsEnd closes a client while a stream is still open: its connection must not outlive the stream,
// or each agent that moves would leave one behind on the server that it came from.
func TestAbandonedConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		open := map[net.Conn]bool{}
		var mu sync.Mutex
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		s := &http.Server{
			Handler: Handler(&script{
				register: func(Registration) (Welcome, error) {
					return Welcome{Session: 1, Wire: WireVersion, Heartbeat: cluster.Duration(time.Minute)}, nil
				},
				assign: func(ctx context.Context, _ AssignmentsRequest, send func([]Message) error) error {
					if err := send([]Message{{}}); err != nil {
						return err
					}
					<-ctx.Done()
					return ctx.Err()
				},
			}),
			Protocols: protocols, ReadHeaderTimeout: time.Second,
			ConnState: func(c net.Conn, state http.ConnState) {
				mu.Lock()
				defer mu.Unlock()
				switch state {
				case http.StateNew:
					open[c] = true
				case http.StateClosed, http.StateHijacked:
					delete(open, c)
				case http.StateActive, http.StateIdle:
				}
			},
		}
		ConfigureServer(s)
		f.Serve(t, "http://a:1", s)
		c := f.client(t, "http://a:1")
		if _, err := c.Register(t.Context(), Registration{Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		stream, err := c.Assignments(t.Context(), AssignmentsRequest{Node: "n1", Session: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Close()
		_ = stream.Close()          // its content is ignored
		time.Sleep(2 * time.Minute) // in-bubble: idle connections are closed meanwhile
		mu.Lock()
		defer mu.Unlock()
		if len(open) != 0 {
			t.Errorf("%d connections are open, want none", len(open))
		}
	})
}

// A registration tries one server after the other; that two of three are away costs no more than one call.
func TestRegistrationFindsALivingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		_, addresses := three(t, f)
		f.Cut(addresses[0])
		f.Stop(addresses[2])
		began := time.Now()
		for range 20 {
			c := f.client(t, addresses...)
			if _, err := c.Register(t.Context(), Registration{}); err != nil || c.Server() != addresses[1] {
				t.Fatalf("registered at %q: %v", c.Server(), err)
			}
		}
		if took := time.Since(began); took > 20*dialTimeout {
			t.Errorf("20 registrations took %v", took)
		}
		f.Stop(addresses[1])
		c := f.client(t, addresses...)
		if _, err := c.Register(t.Context(), Registration{}); err == nil {
			t.Error("registered although no server lives")
		}
	})
}

// A broken connection does not end the session with a server.
func TestBrokenConnectionIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		dispatchers, addresses := three(t, f)
		c := f.client(t, addresses...)
		if _, err := c.Register(t.Context(), Registration{}); err != nil {
			t.Fatal(err)
		}
		at := c.Server()
		for i := range 5 {
			f.Reset(at)
			for try := range 2 {
				_, err := c.Report(t.Context(), Report{Node: "n1", Seq: uint64(i)})
				if errors.Is(err, ErrElsewhere) {
					t.Fatalf("after reset %d, try %d: %v", i, try, err)
				}
				if err == nil {
					break
				}
			}
		}
		if n := len(dispatchers[at].reports); n != 5 {
			t.Errorf("the server has got %d reports, want 5", n)
		}
	})
}

// An agent with a report notices a server that hangs, and waits for a slow one.
func TestAgentsLeaveAHangingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		_, addresses := three(t, f)
		c := f.client(t, addresses...)
		if _, err := c.Register(t.Context(), Registration{}); err != nil {
			t.Fatal(err)
		}
		stream, err := c.Assignments(t.Context(), AssignmentsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close() }()
		if _, err := stream.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := c.Server()
		f.Cut(first)
		began := time.Now()
		for err = nil; !errors.Is(err, ErrElsewhere); {
			if _, err = c.Report(t.Context(), Report{Node: "n1"}); err == nil {
				t.Fatal("a report was answered by no server")
			}
		}
		if took, most := time.Since(began), aliveCheckAfter+aliveCheckTimeout+time.Second; took > most {
			t.Errorf("the server was left after %v, want at most %v", took, most)
		}
		if _, err := c.Register(t.Context(), Registration{}); err != nil || c.Server() == first {
			t.Errorf("registered at %s again: %v", c.Server(), err)
		}
	})
}

// An agent waits for a slow server that is alive.
func TestAgentsWaitForASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		dispatchers, addresses := three(t, f)
		for _, d := range dispatchers {
			d.slow = time.Minute
		}
		c := f.client(t, addresses...)
		if _, err := c.Register(t.Context(), Registration{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := c.Report(t.Context(), Report{Node: "n1"}); err != nil || time.Since(began) != time.Minute {
			t.Errorf("the report was answered after %v: %v", time.Since(began), err)
		}
	})
}

// A server that cannot serve sends its agents to others, on the stream and in the answer. Agents never leave the only
// server.
func TestServersSendAgentsAway(t *testing.T) {
	for name, others := range map[string]bool{"to others": true, "to no server": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				dispatchers, addresses := three(t, f)
				if !others {
					addresses = addresses[:1]
					dispatchers[addresses[0]].servers = nil
				}
				c := f.client(t, addresses...)
				if _, err := c.Register(t.Context(), Registration{}); err != nil {
					t.Fatal(err)
				}
				at := c.Server()
				stream, err := c.Assignments(t.Context(), AssignmentsRequest{})
				if err != nil {
					t.Fatal(err)
				}
				dispatchers[at].mu.Lock()
				dispatchers[at].fail = func() error { return fmt.Errorf("%w: no quorum", ErrElsewhere) }
				dispatchers[at].mu.Unlock()
				for err == nil {
					_, err = stream.Next(t.Context())
				}
				_, reported := c.Report(t.Context(), Report{Node: "n1"})
				for what, err := range map[string]error{"stream": err, "report": reported} {
					if errors.Is(err, ErrElsewhere) != others {
						t.Errorf("the %s ended with %v", what, err)
					}
				}
				if !others {
					return
				}
				if _, err := c.Register(t.Context(), Registration{}); err != nil || c.Server() == at {
					t.Errorf("registered at %s: %v", c.Server(), err)
				}
			})
		})
	}
}

// A client keeps the addresses of other servers that it can reach.
func TestLearnedServers(t *testing.T) {
	c, err := NewClient(ClientConfig{Addresses: []string{"unix:///run/s"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Learn([]string{"https://a:1", "ftp://b:1", ""})
	if got := c.Servers(); len(got) != 1 {
		t.Errorf("servers: got %q, want the given one alone: there is no certificate for https", got)
	}
	c.Learn([]string{"http://a:1", "http://b:1"})
	if got := c.Servers(); len(got) != 3 || got[2] != "unix:///run/s" {
		t.Errorf("servers: got %q, want the learned ones first", got)
	}
	c.Learn([]string{"http://b:1", "http://c:1"})
	if got := c.Servers(); len(got) != 3 {
		t.Errorf("servers: got %q, want b, c and the given one", got)
	}
	for _, bad := range []string{"", "host:1", "https://a:1", "unix://", "http://a"} {
		if _, err := NewClient(ClientConfig{Addresses: []string{bad}}); err == nil {
			t.Errorf("%q was taken as the address of a server", bad)
		}
	}
}

// The error of a registration that fails everywhere has the cause of each server.
func TestFailuresNameTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		dispatchers, addresses := three(t, f)
		for _, d := range dispatchers {
			d.fail = func() error { return fmt.Errorf("%w: no such node", ErrRefused) }
		}
		f.Stop(addresses[1])
		_, err := f.client(t, addresses...).Register(t.Context(), Registration{})
		if !errors.Is(err, ErrRefused) {
			t.Errorf("got %v, want ErrRefused", err)
		}
		for _, a := range addresses {
			if err != nil && !strings.Contains(err.Error(), a) {
				t.Errorf("%q does not name %s", err, a)
			}
		}
	})
}
