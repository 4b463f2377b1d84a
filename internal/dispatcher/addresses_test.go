package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// serviceFixture is a fixture with services, and an agent that follows their addresses.
type serviceFixture struct {
	*fixture
	session uint64
	known   map[string]string // stamps by service
}

func inServiceWorld(t *testing.T, do func(t *testing.T, w *serviceFixture)) {
	t.Helper()
	withFixture(t, func(t *testing.T, f *fixture) {
		c := &serviceFixture{fixture: f, known: map[string]string{}}
		c.session = f.register("n1").Session
		c.node("n1", cluster.NodeReady)
		do(t, c)
	})
}

func (w *serviceFixture) node(name string, state cluster.NodeState) {
	w.t.Helper()
	w.put(p.Node(name), &cluster.Node{Name: name, State: state, Domain: cluster.DefaultDomain})
}

func (w *serviceFixture) service(name string) {
	w.t.Helper()
	w.put(p.Service("c", name),
		&cluster.Service{
			Cluster: "c", Name: name, Lifespan: cluster.Lifespan{Generation: 1},
			Definition: cluster.Ref{Name: "d", Version: 1},
		})
}

// task puts a task of a service on a node.
func (w *serviceFixture) task(service string, index int, node string, health cluster.Health) {
	w.t.Helper()
	id := cluster.ServiceTask("c", service, 1, index)
	d := cluster.Desired{
		Task: id, Attempt: 1, UUID: "u-" +
			string(id), Node: node, Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: service},
		Definition: cluster.Ref{Name: "d", Version: 1}, Ports: map[string]int{"http": 20000 + index},
	}
	w.put(p.Desired(node, id), &d)
	w.put(p.Observed(node, id),
		&cluster.Observed{Task: id, Attempt: 1, UUID: d.UUID, Node: node, State: cluster.StateRunning, Health: health})
}

// ask sends the known stamps, and keeps the answer.
func (w *serviceFixture) ask(ctx context.Context, services ...string) ([]transport.ServiceUpdate, error) {
	r := transport.AddressesRequest{Node: "n1", Session: w.session}
	for _, s := range services {
		r.Services = append(r.Services, transport.ServiceRequest{Cluster: "c", Service: s, Stamp: w.known[s]})
	}
	reply, err := w.Addresses(ctx, r)
	for _, updates := range reply.Services {
		w.known[updates.Service] = updates.Stamp
	}
	return reply.Services, err
}

// formatAnswer returns a short form of the answer.
func formatAnswer(updates []transport.ServiceUpdate) (list []string) {
	for _, s := range updates {
		text := s.Service
		if s.Missing {
			text += " missing"
		}
		for _, a := range s.Addresses {
			text += fmt.Sprintf(" %s:%d", a.Node, a.Ports["http"])
		}
		list = append(list, text)
	}
	return list
}

// want sends a request and compares the answer after a second of the bubble's clock, in which nothing else happens.
func (w *serviceFixture) want(services []string, want ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	updates, err := w.ask(ctx, services...)
	if len(want) == 0 && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(want, formatAnswer(updates), cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// An agent receives only changes, whether tasks, nodes or the service itself changed.
func TestAddressesSendChanges(t *testing.T) {
	inServiceWorld(t, func(_ *testing.T, w *serviceFixture) {
		all := []string{"db", "web"}
		w.want(all, "db missing", "web missing")
		w.want(all)
		w.service("web")
		w.want(all, "web")
		w.task("web", 0, "n1", cluster.HealthHealthy)
		w.want(all, "web n1:20000")
		w.task("web", 1, "n1", cluster.HealthHealthy)
		w.service("db")
		w.want(all, "db", "web n1:20000 n1:20001")
		w.task("web", 0, "n1", cluster.HealthFailing)
		w.want(all, "web n1:20001")
		w.register("n2")
		w.node("n2", cluster.NodeReady)
		w.task("db", 0, "n2", cluster.HealthHealthy)
		w.want(all, "db n2:20000")
		w.want(all)
		w.task("db", 1, "n1", cluster.HealthHealthy)
		w.want(all, "db n2:20000 n1:20001")
		w.node("n2", cluster.NodeSuspect)
		w.want(all, "db n1:20001")
		w.node("n2", cluster.NodeReady)
		w.want(all, "db n2:20000 n1:20001")
		w.remove(p.Service("c", "db"))
		w.want(all, "db missing")
	})
}

// An agent with the present lists gets an answer when a followed service changes, and an empty answer after a while.
func TestAddressesWait(t *testing.T) {
	inServiceWorld(t, func(t *testing.T, w *serviceFixture) {
		w.service("web")
		w.service("other")
		w.want([]string{"web"}, "web")
		began := time.Now()
		if updates, err := w.ask(t.Context(), "web"); err != nil || len(updates) > 0 ||
			time.Since(began) != transport.AddressesWait {
			t.Errorf("nothing changed: got %v, %v after %v", updates, err, time.Since(began))
		}
		var updates []transport.ServiceUpdate
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			updates, _ = w.ask(t.Context(), "web")
		}()
		synctest.Wait()
		began = time.Now()
		w.task("other", 0, "n1", cluster.HealthHealthy)
		time.Sleep(10 * time.Second) // in-bubble: every serviceWorld is in one
		synctest.Wait()
		select {
		case <-answered:
			t.Fatalf("the change of another service was answered with %v", updates)
		default:
		}
		w.task("web", 0, "n1", cluster.HealthHealthy)
		<-answered
		if got := formatAnswer(updates); len(got) != 1 || got[0] != "web n1:20000" ||
			time.Since(began) > 11*time.Second {
			t.Errorf("got %v after %v", got, time.Since(began))
		}
	})
}

// Listings are dropped after a while without requests, and a later request gets the present list.
func TestAddressesAreForgotten(t *testing.T) {
	inServiceWorld(t, func(_ *testing.T, w *serviceFixture) {
		w.service("web")
		w.want([]string{"web"}, "web")
		time.Sleep(time.Hour) // in-bubble: every serviceWorld is in one
		w.task("web", 0, "n1", cluster.HealthHealthy)
		w.want([]string{"web"}, "web n1:20000")
		w.task("web", 1, "n1", cluster.HealthHealthy)
		w.want([]string{"web"}, "web n1:20000 n1:20001")
	})
}

// Only the newest session of a node gets answers. A waiting request returns an error when its session or the server
// ends.
func TestAddressesAreOfTheSession(t *testing.T) {
	inServiceWorld(t, func(t *testing.T, w *serviceFixture) {
		w.service("web")
		ask := func(node string, session uint64) error {
			_, err := w.Addresses(t.Context(), transport.AddressesRequest{
				Node: node, Session: session,
				Services: []transport.ServiceRequest{{Cluster: "c", Service: "web", Stamp: w.known["web"]}},
			})
			return err
		}
		for node, session := range map[string]uint64{"n1": w.session + 1, "stranger": 1} {
			if err := ask(node, session); !errors.Is(err, transport.ErrSession) {
				t.Errorf("%s, session %d: got %v, want ErrSession", node, session, err)
			}
		}
		many := transport.AddressesRequest{
			Node: "n1", Session: w.session,
			Services: make([]transport.ServiceRequest, 20_000),
		}
		if _, err := w.Addresses(t.Context(), many); !errors.Is(err, transport.ErrRefused) {
			t.Errorf("20,000 services: got %v, want ErrRefused", err)
		}
		w.want([]string{"web"}, "web")
		ended := make(chan error, 1)
		session := w.session
		go func() { ended <- ask("n1", session) }()
		synctest.Wait()
		welcome, err := w.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: w.session})
		if err != nil {
			t.Fatal(err)
		}
		w.session = welcome.Session
		if err := <-ended; !errors.Is(err, transport.ErrSession) {
			t.Errorf("a newer session: got %v, want ErrSession", err)
		}
		go func() { ended <- ask("n1", w.session) }()
		synctest.Wait()
		w.stop()
		if err := <-ended; err == nil {
			t.Error("the end of the server: got no error")
		}
	})
}

// An agent follows an endpoint like a service: it gets the port and the tasks that the endpoint selects, and changes of
// the service, of the tasks and of the endpoint.
func TestAddressesOfEndpoints(t *testing.T) {
	inServiceWorld(t, func(_ *testing.T, w *serviceFixture) {
		name := []string{"web-http"}
		w.want(name, "web-http missing")
		endpoint := cluster.Endpoint{Cluster: "c", Name: "web-http", Service: "web", Port: "http"}
		w.put(p.Endpoint("c", "web-http"), &endpoint)
		w.want(name, "web-http")
		w.service("web")
		w.task("web", 0, "n1", cluster.HealthHealthy)
		w.want(name, "web-http n1:20000")
		w.task("web", 1, "n1", cluster.HealthFailing)
		w.want(name)
		endpoint.HealthyOnly = new(false)
		w.put(p.Endpoint("c", "web-http"), &endpoint)
		w.want(name, "web-http n1:20000 n1:20001")
		endpoint.Port = "admin"
		w.put(p.Endpoint("c", "web-http"), &endpoint)
		w.want(name, "web-http")

		// Another service, of which nothing was known.
		w.service("api")
		w.task("api", 5, "n1", cluster.HealthHealthy)
		w.want(name)
		endpoint.Service, endpoint.Port = "api", "http"
		w.put(p.Endpoint("c", "web-http"), &endpoint)
		w.want(name, "web-http n1:20005")
		w.node("n1", cluster.NodeDown)
		w.want(name, "web-http")
		w.node("n1", cluster.NodeReady)
		w.want(name, "web-http n1:20005")
		w.task("web", 1, "n1", cluster.HealthHealthy)
		w.want(name)
		w.remove(p.Endpoint("c", "web-http"))
		w.want(name, "web-http missing")
	})
}
