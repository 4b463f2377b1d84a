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
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Heartbeat is how soon an agent is asked to report again.
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
}

// Metrics counts what a dispatcher does. The calls must return at once.
type Metrics interface {
	// Sessions tells how many nodes have a session at this server.
	Sessions(n int)
	// Reported tells of a report that was answered: how long that took, how many attempts of it were taken and how many refused.
	Reported(took time.Duration, taken, refused int)
}

// errEnded is returned to agents that call while the server goes away.
var errEnded = errors.New("the server is going away")

// Dispatcher serves the sessions of all agents that are connected to this server. It is
// safe for concurrent use.
type Dispatcher struct {
	config  Config
	writer  *store.Writer
	queue   chan submission
	streams streams
	ended   chan struct{} // closed when Run ends

	mu       sync.Mutex
	sessions map[string]*session
}

// session is a registration of a node at this server.
type session struct {
	node   string
	number uint64

	// mu is held while a report of the session is taken, which may wait for the disk: a node's reports are taken one at
	// a time. A sign of life does not wait for it.
	mu sync.Mutex
	// statusRev is the revision of the node's status record, which every report compares; settled is
	// the revision that the tables must have reached to show the session's last write.
	statusRev, settled uint64
	began              uint64 // the revision that holds the full report; it does not change
	seq                uint64
	last               transport.ReportReply

	// over is closed when a newer session takes its place.
	over  chan struct{}
	opens chan transport.StreamRequest

	streamMu sync.Mutex
	stream   chan struct{} // closed when a newer assignment stream takes the place of the present one; nil for none
}

// New returns a dispatcher; Run commits its reports.
func New(c Config) *Dispatcher {
	d := &Dispatcher{
		config:   c,
		queue:    make(chan submission),
		ended:    make(chan struct{}),
		sessions: map[string]*session{},
	}
	d.writer = store.NewWriter(c.Engine, c.Tables.Prefix(), nil, d.incarnation)
	d.streams.waiting = map[string]chan carried{}
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

// Register begins a session: its number is written by compare-and-set (P6.1), then the full report.
func (d *Dispatcher) Register(ctx context.Context, r transport.Registration) (transport.Welcome, error) {
	if !cluster.ValidNodeName(r.Node) {
		return transport.Welcome{}, fmt.Errorf("%w: %q is not a name for a node", transport.ErrRefused, r.Node)
	}
	select {
	case <-d.config.Tables.Synced():
	case <-ctx.Done():
		return transport.Welcome{}, ctx.Err()
	}
	s, err := d.open(ctx, r)
	if err != nil {
		return transport.Welcome{}, err
	}
	defer d.lives(s, 0)()
	if err := d.takeFull(ctx, s, r); err != nil {
		return transport.Welcome{}, fmt.Errorf("take the full report of %s: %w", r.Node, err)
	}
	if err := d.begin(s); err != nil {
		return transport.Welcome{}, err
	}
	d.config.Logger.Info("a node registered", "node", r.Node, "session", s.number, "tasks", len(r.Tasks))
	return transport.Welcome{
		Session:   s.number,
		Token:     d.token(d.config.Tables.Snapshot(), r.Node),
		Heartbeat: cluster.Duration(Heartbeat),
	}, nil
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
	if m := d.config.Metrics; m != nil {
		m.Sessions(len(d.sessions))
	}
	return nil
}

// open writes the node's status record with the next session number.
func (d *Dispatcher) open(ctx context.Context, r transport.Registration) (*session, error) {
	prefix := d.config.Tables.Prefix()
	var newest, rev uint64
	if e, ok := d.config.Tables.Snapshot().NodeStatus(r.Node); ok {
		newest, rev = e.Value.Session, e.Modified
	}
	if newest != r.Previous {
		return nil, &transport.SessionError{Newest: newest, Detail: fmt.Sprintf(
			"the registration follows session %d of %s, but the newest is %d", r.Previous, r.Node, newest)}
	}
	if foreign, err := d.foreign(ctx, prefix.NodeStatus(r.Node), rev); err != nil {
		return nil, err
	} else if foreign != 0 {
		rev = foreign
	}
	var u store.Unit
	u.Compare(prefix.NodeStatus(r.Node), rev)
	if err := u.Put(prefix.NodeStatus(r.Node), d.status(r, newest+1, false)); err != nil {
		return nil, err
	}
	if newest == 0 {
		u.Event(cluster.Event{Type: "node.joined", Node: r.Node, Message: "the node registered for the first time"})
	}
	ok, at, err := d.writer.Commit(ctx, []store.Unit{u})
	if err != nil {
		return nil, fmt.Errorf("register %s: %w", r.Node, err)
	}
	if !ok[0] {
		// Another registration came between; the tables will show it before the agent asks again.
		if _, err := d.config.Tables.WaitFor(ctx, at); err != nil {
			return nil, err
		}
		return nil, &transport.SessionError{Newest: d.newest(r.Node), Detail: "another registration of the node came first"}
	}
	s := &session{
		node:      r.Node,
		number:    newest + 1,
		statusRev: at,
		settled:   at,
		over:      make(chan struct{}),
		opens:     make(chan transport.StreamRequest, 16),
	}
	return s, d.refreshRev(ctx, s)
}

// foreign returns the revision of a record that stands under a node's status key and is none, so that the node can
// register over it; 0 if there is no such record.
func (d *Dispatcher) foreign(ctx context.Context, key string, known uint64) (uint64, error) {
	r, err := d.config.Engine.Read(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && r.Modified == known:
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	if _, err := store.Decode[cluster.NodeStatus](r.Value); err == nil {
		return 0, nil
	}
	return r.Modified, nil
}

// refreshRev takes the revision of the session's status record from the tables, once they hold the session's last write.
func (d *Dispatcher) refreshRev(ctx context.Context, s *session) error {
	snap, err := d.config.Tables.WaitFor(ctx, s.settled)
	if err != nil {
		return err
	}
	e, ok := snap.NodeStatus(s.node)
	if !ok || e.Value.Session != s.number {
		return &transport.SessionError{Newest: d.newest(s.node), Detail: "a newer session has begun"}
	}
	s.statusRev = e.Modified
	return nil
}

func (d *Dispatcher) newest(node string) uint64 {
	if e, ok := d.config.Tables.Snapshot().NodeStatus(node); ok {
		return e.Value.Session
	}
	return 0
}

func (d *Dispatcher) status(r transport.Registration, number uint64, synced bool) *cluster.NodeStatus {
	return &cluster.NodeStatus{
		Name:       r.Node,
		Session:    number,
		Registered: time.Now().UTC(),
		Facts:      r.Facts,
		Synced:     synced,
		Token:      r.Token,
	}
}

// takeFull writes the status of every attempt that the agent knows, marks as gone what it no longer knows, and
// then says that the session is synced.
func (d *Dispatcher) takeFull(ctx context.Context, s *session, r transport.Registration) error {
	snap := d.config.Tables.Snapshot()
	tasks := append(slices.Clip(r.Tasks), forgotten(snap, r)...)
	refused, err := d.take(ctx, s, tasks)
	if err != nil {
		return err
	}
	for id, why := range refused { // order-free: log lines
		d.config.Logger.Warn("a reported attempt was not taken", "node", r.Node, "attempt", id, "reason", why.Message)
	}
	prefix := d.config.Tables.Prefix()
	var u store.Unit
	u.Compare(prefix.NodeStatus(r.Node), s.statusRev)
	if err := u.Put(prefix.NodeStatus(r.Node), d.status(r, s.number, true)); err != nil {
		return err
	}
	ok, at, err := d.submit(ctx, []store.Unit{u})
	if err != nil {
		return err
	}
	if !ok[0] {
		return &transport.SessionError{Newest: d.newest(r.Node), Detail: "a newer session has begun"}
	}
	s.settled = at
	return d.refreshRev(ctx, s)
}

// forgotten are the attempts that have a status on the node but are not in its full report: the agent lost its
// memory of them, so nothing of them is there any more that anybody could ask.
func forgotten(snap *store.Snapshot, r transport.Registration) []cluster.Observed {
	known := make(map[string]bool, len(r.Tasks))
	for i := range r.Tasks {
		known[r.Tasks[i].UUID] = true
	}
	var out []cluster.Observed
	for row := range snap.NodeAttempts(r.Node) {
		if row.Observed == nil && row.Desired != nil && row.Outcome == nil && !known[row.Desired.UUID] && obscured(snap, row) {
			out = append(out, lost(cluster.Observed{Task: row.Task, Attempt: row.Number, UUID: row.Desired.UUID}))
			continue
		}
		if row.Observed == nil || row.Observed.Node != r.Node || known[row.Observed.UUID] || row.Observed.Gone {
			continue
		}
		out = append(out, lost(*row.Observed))
	}
	return out
}

// obscured reports whether a foreign record stands where the attempt's status should: it may have run.
func obscured(snap *store.Snapshot, row *store.AttemptRow) bool {
	foreign, ok := snap.Attempt(row.Task, 0)
	return ok && foreign.Node == row.Node && foreign.ObservedRev != 0
}

// lost is what is known of an attempt that its agent forgot.
func lost(o cluster.Observed) cluster.Observed {
	o.Gone = true
	if !o.State.Terminal() {
		o.State, o.Reason = cluster.StateLost, cluster.ReasonUnknownExit
		o.Message = "the node's agent no longer knows the task: its data directory was lost"
		o.Health = cluster.HealthUnknown
		o.Finished = time.Now().UTC()
	}
	return o
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

// lives counts a call of the agent as a sign of life, and as one more every Heartbeat until the returned function is
// called: an agent that waits for the store's disk is not silent. The caller's context ends with the agent's connection.
func (d *Dispatcher) lives(s *session, seq uint64) (stop func()) {
	d.pulse(s, seq)
	over := make(chan struct{})
	var again func()
	again = func() {
		select {
		case <-over:
		default:
			d.pulse(s, seq)
			time.AfterFunc(Heartbeat, again)
		}
	}
	timer := time.AfterFunc(Heartbeat, again)
	return func() {
		close(over)
		timer.Stop()
	}
}

func (d *Dispatcher) pulse(s *session, seq uint64) {
	d.config.Tables.SetPulse(s.node, cluster.Pulse{
		Session: s.number,
		Seq:     seq,
		At:      d.config.Clock(),
		Next:    Heartbeat,
	})
}

// Run commits the reports of all sessions until the context ends, and returns its error. It is called once; the calls of
// agents that still wait then end.
func (d *Dispatcher) Run(ctx context.Context) error {
	err := d.commitLoop(ctx)
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
