package observe

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// OwnerPolicy is the part of an owner's spec that concerns the tasks of others.
type OwnerPolicy struct {
	// Revision is the revision of the spec.
	Revision uint64
	Labels   cluster.Labels
	// Away holds, by step ("" for a service), the tasks from which the owner's own are kept away.
	Away map[string][]cluster.Relation
	// Groups holds the concurrency groups of a job's steps, without the steps that have none.
	Groups map[string]string
	// JobGroup is the concurrency group of a job; empty for none.
	JobGroup string
	// User requested the job: see cluster.Job.SubmittedBy.
	User string
}

// PolicyRevision returns the revision of an owner's spec; ok is false for an owner without a spec.
func PolicyRevision(snap *store.Snapshot, o cluster.OwnerRef) (revision uint64, ok bool) {
	if o.Kind == cluster.KindJob {
		e, ok := snap.Job(o.Cluster, o.Name)
		return e.Modified, ok
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	return e.Modified, ok
}

// PolicyOf returns the policy of an owner. An owner without a spec has an empty one.
func PolicyOf(snap *store.Snapshot, o cluster.OwnerRef) OwnerPolicy {
	if o.Kind == cluster.KindJob {
		e, ok := snap.Job(o.Cluster, o.Name)
		if !ok {
			return OwnerPolicy{}
		}
		policy := OwnerPolicy{
			Revision: e.Modified, Labels: e.Value.Labels, Away: map[string][]cluster.Relation{},
			User: e.Value.SubmittedBy,
		}
		if c := e.Value.Concurrency; c != nil {
			policy.JobGroup = c.Group
		}
		for i := range e.Value.Steps {
			step := &e.Value.Steps[i]
			policy.Away[step.Name] = step.Placement.KeepsAway()
			if step.Concurrency != nil {
				if policy.Groups == nil {
					policy.Groups = map[string]string{}
				}
				policy.Groups[step.Name] = step.Concurrency.Group
			}
		}
		return policy
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	if !ok {
		return OwnerPolicy{}
	}
	return OwnerPolicy{
		Revision: e.Modified, Labels: e.Value.Labels,
		Away: map[string][]cluster.Relation{"": e.Value.Placement.KeepsAway()},
	}
}

// Reservation returns the resources of an attempt on its node, and the part of its owner's policy that concerns other
// tasks.
func Reservation(row *store.AttemptRow, d *cluster.Desired, requests Requests,
	policy *OwnerPolicy,
) scheduler.Reservation {
	r := scheduler.Reservation{
		UUID: d.UUID, Task: row.Task, Node: row.Node, Demand: requests.Demand, Definition: d.Definition,
		Priority: d.Priority, Devices: d.Devices, Requests: requests.Devices,
		Batch: d.Batch(), Limit: time.Duration(d.TimeLimit),
	}
	if o := row.Observed; r.Batch && o != nil && o.UUID == d.UUID {
		r.Started, r.Ended = o.Started, o.State.Terminal()
	}
	for _, port := range d.Ports { // order-free: a set
		r.Ports = append(r.Ports, port)
	}
	if parts, ok := row.Task.Parts(); ok {
		r.Labels, r.Away, r.Group = policy.Labels, policy.Away[parts.Step], policy.Groups[parts.Step]
		r.JobGroup, r.User = policy.JobGroup, policy.User
	}
	return r
}

// Requests is what the tasks of a definition request. An unknown definition requests nothing.
type Requests struct {
	Demand  cluster.Demand
	Devices []cluster.DeviceRequest
}

// RequestsOf returns what a task of a definition requests.
func RequestsOf(snap *store.Snapshot, r cluster.Ref) Requests {
	def, ok := snap.Definition(r)
	if !ok {
		return Requests{}
	}
	return Requests{def.Value.Demand(), def.Value.Devices()}
}

// requestsOf caches what the tasks of definitions of one snapshot request.
type requestsOf map[cluster.Ref]Requests

// of returns what a task of a definition requests.
func (c requestsOf) of(snap *store.Snapshot, r cluster.Ref) Requests {
	requests, known := c[r]
	if !known {
		requests = RequestsOf(snap, r)
		c[r] = requests
	}
	return requests
}

// SetQuotas brings the quotas of a fleet to the clusters of a domain. It reports whether one changed.
func SetQuotas(f *scheduler.Fleet, snap *store.Snapshot, domain string) (changed bool) {
	for e := range snap.Clusters() {
		if e.Value.InDomain() == domain {
			changed = f.Limits.SetQuota(e.Value.Name, e.Value.Quota) || changed
		}
	}
	for name := range f.Limits.Quotas() { // order-free: each by itself
		if c, ok := snap.Cluster(name); !ok || c.Value.InDomain() != domain {
			changed = f.Limits.SetQuota(name, nil) || changed
		}
	}
	return changed
}

// QuotaUse returns what the tasks of a cluster hold together.
func QuotaUse(snap *store.Snapshot, name string) cluster.QuotaUse {
	var l admission.Ledger
	if c, ok := snap.Cluster(name); ok {
		l.SetQuota(name, c.Value.Quota)
	}
	requests := requestsOf{}
	for row := range snap.AllAttempts() {
		if parts, ok := row.Task.Parts(); !ok || parts.Cluster != name || !HoldsRoom(row) {
			continue
		}
		if d := Occupant(snap, row); d != nil {
			r := Reservation(row, d, requests.of(snap, d.Definition), &OwnerPolicy{})
			h := r.Holding()
			l.Add(&h, 1)
		}
	}
	return l.Use(name)
}

// HoldsRoom reports whether an attempt occupies resources of its node.
func HoldsRoom(row *store.AttemptRow) bool {
	return row != nil && row.Standing() && (row.Observed == nil || !row.Observed.Gone)
}

// Occupant returns a desired record that describes the resources of an attempt. Without a readable one (P3.5) it is
// made from the attempt's status, or else from the spec of the task's owner. It is nil if neither exists, and for a
// record that hides nothing.
func Occupant(snap *store.Snapshot, row *store.AttemptRow) *cluster.Desired {
	switch {
	case row.Desired != nil:
		return row.Desired
	case HidesNothing(snap, row):
		return nil
	}
	d := &cluster.Desired{Task: row.Task, Node: row.Node, UUID: "unread/" + row.Node + "/" + string(row.Task)}
	if o := row.Observed; o != nil {
		d.UUID, d.Definition, d.Ports, d.Devices = o.UUID, o.Definition, o.Ports, o.Devices
	}
	if d.Definition == (cluster.Ref{}) && !FillFromOwner(snap, d) {
		return nil
	}
	return d
}

// FillFromOwner fills a desired record from the spec of the task's owner, and reports whether there is one.
func FillFromOwner(snap *store.Snapshot, d *cluster.Desired) bool {
	parts, ok := d.Task.Parts()
	if !ok {
		return false
	}
	if e, ok := snap.Service(parts.Cluster, parts.Owner); ok && parts.Step == "" {
		d.Owner, d.Definition, d.Count = e.Value.Owner(), e.Value.Definition, e.Value.Count
		d.Priority, d.OnDisconnect = int(e.Value.Priority), e.Value.DisconnectPolicy()
		return true
	}
	e, ok := snap.Job(parts.Cluster, parts.Owner)
	if !ok {
		return false
	}
	step := e.Value.Step(parts.Step)
	if step == nil {
		return false
	}
	d.Owner, d.Definition, d.Count = e.Value.Owner(), step.Definition, step.Count
	d.Priority, d.TimeLimit, d.OnDisconnect = int(e.Value.Priority), step.TimeLimit, step.OnDisconnect
	return true
}

// PlacedTask returns the rules that decide whether the tasks of a step ("" for a service) may stay where they are. It
// is nil if there is no spec, or if only the owner's own decisions move its tasks, as for daemons.
func PlacedTask(snap *store.Snapshot, o cluster.OwnerRef, step string) *reconciler.PlacedTask {
	var t reconciler.PlacedTask
	if c, ok := snap.Cluster(o.Cluster); ok {
		t.Common = c.Value.Constraints
	}
	if o.Kind == cluster.KindJob {
		e, ok := snap.Job(o.Cluster, o.Name)
		if !ok || e.Value.Step(step) == nil {
			return nil
		}
		t.Placement, t.Job = &e.Value.Step(step).Placement, true
		return &t
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	if !ok || e.Value.Mode == cluster.ModeDaemon {
		return nil
	}
	t.Placement, t.OnViolation = &e.Value.Placement, e.Value.OnViolation
	return &t
}

// Violation returns why a task of an owner with the labels should no longer run on a node, or nil: a reservation of the
// node that has begun, evicts and does not admit the task, a taint, or a constraint that is not met. With leaves the
// task must leave the node; else the violation is only shown.
func Violation(t *reconciler.PlacedTask, o cluster.OwnerRef, labels cluster.Labels, n *scheduler.Node,
	now time.Time,
) (why *reconciler.Leave, leaves bool) {
	for _, r := range n.Reserved {
		if r.Evict && r.Active(now) && !r.Admits(o.Cluster, labels, t.Placement.Reservation) {
			return &reconciler.Leave{
				Reason: cluster.ReasonReserved, Since: r.From, Now: t.Job,
				Message: fmt.Sprintf("node %s is kept by the reservation %s until %s", n.Name, r.Name,
					r.Until.UTC().Format(time.RFC3339)),
			}, true
		}
	}
	if len(n.Taints) == 0 && len(t.Placement.Constraints) == 0 && len(t.Common) == 0 && t.Placement.Pool == "" {
		return nil, false
	}
	return reconciler.FindViolation(*t, n)
}

// RebalancingLeave returns the leave of a move of a rebalancing.
func RebalancingLeave(r *cluster.Rebalancing, m *cluster.RebalancingMove) *reconciler.Leave {
	why := ""
	if m.Message != "" {
		why = " (" + m.Message + ")"
	}
	return &reconciler.Leave{
		Reason: cluster.ReasonRebalance, Since: m.At, To: m.To,
		Message: fmt.Sprintf("rebalancing %d moves it from node %s to %s%s", r.ID, m.From, m.To, why),
	}
}

// IsRelieving reports whether an attempt is leaving the node because of memory pressure.
func IsRelieving(snap *store.Snapshot, node string) bool {
	for row := range snap.NodeAttempts(node) {
		if HoldsRoom(row) && relieves(row) {
			return true
		}
	}
	return false
}

// relieves reports whether an attempt leaves its node, or is to stop there, because of memory pressure.
func relieves(row *store.AttemptRow) bool {
	if o := row.Outcome; o != nil && o.Reason == cluster.ReasonPressure {
		return true
	}
	d := row.Desired
	return d != nil && d.Stop != nil && d.Stop.Reason == cluster.ReasonPressure
}

// UUID returns the UUID of an attempt; empty if no record holds it.
func UUID(row *store.AttemptRow) string {
	switch {
	case row.Desired != nil:
		return row.Desired.UUID
	case row.Outcome != nil:
		return row.Outcome.UUID
	case row.Observed != nil:
		return row.Observed.UUID
	}
	return ""
}

// KeptRoom returns the room that a service keeps on its node. It keeps none while an attempt of it holds room there.
func KeptRoom(snap *store.Snapshot, o cluster.OwnerRef) (scheduler.KeptRoom, bool) {
	e, ok := snap.Service(o.Cluster, o.Name)
	if !ok || o.Kind != cluster.KindService || !e.Value.KeepRoom || e.Value.Deleted {
		return scheduler.KeptRoom{}, false
	}
	def, ok := snap.Definition(e.Value.Definition)
	if !ok {
		return scheduler.KeptRoom{}, false
	}
	for row := range snap.Attempts(o) {
		if HoldsRoom(row) {
			return scheduler.KeptRoom{}, false
		}
	}
	k := scheduler.KeptRoom{
		Owner: o, Node: e.Value.BoundNode(), Demand: def.Value.Demand(),
		Devices: def.Value.Devices(),
	}
	for i := range def.Value.Ports {
		if p := &def.Value.Ports[i]; p.Port != 0 {
			k.Ports = append(k.Ports, p.Port)
		}
	}
	return k, k.Node != ""
}
