// Package dispatcher is the server's side of the agents' sessions: assignments go out, reports come in.
//
// A session begins with a registration, and a server accepts reports only within a session (P6.1). The session's
// assignment stream sends the node's desired attempts from the tables, and their changes. Its reports become status
// records, and the dispatcher commits the reports of many agents together. The dispatcher decides nothing: the control
// plane interprets the reports.
//
// # Address lists
//
// A server remembers, for each address, the version of the list that added it. It remembers the versions of removed
// addresses, as many as the list has entries. The difference from any of the last 256 versions is one scan of the list,
// encoded and compressed once for all agents at that version. An agent with an older or unknown version gets the whole
// list, and so does an agent whose difference would be as long. The pause after an answer follows from fixed costs: 400
// µs an answer, and a little for each service and byte. Measured over TLS, an answer costs 0.15 ms. A whole list of
// 1,000 addresses is 15 kB compressed instead of 94. A request names all followed services, about 90 bytes each.
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

// Heartbeat is the default interval until an agent's next report, for a node without statistics. It is also the longest
// interval that counts for an agent whose assignment stream is broken (see Interval).
const Heartbeat = 5 * time.Second

// Config configures New.
type Config struct {
	Engine store.Engine
	Tables *store.Tables
	Logger *slog.Logger
	// Clock is the boot-time clock (P9.1).
	Clock func() time.Duration
	// Metrics counts sessions and reports; it may be nil.
	Metrics Metrics
	// Tracer makes spans of assignments and reports; nil makes none.
	Tracer *telemetry.Tracer
	// Opener opens the values of secrets; without it no agent gets any.
	Opener Opener
	// Without switches clauses of the protocol off, in tests only.
	Without clause.Set
}

// Metrics counts the work of a dispatcher. The calls must return immediately.
type Metrics interface {
	// Sessions sets the number of nodes with a session at this server.
	Sessions(n int)
	// Reported counts an answered report: the time that it took, and the numbers of accepted and refused attempts.
	Reported(took time.Duration, taken, refused int)
	// Connected counts an assignment stream that an agent opened, and Interrupted one that ended before the server did.
	Connected()
	Interrupted()
}

// errEnded is returned to agents that call while the server shuts down.
var errEnded = fmt.Errorf("%w: this server is going away", transport.ErrElsewhere)

// Dispatcher serves the sessions of all agents that are connected to this server. Its parts (registration, assignments,
// reports, streams, addresses) share the table of sessions and its lock; each part has its own file. It is safe for
// concurrent use.
type Dispatcher struct {
	config  Config
	writer  *store.Writer
	commits *commitQueue
	streams streams
	ended   chan struct{} // closed when Run ends
	reach   storeReach
	servers atomic.Pointer[[]string] // the server addresses that agents receive; nil before the first list

	directory *directory

	mu       sync.Mutex
	sessions map[string]*session
	// secretsChanged is closed and replaced when secrets changed.
	secretsChanged chan struct{}
}

// session is a registration of a node at this server.
type session struct {
	node   string
	number uint64

	// reporting holds a value while a report of the session is processed, which may wait for the disk. A node's reports
	// are processed one at a time; a sign of life does not wait. It guards the following fields up to shown.
	reporting chan struct{}
	// statusRev is the revision of the node's status record, which every report compares. lastWriteRev is the revision
	// of the session's last write.
	statusRev, lastWriteRev uint64
	syncedRev               uint64 // the revision that holds the full report; it does not change
	seq                     uint64
	last                    transport.ReportReply
	sentServers             *[]string // the list of servers that the agent received last
	usage                   usage
	// reported holds the UUIDs of the full report while it is processed.
	reported map[string]bool
	// wentBack says that the agent has seen a token that is not in the store (P1.7).
	wentBack bool
	// shown is the token that the agent showed when it registered.
	shown cluster.Token

	// nextAnswerAt is the earliest time of the next answer about addresses of services (the boot-time clock). The
	// directory's mutex guards it.
	nextAnswerAt time.Duration

	// ended is closed when a newer session replaces this one.
	ended chan struct{}
	// streamRequests are the byte streams that the agent has to open.
	streamRequests chan *transport.StreamRequest

	// pulseMu guards the session's pulse and the fields below. The pulse's interval is long only while an assignment
	// stream is open.
	pulseMu           sync.Mutex
	highestSeq        uint64        // the highest number of a report
	requestedInterval time.Duration // the requested time from the pulse to the next report
	// stream is closed when a newer assignment stream replaces the present one; it is nil without a stream.
	stream chan struct{}
}

// New returns a dispatcher; Run commits its reports.
func New(c Config) *Dispatcher {
	d := &Dispatcher{
		config:   c,
		ended:    make(chan struct{}),
		sessions: map[string]*session{},

		secretsChanged: make(chan struct{}),
		directory:      newDirectory(c.Tables, c.Clock),
	}
	d.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, d.incarnation)
	d.commits = &commitQueue{
		config: &d.config, writer: d.writer, reach: &d.reach, ended: d.ended, waiting: make(chan submission),
	}
	d.streams.waiting = map[string]requestedStream{}
	d.reach.cut = make(chan struct{})
	return d
}

// activate makes the session the node's own at this server, in place of an older one.
func (d *Dispatcher) activate(s *session) error {
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
		close(old.ended)
	}
	s.syncedRev = s.lastWriteRev
	d.sessions[s.node] = s
	d.reportSessionCount()
	return nil
}

// reportSessionCount passes the number of sessions to the metrics. d.mu is held.
func (d *Dispatcher) reportSessionCount() {
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

// Holds reports whether this server has the newest session of the node, as far as it knows. OpenStream then reaches the
// node from here.
func (d *Dispatcher) Holds(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[node] != nil
}

// Run commits the reports of all sessions until the context ends, and returns its error. It is called once. At the end
// it ends the waiting calls of agents.
func (d *Dispatcher) Run(ctx context.Context) error {
	background, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { d.followStore(background) })
	others.Go(func() { d.watchReach(background) })
	others.Go(func() { d.directory.follow(background) })
	err := d.commits.run(ctx)
	stop()
	others.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.ended)
	for node, s := range d.sessions { // order-free: all are ended
		close(s.ended)
		delete(d.sessions, node)
	}
	if errors.Is(err, context.Canceled) {
		return ctx.Err()
	}
	return err
}
