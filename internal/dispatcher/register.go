package dispatcher

import (
	"cmp"
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

// contested is how many displacements in a row make it likely that two agents have one name.
const contested = 2

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
	if err := d.reach.lost(); err != nil {
		return transport.Welcome{}, err
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
	s.wire = wire
	if p, ok := d.config.Tables.Pulse(s.node); ok && p.Session >= s.number {
		// of before the node was forgotten: sessions are counted anew, and nothing was heard of this one
		d.config.Tables.DropPulse(s.node)
	}
	life := d.lives(s, 0)
	defer life.end()
	again, err := d.takeFull(ctx, s, r)
	if err != nil {
		return transport.Welcome{}, fmt.Errorf("take the full report of %s: %w", r.Node, err)
	}
	servers := d.news(s) // before anybody can report
	if err := d.begin(s); err != nil {
		return transport.Welcome{}, err
	}
	life.end()
	d.promise(s, 0, Heartbeat)
	d.config.Logger.Info("a node registered", "node", r.Node, "session", s.number, "tasks", len(r.Tasks))
	if r.Displaced >= contested {
		d.config.Logger.Warn("two agents take the node's session from each other", "node", r.Node, "displaced",
			r.Displaced)
	}
	return transport.Welcome{
		Session:   s.number,
		Token:     d.token(d.config.Tables.Snapshot(), r.Node),
		Heartbeat: cluster.Duration(Heartbeat),
		Servers:   servers,
		Wire:      wire,
		Again:     again,
	}, nil
}

// judge returns the tables by which a registration is judged. What the agent has seen may be newer than the tables,
// which follow the store at their own pace: then they catch up first (P6.6). What is newer even than the store itself
// tells that the store went back (P1.7).
func (d *Dispatcher) judge(ctx context.Context, r *transport.Registration) (snap *store.Snapshot, wentBack bool,
	err error,
) {
	snap = d.config.Tables.Snapshot()
	ahead := func() bool {
		return r.Previous > sessionIn(snap, r.Node) || seenLater(r.Token, d.token(snap, r.Node))
	}
	if !ahead() {
		return snap, false, nil
	}
	if snap, err = d.config.Tables.Settled(ctx); err != nil {
		return nil, false, err
	}
	return snap, seenLater(r.Token, d.token(snap, r.Node)), nil
}

// seenLater reports whether an agent that was shown the token saw a later store than the other one. The
// generation says whose the node is, and begins anew for a node that was forgotten.
func seenLater(seen, own cluster.Token) bool {
	return cmp.Or(cmp.Compare(seen.Incarnation, own.Incarnation), cmp.Compare(seen.Epoch, own.Epoch)) > 0
}

func sessionIn(snap *store.Snapshot, node string) uint64 {
	if e, ok := snap.NodeStatus(node); ok {
		return e.Value.Session
	}
	return 0
}

// open writes the node's status record with the next session number. Where the record was written meanwhile without a
// newer session it tries again.
func (d *Dispatcher) open(ctx context.Context, r transport.Registration) (*session, error) {
	for range tries {
		s, refused, err := d.tryOpen(ctx, &r)
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

// tryOpen tries once: it returns the session, or the revision at which the write was refused.
func (d *Dispatcher) tryOpen(ctx context.Context, r *transport.Registration) (s *session, refused uint64, err error) {
	snap, wentBack, err := d.judge(ctx, r)
	if err != nil {
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
	newest = max(newest, r.Previous) // above, where the store went back or the node's records were removed
	if wentBack {
		d.config.Logger.Error("a node has seen a later state of the store than this one", "node", r.Node,
			"seen", r.Token, "own", d.token(snap, r.Node))
	}
	u, err := d.openingUnit(ctx, r, newest+1, rev)
	if err != nil {
		return nil, 0, err
	}
	ok, at, err := d.writer.Commit(ctx, []store.Unit{u})
	if err != nil {
		return nil, 0, fmt.Errorf("register %s: %w", r.Node, err)
	}
	if !ok[0] {
		return nil, at, nil
	}
	s = &session{
		node:      r.Node,
		number:    newest + 1,
		statusRev: at,
		settled:   at,
		turn:      make(chan struct{}, 1),
		over:      make(chan struct{}),
		opens:     make(chan *transport.StreamRequest, 16),
		usage:     usage{stats: r.Stats},
		wentBack:  wentBack,
		shown:     r.Token,
	}
	s.usage.is(&r.Facts)
	return s, 0, d.refreshRev(ctx, s)
}

// openingUnit makes the write that begins a session, over the record of the revision.
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
	if r.Displaced >= contested {
		u.Event(cluster.Event{Type: "node.contested", Node: r.Node, Message: fmt.Sprintf(
			"another agent that calls itself %s took its session away %d times in a row: each machine needs "+
				"a name of its own", r.Node, r.Displaced)})
	}
	return u, u.Put(key, d.status(*r, number, false))
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

// refreshRev takes the revision of the session's status record from the tables, once they hold the session's last
// write.
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

func (d *Dispatcher) newest(node string) uint64 { return sessionIn(d.config.Tables.Snapshot(), node) }

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
// then says that the session is synced. It returns what is to be told again.
func (d *Dispatcher) takeFull(ctx context.Context, s *session, r transport.Registration) (again []string, err error) {
	snap := d.config.Tables.Snapshot()
	s.reported = make(map[string]bool, len(r.Tasks))
	for i := range r.Tasks {
		s.reported[r.Tasks[i].UUID] = true
	}
	tasks := append(slices.Clip(r.Tasks), forgotten(snap, r)...)
	refused, err := d.take(ctx, s, tasks)
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
	if err := u.Put(prefix.NodeStatus(r.Node), d.status(r, s.number, true)); err != nil {
		return nil, err
	}
	ok, at, err := d.submit(ctx, []store.Unit{u})
	if err != nil {
		return nil, err
	}
	if !ok[0] {
		return nil, &transport.SessionError{Newest: d.newest(r.Node), Detail: "a newer session has begun"}
	}
	s.settled = at
	return again, d.refreshRev(ctx, s)
}

// forgotten are the attempts that have a status on the node but are not in its full report: the agent lost its memory
// of them, so nothing of them is there any more that anybody could ask. Where another attempt of the same task is in
// the report, its status takes the place of the one that was forgotten: the two have one key.
func forgotten(snap *store.Snapshot, r transport.Registration) []cluster.Observed {
	known := make(map[string]bool, len(r.Tasks))
	here := make(map[cluster.TaskID]int, len(r.Tasks))
	for i := range r.Tasks {
		known[r.Tasks[i].UUID] = true
		if o := &r.Tasks[i]; takes(snap, r.Node, o) {
			here[o.Task] = o.Attempt
		}
	}
	var out []cluster.Observed
	for row := range snap.NodeAttempts(r.Node) {
		if row.Observed == nil && row.Desired != nil && row.Outcome == nil && !known[row.Desired.UUID] &&
			obscured(snap, row) {
			out = append(out, lost(cluster.Observed{Task: row.Task, Attempt: row.Number, UUID: row.Desired.UUID}))
			continue
		}
		if row.Observed == nil || row.Observed.Node != r.Node || known[row.Observed.UUID] || row.Observed.Gone {
			continue
		}
		if n := here[row.Task]; n != 0 && n != row.Number {
			continue
		}
		out = append(out, lost(*row.Observed))
	}
	return out
}

// takes reports whether a status that a full report holds can be written.
func takes(snap *store.Snapshot, node string, o *cluster.Observed) bool {
	row, ok := snap.Attempt(o.Task, o.Attempt)
	if !ok {
		row = &store.AttemptRow{}
	}
	return !o.Gone && objection(row, node, o, false) == nil
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
