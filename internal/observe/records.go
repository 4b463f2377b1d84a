package observe

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// RecordsConfig is what NewRecords needs. The functions return immediately; a nil function knows nothing.
type RecordsConfig struct {
	Domain   string
	Snapshot *store.Snapshot
	Now      time.Time
	// Since returns the time from which the leader on this server counts deadlines, and the time at which its wall
	// clock was set. Both are zero if this server does not lead.
	Since func() (since, clockSet time.Time)
	// Pulse returns the last sign of life of a node that this server knows.
	Pulse func(node string) (cluster.Pulse, bool)
	// Gates returns the leader's results for the gates of a service.
	Gates func(service cluster.OwnerRef) []cluster.GateResult
	// Victims returns the attempts that the leader wants to end for others, ordered by UUID.
	Victims func() []cluster.Victim
}

// Records gives the inputs that are in no record, on a server that may not lead: verdicts on nodes from their records,
// memory pressure from the nodes' reports. It caches its results, and is for one goroutine.
type Records struct {
	config   RecordsConfig
	reserved map[string][]*cluster.Reservation // by node
	nodes    map[string]*scheduler.Node        // nil for a node that is not in the domain
	stats    map[string]*cluster.NodeStats     // nil where nothing is known
	// victims is the answer of RecordsConfig.Victims, once hasVictims says so.
	victims    []cluster.Victim
	hasVictims bool
	// moves holds the leaves of the open moves of the running rebalancing, by UUID; nil until they are needed.
	moves map[string]*reconciler.Leave
}

// NewRecords returns the domain of c as its records show it.
func NewRecords(c RecordsConfig) (*Domain, *Records) {
	r := &Records{
		config: c, reserved: c.Snapshot.Reserved(c.Domain, c.Now),
		nodes: map[string]*scheduler.Node{}, stats: map[string]*cluster.NodeStats{},
	}
	d := &Domain{Name: c.Domain, Snapshot: c.Snapshot, Leader: r, Now: c.Now}
	if e, ok := c.Snapshot.Leader(c.Domain); ok {
		d.Incarnation, d.Since = e.Value.Incarnation, e.Value.Since
	}
	if c.Since != nil {
		// Only the leader's own server knows that its clock jumped.
		if since, clockSet := c.Since(); !since.IsZero() {
			d.Since, d.ClockSet = since, clockSet
		}
	}
	return d, r
}

// Absence implements Leader. Views show the tasks of a silent node as not healthy. Only an outcome, which the leader
// writes, shows them as lost. A node that left the domain will send no reports about its tasks.
func (r *Records) Absence(node string, _ cluster.Kind) watcher.Absence {
	e, ok := r.config.Snapshot.Node(node)
	if !ok {
		return watcher.Present
	}
	switch {
	case e.Value.Domain != r.config.Domain:
		return watcher.Silent
	case e.Value.State == cluster.NodeSuspect, e.Value.State == cluster.NodeDown:
		return watcher.Suspected
	}
	return watcher.Present
}

// HasReported implements Leader, by the leader's verdict on the node.
func (r *Records) HasReported(node string) bool {
	e, ok := r.config.Snapshot.Node(node)
	return ok && e.Value.State != cluster.NodeJoining && r.Absence(node, "") == watcher.Present
}

// Drain implements Leader. The leader also drains a node that changes its domain, and one with a task that cannot be
// killed. Its verdict shows that.
func (r *Records) Drain(node string) *cluster.Drain {
	h, ok := r.config.Snapshot.Host(node)
	e, known := r.config.Snapshot.Node(node)
	switch {
	case ok && h.Value.Gone, known && e.Value.Domain != r.config.Domain:
		return nil
	case ok && h.Value.Drain != nil:
		return h.Value.Drain
	case known && e.Value.State == cluster.NodeDraining:
		return &cluster.Drain{}
	}
	return nil
}

// LeaveReason implements Leader. The first reason counts: memory pressure, a task that needs the room, a violation, a
// rebalancing.
func (r *Records) LeaveReason(row *store.AttemptRow) *reconciler.Leave {
	if p := r.Pressure(row); p != nil {
		return reconciler.PressedLeave(row.Node, p)
	}
	if leave := r.preemption(row); leave != nil {
		return leave
	}
	if why, leaves := r.Violation(row); leaves {
		return why
	}
	return r.rebalancing(row)
}

// GateResults implements Leader.
func (r *Records) GateResults(o cluster.OwnerRef, spec *cluster.Service, _ *cluster.Rollout) []cluster.GateResult {
	if r.config.Gates == nil || spec == nil || len(spec.Update.Gates) == 0 {
		return nil
	}
	return r.config.Gates(o)
}

// DaemonNodes implements Leader.
func (r *Records) DaemonNodes(yield func(reconciler.DaemonNode) bool) {
	snap := r.config.Snapshot
	for e := range snap.Nodes() {
		name := e.Value.Name
		n := r.Node(name)
		if n == nil {
			continue
		}
		host, _ := snap.Host(name)
		d := reconciler.DaemonNode{
			Node: n, Gone: host.Value != nil && host.Value.Gone, Silent: r.Absence(name, "") != watcher.Present,
			Alone: host.Value != nil && host.Value.Drain != nil && OnlyDaemons(snap, name),
		}
		if !yield(d) {
			return
		}
	}
}

// Node returns the scheduler's node for a node of the domain, or nil. Callers must not change the result.
func (r *Records) Node(name string) *scheduler.Node {
	if n, ok := r.nodes[name]; ok {
		return n
	}
	n := Node(r.config.Snapshot, r.config.Domain, name)
	if n != nil {
		n.Reserved = r.reserved[name]
	}
	r.nodes[name] = n
	return n
}

// Fleet returns the nodes of the domain with all tasks on them. The value model of devices is the leader's; nil means
// one that is learnt from the tasks on the nodes.
func (r *Records) Fleet(values *scheduler.ValueModel) *scheduler.Fleet {
	f, snap := scheduler.NewFleet(), r.config.Snapshot
	SetQuotas(f, snap, r.config.Domain)
	SetJobGroups(f, snap, r.config.Domain, func(string) bool { return true })
	policies, requests := map[cluster.OwnerRef]*OwnerPolicy{}, requestsOf{}
	hidden := map[string]bool{} // the nodes with records that hide tasks
	for row := range snap.AllAttempts() {
		if HidesTask(snap, row) {
			hidden[row.Node] = true
		}
		if !HoldsRoom(row) {
			continue
		}
		d := Occupant(snap, row)
		if d == nil {
			continue
		}
		o, _ := row.Ref()
		policy, known := policies[o]
		if !known {
			read := PolicyOf(snap, o)
			policy = &read
			policies[o] = policy
		}
		f.Reserve(Reservation(row, d, requests.of(snap, d.Definition), policy))
	}
	for e := range snap.Services("") {
		if k, keeps := KeptRoom(snap, e.Value.Owner()); keeps {
			f.Keep(k)
		}
	}
	for e := range snap.Nodes() {
		if n := r.Node(e.Value.Name); n != nil {
			node := *n
			// The node is not known well enough to place tasks there.
			node.Cordon = node.Cordon || hidden[node.Name] || !r.HasReported(node.Name)
			f.SetNode(node)
		}
	}
	if values == nil {
		values = learnValues(snap, f)
	}
	f.SetDeviceValueModel(values)
	return f
}

// learnValues returns a value model from the tasks that hold devices, as a leader learns it at the start of its term.
func learnValues(snap *store.Snapshot, f *scheduler.Fleet) *scheduler.ValueModel {
	tasks := map[cluster.Ref]int{}
	for r := range f.Held { // order-free: counted
		if len(r.Devices) > 0 {
			tasks[r.Definition]++
		}
	}
	var mix scheduler.Mix
	refs := slices.SortedFunc(maps.Keys(tasks), func(a, b cluster.Ref) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	for _, ref := range refs {
		if def, ok := snap.Definition(ref); ok {
			mix.Learn(def.Value.Demand(), def.Value.Devices(), tasks[ref])
		}
	}
	if !mix.Stale(nil) { // no task holds a device
		return nil
	}
	return mix.ValueModel()
}

// Stats returns the last report on what a node uses in its present session, or nil.
func (r *Records) Stats(node string) *cluster.NodeStats {
	if known, ok := r.stats[node]; ok {
		return known
	}
	var stats *cluster.NodeStats
	if r.config.Pulse != nil && node != "" {
		status, ok := r.config.Snapshot.NodeStatus(node)
		if p, heard := r.config.Pulse(node); ok && heard && p.Session == status.Value.Session {
			stats = p.Stats
		}
	}
	r.stats[node] = stats
	return stats
}

// Pressure returns the memory pressure that makes an attempt move, or nil. One attempt of a node moves at a time.
func (r *Records) Pressure(row *store.AttemptRow) *cluster.Pressure {
	stats := r.Stats(row.Node)
	if stats == nil || stats.Pressure == nil || stats.Pressure.Victim == "" || stats.Pressure.Victim != UUID(row) ||
		!HoldsRoom(row) || !relieves(row) && IsRelieving(r.config.Snapshot, row.Node) {
		return nil
	}
	return stats.Pressure
}

// preemption returns why an attempt is to end for a more urgent task, or nil.
func (r *Records) preemption(row *store.AttemptRow) *reconciler.Leave {
	if r.config.Victims == nil || row.Desired == nil || row.Outcome != nil {
		return nil
	}
	if !r.hasVictims {
		r.victims, r.hasVictims = r.config.Victims(), true
	}
	if v, ok := cluster.FindVictim(r.victims, row.Desired.UUID); ok {
		return reconciler.PreemptedLeave(&v)
	}
	return nil
}

// Violation returns why an attempt should no longer run on its node, or nil, and whether the attempt must leave for
// that reason.
func (r *Records) Violation(row *store.AttemptRow) (why *reconciler.Leave, leaves bool) {
	o, ok := row.Ref()
	if !ok || !row.Standing() {
		return nil, false
	}
	parts, _ := row.Task.Parts()
	t, n := PlacedTask(r.config.Snapshot, o, parts.Step), r.Node(row.Node)
	if t == nil || n == nil {
		return nil, false
	}
	var labels cluster.Labels
	if len(n.Reserved) > 0 {
		labels = PolicyOf(r.config.Snapshot, o).Labels
	}
	return Violation(t, o, labels, n, r.config.Now)
}

// rebalancing returns why an attempt is to leave its node for an open move of a rebalancing, or nil.
func (r *Records) rebalancing(row *store.AttemptRow) *reconciler.Leave {
	if row.Outcome != nil && row.Outcome.Reason != cluster.ReasonRebalance {
		return nil
	}
	if r.moves == nil {
		r.moves = map[string]*reconciler.Leave{}
		if e, runs := r.config.Snapshot.RunningRebalancing(r.config.Domain); runs {
			for i := range e.Value.Moves {
				if m := &e.Value.Moves[i]; m.State == cluster.MoveMoving {
					r.moves[m.UUID] = RebalancingLeave(e.Value, m)
				}
			}
		}
	}
	return r.moves[UUID(row)]
}
