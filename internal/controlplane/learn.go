package controlplane

import (
	"hash/fnv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

const (
	// relearnInterval is the time after which a leader learns the next part of the view again. It also decides for the
	// owners in that part, though nothing changed. So a missed trigger is made up for within relearnParts intervals.
	relearnInterval = time.Minute
	// relearnParts is the number of parts of the view.
	relearnParts = 10
)

// relearning is the state of learning the view again, part by part.
type relearning struct {
	at   time.Time // time at which the last part was learnt
	part uint32    // number of the next part
}

// next returns a filter of names for the part whose turn it is, or nil if it is too early.
func (r *relearning) next(now time.Time) func(name string) bool {
	if now.Sub(r.at) < relearnInterval {
		return nil
	}
	part := r.part
	r.at, r.part = now, (part+1)%relearnParts
	return func(name string) bool {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // a hash returns no error
		return h.Sum32()%relearnParts == part
	}
}

// learn brings the loop's own view, the fleet and the owners to decide for, to the snapshot.
func (l *loop) learn(snap *store.Snapshot, c store.Changes) {
	l.learnReservations(snap, c)
	if c.Resync {
		l.relearning.at = l.now
		l.learnAll(snap)
		return
	}
	l.learnChanges(snap, c)
	if in := l.relearning.next(l.now); in != nil {
		l.learnPart(snap, in)
	}
}

func (l *loop) learnChanges(snap *store.Snapshot, c store.Changes) {
	eventful := map[cluster.OwnerRef]bool{}
	for key := range c.Attempts { // order-free: each attempt is charged by itself
		row := l.charge(snap, key)
		if row == nil {
			row = &store.AttemptRow{Task: key.Task, Number: key.Number}
		}
		if o, ok := row.Ref(); ok && !needsNoDecision(row) {
			eventful[o] = true
		}
	}
	for name := range c.Nodes { // order-free: each node is set by itself
		l.setNode(snap, name)
	}
	for o := range c.Owners { // order-free: a set
		was, known := l.policies[o]
		l.updateCharges(snap, o)
		if o.Kind != cluster.KindJob || eventful[o] || !known || l.policies[o].Revision != was.Revision {
			l.queue.mark(o)
		}
	}
	if c.Clusters || c.Domain {
		l.violations.all = true
		l.queue.markAll(snap)
	}
	if c.Secrets {
		l.queue.markSecretUsers(snap)
	}
	if len(c.Definitions) > 0 {
		l.queue.markUsers(snap, func(r cluster.Ref) bool { return c.Definitions[r] })
	}
}

func (l *loop) learnAll(snap *store.Snapshot) {
	if len(l.charged) == 0 { // a new term: the maps get their final size
		l.charged = make(map[store.AttemptKey]fleetCharge, snap.AttemptCount())
		l.fleet.Grow(snap.AttemptCount())
	}
	l.violations.all = true
	l.learnPart(snap, func(string) bool { return true })
}

// learnPart learns the attempts, nodes and owners again whose names the filter accepts.
func (l *loop) learnPart(snap *store.Snapshot, in func(name string) bool) {
	var last cluster.OwnerRef
	lastIn := false
	for r := range snap.AllAttempts() {
		o, ok := r.Ref()
		if !ok || o != last { // the attempts of an owner are adjacent
			lastIn, last = in(o.Name), o
			if ok && lastIn {
				l.queue.mark(o)
				l.violations.owners[o] = true
			}
		}
		if lastIn {
			l.chargeRow(snap, store.AttemptKey{Task: r.Task, Number: r.Number}, r)
		}
	}
	for k := range l.charged { // order-free: each attempt is charged by itself
		if !in(string(k.Task)) {
			continue
		}
		if _, ok := snap.Attempt(k.Task, k.Number); !ok && !l.unconfirmed[k] {
			l.charge(snap, k)
		}
	}
	for k := range l.unreadable { // order-free: each record by itself
		l.charge(snap, k)
	}
	for _, name := range l.fleet.Nodes() {
		if in(name) {
			l.setNode(snap, name)
		}
	}
	for e := range snap.Nodes() {
		if in(e.Value.Name) {
			l.setNode(snap, e.Value.Name)
		}
	}
	l.queue.markPart(snap, in)
}

// needsNoDecision reports whether a row needs no decision, whatever it was before: an attempt of a job begins or runs
// as it should. Jobs have many tasks, and each decision covers all of them.
func needsNoDecision(row *store.AttemptRow) bool {
	d, o := row.Desired, row.Observed
	return d != nil && o != nil && row.Outcome == nil && !row.Unreadable && !row.ForeignStatus && d.Batch() &&
		d.Stop == nil &&
		o.UUID == d.UUID && (o.State == cluster.StateStarting || o.State == cluster.StateRunning && d.TimeLimit == 0) &&
		!o.Gone && o.Restarts == 0 && o.Ask == "" && o.Health != cluster.HealthFailing
}

// charge keeps the fleet's reservation of an attempt, from its placement until nothing of it is left. It returns the
// attempt's row, or nil if it has none.
func (l *loop) charge(snap *store.Snapshot, key store.AttemptKey) *store.AttemptRow {
	row, ok := snap.Attempt(key.Task, key.Number)
	if !ok {
		row = nil
	}
	l.chargeRow(snap, key, row)
	return row
}

// chargeRow is charge for an attempt with a known row, nil for none.
func (l *loop) chargeRow(snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	held, isHeld := l.charged[key]
	l.nodes.noteUnkillable(key, row)
	l.noteUnreadable(snap, key, row)
	over := !observe.HoldsRoom(row)
	var d *cluster.Desired
	if !over {
		d = observe.Occupant(snap, row)
	}
	if isHeld && row != nil {
		delete(l.unconfirmed, key)
	}
	if isHeld && (over || d != nil && chargeOf(row, d) != held) {
		l.fleet.Release(held.uuid)
		delete(l.charged, key)
		l.fleetChanged, isHeld = true, false
	}
	if isHeld || d == nil {
		return
	}
	l.fleet.Reserve(l.reservation(snap, row, d))
	l.charged[key] = chargeOf(row, d)
}

// unreadableRecord is a record that hides what runs on a node. session is the node's newest session when the record was
// first seen. A report of that session may be older than the record, and an agent does not report again what it knows
// to be durable.
type unreadableRecord struct {
	node    string
	session uint64
}

func sessionOf(snap *store.Snapshot, node string) uint64 {
	if e, ok := snap.NodeStatus(node); ok {
		return e.Value.Session
	}
	return 0
}

// noteUnreadable takes note of whether a record hides what runs on its node. Such a node takes no tasks, as nobody
// knows what they could be placed beside.
func (l *loop) noteUnreadable(snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	was, now := unreadableRecord{}, ""
	if len(l.unreadable) > 0 {
		was = l.unreadable[key]
	}
	if row != nil && observe.HidesTask(row) {
		now = row.Node
	}
	if was.node == now {
		return
	}
	delete(l.unreadable, key)
	if now != "" {
		l.unreadable[key] = unreadableRecord{node: now, session: sessionOf(snap, now)}
	}
	for _, name := range []string{was.node, now} {
		if name != "" {
			l.setNode(snap, name)
		}
	}
}

// refusesTasks reports whether a node takes no new tasks because not enough is known of it. Either it has not sent a
// full report to this leader, so that it may be dead or run what this store has lost (P1.7). Or a foreign record stands
// for a task (P3.5). A server that does not lead hears of all nodes too, so a takeover waits for none.
func (l *loop) refusesTasks(name string) bool {
	for _, record := range l.unreadable { // order-free: any will do
		if record.node == name {
			return true
		}
	}
	return !l.nodes.hasReported(name)
}

func (l *loop) setNode(snap *store.Snapshot, name string) {
	l.fleetChanged = true
	n := observe.Node(snap, l.config.Domain, name)
	if n == nil {
		l.setDaemonFacts(name, nil, daemonNodeFacts{})
		l.fleet.RemoveNode(name)
		return
	}
	n.Cordon, n.Reserved = n.Cordon || l.refusesTasks(name), l.reservations.at[name]
	facts := l.nodes.daemonFactsOf(name)
	host, ok := snap.Host(name)
	facts.gone = facts.gone || ok && host.Value.Gone
	l.setDaemonFacts(name, n, facts)
	l.fleet.SetNode(*n)
}

// noteNodes takes note of nodes with a new verdict: the owners of all tasks there are to be decided for.
func (l *loop) noteNodes(snap *store.Snapshot, nodes []string) {
	for _, name := range nodes {
		l.setNode(snap, name)
		if !l.hasCycled {
			continue // all owners are marked in the first cycle
		}
		for row := range snap.NodeAttempts(name) {
			if o, ok := row.Ref(); ok {
				l.queue.mark(o)
			}
		}
	}
}
