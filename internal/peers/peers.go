// Package peers is the talk between the servers of one control plane: what they share that the store
// does not hold.
//
// Each server knows the others from the store's tables. Every second it sends each of them a digest of the signs
// of life that its own agents gave since the last one, so that the leader hears of all nodes, whichever server they
// are connected to (P6.1). A byte stream to a node (logs, a command) is passed on to the server that holds the node's
// session. Why a task waits is known to the leader alone: a server that is asked fetches a copy. All of it is HTTP/2
// over mutual TLS, mounted by the API server under PathPrefix for certificates of servers only.
//
// Nothing here is durable but the server's own record, and no decision waits for it.
package peers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Nodes are the agents that are connected to this server; the dispatcher is one. Safe for concurrent use.
type Nodes interface {
	// OpenStream opens a byte stream to an agent. It lives until it is closed or ctx ends.
	OpenStream(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error)
	// Holds reports whether the node's newest session that this server knows of is with this server.
	Holds(node string) bool
}

// Reasons tells why tasks wait, while this server leads. Safe for concurrent use.
type Reasons interface {
	// Waiting returns why one task waits.
	Waiting(task cluster.TaskID) (cluster.Waiting, bool)
	// Reasons returns all of it, in groups of tasks that wait for the same, and the version of that. A group without
	// tasks stands for all that no other group names. With after equal to the present version it may return no groups.
	// Nobody changes what it returned.
	Reasons(after uint64) (version uint64, groups []cluster.WaitingGroup)
}

// Metrics counts what is sent. The calls must return at once.
type Metrics interface {
	// Digested tells of a digest that was sent to a server, how many signs of life were in it, and whether it arrived.
	Digested(took time.Duration, pulses int, arrived bool)
	// Reached tells how many of the other servers answered last, and how many there are.
	Reached(reached, all int)
}

// Config is what New needs.
type Config struct {
	// Server is this server's own record; Run writes it at the start where it is new or changed.
	Server cluster.Server
	// Domain whose leader is asked why tasks wait; default cluster.DefaultDomain.
	Domain string
	Engine store.Engine
	Tables *store.Tables
	Local  Nodes
	// Reasons may be nil for a server that never leads.
	Reasons Reasons
	// Grounds returns what this server kept of why an attempt was placed, of the time when it led. It may be nil. Safe
	// for concurrent use, and at once.
	Grounds func(task cluster.TaskID, attempt int) (cluster.Grounds, bool)
	// SecretsKey returns the text of a master key of secrets, "" where this server lacks it. It may be nil. Safe for
	// concurrent use, and at once.
	SecretsKey func(id string) string
	// Dial returns a client for the server at an address such as "https://10.0.0.1:7071". It speaks HTTP/2, shows this
	// server's certificate and takes none but a server's. Each call returns a client with connections of its own, which
	// this package closes: what one stream does not read must not hold up the rest.
	Dial func(api string) (*http.Client, error)
	// Caller returns the id of the server that sent a request, "" where none did. Default: what the certificate of its
	// connection says.
	Caller func(r *http.Request) string
	// Clock is the boot-time clock (P9.1).
	Clock  func() time.Duration
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics Metrics
}

// Peers is this server's end of the talk with all others. It is safe for concurrent use.
type Peers struct {
	config Config
	life   string // differs with each start of the server
	writer *store.Writer
	ended  chan struct{} // closed when Run ends
	nudge  chan struct{} // a link wants everything now
	work   sync.WaitGroup

	mu    sync.Mutex
	links map[string]*link    // by server
	heard map[string]heard    // by node: what other servers told
	last  map[string]numbered // by server: the last digest

	local   local
	reasons reasons
}

// New returns peers that have started nothing.
func New(c Config) *Peers {
	if c.Domain == "" {
		c.Domain = cluster.DefaultDomain
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Caller == nil {
		c.Caller = certified
	}
	p := &Peers{
		config: c,
		life:   uuid.NewString(),
		ended:  make(chan struct{}),
		nudge:  make(chan struct{}, 1),
		links:  map[string]*link{},
		heard:  map[string]heard{},
		last:   map[string]numbered{},
	}
	p.local.rows = map[string]*row{}
	p.reasons.asked = make(chan struct{}, 1)
	p.reasons.tried = make(chan struct{})
	p.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, p.incarnation)
	return p
}

// certified returns which server's certificate a request's connection showed.
func certified(r *http.Request) string {
	s, ok := pki.SubjectOf(r.TLS)
	if !ok || s.Role != cluster.RoleServer {
		return ""
	}
	return s.Name
}

func (p *Peers) incarnation() uint64 {
	if l, ok := p.config.Tables.Snapshot().Leader(p.config.Domain); ok {
		return l.Value.Incarnation
	}
	return 0
}

// Run writes the server's record, then sends digests until the context ends, and returns its error. It is called
// once. Streams that other servers opened through this one end with it.
func (p *Peers) Run(ctx context.Context) error {
	follower := p.config.Tables.Follow(store.TopicNodes, store.TopicServers)
	defer follower.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer p.work.Wait()
	defer close(p.ended)
	defer cancel()
	p.work.Go(func() { p.record(ctx) })
	p.work.Go(func() { p.fetchReasons(ctx) })
	tick := time.NewTicker(Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-follower.Wake():
			p.follow(ctx, follower.Take())
		case <-tick.C:
			p.collect()
		case <-p.nudge:
			p.collect()
		}
	}
}

// follow starts and ends the links to other servers as their records come and go, and forgets nodes whose
// records are gone.
func (p *Peers) follow(ctx context.Context, c store.Changes) {
	snap := p.config.Tables.Snapshot()
	for node := range c.Nodes { // order-free: each node by itself
		if _, ok := snap.NodeStatus(node); !ok {
			p.forget(node)
		}
	}
	if !c.Servers && !c.Resync {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range p.links { // order-free: each link by itself
		if e, ok := snap.Server(id); !ok || e.Value.API != l.api {
			l.stop()
			delete(p.links, id)
		}
	}
	for e := range snap.Servers() {
		s := *e.Value
		if s.ID == p.config.Server.ID || s.API == "" {
			continue
		}
		if l := p.links[s.ID]; l != nil {
			l.rename(s)
			continue
		}
		l := newLink(p, s)
		p.links[s.ID] = l
		linkCtx, stop := context.WithCancel(ctx)
		l.stop = stop
		p.work.Go(func() { l.run(linkCtx) })
		signal(p.nudge)
	}
}

// link returns the link to a server, or nil.
func (p *Peers) link(server string) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[server]
}

// Leads reports whether this server leads the domain, as far as its tables know.
func (p *Peers) Leads() bool {
	l, ok := p.config.Tables.Snapshot().Leader(p.config.Domain)
	return ok && l.Value.Holder == p.config.Server.ID
}

// LeaderAPI returns the address of the server that leads the domain, empty where none does or its
// address is not known.
func (p *Peers) LeaderAPI() string {
	s, _ := p.leader()
	return s.API
}

// leader returns the record of the server that leads.
func (p *Peers) leader() (cluster.Server, bool) {
	snap := p.config.Tables.Snapshot()
	l, ok := snap.Leader(p.config.Domain)
	if !ok {
		return cluster.Server{}, false
	}
	if s, ok := snap.Server(l.Value.Holder); ok {
		return *s.Value, true
	}
	return cluster.Server{}, false
}

// Status is how the talk with another server goes.
type Status struct {
	Server cluster.Server
	// Reached says that it answered last; Since is when that began or ended, on the boot-time clock.
	Reached bool
	Since   time.Duration
	// Problem is a sentence, empty where Reached.
	Problem string
	// Nodes counts the nodes whose newest session it told of.
	Nodes int
}

// Status returns how the talk with each other server goes, ordered by id.
func (p *Peers) Status() []Status {
	snap := p.config.Tables.Snapshot()
	p.mu.Lock()
	nodes := map[string]int{}
	for _, h := range p.heard { // order-free: a count
		nodes[h.from]++
	}
	p.mu.Unlock()
	var out []Status
	for e := range snap.Servers() {
		if e.Value.ID == p.config.Server.ID {
			continue
		}
		s := Status{Server: *e.Value, Nodes: nodes[e.Value.ID], Problem: "it has no address for other servers"}
		if l := p.link(e.Value.ID); l != nil {
			s.Reached, s.Since, s.Problem = l.state()
		}
		out = append(out, s)
	}
	return out
}

// errIncompatible says that two servers have no version of the talk in common.
var errIncompatible = errors.New("the servers speak no common version")
