package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fabric is a network in memory: servers by address, and the directions that are cut.
type fabric struct {
	mu      sync.Mutex
	servers map[string]*pipeListener // by address
	cut     map[[2]string]bool       // from server, to address
	conns   map[net.Conn][2]string   // the dialling ends
}

func newFabric() *fabric {
	return &fabric{servers: map[string]*pipeListener{}, cut: map[[2]string]bool{}, conns: map[net.Conn][2]string{}}
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

var errCut = errors.New("the network is cut")

func (f *fabric) dial(ctx context.Context, from, api string) (net.Conn, error) {
	f.mu.Lock()
	l, way := f.servers[api], [2]string{from, api}
	cut := f.cut[way]
	f.mu.Unlock()
	if cut || l == nil {
		return nil, errCut
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
	case <-l.done:
		return nil, errCut
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[near] = way
	return near, nil
}

// set cuts or restores requests in one direction, and breaks open connections.
func (f *fabric) set(from, to string, cut bool) {
	way := [2]string{from, address(to)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[way] = cut
	for c, of := range f.conns {
		if of == way {
			_ = c.Close()
			delete(f.conns, c)
		}
	}
}

func (f *fabric) client(from, api string) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &signing{from, http.Transport{
		Protocols:   protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx, from, api) },
	}}}
}

// signing is a client of a server. A header replaces its certificate, which a network in memory does not have.
type signing struct {
	server string
	http.Transport
}

const signature = "Test-Server"

func (s *signing) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(signature, s.server)
	return s.Transport.RoundTrip(r)
}

func signed(r *http.Request) string { return r.Header.Get(signature) }

func address(id string) string { return "http://" + id }

// serverGroup is several servers in one bubble, over one store.
type serverGroup struct {
	t     *testing.T
	store *memory.Engine
	net   *fabric
	began time.Time
}

func newServerGroup(t *testing.T) *serverGroup {
	g := &serverGroup{t: t, store: memory.New(memory.Options{}), net: newFabric(), began: time.Now()}
	t.Cleanup(func() { _ = g.store.Close() })
	return g
}

// member is one server of a group.
type member struct {
	*Peers
	group   *serverGroup
	id      string
	tables  *store.Tables
	engine  store.Engine
	agents  *agents
	plane   *plane
	ahead   time.Duration // of its boot-time clock
	digests []digest      // that it received
	dials   int
	// interceptor, unless nil, runs before the handler.
	interceptor func(r *http.Request)
	// secretsKeys are the texts of the master keys that it has.
	secretsKeys map[string]string
	serving     sync.WaitGroup // requests
	mu          sync.Mutex
	stopped     bool
	stop        func()
}

// start starts a server. The id of a stopped server restarts that server.
func (g *serverGroup) start(id string, ahead time.Duration) *member {
	m := &member{group: g, id: id, ahead: ahead, agents: &agents{held: map[string]bool{}}, plane: &plane{}}
	m.engine = g.store.Open(memory.Hooks{})
	m.tables = store.NewTables(store.TablesConfig{Engine: m.engine})
	m.Peers = New(Config{
		Server: cluster.Server{
			ID: id, Name: "name-" + id, API: address(id), Version: "test",
			Started: time.Now().UTC(),
		},
		Engine:        m.engine,
		Tables:        m.tables,
		Local:         m.agents,
		Reasons:       func(string) Reasons { return m.plane },
		DecisionTrace: m.plane.decisionTrace,
		SecretsKey: func(id string) string {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.secretsKeys[id]
		},
		Dial: func(api string) (*http.Client, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.dials++
			return g.net.client(id, api), nil
		},
		Caller: signed,
		Clock: func() time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			return time.Since(g.began) + m.ahead
		},
	})
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: m.recordDigests(m.Handler()), Protocols: protocols, ReadHeaderTimeout: time.Minute}
	g.net.mu.Lock()
	g.net.servers[address(id)] = l
	g.net.mu.Unlock()
	ctx, cancel := context.WithCancel(g.t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = s.Serve(l) })
	all.Go(func() { _ = m.tables.Run(ctx) })
	all.Go(func() { _ = m.Run(ctx) })
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			cancel()
			_ = s.Close()
			all.Wait()
			m.mu.Lock()
			m.stopped = true
			m.mu.Unlock()
			m.serving.Wait()
			_ = m.engine.Close()
		})
	}
	g.t.Cleanup(m.stop)
	return m
}

// recordDigests keeps the digests that a server receives.
func (m *member) recordDigests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		if m.stopped { // a request that was read while the server stopped
			m.mu.Unlock()
			return
		}
		m.serving.Add(1)
		defer m.serving.Done()
		handle := m.interceptor
		m.mu.Unlock()
		if handle != nil {
			handle(r)
		}
		if r.URL.Path == pathDigest {
			body, _ := io.ReadAll(r.Body)
			var d digest
			if json.Unmarshal(body, &d) == nil {
				m.mu.Lock()
				m.digests = append(m.digests, d)
				m.mu.Unlock()
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}

// pulsesFrom counts the pulses of a node that another server sent to this one.
func (m *member) pulsesFrom(from, node string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.digests {
		for _, b := range d.Pulses {
			if d.Server == from && b.Node == node {
				n++
			}
		}
	}
	return n
}

// intercept sets a function that runs before the server's handler.
func (m *member) intercept(handle func(r *http.Request)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interceptor = handle
}

func (m *member) jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += d
}

// beat records a sign of life of one of the server's own agents.
func (m *member) beat(node string, session, seq uint64, stats *cluster.NodeStats) {
	m.tables.SetPulse(node, cluster.Pulse{
		Session: session, Seq: seq, At: m.config.Clock(), Next: 5 * time.Second,
		Stats: stats,
	})
}

// age returns the age of the node's last report at this server, or an error if there is none.
func (m *member) age(node string, session, seq uint64) (time.Duration, error) {
	p, ok := m.tables.Pulse(node)
	if !ok || p.Session != session || p.Seq != seq {
		return 0, fmt.Errorf("%s knows of %s: %+v (%v), want session %d, sequence %d", m.id, node, p, ok, session, seq)
	}
	return m.config.Clock() - p.At, nil
}

// status writes the record of a node's session.
func (g *serverGroup) status(node string, session uint64) {
	g.t.Helper()
	g.put(g.store, store.DefaultPrefix+"status/"+node, &cluster.NodeStatus{Name: node, Session: session})
}

// lead writes who leads.
func (g *serverGroup) lead(server string, epoch uint64) {
	g.t.Helper()
	g.put(g.store, store.DefaultPrefix+"leader/"+cluster.DefaultDomain,
		&cluster.Leader{Epoch: epoch, Holder: server, Incarnation: 1})
}

func (g *serverGroup) put(e store.Engine, key string, record any) {
	g.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := e.Commit(g.t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *serverGroup) remove(key string) {
	g.t.Helper()
	if _, err := g.store.Commit(g.t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Delete: true}}}}); err != nil {
		g.t.Fatal(err)
	}
}

// pass lets time pass in the bubble, until nothing moves.
func pass(d time.Duration) {
	time.Sleep(d) // in-bubble: nothing waits in truth
	synctest.Wait()
}

// agents holds the nodes that are connected to a server.
type agents struct {
	mu   sync.Mutex
	held map[string]bool
	open func(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error)
}

func (a *agents) hold(node string, held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[node] = held
}

func (a *agents) Holds(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held[node]
}

func (a *agents) OpenStream(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error) {
	return a.open(ctx, node, req)
}

// plane is why tasks wait.
type plane struct {
	mu      sync.Mutex
	version uint64
	groups  []cluster.WaitingGroup
	victims []cluster.Victim
	asked   int
}

func (p *plane) set(version uint64, groups ...cluster.WaitingGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version, p.groups = version, groups
}

func (p *plane) Waiting(task cluster.TaskID) (cluster.Waiting, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		if g.Has(task) {
			return cluster.Waiting{Task: task, Refusals: g.Refusals, Sentence: g.Sentence}, true
		}
	}
	return cluster.Waiting{}, false
}

func (p *plane) Victims() []cluster.Victim {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.victims
}

func (p *plane) Reasons(after uint64) cluster.WaitingReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if after == p.version {
		return cluster.WaitingReport{Version: p.version}
	}
	return cluster.WaitingReport{Version: p.version, Groups: p.groups, Victims: p.victims}
}

// decisionTrace returns a trace of every first attempt, where groups are set.
func (p *plane) decisionTrace(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cluster.DecisionTrace{Task: task, Node: "n1", Best: []cluster.Candidate{{Node: "n1"}}},
		p.version > 0 && attempt == 1
}

func (p *plane) asks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}
