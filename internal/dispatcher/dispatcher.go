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
//
// # Size
//
// A call of an agent needs its session, which the parts of the package share. Its fields would be exported if the parts
// were packages.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/berthd/berth/internal/clause"
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
// reports, streams, addresses) share the table of sessions; each part has its own file. It is safe for concurrent use.
type Dispatcher struct {
	config  Config
	writer  *store.Writer
	commits *commitQueue

	sessions  *sessionTable
	statuses  *statusWriter
	streams   streams
	secrets   secretSource
	reach     storeReach
	directory *directory
}

// New returns a dispatcher; Run commits its reports.
func New(c Config) *Dispatcher {
	d := &Dispatcher{config: c, directory: newDirectory(c.Tables, c.Clock)}
	d.sessions = &sessionTable{config: &d.config, over: make(chan struct{}), byNode: map[string]*session{}}
	d.reach = storeReach{config: &d.config, cut: make(chan struct{})}
	d.secrets = secretSource{config: &d.config, lookups: map[string]lookup{}, changed: make(chan struct{})}
	d.streams.waiting = map[string]requestedStream{}
	d.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, d.incarnation)
	d.commits = &commitQueue{
		config: &d.config, writer: d.writer, reach: &d.reach, ended: d.sessions.over, waiting: make(chan submission),
	}
	d.statuses = &statusWriter{config: &d.config, sessions: d.sessions, commits: d.commits}
	return d
}

// Holds reports whether this server has the newest session of the node, as far as it knows. OpenStream then reaches the
// node from here.
func (d *Dispatcher) Holds(node string) bool {
	return d.sessions.of(node) != nil
}

// Run commits the reports of all sessions until the context ends, and returns its error. It is called once. At the end
// it ends the waiting calls of agents.
func (d *Dispatcher) Run(ctx context.Context) error {
	background, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { d.followStore(background) })
	others.Go(func() { d.reach.watch(background) })
	others.Go(func() { d.directory.follow(background) })
	err := d.commits.run(ctx)
	stop()
	others.Wait()
	d.sessions.close()
	if errors.Is(err, context.Canceled) {
		return ctx.Err()
	}
	return err
}
