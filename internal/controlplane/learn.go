package controlplane

import (
	"hash/fnv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

const (
	// relearnInterval is how often a leader learns a part of the view anew, and decides for the owners in it, though
	// nothing changed. A trigger that was missed is made up for within relearnParts of these intervals.
	relearnInterval = time.Minute
	// relearnParts is the number of parts of the view.
	relearnParts = 10
)

// relearning is the state of learning the view anew, part by part.
type relearning struct {
	at   time.Time // when a part was learnt last
	part uint32    // the one that is next
}

// next returns a filter of names that holds for the part whose turn it is, or nil before its time.
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

// learn brings the loop's own view, the fleet and the list of owners to decide for, to the snapshot.
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
	stirred := map[cluster.OwnerRef]bool{}
	for key := range c.Attempts { // order-free: each attempt is charged by itself
		row := l.charge(snap, key)
		if row == nil {
			row = &store.AttemptRow{Task: key.Task, Number: key.Number}
		}
		if o, ok := row.Ref(); ok && !uneventful(row) {
			stirred[o] = true
		}
	}
	for name := range c.Nodes { // order-free: each node is set by itself
		l.setNode(snap, name)
	}
	for o := range c.Owners { // order-free: a set
		was, known := l.manners[o]
		l.recharge(snap, o)
		if o.Kind != cluster.KindJob || stirred[o] || !known || l.manners[o].rev != was.rev {
			l.dirty[o] = true
		}
	}
	if c.Clusters || c.Domain {
		l.misfits.all = true
		l.dirtyAll(snap)
	}
	if c.Secrets {
		l.dirtySecretive(snap)
	}
	if len(c.Definitions) > 0 {
		l.dirtyUsers(snap, c.Definitions)
	}
}

func (l *loop) learnAll(snap *store.Snapshot) {
	if len(l.reserve) == 0 { // a new term: the maps are made as large as they will be
		l.reserve = make(map[store.AttemptKey]hold, snap.AttemptCount())
		l.fleet.Grow(snap.AttemptCount())
	}
	l.misfits.all = true
	l.learnPart(snap, func(string) bool { return true })
}

// learnPart learns the attempts, nodes and owners anew whose name is in a part of the view.
func (l *loop) learnPart(snap *store.Snapshot, in func(name string) bool) {
	var last cluster.OwnerRef
	lastIn := false
	for r := range snap.AllAttempts() {
		o, ok := r.Ref()
		if !ok || o != last { // the attempts of an owner stand together
			lastIn, last = in(o.Name), o
			if ok && lastIn {
				l.dirty[o], l.misfits.owners[o] = true, true
			}
		}
		if lastIn {
			l.chargeRow(snap, store.AttemptKey{Task: r.Task, Number: r.Number}, r)
		}
	}
	for k := range l.reserve { // order-free: each attempt is charged by itself
		if !in(string(k.Task)) {
			continue
		}
		if _, ok := snap.Attempt(k.Task, k.Number); !ok && !l.aloft[k] {
			l.charge(snap, k)
		}
	}
	for k := range l.murky { // order-free: each record by itself
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
	l.dirtyPart(snap, in)
}

func (l *loop) dirtyAll(snap *store.Snapshot) { l.dirtyPart(snap, func(string) bool { return true }) }

// dirtyPart marks the owners in a part of the view.
func (l *loop) dirtyPart(snap *store.Snapshot, in func(name string) bool) {
	l.dirtyBereaved(snap)
	for e := range snap.Services("") {
		if in(e.Value.Name) {
			l.dirty[e.Value.Owner()] = true
		}
	}
	for e := range snap.Jobs("") {
		if in(e.Value.Name) {
			l.dirty[e.Value.Owner()] = true
		}
	}
}

// dirtyUsers marks the owners that ask for one of the definitions.
func (l *loop) dirtyUsers(snap *store.Snapshot, refs map[cluster.Ref]bool) {
	for e := range snap.Services("") {
		if refs[e.Value.Definition] {
			l.dirty[e.Value.Owner()] = true
		}
	}
	for e := range snap.Jobs("") {
		for i := range e.Value.Steps {
			if refs[e.Value.Steps[i].Definition] {
				l.dirty[e.Value.Owner()] = true
			}
		}
	}
}

// uneventful reports whether a row asks for no decision, whatever it was before: an attempt of a job begins or runs as
// it should. Jobs are many-tasked, and each decision is about all tasks.
func uneventful(row *store.AttemptRow) bool {
	d, o := row.Desired, row.Observed
	return d != nil && o != nil && row.Outcome == nil && !row.Unreadable && !row.Obscured && d.Batch() &&
		d.Stop == nil &&
		o.UUID == d.UUID && (o.State == cluster.StateStarting || o.State == cluster.StateRunning && d.TimeLimit == 0) &&
		!o.Gone && o.Restarts == 0 && o.Ask == "" && o.Health != cluster.HealthFailing
}

// charge keeps the fleet's reservation of an attempt: from its placement until nothing of it is left. It returns the
// attempt's row, nil for none.
func (l *loop) charge(snap *store.Snapshot, key store.AttemptKey) *store.AttemptRow {
	row, ok := snap.Attempt(key.Task, key.Number)
	if !ok {
		row = nil
	}
	l.chargeRow(snap, key, row)
	return row
}

// chargeRow does that for an attempt whose row is known; nil for none.
func (l *loop) chargeRow(snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	held, isHeld := l.reserve[key]
	l.watch.told(key, row)
	l.obscure(snap, key, row)
	over := row == nil || !row.Standing() || row.Observed != nil && row.Observed.Gone
	var d *cluster.Desired
	if !over {
		d = l.occupant(snap, row)
	}
	if isHeld && row != nil {
		delete(l.aloft, key)
	}
	if isHeld && (over || d != nil && (hold{d.UUID, row.Node}) != held) {
		l.fleet.Release(held.uuid)
		delete(l.reserve, key)
		l.unplaced, isHeld = true, false
	}
	if isHeld || d == nil {
		return
	}
	l.fleet.Reserve(l.reservation(snap, row, d))
	l.reserve[key] = hold{d.UUID, row.Node}
}

// fog is a record that hides what runs on a node. Session is the node's newest when the record was first seen: what was
// reported in it may have been told before the record was written over, and an agent does not tell again what it knows
// to be durable.
type fog struct {
	node    string
	session uint64
}

func sessionOf(snap *store.Snapshot, node string) uint64 {
	if e, ok := snap.NodeStatus(node); ok {
		return e.Value.Session
	}
	return 0
}

// obscure keeps nodes out of which nobody knows what runs there: what could be placed beside it is not known.
func (l *loop) obscure(snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	was, now := fog{}, ""
	if len(l.murky) > 0 {
		was = l.murky[key]
	}
	if key.Number == 0 && row != nil && (row.Unreadable || row.ObservedRev != 0) {
		now = row.Node
	}
	if was.node == now {
		return
	}
	delete(l.murky, key)
	if now != "" {
		l.murky[key] = fog{node: now, session: sessionOf(snap, now)}
	}
	for _, name := range []string{was.node, now} {
		if name != "" {
			l.setNode(snap, name)
		}
	}
}

// barred reports whether the node takes no new tasks for what is not known of it: it has not reported in full to this
// leader, so that it may be dead, or run what this store has lost (P1.7), or a foreign record stands for a task (P3.5).
// A follower hears of all nodes, so that a takeover waits for none.
func (l *loop) barred(name string) bool {
	for _, f := range l.murky { // order-free: any will do
		if f.node == name {
			return true
		}
	}
	return !l.watch.reported(name)
}

// occupant returns what takes up room for an attempt: its desired record, or where that cannot be read (P3.5), or
// only a status stands, what its agent was told, or the task's owner asks for. It is nil if nobody knows.
func (l *loop) occupant(snap *store.Snapshot, row *store.AttemptRow) *cluster.Desired {
	if row.Desired != nil {
		return row.Desired
	}
	d := &cluster.Desired{Task: row.Task, Node: row.Node, UUID: "unread/" + row.Node + "/" + string(row.Task)}
	if o := row.Observed; o != nil {
		d.UUID, d.Definition, d.Ports, d.Devices = o.UUID, o.Definition, o.Ports, o.Devices
	}
	if d.Definition == (cluster.Ref{}) && !l.describe(snap, d) {
		return nil
	}
	return d
}

func (l *loop) setNode(snap *store.Snapshot, name string) {
	l.unplaced = true
	node, ok := snap.Node(name)
	if !ok || node.Value.Domain != l.config.Domain {
		l.faced(name, nil, face{})
		l.fleet.RemoveNode(name)
		return
	}
	var host *cluster.Host
	if h, ok := snap.Host(name); ok {
		host = h.Value
	}
	var status *cluster.NodeStatus
	if s, ok := snap.NodeStatus(name); ok {
		status = s.Value
	}
	n := scheduler.NodeOf(host, node.Value, status)
	n.Cordon, n.Reserved = n.Cordon || l.barred(name), l.reservations.at[name]
	f := l.watch.face(name)
	f.gone = f.gone || host != nil && host.Gone
	l.faced(name, &n, f)
	l.fleet.SetNode(n)
}

// touch takes note of nodes whose verdict changed: the owners of all tasks there are to be decided for.
func (l *loop) touch(snap *store.Snapshot, nodes []string) {
	for _, name := range nodes {
		l.setNode(snap, name)
		if !l.began {
			continue // they are all
		}
		for row := range snap.NodeAttempts(name) {
			if o, ok := row.Ref(); ok {
				l.dirty[o] = true
			}
		}
	}
}
