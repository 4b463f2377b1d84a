// Package fleetview keeps a leader's view of its domain in line with the tables: the fleet into which the scheduler
// places, and the attempts that may not stay where they are.
package fleetview

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// View keeps the fleet, into which the scheduler places, in line with the tables. The view is for one goroutine.
type View struct {
	charges
	foreignRecords
	domain string
	nodes  *nodewatch.Watch
	// Rechecks says whose attempts may violate their constraints since the fleet changed.
	Rechecks     *RecheckSet
	policies     policyCache
	requests     requestsCache
	reservations reservations
	daemons      daemonNodes
	// changed says that room came free, or that a node changed, since the last TakeChanged.
	changed bool
}

// charges is the fleet with what it holds for attempts. It holds one reservation for each attempt in charged and no
// others, while the loop runs nothing but its own code: an attempt is charged from its placement until nothing of it is
// left.
type charges struct {
	// Fleet is the fleet into which the scheduler places.
	Fleet *scheduler.Fleet
	// observer, unless nil, learns each change of the fleet.
	observer Observer
	charged  map[store.AttemptKey]Charge
	// unconfirmed are the charged attempts that were placed and that the tables do not show yet.
	unconfirmed map[store.AttemptKey]bool
}

// Observer learns the changes of a view's fleet. The calls return immediately.
type Observer interface {
	// NodeChanged says that a node came, left, or was learnt again.
	NodeChanged(name string)
	// Reserved says that an attempt holds room. A later call for its UUID replaces what it holds.
	Reserved(r *scheduler.Reservation)
	// Ended says that the programs of an attempt ended. It holds its room until it is released.
	Ended(uuid string)
	// Released says that an attempt holds its room no longer.
	Released(uuid string)
}

// Observe has an observer learn the fleet, and from then on its changes. It replaces the observer before; nil is none.
func (c *charges) Observe(o Observer) {
	c.observer = o
	if o == nil {
		return
	}
	for _, name := range c.Fleet.Nodes() {
		o.NodeChanged(name)
	}
	for r := range c.Fleet.Held {
		o.Reserved(&r)
	}
}

// reserve has an attempt hold room in the fleet.
func (c *charges) reserve(r scheduler.Reservation) {
	c.Fleet.Reserve(r)
	if c.observer != nil {
		c.observer.Reserved(&r)
	}
}

// New returns an empty view of a domain.
func New(domain string, nodes *nodewatch.Watch) *View {
	rechecks := NewRecheckSet()
	rechecks.all = true
	return &View{
		charges: charges{
			Fleet: scheduler.NewFleet(), charged: map[store.AttemptKey]Charge{},
			unconfirmed: map[store.AttemptKey]bool{},
		},
		foreignRecords: foreignRecords{map[store.AttemptKey]unreadableRecord{}, map[store.AttemptKey]bool{}},
		domain:         domain, nodes: nodes, Rechecks: rechecks, policies: policyCache{},
		daemons: daemonNodes{facts: map[string]nodewatch.DaemonFacts{}},
	}
}

// Charge identifies the reservation that the fleet holds for an attempt.
type Charge struct {
	UUID, Node string
	// guessed says that the attempt had no readable desired record: the reservation may lack its priority.
	guessed bool
}

func chargeOf(row *store.AttemptRow, d *cluster.Desired) Charge {
	return Charge{UUID: d.UUID, Node: row.Node, guessed: row.Desired == nil}
}

// grow prepares an empty view for a number of attempts.
func (c *charges) grow(attempts int) {
	if len(c.charged) == 0 {
		c.charged = make(map[store.AttemptKey]Charge, attempts)
		c.Fleet.Grow(attempts)
	}
}

// Policy returns the policy of an owner; an empty one for an owner that does not exist.
func (v *View) Policy(snap *store.Snapshot, o cluster.OwnerRef) observe.OwnerPolicy {
	return v.policies.of(snap, o)
}

// Demand returns what a task of a definition takes up.
func (v *View) Demand(snap *store.Snapshot, r cluster.Ref) cluster.Demand {
	return v.requests.of(snap, r).Demand
}

// NextReservation returns the next time at which a reservation of nodes begins, changes or ends; zero for never.
func (v *View) NextReservation() time.Time { return v.reservations.next }

// RecheckAll has all attempts checked for violations.
func (v *View) RecheckAll() { v.Rechecks.all = true }

// TakeChanged reports whether the fleet changed since the last call so that more may fit.
func (v *View) TakeChanged() bool {
	changed := v.changed
	v.changed = false
	return changed
}

// Charge keeps the fleet's reservation of an attempt, from its placement until nothing of it is left. It returns the
// attempt's row, or nil if it has none.
func (v *View) Charge(snap *store.Snapshot, key store.AttemptKey) *store.AttemptRow {
	row, ok := snap.Attempt(key.Task, key.Number)
	if !ok {
		row = nil
	}
	v.chargeRow(snap, key, row)
	return row
}

// chargeRow is Charge for an attempt with a known row, nil for none.
func (v *View) chargeRow(snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	held, isHeld := v.charged[key]
	v.nodes.NoteUnkillable(key, row)
	v.noteUnreadable(snap, key, row)
	over := !observe.HoldsRoom(row) || observe.HidesNothing(snap, row)
	var d *cluster.Desired
	if !over {
		d = observe.Occupant(snap, row)
	}
	if isHeld && row != nil {
		delete(v.unconfirmed, key)
	}
	if isHeld && (over || d != nil && chargeOf(row, d) != held) {
		v.Fleet.Release(held.UUID)
		if v.observer != nil {
			v.observer.Released(held.UUID)
		}
		delete(v.charged, key)
		v.changed, isHeld = true, false
	}
	if isHeld && d != nil && row.Observed != nil && row.Observed.UUID == d.UUID {
		v.Fleet.Begin(d.UUID, row.Observed.Started)
		if row.Observed.State.Terminal() {
			v.Fleet.End(d.UUID)
			if v.observer != nil {
				v.observer.Ended(d.UUID)
			}
		}
	}
	if isHeld || d == nil {
		return
	}
	v.reserve(v.reservation(snap, row, d))
	v.charged[key] = chargeOf(row, d)
}

// chargeGone updates the charges of attempts whose names the filter accepts and that the tables do not show any more.
func (v *View) chargeGone(snap *store.Snapshot, in func(name string) bool) {
	for k := range v.charged { // order-free: each attempt is charged by itself
		if !in(string(k.Task)) {
			continue
		}
		if _, ok := snap.Attempt(k.Task, k.Number); !ok && !v.unconfirmed[k] {
			v.Charge(snap, k)
		}
	}
	for k := range v.unreadable { // order-free: each record by itself
		v.Charge(snap, k)
	}
	for k := range v.strays { // order-free: the same
		v.Charge(snap, k)
	}
}

// ChargePlacement charges a placement that is about to be committed (P3.2). uuid is the identity of its attempt.
func (c *charges) ChargePlacement(pl *scheduler.Placement, p *cluster.Pending, uuid string) {
	key := store.AttemptKey{Task: pl.Task, Number: p.Attempt}
	c.reserve(pl.Reservation(p, uuid))
	c.charged[key], c.unconfirmed[key] = Charge{UUID: uuid, Node: pl.Node}, true
}

// Confirm releases reservations of attempts that were not placed after all: their plan record was refused, or never
// written. The snapshot must hold all plan records that were written.
func (v *View) Confirm(snap *store.Snapshot) {
	for key := range v.unconfirmed { // order-free: each attempt is charged by itself
		delete(v.unconfirmed, key)
		v.Charge(snap, key)
		if o, ok := key.Task.Owner(); ok {
			v.updateKept(snap, o)
		}
	}
}

// IsCharged returns what the fleet holds for an attempt, and false if it holds nothing.
func (c *charges) IsCharged(row *store.AttemptRow) (Charge, bool) {
	held, ok := c.charged[store.AttemptKey{Task: row.Task, Number: row.Number}]
	return held, ok
}

// HoldsRoom reports whether the fleet holds a reservation for the attempt with a UUID.
func (c *charges) HoldsRoom(uuid string) bool {
	_, holds := c.Fleet.Reserved(uuid)
	return holds
}

// reservation returns what an attempt with the desired record d takes up on its node, and what other tasks need to know
// of it.
func (v *View) reservation(snap *store.Snapshot, row *store.AttemptRow,
	d *cluster.Desired,
) scheduler.Reservation {
	var policy observe.OwnerPolicy
	if o, ok := row.Ref(); ok {
		policy = v.policies.of(snap, o)
	}
	return observe.Reservation(row, d, v.requests.of(snap, d.Definition), &policy)
}

// updateCharges updates the reservations of an owner's tasks if its spec was written.
func (v *View) updateCharges(snap *store.Snapshot, o cluster.OwnerRef) {
	was, had := v.policies[o]
	if !had {
		return
	}
	now := v.policies.of(snap, o)
	if now.Revision != was.Revision {
		v.Rechecks.owners[o] = true
	}
	if now.Revision == was.Revision || maps.Equal(was.Labels, now.Labels) && maps.Equal(was.Groups, now.Groups) &&
		was.JobGroup == now.JobGroup &&
		maps.EqualFunc(was.Away, now.Away, func(a, b []cluster.Relation) bool {
			return slices.EqualFunc(a, b, cluster.Relation.Equal)
		}) {
		return
	}
	for row := range snap.Attempts(o) {
		held, ok := v.IsCharged(row)
		if !ok {
			continue
		}
		if d := observe.Occupant(snap, row); d != nil && chargeOf(row, d) == held {
			v.reserve(v.reservation(snap, row, d))
			v.changed = true
		}
	}
}

// RefusesTasks reports whether a node takes no new tasks because not enough is known of it. Either it has not sent a
// full report to this leader, so that it may be dead or run what this store has lost (P1.7). Or there is a foreign
// record for a task (P3.5). A server that does not lead follows all nodes too, so a takeover waits for none.
func (v *View) RefusesTasks(name string) bool {
	for _, record := range v.unreadable { // order-free: any suffices
		if record.node == name {
			return true
		}
	}
	return !v.nodes.HasReported(name)
}

// setNode brings a node of the fleet to the tables and to the verdict on it.
func (v *View) setNode(snap *store.Snapshot, name string) {
	v.changed = true
	if v.observer != nil {
		v.observer.NodeChanged(name)
	}
	n := observe.Node(snap, v.domain, name)
	if n == nil {
		v.setDaemonFacts(name, nil, nodewatch.DaemonFacts{})
		v.Fleet.RemoveNode(name)
		return
	}
	n.Cordon, n.Reserved = n.Cordon || v.RefusesTasks(name), v.reservations.at[name]
	facts := v.nodes.DaemonFactsOf(name)
	host, ok := snap.Host(name)
	facts.Gone = facts.Gone || ok && host.Value.Gone
	v.setDaemonFacts(name, n, facts)
	v.Fleet.SetNode(*n)
}

// setNodes brings the nodes whose names the filter accepts to the tables.
func (v *View) setNodes(snap *store.Snapshot, in func(name string) bool) {
	for _, name := range v.Fleet.Nodes() {
		if in(name) {
			v.setNode(snap, name)
		}
	}
	for e := range snap.Nodes() {
		if in(e.Value.Name) {
			v.setNode(snap, e.Value.Name)
		}
	}
}
