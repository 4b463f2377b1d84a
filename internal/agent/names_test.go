package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/names"
	"github.com/berthd/berth/internal/transport"
)

var aTask, another = netip.MustParseAddr("10.213.0.2"), netip.MustParseAddr("10.213.0.3")

// askName asks the desk as a task does, and says in short what it knows: the nodes' addresses.
func (w *world) askName(from netip.Addr, service string) (string, time.Duration) {
	began := time.Now()
	s, err := w.agent.names.Service(w.t.Context(), from, "default", service)
	text := ""
	switch {
	case errors.Is(err, names.ErrNotTold):
		text = "not told"
	case err != nil:
		text = err.Error()
	case s.Missing:
		text = "missing"
	}
	for _, a := range s.Addresses {
		text += a.Addr.String() + " "
	}
	return text, time.Since(began)
}

func (w *world) wantName(service, want string) time.Duration {
	w.t.Helper()
	got, took := w.askName(aTask, service)
	if got != want {
		w.t.Errorf("%s: got %q after %v, want %q", service, got, took, want)
	}
	return took
}

// The first question for a service waits for the server, later ones for nothing; what changes is answered at once, and
// what nobody asks for any more is let go.
func TestNamesFollowWhatIsAskedFor(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.tell("web", "1", "n1")
		if took := w.wantName("web", "192.0.2.1 "); took >= nameWait {
			t.Errorf("the first answer took %v", took)
		}
		w.wantName("nobody", "missing")
		g.tell("web", "2", "n1", "n2")
		w.pass(time.Second)
		if took := w.wantName("web", "192.0.2.1 192.0.2.1 "); took > 0 {
			t.Errorf("a later answer took %v", took)
		}
		g.tell("web", "3")
		w.pass(time.Second)
		w.wantName("web", "")
		w.pass(2 * unknownKept)
		w.agent.names.mu.Lock()
		left := len(w.agent.names.watched)
		w.agent.names.mu.Unlock()
		if left != 1 {
			t.Errorf("%d services are followed, want the one that exists", left)
		}
		w.pass(nameKept + unknownKept)
		asked := asked(w)
		if asked != 0 || len(w.agent.names.watched) != 0 || len(w.agent.names.askers) != 0 {
			t.Errorf("after long there are %d services that a server is asked for, %d watched, %d askers", asked,
				len(w.agent.names.watched), len(w.agent.names.askers))
		}
	})
}

// Where no server tells the first question waits a moment and the next ones do not; what an earlier life of the agent
// knew is answered then.
func TestNamesWithoutAServer(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.tell("web", "1", "n1")
		w.wantName("web", "192.0.2.1 ")
		w.pass(2 * time.Second)
		g.fail(errDown)
		g.cut(false)
		w.pass(time.Minute)
		w.wantName("web", "192.0.2.1 ")
		if took := w.wantName("db", "not told"); took != nameWait {
			t.Errorf("it took %v", took)
		}
		if took := w.wantName("db", "not told"); took != 0 {
			t.Errorf("the second time it took %v", took)
		}
		w.restart()
		if took := w.wantName("web", "192.0.2.1 "); took != nameWait {
			t.Errorf("after a restart it took %v", took)
		}
		if took := w.wantName("web", "192.0.2.1 "); took != 0 {
			t.Errorf("the second time it took %v", took)
		}
	})
}

// A task that asks for ever other names makes the agent follow a bounded number of them, keeps neither other tasks from
// asking nor those services from being known that exist, and may go on after a while.
func TestNamesAreBounded(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.tell("web", "1", "n1")
		g.tell("db", "1", "n1")
		w.wantName("web", "192.0.2.1 ")
		refused := 0
		for i := range 300 {
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			if _, err := w.agent.names.Service(ctx, another, "default", fmt.Sprintf("no-%d", i)); errors.Is(err,
				names.ErrNotTold) {
				refused++
			}
		}
		if refused != 300-newNames {
			t.Errorf("%d of 300 names were not followed, want %d", refused, 300-newNames)
		}
		if got, _ := w.askName(aTask, "db"); got != "192.0.2.1 " {
			t.Errorf("another task: got %q", got)
		}
		w.pass(10 * newNamesEvery)
		if got, _ := w.askName(another, "no-1000"); got != "missing" {
			t.Errorf("after a while: got %q", got)
		}
		for i := range 2 * mostNames {
			from := netip.AddrFrom4([4]byte{10, 213, byte(i / 100), 9})
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			_, _ = w.agent.names.Service(ctx, from, "default", fmt.Sprintf("many-%d", i))
		}
		if n := len(w.agent.names.watched); n != mostNames {
			t.Errorf("%d services are followed, want %d", n, mostNames)
		}
		if n := asked(w); n != mostNames {
			t.Errorf("a server is asked for %d services, want %d", n, mostNames)
		}
		if took := w.wantName("web", "192.0.2.1 "); took != 0 {
			t.Errorf("what exists had to make room: it took %v", took)
		}
	})
}

// An address that cannot be read is left out.
func TestNamesLeaveOutWhatIsNoAddress(t *testing.T) {
	withGuide(t, func(w *world, g *guide) {
		g.mu.Lock()
		g.services[webName] = transport.ServiceTold{
			Cluster: "default", Service: "web", Stamp: "1",
			Addresses: []transport.ServiceAddress{
				{Address: "host.example"}, {Address: "::ffff:192.0.2.7"}, {Address: ""},
			},
		}
		g.mu.Unlock()
		w.wantName("web", "192.0.2.7 ")
	})
}

// A file that tasks see stays the same one when its text changes, and is not touched where it does not.
func TestKeepFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resolv", "default")
	for _, text := range []string{"one", "one", "other"} {
		before, _ := os.Stat(name)
		if err := keepFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(name)
		if err != nil || before != nil && !os.SameFile(before, after) {
			t.Errorf("%s: another file, or %v", text, err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// asked returns how many services a server is asked for.
func asked(w *world) int {
	list, _ := w.agent.directory().asked()
	return len(list)
}
