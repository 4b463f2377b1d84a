// Package observe builds the inputs of decisions from a snapshot of the store: the reconciler's input for a service or
// a job, and the scheduler's nodes with their tasks.
//
// The leader and the views of the API use the same builder, so a view cannot disagree with the decision that it shows.
// Some inputs are in no record, such as the silence of a node. A Leader gives these: the control plane from its term,
// and [Records] on a server that only shows views.
package observe

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// Leader gives the inputs of decisions that are in no record. Its methods return immediately.
type Leader interface {
	// Absence returns what the silence of a node means for the tasks of an owner of the kind.
	Absence(node string, kind cluster.Kind) watcher.Absence
	// HasReported reports whether the node has sent a full report under the present leader.
	HasReported(node string) bool
	// Drain returns the drain of a node, or nil.
	Drain(node string) *cluster.Drain
	// LeaveReason returns why an attempt must leave its node although the node is healthy, or nil.
	LeaveReason(row *store.AttemptRow) *reconciler.Leave
	// GateResults returns the results for the gates of a service, in the order of its spec; the spec may be nil. It
	// returns nil if the results are not known.
	GateResults(o cluster.OwnerRef, spec *cluster.Service, rollout *cluster.Rollout) []cluster.GateResult
	// DaemonNodes yields the nodes of the domain as daemons need them, ordered by name.
	DaemonNodes(yield func(reconciler.DaemonNode) bool)
}

// Domain is a domain at one revision and one moment. It is for one goroutine.
type Domain struct {
	Name     string
	Snapshot *store.Snapshot
	Leader   Leader
	// Incarnation is the store's incarnation in which the leader's term began.
	Incarnation uint64
	// Since is the time from which deadlines count: the start of the term, or the last jump of the leader's clock.
	Since time.Time
	// ClockSet is the time at which the leader's wall clock was set; see reconciler.ServiceInput.
	ClockSet time.Time
	Now      time.Time
	// Without switches clauses off, in proofs only.
	Without clause.Set

	obstacles map[cluster.OwnerRef]string // what keeps needed owners from meeting the need; see obstacle
}

// Tasks returns the attempts of an owner. Foreign records are left out; the leader removes them.
func (d *Domain) Tasks(o cluster.OwnerRef) []reconciler.Task {
	var tasks []reconciler.Task
	for row := range d.Snapshot.Attempts(o) {
		if !row.IsForeign() {
			tasks = append(tasks, d.Task(o, row))
		}
	}
	return tasks
}

// Task returns one attempt of an owner.
func (d *Domain) Task(o cluster.OwnerRef, row *store.AttemptRow) reconciler.Task {
	return reconciler.Task{
		Attempt: row.Attempt, Absence: d.Leader.Absence(row.Node, o.Kind), Drain: d.Leader.Drain(row.Node),
		Leave:    d.Leader.LeaveReason(row),
		Reported: d.Leader.HasReported(row.Node) && (row.Desired != nil || !IsPinned(d.Snapshot, row.Task)),
	}
}

// ServiceInput returns the input of a decision about a service with the tasks. A zero entry means a service without a
// record.
func (d *Domain) ServiceInput(o cluster.OwnerRef, e store.Entry[cluster.Service],
	tasks []reconciler.Task,
) reconciler.ServiceInput {
	in := d.serviceInput(o, e, tasks)
	if in.Spec != nil && in.Rollout == nil {
		in.Unmet = d.unmet(o.Cluster, in.Spec.Needs)
	}
	return in
}

// serviceInput returns the input without what the service needs.
func (d *Domain) serviceInput(o cluster.OwnerRef, e store.Entry[cluster.Service],
	tasks []reconciler.Task,
) reconciler.ServiceInput {
	in := reconciler.ServiceInput{
		Owner: o, Tasks: tasks, Definitions: d.Definition, Cluster: d.cluster(o.Cluster),
		Recovery: d.recovery(), Since: d.Since, ClockSet: d.ClockSet, Now: d.Now, Without: d.Without,
	}
	if e.Value != nil {
		scale, _ := d.Snapshot.Scale(o.Cluster, o.Name)
		in.Spec, in.SpecRev = e.Value.At(scale.Value), e.Modified
		if e.Value.Mode == cluster.ModeDaemon {
			in.SetNodes(d.Leader.DaemonNodes)
		}
	}
	if r, ok := d.Snapshot.Rollout(o.Cluster, o.Name); ok {
		in.Rollout, in.RolloutRev = r.Value, r.Modified
	}
	in.Gates = d.Leader.GateResults(o, in.Spec, in.Rollout)
	return in
}

// JobInput returns the input of a decision about a job with the tasks. A zero entry means a job without a record.
func (d *Domain) JobInput(o cluster.OwnerRef, e store.Entry[cluster.Job], tasks []reconciler.Task) reconciler.JobInput {
	in := d.jobInput(o, e, tasks)
	if in.Spec != nil && in.Spec.AwaitsNeeds() {
		in.Unmet = d.unmet(o.Cluster, in.Spec.Needs)
	}
	return in
}

// jobInput returns the input without what the job needs.
func (d *Domain) jobInput(o cluster.OwnerRef, e store.Entry[cluster.Job], tasks []reconciler.Task) reconciler.JobInput {
	in := reconciler.JobInput{
		Owner: o, Tasks: tasks, Definitions: d.Definition, Cluster: d.cluster(o.Cluster),
		Recovery: d.recovery(), ClockSet: d.ClockSet, Now: d.Now, Spec: e.Value, SpecRev: e.Modified,
		Packed: Packed(d.Snapshot, o),
	}
	if in.Cluster != nil {
		in.Keep = time.Duration(cmp.Or(in.Cluster.KeepJobs, cluster.DefaultKeepJobs))
	}
	switch {
	case e.Value == nil:
	case d.hasCron(e.Value):
		in.Keep = 0
	case e.Value.Keep != 0:
		in.Keep = time.Duration(e.Value.Keep)
	}
	return in
}

// hasCron reports whether a job is one of a cron, which limits its jobs by number.
func (d *Domain) hasCron(job *cluster.Job) bool {
	if job.Cron == "" {
		return false
	}
	e, ok := d.Snapshot.Cron(job.Cluster, job.Cron)
	return ok && !e.Value.Deleted
}

// Packed returns the packed tasks of a job.
func Packed(snap *store.Snapshot, o cluster.OwnerRef) (all []reconciler.Packed) {
	for e := range snap.PackedTasks(o) {
		all = append(all, reconciler.Packed{Tasks: e.Value, Rev: e.Modified})
	}
	return all
}

// Decide runs the reconciler for an owner with the tasks, and completes the tasks that the decision wants placed.
func (d *Domain) Decide(o cluster.OwnerRef, tasks []reconciler.Task) reconciler.Decision {
	var made reconciler.Decision
	if o.Kind == cluster.KindJob {
		e, _ := d.Snapshot.Job(o.Cluster, o.Name)
		made = reconciler.Job(d.JobInput(o, e, tasks))
	} else {
		e, _ := d.Snapshot.Service(o.Cluster, o.Name)
		made = reconciler.Service(d.ServiceInput(o, e, tasks))
	}
	d.Complete(&made)
	return made
}

// Complete sets the fields of pending tasks that other records than the owner's spec decide: the strategy of the pool
// or the cluster, and a missing secret for which the task waits. A task with an unreadable record is not pending
// (P3.5).
func (d *Domain) Complete(made *reconciler.Decision) {
	made.Pending = cluster.Isolate(made.Pending, d.pinnedTasks(made.Pending))
	made.Pending = slices.DeleteFunc(made.Pending, func(p cluster.Pending) bool { return IsPinned(d.Snapshot, p.Task) })
	var of cluster.Ref // the definition whose secret is missing; it seldom changes from one task to the next
	var missing cluster.Hold
	for i := range made.Pending {
		p := &made.Pending[i]
		d.setPolicies(p)
		if p.Definition != of {
			missing, of = d.Snapshot.MissingSecretHold(p), p.Definition
		}
		if p.Hold == (cluster.Hold{}) {
			p.Hold = missing
		}
	}
	for i := range made.Moves {
		next := &made.Moves[i].Next
		d.setPolicies(next)
		next.Hold = d.Snapshot.MissingSecretHold(next)
	}
}

// pinnedTasks returns those tasks of an owner's requests for several tasks that an unreadable record represents.
func (d *Domain) pinnedTasks(pending []cluster.Pending) (pinned []cluster.TaskID) {
	if !slices.ContainsFunc(pending, func(p cluster.Pending) bool { return p.Further > 0 }) {
		return nil
	}
	for row := range d.Snapshot.Attempts(pending[0].Owner) {
		if row.IsUnreadable() {
			pinned = append(pinned, row.Task)
		}
	}
	return pinned
}

// NextAttempts returns, by task, what the next attempt of each task of an owner would request if it were placed now.
// The node of the last attempt is not excluded.
func (d *Domain) NextAttempts(o cluster.OwnerRef) map[cluster.TaskID]cluster.Pending {
	if o.Kind == cluster.KindJob {
		if e, ok := d.Snapshot.Job(o.Cluster, o.Name); ok {
			return reconciler.NextJobAttempts(d.JobInput(o, e, d.Tasks(o)))
		}
		return nil
	}
	if e, ok := d.Snapshot.Service(o.Cluster, o.Name); ok {
		return reconciler.NextAttempts(d.ServiceInput(o, e, d.Tasks(o)))
	}
	return nil
}

// OnSameNode returns the request of a next attempt as it would be if the task were placed for the first time: the node
// of its present attempt is not excluded.
func (d *Domain) OnSameNode(next cluster.Pending, node string) cluster.Pending {
	d.setPolicies(&next)
	next.ExcludedNodes = slices.DeleteFunc(slices.Clone(next.ExcludedNodes), func(name string) bool {
		return name == node
	})
	return next
}

// setPolicies sets what the pool or the cluster of a task decides.
func (d *Domain) setPolicies(p *cluster.Pending) {
	p.Placement.Strategy = d.Snapshot.Strategy(p.Owner.Cluster, &p.Placement)
	p.Queue = d.Snapshot.QueuePolicy(p.Owner.Cluster, p.Placement.Pool)
	p.Weight = d.cluster(p.Owner.Cluster).QueueWeight()
	if p.Owner.Kind != cluster.KindService {
		return
	}
	if e, ok := d.Snapshot.Service(p.Owner.Cluster, p.Owner.Name); ok && e.Value.KeepRoom {
		p.Promised = e.Value.BoundNode() // nothing before it in the cycle takes the room that it kept
	}
}

// Definition returns a task definition, or nil.
func (d *Domain) Definition(r cluster.Ref) *cluster.TaskDefinition {
	e, _ := d.Snapshot.Definition(r)
	return e.Value
}

// cluster returns a cluster, or nil if it has no record.
func (d *Domain) cluster(name string) *cluster.Cluster {
	c, _ := d.Snapshot.Cluster(name)
	return c.Value
}

// recovery returns the reconciler's input about an earlier recovery of the store.
func (d *Domain) recovery() reconciler.Recovery {
	decided, _ := d.Snapshot.Recovery(d.Name)
	return reconciler.RecoveryOf(d.Incarnation, decided.Value)
}

// IsPinned reports whether an unreadable record represents the task on some node. If so, the task is not pending
// (P3.5).
func IsPinned(snap *store.Snapshot, task cluster.TaskID) bool {
	for row := range snap.TaskAttempts(task) {
		if row.IsUnreadable() && !HidesNothing(snap, row) {
			return true
		}
	}
	return false
}
