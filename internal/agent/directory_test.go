package agent

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/transport"
)

// guide is a server that tells where services are reached.
type guide struct {
	*server
	mu       sync.Mutex
	services map[serviceName]transport.ServiceTold
	changed  chan struct{}
	asked    []transport.AddressesRequest
	fails    error
	// differing has it tell differences.
	differing *differing
}

func newGuide(s *server) *guide {
	return &guide{server: s, services: map[serviceName]transport.ServiceTold{}, changed: make(chan struct{})}
}

// tell says what there is to say of a service of the cluster default.
func (g *guide) tell(service, stamp string, nodes ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	told := transport.ServiceTold{Cluster: "default", Service: service, Stamp: stamp}
	for _, n := range nodes {
		told.Addresses = append(told.Addresses,
			transport.ServiceAddress{Task: "default." + service + ".1.0", Node: n, Address: "192.0.2.1"})
	}
	g.services[serviceName{"default", service}] = told
	close(g.changed)
	g.changed = make(chan struct{})
}

// fail makes all requests fail, those that wait too, until it is nil.
func (g *guide) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails = err
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *guide) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.asked)
}

func (g *guide) Addresses(ctx context.Context, r transport.AddressesRequest) (reply transport.AddressesReply,
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
			told, ok := g.services[serviceName{s.Cluster, s.Service}]
			if !ok {
				told = transport.ServiceTold{Cluster: s.Cluster, Service: s.Service, Missing: true, Stamp: "none"}
			}
			if told.Stamp == s.Stamp {
				continue
			}
			if g.differing != nil {
				told = g.differing.answer(told, s, r.Differences)
			}
			reply.Services = append(reply.Services, told)
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

// withGuide runs a test in a bubble with an agent that can ask for addresses.
func withGuide(t *testing.T, test func(w *world, g *guide)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGuide(w.server)
		w.source = g
		w.start()
		defer w.stop()
		test(w, g)
	})
}

var webName, dbName = serviceName{"default", "web"}, serviceName{"default", "db"}

// nodes says in short what is known.
func (a serviceAddresses) nodes() string {
	switch {
	case !a.Known:
		return "unknown"
	case a.Missing:
		return "missing"
	}
	text := ""
	if a.Old {
		text = "old "
	}
	for _, s := range a.Addresses {
		text += s.Node
	}
	return text
}

func (w *world) wantNodes(f *following, name serviceName, want string) {
	w.t.Helper()
	if got := f.now(name).nodes(); got != want {
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

// Who follows services is told of each once something new is to be said, and no news are lost between two looks.
func TestDirectoryTellsNews(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		d := w.agent.directory()
		w.pass(time.Minute)
		if n := g.requests(); n != 0 {
			t.Errorf("nobody follows anything, and the server was asked %d times", n)
		}
		g.tell("web", "1", "n1")
		f := d.follow(webName, dbName)
		defer f.stop()
		w.wantNodes(f, webName, "unknown")
		first := f.changed()
		w.pass(time.Second)
		if !closed(first) {
			t.Fatal("nothing was said of the first answer")
		}
		w.wantNodes(f, webName, "n1")
		if !closed(f.changed()) {
			t.Error("the other service was not looked at, and its news are gone")
		}
		w.wantNodes(f, dbName, "missing")
		again := f.changed()
		w.pass(time.Minute)
		if closed(again) {
			t.Error("news without any")
		}
		g.tell("other", "1", "n9")
		g.tell("db", "2", "n2")
		w.pass(time.Second)
		w.wantNodes(f, webName, "n1") // it has none; those of the other stay
		if !closed(again) || !closed(f.changed()) {
			t.Error("no news of db")
		}
		w.wantNodes(f, dbName, "n2")
		if closed(f.changed()) {
			t.Error("all is known, and there are news")
		}
		other := d.follow(webName)
		if !closed(other.changed()) {
			t.Error("what is known already is no news for somebody new")
		}
		other.stop()
		other.stop()
		w.wantNodes(other, webName, "unknown")
		g.tell("web", "3")
		w.pass(time.Second)
		w.wantNodes(f, webName, "")
		if got := g.requests(); got > 8 {
			t.Errorf("the server was asked %d times for 4 answers", got)
		}
	})
}

// While no server answers, and when the agent is started anew without one, what was told last stands. Then it is told
// anew.
func TestDirectoryOutlivesServersAndAgents(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.tell("web", "1", "n1")
		g.tell("db", "1", "n2")
		f := w.agent.directory().follow(webName, dbName)
		w.pass(2 * time.Second)
		w.wantNodes(f, webName, "n1")
		g.fail(errDown)
		g.cut(false)
		w.pass(time.Hour)
		w.wantNodes(f, webName, "n1")
		w.restart()
		f = w.agent.directory().follow(webName)
		defer f.stop()
		w.pass(time.Hour)
		w.wantNodes(f, webName, "old n1")
		seen := f.changed()
		g.tell("web", "2", "n3")
		g.fail(nil)
		g.cut(true)
		w.pass(time.Minute)
		w.wantNodes(f, webName, "n3")
		if !closed(seen) {
			t.Error("no news of what is new")
		}
		late := w.agent.directory().follow(dbName) // nobody followed it for long
		defer late.stop()
		w.wantNodes(late, dbName, "unknown")
		w.pass(time.Second)
		w.wantNodes(late, dbName, "n2")
	})
}

// What the server tells the same as before after a restart is no longer old, although it has nothing new.
func TestDirectoryConfirmsWhatIsOld(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.tell("web", "1", "n1")
		w.agent.directory().follow(webName)
		w.pass(2 * time.Second)
		w.restart()
		g.mu.Lock() // the answer takes until then
		f := w.agent.directory().follow(webName)
		defer f.stop()
		w.wantNodes(f, webName, "old n1")
		g.mu.Unlock()
		w.pass(time.Second)
		w.wantNodes(f, webName, "n1")
	})
}

// A file that cannot be read is as none.
func TestDirectoryFileIsBroken(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.tell("web", "1", "n1")
		w.agent.directory().follow(webName)
		w.pass(2 * time.Second)
		w.stop()
		name := filepath.Join(w.dir, directoryFile)
		if text, err := os.ReadFile(name); err != nil || len(text) < 20 {
			t.Fatalf("the file: %q %v", text, err)
		}
		if err := os.WriteFile(name, []byte(`[{"cluster"`), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		f := w.agent.directory().follow(webName)
		defer f.stop()
		w.wantNodes(f, webName, "unknown")
		w.pass(time.Second)
		w.wantNodes(f, webName, "n1")
	})
}

// A server that knows no such request is asked once in a session, and a session with another one is.
func TestDirectoryAtAnOlderServer(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.fail(transport.ErrUnknown)
		f := w.agent.directory().follow(webName)
		defer f.stop()
		w.pass(time.Hour)
		if got := g.requests(); got != 1 {
			t.Errorf("it was asked %d times", got)
		}
		g.fail(nil)
		g.tell("web", "1", "n1")
		w.server.mu.Lock()
		g.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{}, &transport.SessionError{Detail: "another server"}
		}
		w.server.mu.Unlock()
		w.pass(10 * time.Second)
		w.server.mu.Lock()
		g.server.answer = nil
		w.server.mu.Unlock()
		w.pass(time.Minute)
		w.wantNodes(f, webName, "n1")
	})
}

// The end of the session is heard of by whichever request comes first.
func TestDirectoryHearsTheEndOfTheSession(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		f := w.agent.directory().follow(webName)
		defer f.stop()
		w.pass(time.Second)
		g.fail(&transport.SessionError{Newest: 1, Detail: "over"})
		w.pass(200 * time.Millisecond)
		g.fail(nil)
		g.tell("web", "1", "n1")
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
