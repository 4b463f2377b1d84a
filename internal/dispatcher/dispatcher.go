// Package dispatcher talks to the agents: assignments go out, reports come in.
//
// A session begins with a registration and is the agent's only way to be heard (P6.1). Its
// assignment stream sends what the tables say the node should run, and what changes; its
// reports become status records. Reports of many agents are committed together. The dispatcher
// decides nothing: what a report means is for the control plane to say.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
)

// Heartbeat is how soon an agent is asked to report again of which nothing else is known, and the most that counts for
// one whose assignment stream is broken (see Interval).
const Heartbeat = 5 * time.Second

// Config is what New needs.
type Config struct {
	Engine store.Engine
	Tables *store.Tables
	Domain string
	Logger *slog.Logger
	// Clock is the boot-time clock (P9.1).
	Clock func() time.Duration
	// Metrics is told what the dispatcher does; it may be nil.
	Metrics Metrics
	// Tracer makes spans of what is sent and reported; nil makes none.
	Tracer *telemetry.Tracer
	// Opener opens the values of secrets; without one no agent is given any.
	Opener Opener
	// Without switches clauses of the protocol off, for proofs alone.
	Without clause.Set
}

// Metrics counts what a dispatcher does. The calls must return at once.
type Metrics interface {
	// Sessions tells how many nodes have a session at this server.
	Sessions(n int)
	// Reported tells of a report that was answered: how long that took, how many attempts of it were taken and how many
	// refused.
	Reported(took time.Duration, taken, refused int)
}

// errEnded is returned to agents that call while the server goes away.
var errEnded = fmt.Errorf("%w: this server is going away", transport.ErrElsewhere)

// Dispatcher serves the sessions of all agents that are connected to this server. It is
// safe for concurrent use.
type Dispatcher struct {
	config  Config
	writer  *store.Writer
	queue   chan submission
	streams streams
	ended   chan struct{} // closed when Run ends
	reach   reach
	servers atomic.Pointer[[]string] // the addresses that agents are told, nil where there are none

	directory *directory

	mu       sync.Mutex
	sessions map[string]*session
	// secretsNews is closed, and made anew, when secrets changed.
	secretsNews chan struct{}
}

// session is a registration of a node at this server.
type session struct {
	node   string
	number uint64
	wire   int // the version that it speaks

	// turn holds a value while a report of the session is taken, which may wait for the disk: a node's reports are
	// taken one at a time. A sign of life does not wait for it. It guards what follows up to over.
	turn chan struct{}
	// statusRev is the revision of the node's status record, which every report compares; settled is
	// the revision that the tables must have reached to show the session's last write.
	statusRev, settled uint64
	began              uint64 // the revision that holds the full report; it does not change
	seq                uint64
	last               transport.ReportReply
	told               *[]string // the list of servers that the agent was told last
	usage              usage
	// reported holds the UUIDs of the full report while that is taken.
	reported map[string]bool
	// wentBack says that the agent has seen a token that the store does not know (P1.7).
	wentBack bool
	// shown is the token that the agent showed when it registered.
	shown cluster.Token

	// rested is when the agent may be told again where services are reached (the boot-time clock). The directory's
	// mutex guards it.
	rested time.Duration

	// over is closed when a newer session takes its place.
	over  chan struct{}
	opens chan *transport.StreamRequest

	// promiseMu guards the session's pulse, which is long only while a stream is open, and the highest number of a
	// report that came.
	promiseMu sync.Mutex
	heard     uint64
	asked     time.Duration // how soon after the pulse's time the agent was asked to report again
	stream    chan struct{} // closed when a newer assignment stream takes the place of the present one; nil for none
}

// New returns a dispatcher; Run commits its reports.
func New(c Config) *Dispatcher {
	d := &Dispatcher{
		config:   c,
		queue:    make(chan submission),
		ended:    make(chan struct{}),
		sessions: map[string]*session{},

		secretsNews: make(chan struct{}),
		directory:   newDirectory(),
	}
	d.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, d.incarnation)
	d.streams.waiting = map[string]awaited{}
	d.reach.cut = make(chan struct{})
	return d
}

func (d *Dispatcher) incarnation() uint64 {
	if l, ok := d.config.Tables.Snapshot().Leader(d.config.Domain); ok {
		return l.Value.Incarnation
	}
	return 0
}

// token is what agents are shown (P1.6).
func (d *Dispatcher) token(s *store.Snapshot, node string) cluster.Token {
	var t cluster.Token
	if l, ok := s.Leader(d.config.Domain); ok {
		t.Incarnation, t.Epoch = l.Value.Incarnation, l.Value.Epoch
	}
	if n, ok := s.Node(node); ok {
		t.Generation = n.Value.Generation
	}
	return t
}

// begin makes the session the node's own at this server, in place of an older one.
func (d *Dispatcher) begin(s *session) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.ended:
		return errEnded
	default:
	}
	if old := d.sessions[s.node]; old != nil {
		if old.number > s.number {
			return &transport.SessionError{Newest: old.number, Detail: "a newer session has begun"}
		}
		close(old.over)
	}
	s.began = s.settled
	d.sessions[s.node] = s
	d.count()
	return nil
}

// count tells how many sessions there are. d.mu is held.
func (d *Dispatcher) count() {
	if m := d.config.Metrics; m != nil {
		m.Sessions(len(d.sessions))
	}
}

// session returns the node's session if it has the number.
func (d *Dispatcher) session(node string, number uint64) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[node]
	if s == nil || s.number != number {
		return nil, &transport.SessionError{Newest: d.newest(node), Detail: fmt.Sprintf(
			"session %d of %s is not the node's newest at this server", number, node)}
	}
	return s, nil
}

// Holds reports whether the node's newest session that this server knows of is with it: then OpenStream reaches the
// node from here.
func (d *Dispatcher) Holds(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[node] != nil
}

// Run commits the reports of all sessions until the context ends, and returns its error. It is called once; the calls
// of agents that still wait then end.
func (d *Dispatcher) Run(ctx context.Context) error {
	rest, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { d.followStore(rest) })
	others.Go(func() { d.watchReach(rest) })
	others.Go(func() { d.followAddresses(rest) })
	err := d.commitLoop(ctx)
	stop()
	others.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.ended)
	for node, s := range d.sessions { // order-free: all are ended
		close(s.over)
		delete(d.sessions, node)
	}
	if errors.Is(err, context.Canceled) {
		return ctx.Err()
	}
	return err
}
