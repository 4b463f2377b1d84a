// Package peers is the protocol between the servers of one control plane, for data that the store does not hold.
//
// Each server knows the others from the store's tables. Every second it sends each of them a digest with the new signs
// of life of its own agents. The leader therefore has the liveness of all nodes, whichever server they are connected to
// (P6.1). A server forwards a byte stream to a node (logs, a command) to the server that holds the node's session. Only
// the leader has the reasons of waiting tasks. Other servers fetch a copy. The protocol is HTTP/2 over mutual TLS. The
// API server mounts it under PathPrefix, for certificates of servers only.
//
// Only the server's own record is durable, and no decision waits for this package.
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

// Nodes are the agents that are connected to this server, such as a dispatcher. Safe for concurrent use.
type Nodes interface {
	// OpenStream opens a byte stream to an agent. It stays open until it is closed or ctx ends.
	OpenStream(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error)
	// Holds reports whether this server has the newest session of the node, as far as it knows.
	Holds(node string) bool
}

// Reasons returns the reasons of the last decision, while this server leads. Safe for concurrent use.
type Reasons interface {
	// Waiting returns why one task waits.
	Waiting(task cluster.TaskID) (cluster.Waiting, bool)
	// Victims returns the attempts that will end for others, ordered by UUID. The result must not be changed.
	Victims() []cluster.Victim
	// Reasons returns the reasons of all waiting tasks, in groups of tasks with the same reason, and all victims. A
	// group without tasks is for all tasks that no other group names. If after is the present version, the report may
	// hold only the version. The result must not be changed.
	Reasons(after uint64) cluster.WaitingReport
}

// Metrics counts digests. The calls must return immediately.
type Metrics interface {
	// Digested counts a digest that was sent to a server: its number of signs of life, and whether it arrived.
	Digested(took time.Duration, pulses int, arrived bool)
	// Reached sets the number of other servers whose last digest was answered, and the number of all others.
	Reached(reached, all int)
}

// Config configures New.
type Config struct {
	// Server is this server's own record; Run writes it at the start if it is new or changed.
	Server cluster.Server
	Engine store.Engine
	Tables *store.Tables
	Local  Nodes
	// Reasons returns the reasons of this server's control plane of a domain, nil if it runs none. It may be nil for a
	// server that never leads. It returns immediately and is safe for concurrent use.
	Reasons func(domain string) Reasons
	// DecisionTrace returns the decision trace of an attempt's placement, if this server led then and kept it. It may
	// be nil. It returns immediately and is safe for concurrent use.
	DecisionTrace func(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool)
	// SecretsKey returns the text of a master key of secrets, "" if this server lacks it. It may be nil. It returns
	// immediately and is safe for concurrent use.
	SecretsKey func(id string) string
	// LeaderRequests answers requests that only the leader of a domain can answer, for this server and others: see
	// AskLeader. It may be nil for a server that never leads.
	LeaderRequests http.Handler
	// Dial returns a client for the server at an address such as "https://10.0.0.1:7071". The client speaks HTTP/2,
	// presents this server's certificate and accepts only a server's. Each call returns a client with connections of
	// its own, which this package closes, so that one unread stream does not block the others.
	Dial func(api string) (*http.Client, error)
	// Caller returns the id of the server that sent a request, "" if no server did. By default it reads the certificate
	// of the connection.
	Caller func(r *http.Request) string
	// Clock is the boot-time clock (P9.1).
	Clock  func() time.Duration
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics Metrics
}

// Peers is this server's side of the protocol with all other servers: digests, forwarded streams and the leader's
// reasons, over one set of connections. It is safe for concurrent use.
type Peers struct {
	*self
	liveness
	leaderReasons
	recorder    recorder
	connections leaderConnections
	ended       chan struct{} // closed when Run ends
	work        sync.WaitGroup
}

// self is this server among the others.
type self struct {
	config  Config
	startID string // differs with each start of the server
}

// New returns peers; Run starts them.
func New(c Config) *Peers {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Caller == nil {
		c.Caller = certifiedServer
	}
	s := &self{config: c, startID: uuid.NewString()}
	p := &Peers{self: s, recorder: recorder{self: s}, ended: make(chan struct{})}
	p.liveness = liveness{
		self: s, resend: make(chan struct{}, 1), local: local{rows: map[string]*localPulse{}},
		links: map[string]*link{}, remotePulses: map[string]remotePulse{}, lastDigests: map[string]lastDigest{},
	}
	p.leaderReasons = leaderReasons{self: s, work: &p.work, reasons: map[string]*reasons{}}
	p.recorder.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, p.recorder.incarnation)
	return p
}

// certifiedServer returns the server that the certificate of a request's connection names.
func certifiedServer(r *http.Request) string {
	s, ok := pki.SubjectOf(r.TLS)
	if !ok || s.Role != cluster.RoleServer {
		return ""
	}
	return s.Name
}

// Run writes the server's record, then sends digests until the context ends, and returns its error. It is called once.
// At its end, streams that other servers opened through this server end.
func (p *Peers) Run(ctx context.Context) error {
	follower := p.config.Tables.Follow(store.TopicNodes, store.TopicServers)
	defer follower.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer p.connections.closeIdle()
	defer p.work.Wait()
	defer close(p.ended)
	defer p.leaderReasons.stop()
	defer cancel()
	p.work.Go(func() { p.recorder.recordServer(ctx) })
	p.leaderReasons.start(ctx)
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
		case <-p.resend:
			p.collect()
		}
	}
}

// follow starts and ends links when the records of servers change, and drops the pulses of nodes whose records were
// deleted.
func (p *Peers) follow(ctx context.Context, c store.Changes) {
	snap := p.config.Tables.Snapshot()
	for node := range c.Nodes { // order-free: nodes are independent
		if _, ok := snap.NodeStatus(node); !ok {
			p.dropNode(node)
		}
	}
	if !c.Servers && !c.Resync {
		return
	}
	p.liveness.mu.Lock()
	defer p.liveness.mu.Unlock()
	for id, l := range p.links { // order-free: links are independent
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
		l := newLink(&p.liveness, s)
		p.links[s.ID] = l
		linkCtx, stop := context.WithCancel(ctx)
		l.stop = stop
		p.work.Go(func() { l.run(linkCtx) })
		signal(p.resend)
	}
}

// Leads reports whether this server leads the domain, according to its tables.
func (s *self) Leads(domain string) bool {
	l, ok := s.config.Tables.Snapshot().Leader(domain)
	return ok && l.Value.Holder == s.config.Server.ID
}

// leader returns the record of the server that leads the domain.
func (s *self) leader(domain string) (cluster.Server, bool) {
	snap := s.config.Tables.Snapshot()
	l, ok := snap.Leader(domain)
	if !ok {
		return cluster.Server{}, false
	}
	if s, ok := snap.Server(l.Value.Holder); ok {
		return *s.Value, true
	}
	return cluster.Server{}, false
}

// Status is the state of the contact with another server.
type Status struct {
	Server cluster.Server
	// Reached says that the server answered the last digest. Since is the time of the last change of Reached, on the
	// boot-time clock.
	Reached bool
	Since   time.Duration
	// Problem is a sentence, empty where Reached.
	Problem string
	// Nodes counts the nodes whose newest session is from its digests.
	Nodes int
}

// Status returns the state of the contact with each other server, ordered by id.
func (p *Peers) Status() []Status {
	snap := p.config.Tables.Snapshot()
	nodes := p.countNodes()
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

// errIncompatible says that two servers have no common version of the protocol.
var errIncompatible = errors.New("the servers speak no common version")
