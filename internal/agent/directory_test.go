package agent

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/transport"
)

// addressServer is a server with the addresses of services.
type addressServer struct {
	*server
	mu       sync.Mutex
	services map[addresses.ServiceName]transport.ServiceUpdate
	changed  chan struct{}
	asked    []transport.AddressesRequest
	fails    error
	// differing makes it send differences.
	differing *differing
}

func newAddressServer(s *server) *addressServer {
	return &addressServer{
		server: s, services: map[addresses.ServiceName]transport.ServiceUpdate{}, changed: make(chan struct{}),
	}
}

// setNodes sets the addresses of a service of the cluster default.
func (g *addressServer) setNodes(service, stamp string, nodes ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	update := transport.ServiceUpdate{Cluster: "default", Service: service, Stamp: stamp}
	for _, n := range nodes {
		update.Addresses = append(update.Addresses,
			transport.ServiceAddress{Task: "default." + service + ".1.0", Node: n, Address: "192.0.2.1"})
	}
	g.services[addresses.ServiceName{Cluster: "default", Service: service}] = update
	close(g.changed)
	g.changed = make(chan struct{})
}

// fail makes all requests fail, also waiting ones, until err is nil.
func (g *addressServer) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails = err
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *addressServer) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.asked)
}

func (g *addressServer) Addresses(ctx context.Context, r transport.AddressesRequest) (reply transport.AddressesReply,
	err error,
) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, r)
	for {
		if g.fails != nil {
			return reply, g.fails
		}
		for _, s := range r.Services {
			update, ok := g.services[addresses.ServiceName{Cluster: s.Cluster, Service: s.Service}]
			if !ok {
				update = transport.ServiceUpdate{Cluster: s.Cluster, Service: s.Service, Missing: true, Stamp: "none"}
			}
			if update.Stamp == s.Stamp {
				continue
			}
			if g.differing != nil {
				update = g.differing.answer(update, s, r.Differences)
			}
			reply.Services = append(reply.Services, update)
		}
		if d := g.differing; d != nil && d.lose && len(reply.Services) > 0 {
			d.lose = false
			return transport.AddressesReply{}, errLost
		}
		if len(reply.Services) > 0 {
			return reply, nil
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			return reply, ctx.Err()
		}
	}
}

// withAddressServer runs a test in a bubble with an agent that can request addresses.
func withAddressServer(t *testing.T, test func(w *world, g *addressServer)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newAddressServer(w.server)
		w.source = g
		w.start()
		defer w.stop()
		test(w, g)
	})
}

var (
	webName = addresses.ServiceName{Cluster: "default", Service: "web"}
	dbName  = addresses.ServiceName{Cluster: "default", Service: "db"}
)

// nodesOf returns a short form of the known state.
func nodesOf(a addresses.Service) string {
	switch {
	case !a.Known:
		return "unknown"
	case a.Missing:
		return "missing"
	}
	text := ""
	if a.Stale {
		text = "old "
	}
	for _, s := range a.Addresses {
		text += s.Node
	}
	return text
}

func (w *world) wantNodes(f *addresses.Following, name addresses.ServiceName, want string) {
	w.t.Helper()
	if got := nodesOf(f.Now(name)); got != want {
		w.t.Errorf("%s: got %q, want %q", name.Service, got, want)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A follower gets the changes of each service, and loses none between two reads.
func TestDirectoryReportsChanges(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		d := w.agent.services
		w.pass(time.Minute)
		if n := g.requests(); n != 0 {
			t.Errorf("nothing is followed, and the server was asked %d times", n)
		}
		g.setNodes("web", "1", "n1")
		f := d.Follow(webName, dbName)
		defer f.Stop()
		w.wantNodes(f, webName, "unknown")
		first := f.Changed()
		w.pass(time.Second)
		if !closed(first) {
			t.Fatal("nothing was said of the first answer")
		}
		w.wantNodes(f, webName, "n1")
		if !closed(f.Changed()) {
			t.Error("the other service was not read, and its changes are lost")
		}
		w.wantNodes(f, dbName, "missing")
		again := f.Changed()
		w.pass(time.Minute)
		if closed(again) {
			t.Error("a change without any")
		}
		g.setNodes("other", "1", "n9")
		g.setNodes("db", "2", "n2")
		w.pass(time.Second)
		w.wantNodes(f, webName, "n1") // it has no changes; those of the other stay
		if !closed(again) || !closed(f.Changed()) {
			t.Error("no change of db")
		}
		w.wantNodes(f, dbName, "n2")
		if closed(f.Changed()) {
			t.Error("all is known, and there are changes")
		}
		other := d.Follow(webName)
		if !closed(other.Changed()) {
			t.Error("a new follower does not get the known addresses")
		}
		other.Stop()
		other.Stop()
		w.wantNodes(other, webName, "unknown")
		g.setNodes("web", "3")
		w.pass(time.Second)
		w.wantNodes(f, webName, "")
		if got := g.requests(); got > 8 {
			t.Errorf("the server was asked %d times for 4 answers", got)
		}
	})
}

// While no server answers, also after a restart of the agent, the last addresses stay in force. Then the server's
// answer replaces them.
func TestDirectoryOutlivesServersAndAgents(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.setNodes("web", "1", "n1")
		g.setNodes("db", "1", "n2")
		f := w.agent.services.Follow(webName, dbName)
		w.pass(2 * time.Second)
		w.wantNodes(f, webName, "n1")
		g.fail(errDown)
		g.cut(false)
		w.pass(time.Hour)
		w.wantNodes(f, webName, "n1")
		w.restart()
		f = w.agent.services.Follow(webName)
		defer f.Stop()
		w.pass(time.Hour)
		w.wantNodes(f, webName, "old n1")
		seen := f.Changed()
		g.setNodes("web", "2", "n3")
		g.fail(nil)
		g.cut(true)
		w.pass(time.Minute)
		w.wantNodes(f, webName, "n3")
		if !closed(seen) {
			t.Error("no change for the new service")
		}
		late := w.agent.services.Follow(dbName) // it had no follower for long
		defer late.Stop()
		w.wantNodes(late, dbName, "unknown")
		w.pass(time.Second)
		w.wantNodes(late, dbName, "n2")
	})
}

// After a restart an unchanged answer of the server ends staleness, although it is no change.
func TestDirectoryConfirmsStaleAddresses(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.setNodes("web", "1", "n1")
		w.agent.services.Follow(webName)
		w.pass(2 * time.Second)
		w.restart()
		g.mu.Lock() // the answer takes until then
		f := w.agent.services.Follow(webName)
		defer f.Stop()
		w.wantNodes(f, webName, "old n1")
		g.mu.Unlock()
		w.pass(time.Second)
		w.wantNodes(f, webName, "n1")
	})
}

// An unreadable file counts as missing.
func TestDirectoryFileIsBroken(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.setNodes("web", "1", "n1")
		w.agent.services.Follow(webName)
		w.pass(2 * time.Second)
		w.stop()
		name := filepath.Join(w.dir, addressFile)
		if text, err := os.ReadFile(name); err != nil || len(text) < 20 {
			t.Fatalf("the file: %q %v", text, err)
		}
		if err := os.WriteFile(name, []byte(`[{"cluster"`), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		f := w.agent.services.Follow(webName)
		defer f.Stop()
		w.wantNodes(f, webName, "unknown")
		w.pass(time.Second)
		w.wantNodes(f, webName, "n1")
	})
}

// The first request learns of the end of the session.
func TestDirectoryReceivesTheEndOfTheSession(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		f := w.agent.services.Follow(webName)
		defer f.Stop()
		w.pass(time.Second)
		g.fail(&transport.SessionError{Newest: 1, Detail: "over"})
		w.pass(200 * time.Millisecond)
		g.fail(nil)
		g.setNodes("web", "1", "n1")
		w.pass(time.Minute)
		w.server.mu.Lock()
		regs := len(w.server.regs)
		w.server.mu.Unlock()
		if regs < 2 {
			t.Errorf("registered %d times, want again", regs)
		}
		w.wantNodes(f, webName, "n1")
	})
}
