package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// contestedDisplacements is the number of consecutive displacements from which on two agents probably have one name.
const contestedDisplacements = 2

// Register begins a session: its number is written by compare-and-set (P6.1), then the full report.
func (d *Dispatcher) Register(ctx context.Context, r transport.Registration) (transport.Welcome, error) {
	if !cluster.ValidNodeName(r.Node) {
		return transport.Welcome{}, fmt.Errorf("%w: %q is not a name for a node", transport.ErrRefused, r.Node)
	}
	if err := checkFacts(r.Node, &r.Facts); err != nil {
		return transport.Welcome{}, err
	}
	wire, err := r.Speaks()
	if err != nil {
		d.config.Logger.Warn("an agent of another version was refused", "node", r.Node, "error", err)
		return transport.Welcome{}, err
	}
	if err := d.reach.unreachableError(); err != nil {
		return transport.Welcome{}, err
	}
	select {
	case <-d.config.Tables.Synced():
	case <-ctx.Done():
		return transport.Welcome{}, ctx.Err()
	}
	s, err := d.openSession(ctx, r)
	if err != nil {
		return transport.Welcome{}, err
	}
	if p, ok := d.config.Tables.Pulse(s.node); ok && p.Session >= s.number {
		// The pulse is from before the operator forgot the node. Session numbers begin again, and the new session has
		// no pulse yet.
		d.config.Tables.DropPulse(s.node)
	}
	call := s.pulse.keepAlive(0)
	defer call.end()
	again, err := d.writeFullReport(ctx, s, r)
	if err != nil {
		return transport.Welcome{}, fmt.Errorf("take the full report of %s: %w", r.Node, err)
	}
	servers := d.reach.unsentServers(s) // before the session can get a report
	if err := d.sessions.activate(s); err != nil {
		return transport.Welcome{}, err
	}
	call.end()
	s.pulse.record(0, Heartbeat)
	d.config.Logger.Info("a node registered", "node", r.Node, "session", s.number, "tasks", len(r.Tasks))
	if r.Displaced >= contestedDisplacements {
		d.config.Logger.Warn("two agents take the node's session from each other", "node", r.Node, "displaced",
			r.Displaced)
	}
	return transport.Welcome{
		Session:   s.number,
		Token:     tokenFor(d.config.Tables.Snapshot(), r.Node),
		Heartbeat: cluster.Duration(Heartbeat),
		Servers:   servers,
		Domain:    owningDomain(d.config.Tables.Snapshot(), r.Node),
		Wire:      wire,
		Again:     again,
	}, nil
}

// snapshotFor returns the snapshot that a registration is checked against. The agent may have seen newer state than the
// tables, which follow the store with a delay; then the tables catch up first (P6.6). If the agent has seen newer state
// than the store itself, the store went back (P1.7).
func (d *Dispatcher) snapshotFor(ctx context.Context, r *transport.Registration) (snap *store.Snapshot, wentBack bool,
	err error,
) {
	snap = d.config.Tables.Snapshot()
	ahead := func() bool {
		return r.Previous > sessionIn(snap, r.Node) || seenLater(snap, r.Node, r.Token)
	}
	if !ahead() {
		return snap, false, nil
	}
	if snap, err = d.config.Tables.Settled(ctx); err != nil {
		return nil, false, err
	}
	return snap, seenLater(snap, r.Node, r.Token), nil
}

func sessionIn(snap *store.Snapshot, node string) uint64 {
	if e, ok := snap.NodeStatus(node); ok {
		return e.Value.Session
	}
	return 0
}

// openSession writes the node's status record with the next session number. It retries if the record was changed in
// between without a newer session.
func (d *Dispatcher) openSession(ctx context.Context, r transport.Registration) (*session, error) {
	for range maxWriteTries {
		s, refused, err := d.tryOpenSession(ctx, &r)
		if s != nil || err != nil {
			return s, err
		}
		snap, err := d.config.Tables.WaitFor(ctx, refused)
		if err != nil {
			return nil, err
		}
		if newest := sessionIn(snap, r.Node); newest > r.Previous {
			return nil, &transport.SessionError{Newest: newest, Detail: "another registration of the node came first"}
		}
	}
	return nil, fmt.Errorf("register %s: its record changes too fast", r.Node)
}

// tryOpenSession tries once. It returns the session, or the revision at which the write was refused.
func (d *Dispatcher) tryOpenSession(ctx context.Context, r *transport.Registration) (s *session, refused uint64,
	err error,
) {
	snap, wentBack, err := d.snapshotFor(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	if err := d.releasedError(snap, r.Node); err != nil {
		return nil, 0, err
	}
	var newest, rev uint64
	if e, ok := snap.NodeStatus(r.Node); ok {
		newest, rev = e.Value.Session, e.Modified
	}
	if newest > r.Previous && !d.config.Without.Off(clause.Session) {
		return nil, 0, &transport.SessionError{Newest: newest, Detail: fmt.Sprintf(
			"the registration follows session %d of %s, but the newest is %d", r.Previous, r.Node, newest)}
	}
	newest = max(newest, r.Previous) // also where the store went back, or the node's records were removed
	if wentBack {
		d.config.Logger.Error("a node has seen a later state of the store than this one", "node", r.Node,
			"seen", r.Token, "own", tokenFor(snap, r.Node))
	}
	u, err := d.openingUnit(ctx, r, newest+1, rev)
	if err != nil {
		return nil, 0, err
	}
	if !d.config.Without.Off(clause.Released) {
		host, _ := snap.Host(r.Node) // a release that the tables do not show yet refuses the registration (P7.2)
		u.Compare(d.config.Tables.Prefix().Host(r.Node), host.Modified)
	}
	ok, at, err := d.writer.Commit(ctx, []store.Unit{u})
	if err != nil {
		return nil, 0, fmt.Errorf("register %s: %w", r.Node, err)
	}
	if !ok[0] {
		return nil, at, nil
	}
	s = &session{
		node:           r.Node,
		number:         newest + 1,
		statusRev:      at,
		lastWriteRev:   at,
		reporting:      make(chan struct{}, 1),
		ended:          make(chan struct{}),
		streamRequests: make(chan *transport.StreamRequest, 16),
		pulse:          pulse{config: &d.config, node: r.Node, session: newest + 1, usage: usage{stats: r.Stats}},
		wentBack:       wentBack,
		shown:          r.Token,
	}
	s.pulse.usage.setTotals(&r.Facts)
	return s, 0, d.statuses.refreshRev(ctx, s)
}

// openingUnit returns the write that begins a session, over the record at the revision.
func (d *Dispatcher) openingUnit(ctx context.Context, r *transport.Registration, number, rev uint64) (u store.Unit,
	err error,
) {
	key := d.config.Tables.Prefix().NodeStatus(r.Node)
	foreign, err := d.foreign(ctx, key, rev)
	if err != nil {
		return u, err
	}
	if foreign != 0 {
		rev = foreign
	}
	u.Compare(key, rev)
	if number == 1 {
		u.Event(cluster.Event{Type: "node.joined", Node: r.Node, Message: "the node registered for the first time"})
	}
	if r.Displaced >= contestedDisplacements {
		u.Event(cluster.Event{Type: "node.contested", Node: r.Node, Message: fmt.Sprintf(
			"another agent that calls itself %s took its session away %d times in a row: each machine needs "+
				"a name of its own", r.Node, r.Displaced)})
	}
	return u, u.Put(key, nodeStatus(r, number, false))
}

// foreign returns the revision of a foreign record under a node's status key, so that the node can register over it. It
// returns 0 if there is none.
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

// nodeStatus returns the record of a session.
func nodeStatus(r *transport.Registration, number uint64, synced bool) *cluster.NodeStatus {
	return &cluster.NodeStatus{
		Name:       r.Node,
		Session:    number,
		Registered: time.Now().UTC(),
		Facts:      r.Facts,
		Synced:     synced,
		Token:      r.Token,
	}
}

// writeFullReport writes the status of every attempt in the full report, and marks all other attempts of the node as
// gone. It then marks the session as synced. It returns the UUIDs of attempts that the agent must report again.
func (d *Dispatcher) writeFullReport(ctx context.Context, s *session, r transport.Registration) (again []string,
	err error,
) {
	snap := d.config.Tables.Snapshot()
	s.reported = make(map[string]bool, len(r.Tasks))
	for i := range r.Tasks {
		s.reported[r.Tasks[i].UUID] = true
	}
	tasks := append(slices.Clip(r.Tasks), forgottenAttempts(snap, r)...)
	refused, err := d.statuses.writeStatuses(ctx, s, tasks)
	if err != nil {
		return nil, err
	}
	s.reported = nil
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		if refused[id].Retry {
			again = append(again, id)
		}
		d.config.Logger.Warn("a reported attempt was not taken", "node", r.Node, "uuid", id, "reason",
			refused[id].Message)
	}
	prefix := d.config.Tables.Prefix()
	var u store.Unit
	u.Compare(prefix.NodeStatus(r.Node), s.statusRev)
	if err := u.Put(prefix.NodeStatus(r.Node), nodeStatus(&r, s.number, true)); err != nil {
		return nil, err
	}
	ok, at, err := d.commits.submit(ctx, []store.Unit{u})
	if err != nil {
		return nil, err
	}
	if !ok[0] {
		return nil, d.sessions.replacedError(r.Node)
	}
	s.lastWriteRev = at
	return again, d.statuses.refreshRev(ctx, s)
}

// forgottenAttempts returns the attempts with a status on the node that are not in its full report. The agent has lost
// its records of them, so no process of them remains on the node. If another attempt of the task is in the report, its
// status has the same key and replaces the forgotten one. Such an attempt is not returned.
func forgottenAttempts(snap *store.Snapshot, r transport.Registration) []cluster.Observed {
	known := make(map[string]bool, len(r.Tasks))
	here := make(map[cluster.TaskID]int, len(r.Tasks))
	for i := range r.Tasks {
		known[r.Tasks[i].UUID] = true
		if o := &r.Tasks[i]; canWrite(snap, r.Node, o) {
			here[o.Task] = o.Attempt
		}
	}
	var out []cluster.Observed
	for row := range snap.NodeAttempts(r.Node) {
		if row.Observed == nil && row.Desired != nil && row.Outcome == nil && !known[row.Desired.UUID] &&
			obscured(snap, row) {
			out = append(out, markLost(cluster.Observed{Task: row.Task, Attempt: row.Number, UUID: row.Desired.UUID}))
			continue
		}
		if row.Observed == nil || row.Observed.Node != r.Node || known[row.Observed.UUID] || row.Observed.Gone {
			continue
		}
		if n := here[row.Task]; n != 0 && n != row.Number {
			continue
		}
		out = append(out, markLost(*row.Observed))
	}
	return out
}

// canWrite reports whether a status of a full report can be written.
func canWrite(snap *store.Snapshot, node string, o *cluster.Observed) bool {
	row, ok := snap.Attempt(o.Task, o.Attempt)
	if !ok {
		row = &store.AttemptRow{}
	}
	return !o.Gone && refusalFor(row, node, o, false) == nil
}

// obscured reports whether a foreign record is under the attempt's status key: the attempt may have run.
func obscured(snap *store.Snapshot, row *store.AttemptRow) bool {
	foreign, ok := snap.ForeignRow(row.Node, row.Task)
	return ok && foreign.ObservedRev != 0
}

// markLost returns the status of an attempt that its agent forgot.
func markLost(o cluster.Observed) cluster.Observed {
	o.Gone = true
	if !o.State.Terminal() {
		o.State, o.Reason = cluster.StateLost, cluster.ReasonUnknownExit
		o.Message = "the node's agent no longer knows the task: its data directory was lost"
		o.Health = cluster.HealthUnknown
		o.Finished = time.Now().UTC()
	}
	return o
}
