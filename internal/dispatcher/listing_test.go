package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// followingAgent applies the answers of servers, and repeats its request with its stamps.
type followingAgent struct {
	*serviceFixture
	servers []interface {
		Register(ctx context.Context, r transport.Registration) (transport.Welcome, error)
		Addresses(ctx context.Context, r transport.AddressesRequest) (transport.AddressesReply, error)
	}
	at    int // the server of the session
	knows map[string]*knownService
	// The answers.
	wholes, differences int
}

// knownService is the agent's state of a service.
type knownService struct {
	transport.ServiceUpdate
	old bool
}

// elsewhere begins a session at a server.
func (u *followingAgent) elsewhere(server int) {
	u.t.Helper()
	welcome, err := u.servers[server].Register(u.t.Context(),
		transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: u.session})
	if err != nil {
		u.t.Fatal(err)
	}
	u.at, u.session = server, welcome.Session
}

// ask sends a request and returns the answer, or nil if there is none within a while.
func (u *followingAgent) ask(services ...string) []transport.ServiceUpdate {
	u.t.Helper()
	r := transport.AddressesRequest{Node: "n1", Session: u.session, Differences: true}
	for _, s := range services {
		asked := transport.ServiceRequest{Cluster: "c", Service: s}
		switch l := u.knows[s]; {
		case l == nil:
		case l.old:
			asked.Known = l.Stamp
		default:
			asked.Stamp = l.Stamp
		}
		r.Services = append(r.Services, asked)
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), time.Second)
	defer cancel()
	reply, err := u.servers[u.at].Addresses(ctx, r)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		u.t.Fatal(err)
	}
	return reply.Services
}

// take takes an answer in.
func (u *followingAgent) take(updates []transport.ServiceUpdate) {
	u.t.Helper()
	for _, s := range updates {
		var base knownService
		if l := u.knows[s.Service]; l != nil {
			base = *l
		}
		list, err := s.Onto(base.Stamp, base.Addresses)
		if err != nil {
			u.t.Fatalf("%s: %v", s.Service, err)
		}
		if s.Since == "" {
			u.wholes++
		} else {
			u.differences++
		}
		s.Addresses, s.Since, s.Gone = list, "", nil
		if want := transport.StampOf(s.Missing, list); s.Stamp != want {
			u.t.Fatalf("%s: the stamp is %s, and that of the list %s", s.Service, s.Stamp, want)
		}
		u.knows[s.Service] = &knownService{ServiceUpdate: s}
	}
}

// want compares the agent's lists with the store.
func (u *followingAgent) want(service string) {
	u.t.Helper()
	snap := u.now()
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: service}
	want := transport.ServiceUpdate{Cluster: "c", Service: service}
	if _, ok := snap.Service("c", service); !ok {
		want.Missing = true
	} else {
		for _, a := range snap.HealthyAddresses(owner) {
			want.Addresses = append(want.Addresses,
				transport.ServiceAddress{Task: string(a.Task), Node: a.Node, Address: a.Address, Ports: a.Ports})
		}
	}
	got := u.knows[service].ServiceUpdate
	got.Stamp = ""
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(got), cmpopts.EquateEmpty(),
		cmpopts.SortSlices(func(a, b transport.ServiceAddress) bool {
			return a.Place().Compare(b.Place()) < 0
		})); diff != "" {
		u.t.Fatalf("%s: the agent knows something else (-store +agent):\n%s", service, diff)
	}
}

// After any changes of tasks, nodes, services, answers, servers and the agent, the agent has the state of the store,
// mostly from differences.
func TestAddressesConverge(t *testing.T) {
	t.Parallel()
	wholes, differences := 0, 0
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inServiceWorld(t, func(t *testing.T, w *serviceFixture) {
				u := &followingAgent{serviceFixture: w, knows: map[string]*knownService{}}
				u.servers = append(u.servers, w.Dispatcher, w.second(memory.Hooks{}).Dispatcher)
				u.changeAtRandom(rand.New(rand.NewPCG(seed, 1)))
				wholes, differences = wholes+u.wholes, differences+u.differences
			})
		})
	}
	if differences < 300 || wholes < 100 {
		t.Errorf("%d differences and %d whole lists were sent: too few for a conclusion", differences, wholes)
	}
}

// changeAtRandom makes changes in random order.
func (u *followingAgent) changeAtRandom(r *rand.Rand) {
	services, nodes := []string{"db", "web"}, []string{"n1", "n2", "n3"}
	for _, n := range nodes[1:] {
		u.register(n)
		u.node(n, cluster.NodeReady)
	}
	there := map[string]bool{"web": true}
	u.service("web")
	for i := range 30 {
		u.task("web", i, nodes[i%3], cluster.HealthHealthy)
	}
	lost := []transport.ServiceUpdate{}
	for range 300 {
		s, n := services[r.IntN(2)], nodes[r.IntN(3)]
		switch r.IntN(24) {
		case 0:
			if there[s] = !there[s]; there[s] {
				u.service(s)
			} else {
				u.remove(p.Service("c", s))
			}
		case 1:
			u.node(n, []cluster.NodeState{
				cluster.NodeReady, cluster.NodeReady, cluster.NodeSuspect,
				cluster.NodeDown,
			}[r.IntN(4)])
		case 2:
			u.elsewhere(r.IntN(2))
		case 3: // the agent restarts, and loses some of its lists
			for s, l := range u.knows { // order-free: independent, except for the choice of the lost one
				if l.old = true; s == "db" && r.IntN(2) == 0 {
					delete(u.knows, s)
				}
			}
		case 4:
			lost = u.ask(services...)
		case 5: // an answer that comes again, later
			for _, s := range lost {
				l := u.knows[s.Service]
				if l == nil || l.Stamp == s.Since || s.Since == "" {
					continue
				}
				if _, err := s.Onto(l.Stamp, l.Addresses); !errors.Is(err, transport.ErrDifference) {
					u.t.Fatalf("a difference from something else: got %v", err)
				}
			}
		case 6:
			time.Sleep(time.Duration(r.IntN(5)) * time.Minute) // in-bubble: every serviceWorld is in one
		case 7, 8, 9, 10, 11, 12:
			u.take(u.ask(services[r.IntN(2):]...))
		default:
			i := r.IntN(30)
			id := cluster.ServiceTask("c", s, 1, i)
			switch r.IntN(4) {
			case 0:
				u.remove(p.Desired(n, id), p.Observed(n, id))
			case 1:
				u.task(s, i, n, cluster.HealthFailing)
			default:
				u.task(s, i, n, cluster.HealthHealthy)
			}
		}
	}
	for updates := u.ask(services...); updates != nil; updates = u.ask(services...) {
		u.take(updates)
	}
	for _, s := range services {
		u.want(s)
	}
}

// Agents that decline differences, and agents with a very old stamp, receive whole lists. A resting request delays no
// other.
func TestWholeAddressLists(t *testing.T) {
	t.Parallel()
	inServiceWorld(t, func(t *testing.T, w *serviceFixture) {
		w.service("web")
		for i := range 40 {
			w.task("web", i, "n1", cluster.HealthHealthy)
		}
		u := &followingAgent{serviceFixture: w, knows: map[string]*knownService{}}
		u.servers = append(u.servers, w.Dispatcher)
		u.take(u.ask("web"))
		first := *u.knows["web"]
		w.task("web", 0, "n1", cluster.HealthFailing)
		if updates := u.ask("web"); len(updates) != 1 || updates[0].Since != first.Stamp || len(updates[0].Gone) != 1 ||
			len(updates[0].Addresses) != 0 {
			t.Fatalf("one task failed: got %+v", updates)
		}
		w.known["web"] = first.Stamp
		if updates, err := w.ask(t.Context(), "web"); err != nil || len(updates) != 1 || updates[0].Since != "" ||
			len(updates[0].Addresses) != 39 {
			t.Fatalf("an agent that declines differences: got %+v %v", updates, err)
		}
		// After that many versions, this stamp is too old for a difference.
		for i := range 300 {
			w.task("web", 100, "n1", []cluster.Health{cluster.HealthHealthy, cluster.HealthFailing}[i%2])
			w.task("web", 101+i, "n1", cluster.HealthHealthy)
			time.Sleep(time.Second / 2) // in-bubble: every serviceWorld is in one
		}
		if updates := u.ask("web"); len(updates) != 1 || updates[0].Since != "" || len(updates[0].Addresses) != 339 {
			t.Fatalf("after 300 changes: got %d addresses since %q", len(updates[0].Addresses), updates[0].Since)
		}
		// A list that the agent marks as unconfirmed is confirmed without its addresses.
		u.take(u.ask("web"))
		u.knows["web"].old = true
		updates := u.ask("web")
		if len(updates) != 1 || updates[0].Since != updates[0].Stamp ||
			len(updates[0].Gone)+len(updates[0].Addresses) != 0 {
			t.Fatalf("known addresses are sent again: got %+v", updates)
		}
		u.take(updates)
		u.want("web")
	})
}

// A single change is sent immediately. If changes come fast and many agents follow, an agent receives several together,
// and none waits for long.
func TestAddressesRest(t *testing.T) {
	t.Parallel()
	inServiceWorld(t, func(t *testing.T, w *serviceFixture) {
		const agents = 500
		w.service("web")
		for i := range 50 {
			w.task("web", i, "n1", cluster.HealthHealthy)
		}
		ctx, cancel := context.WithCancel(t.Context())
		type answer struct {
			agent int
			at    time.Time
			stamp string
		}
		answers := make(chan answer, 1<<16)
		done := make(chan struct{})
		for n := range agents {
			name := fmt.Sprintf("a%d", n)
			session := w.register(name).Session
			go func() {
				defer func() { done <- struct{}{} }()
				r := transport.AddressesRequest{
					Node: name, Session: session, Services: []transport.ServiceRequest{{Cluster: "c", Service: "web"}},
					Differences: true,
				}
				for {
					reply, err := w.Addresses(ctx, r)
					if err != nil {
						return
					}
					for _, s := range reply.Services {
						r.Services[0].Stamp = s.Stamp
						answers <- answer{n, time.Now(), s.Stamp}
					}
				}
			}()
		}
		read := func() (list []answer) {
			for len(answers) > 0 {
				list = append(list, <-answers)
			}
			return list
		}
		time.Sleep(time.Minute) // in-bubble: every serviceWorld is in one
		read()
		began := time.Now()
		w.task("web", 50, "n1", cluster.HealthHealthy)
		time.Sleep(time.Minute) // in-bubble: every serviceWorld is in one
		first := read()
		if len(first) != agents || first[len(first)-1].at.Sub(began) > 50*time.Millisecond {
			t.Errorf("one change: %d answers, the last after %v", len(first), first[len(first)-1].at.Sub(began))
		}
		for i := range 200 {
			w.task("web", 60+i, "n1", cluster.HealthHealthy)
			time.Sleep(10 * time.Millisecond) // in-bubble: every serviceWorld is in one
		}
		ended := time.Now()
		time.Sleep(time.Minute) // in-bubble: every serviceWorld is in one
		many := read()
		// 400 µs and a little for each agent: 10 times in 2 s at most, and the first and the last.
		if n := len(many) / agents; n < 5 || n > 12 {
			t.Errorf("200 changes in 2 s: an agent was answered %d times", n)
		}
		last := many[len(many)-1]
		if late := last.at.Sub(ended); late > time.Second {
			t.Errorf("the last change was sent after %v", late)
		}
		stamps := map[int]string{}
		for _, a := range many {
			stamps[a.agent] = a.stamp
		}
		if len(stamps) != agents {
			t.Errorf("%d agents got the change, want %d", len(stamps), agents)
		}
		for n, stamp := range stamps { // order-free: independent
			if stamp != last.stamp {
				t.Errorf("agent %d does not know the last change", n)
			}
		}
		// An agent without a list of one service does not wait because of its answers on another.
		w.service("db")
		began = time.Now()
		r := transport.AddressesRequest{Node: "a0", Session: 1, Differences: true, Services: []transport.ServiceRequest{
			{Cluster: "c", Service: "db"}, {Cluster: "c", Service: "web", Stamp: last.stamp},
		}}
		for range 3 {
			if reply, err := w.Addresses(ctx, r); err != nil || len(reply.Services) != 1 ||
				time.Since(began) > 50*time.Millisecond {
				t.Errorf("a service that the agent knows nothing of: got %v %v after %v", formatAnswer(reply.Services),
					err, time.Since(began))
			}
		}
		cancel()
		for range agents {
			<-done
		}
	})
}
