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

// fabric is a network in memory: servers by address, and what is cut.
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

// set cuts or mends one direction of asking; what is open breaks.
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

// signing is a client of a server: a header stands for its certificate, which a network in memory does not carry.
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

// world is several servers in one bubble, over one store.
type world struct {
	t     *testing.T
	store *memory.Engine
	net   *fabric
	began time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: memory.New(memory.Options{}), net: newFabric(), began: time.Now()}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

// member is one server of a world.
type member struct {
	*Peers
	w       *world
	id      string
	tables  *store.Tables
	engine  store.Engine
	agents  *agents
	plane   *plane
	ahead   time.Duration // of its boot-time clock
	digests []digest      // that it received
	dials   int
	// meddle, unless nil, stands before the handler.
	meddle func(r *http.Request)
	// secretsKeys are the texts of the master keys that it has.
	secretsKeys map[string]string
	serving     sync.WaitGroup
	mu          sync.Mutex
	stop        func()
}

// start starts a server; a server of the same id that was stopped is the same one, started anew.
func (w *world) start(id string, ahead time.Duration) *member {
	m := &member{w: w, id: id, ahead: ahead, agents: &agents{held: map[string]bool{}}, plane: &plane{}}
	m.engine = w.store.Open(memory.Hooks{})
	m.tables = store.NewTables(store.TablesConfig{Engine: m.engine})
	m.Peers = New(Config{
		Server: cluster.Server{
			ID: id, Name: "name-" + id, API: address(id), Version: "test",
			Started: time.Now().UTC(),
		},
		Engine:        m.engine,
		Tables:        m.tables,
		Local:         m.agents,
		Reasons:       m.plane,
		DecisionTrace: m.plane.grounds,
		SecretsKey: func(id string) string {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.secretsKeys[id]
		},
		Dial: func(api string) (*http.Client, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.dials++
			return w.net.client(id, api), nil
		},
		Caller: signed,
		Clock: func() time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			return time.Since(w.began) + m.ahead
		},
	})
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: m.spy(m.Handler()), Protocols: protocols, ReadHeaderTimeout: time.Minute}
	w.net.mu.Lock()
	w.net.servers[address(id)] = l
	w.net.mu.Unlock()
	ctx, cancel := context.WithCancel(w.t.Context())
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
			m.serving.Wait()
			_ = m.engine.Close()
		})
	}
	w.t.Cleanup(m.stop)
	return m
}

// spy notes the digests that a server is sent.
func (m *member) spy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.serving.Add(1)
		defer m.serving.Done()
		m.mu.Lock()
		meddle := m.meddle
		m.mu.Unlock()
		if meddle != nil {
			meddle(r)
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

// told counts how often a server was told of a node by another.
func (m *member) told(from, node string) (n int) {
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

// interfere puts something before the server's handler.
func (m *member) interfere(meddle func(r *http.Request)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meddle = meddle
}

func (m *member) jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += d
}

// beat is a sign of life of one of the server's own agents.
func (m *member) beat(node string, session, seq uint64, stats *cluster.NodeStats) {
	m.tables.SetPulse(node, cluster.Pulse{
		Session: session, Seq: seq, At: m.config.Clock(), Next: 5 * time.Second,
		Stats: stats,
	})
}

// age is how old the last sign of life is that the server knows, or an error where it knows none.
func (m *member) age(node string, session, seq uint64) (time.Duration, error) {
	p, ok := m.tables.Pulse(node)
	if !ok || p.Session != session || p.Seq != seq {
		return 0, fmt.Errorf("%s knows of %s: %+v (%v), want session %d, sequence %d", m.id, node, p, ok, session, seq)
	}
	return m.config.Clock() - p.At, nil
}

// status writes the record of a node's session.
func (w *world) status(node string, session uint64) {
	w.t.Helper()
	w.put(w.store, store.DefaultPrefix+"status/"+node, &cluster.NodeStatus{Name: node, Session: session})
}

// lead writes who leads.
func (w *world) lead(server string, epoch uint64) {
	w.t.Helper()
	w.put(w.store, store.DefaultPrefix+"leader/"+cluster.DefaultDomain,
		&cluster.Leader{Epoch: epoch, Holder: server, Incarnation: 1})
}

func (w *world) put(e store.Engine, key string, record any) {
	w.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := e.Commit(w.t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(key string) {
	w.t.Helper()
	if _, err := w.store.Commit(w.t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Delete: true}}}}); err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time pass in the bubble, until nothing moves.
func pass(d time.Duration) {
	time.Sleep(d) // in-bubble: nothing waits in truth
	synctest.Wait()
}

// agents are the nodes that are connected to a server.
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
		for _, t := range g.Tasks {
			if t == task {
				return cluster.Waiting{Task: t, Refusals: g.Refusals, Sentence: g.Sentence}, true
			}
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

// grounds are kept where groups are set: of every first attempt.
func (p *plane) grounds(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
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
