package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/names"
	"github.com/berthd/berth/internal/transport"
)

var aTask, another = netip.MustParseAddr("10.213.0.2"), netip.MustParseAddr("10.213.0.3")

// askName asks the name server like a task, and returns the nodes' addresses in short form.
func (w *world) askName(from netip.Addr, service string) (string, time.Duration) {
	began := time.Now()
	s, err := w.agent.names.Service(w.t.Context(), from, "default", service)
	text := ""
	switch {
	case errors.Is(err, names.ErrUnknown):
		text = "no answer"
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

// The first question for a service waits for the server, later ones do not wait. Changes take effect immediately, and
// services without questions are unfollowed.
func TestNamesFollowQueriedServices(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.setNodes("web", "1", "n1")
		if took := w.wantName("web", "192.0.2.1 "); took >= firstAnswerWithin {
			t.Errorf("the first answer took %v", took)
		}
		w.wantName("nobody", "missing")
		g.setNodes("web", "2", "n1", "n2")
		w.pass(time.Second)
		if took := w.wantName("web", "192.0.2.1 192.0.2.1 "); took > 0 {
			t.Errorf("a later answer took %v", took)
		}
		g.setNodes("web", "3")
		w.pass(time.Second)
		w.wantName("web", "")
		w.pass(2 * unknownNameFollowedFor)
		if left := followedServices(w); left != 1 {
			t.Errorf("%d services are followed, want the one that exists", left)
		}
		w.pass(nameFollowedFor + unknownNameFollowedFor)
		if asked := followedServices(w); asked != 0 {
			t.Errorf("after a long time %d services are still requested from a server", asked)
		}
	})
}

// Without an answer from a server, the first question waits a moment and the next ones do not. Addresses of an earlier
// run of the agent are then the answer.
func TestNamesWithoutAServer(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.setNodes("web", "1", "n1")
		w.wantName("web", "192.0.2.1 ")
		w.pass(2 * time.Second)
		g.fail(errDown)
		g.cut(false)
		w.pass(time.Minute)
		w.wantName("web", "192.0.2.1 ")
		if took := w.wantName("db", "no answer"); took != firstAnswerWithin {
			t.Errorf("it took %v", took)
		}
		if took := w.wantName("db", "no answer"); took != 0 {
			t.Errorf("the second time it took %v", took)
		}
		w.restart()
		if took := w.wantName("web", "192.0.2.1 "); took != firstAnswerWithin {
			t.Errorf("after a restart it took %v", took)
		}
		if took := w.wantName("web", "192.0.2.1 "); took != 0 {
			t.Errorf("the second time it took %v", took)
		}
	})
}

// A task with more and more names makes the agent follow a limited number of them. Other tasks can still ask, existing
// services stay known, and the task may ask again after a while.
func TestNamesAreBounded(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.setNodes("web", "1", "n1")
		g.setNodes("db", "1", "n1")
		w.wantName("web", "192.0.2.1 ")
		refused := 0
		for i := range 300 {
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			if _, err := w.agent.names.Service(ctx, another, "default", fmt.Sprintf("no-%d", i)); errors.Is(err,
				names.ErrUnknown) {
				refused++
			}
		}
		if refused != 300-maxNewNames {
			t.Errorf("%d of 300 names were not followed, want %d", refused, 300-maxNewNames)
		}
		if got, _ := w.askName(aTask, "db"); got != "192.0.2.1 " {
			t.Errorf("another task: got %q", got)
		}
		w.pass(10 * newNameEvery)
		if got, _ := w.askName(another, "no-1000"); got != "missing" {
			t.Errorf("after a while: got %q", got)
		}
		for i := range 2 * maxFollowedNames {
			from := netip.AddrFrom4([4]byte{10, 213, byte(i / 100), 9})
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			_, _ = w.agent.names.Service(ctx, from, "default", fmt.Sprintf("many-%d", i))
		}
		if n := followedServices(w); n != maxFollowedNames {
			t.Errorf("%d services are requested from a server, want %d", n, maxFollowedNames)
		}
		if took := w.wantName("web", "192.0.2.1 "); took != 0 {
			t.Errorf("what exists had to make room: it took %v", took)
		}
	})
}

// An unreadable address is left out.
func TestNamesOmitUnreadableAddresses(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.mu.Lock()
		g.services[webName] = transport.ServiceUpdate{
			Cluster: "default", Service: "web", Stamp: "1",
			Addresses: []transport.ServiceAddress{
				{Address: "host.example"}, {Address: "::ffff:192.0.2.7"}, {Address: ""},
			},
		}
		g.mu.Unlock()
		w.wantName("web", "192.0.2.7 ")
	})
}

// followedServices returns the number of services in requests to the server.
func followedServices(w *world) int {
	list, _ := w.agent.services.Request()
	return len(list)
}
