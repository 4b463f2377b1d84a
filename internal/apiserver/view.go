package apiserver

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// look is one look at a snapshot: what its views have in common, computed once. Not for concurrent use.
type look struct {
	snap    *store.Snapshot
	domain  string
	now     time.Time
	reasons Reasons
	pulse   func(node string) (cluster.Pulse, bool)
	gate    func(service cluster.OwnerRef) []cluster.GateResult
	begun   func() time.Time
	worth   func() *scheduler.ValueModel
	owners  map[cluster.OwnerRef]*ownerLook
	used    map[string]*cluster.NodeStats // by node; nil where nothing is known
	nodes   map[string]*scheduler.Node    // nil for one that is not known
}

// ownerLook is what the reconciler says of a service or a job.
type ownerLook struct {
	pending []cluster.Pending
	waits   map[cluster.TaskID]bool
}

func (s *Server) look(snap *store.Snapshot) *look {
	return &look{
		snap: snap, domain: s.cfg.Domain, now: s.cfg.Now(), reasons: s.cfg.Reasons, pulse: s.cfg.Tables.Pulse,
		gate: s.cfg.Gates, worth: s.cfg.DeviceValueModel,
		begun:  s.cfg.Since,
		owners: map[cluster.OwnerRef]*ownerLook{}, used: map[string]*cluster.NodeStats{},
		nodes: map[string]*scheduler.Node{},
	}
}

// owner asks the reconciler, as the control plane does, which tasks of an owner wait.
func (l *look) owner(o cluster.OwnerRef) *ownerLook {
	if known, ok := l.owners[o]; ok {
		return known
	}
	seen := &ownerLook{waits: map[cluster.TaskID]bool{}}
	if o.Kind == cluster.KindJob {
		if e, ok := l.snap.Job(o.Cluster, o.Name); ok {
			seen.pending = reconciler.Job(l.job(e)).Pending
		}
	} else if e, ok := l.snap.Service(o.Cluster, o.Name); ok {
		seen.pending = reconciler.Service(l.service(e)).Pending
	}
	for i := range seen.pending {
		seen.waits[seen.pending[i].Task] = true
		seen.pending[i].Lacks = l.snap.Lacks(&seen.pending[i])
	}
	l.backOff(o, seen)
	l.owners[o] = seen
	return seen
}

// backOff adds the tasks that have ended and get another attempt after a delay: the reconciler does not ask for
// them yet.
func (l *look) backOff(o cluster.OwnerRef, seen *ownerLook) {
	add := func(id cluster.TaskID, ref cluster.Ref) {
		var last *store.AttemptRow
		for row := range l.snap.TaskAttempts(id) {
			last = row
		}
		if last != nil && !seen.waits[id] && last.Outcome != nil {
			seen.waits[id] = true
			seen.pending = append(seen.pending, cluster.Pending{Task: id, Owner: o, Definition: ref})
		}
	}
	if o.Kind == cluster.KindService {
		if e, ok := l.snap.Service(o.Cluster, o.Name); ok {
			for _, id := range l.ended(e, seen) {
				add(id, e.Value.Definition)
			}
		}
		return
	}
	e, ok := l.snap.Job(o.Cluster, o.Name)
	if !ok || e.Value.Cancelled || e.Value.Deleted || reconciler.StatusOfJob(l.job(e)).Failed > 0 {
		return
	}
	for _, step := range e.Value.Steps {
		for i := range step.Count {
			id := cluster.JobTask(o.Cluster, o.Name, e.Value.Generation, step.Name, i)
			if !l.succeeded(id) {
				add(id, step.Definition)
			}
		}
	}
}

// ended returns the tasks of a service's newest version that are wanted, have ended, and whose place no other task of
// it has.
func (l *look) ended(e store.Entry[cluster.Service], seen *ownerLook) (ids []cluster.TaskID) {
	in := l.service(e)
	desired, daemon := l.desired(&in), in.Spec.Mode == cluster.ModeDaemon
	if desired == 0 {
		return nil
	}
	taken := map[int]bool{}
	for id := range seen.waits { // order-free: a set is filled
		parts, _ := id.Parts()
		taken[parts.Index] = true
	}
	tasks := slices.DeleteFunc(l.tasksOf(e.Value.Owner()), func(t *taskLook) bool {
		return !t.newestVersion(e.Value) || !daemon && t.parts.Index >= desired
	})
	slices.SortStableFunc(tasks, func(a, b *taskLook) int {
		return cmp.Compare(a.parts.Generation, b.parts.Generation)
	})
	for _, t := range tasks {
		if lives, _, _ := l.counts(t); lives {
			taken[t.parts.Index] = true
		}
	}
	for _, t := range slices.Backward(tasks) { // of the newest generation first
		last := t.attempts[len(t.attempts)-1].Outcome
		if last == nil || taken[t.parts.Index] || daemon && last.State == cluster.StateCancelled {
			continue
		}
		taken[t.parts.Index] = true
		ids = append(ids, t.id)
	}
	slices.Reverse(ids)
	return ids
}

func (l *look) succeeded(task cluster.TaskID) bool {
	for row := range l.snap.TaskAttempts(task) {
		if row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded {
			return true
		}
	}
	return false
}

// service gathers what the control plane looks at when it decides about a service, as far as the records tell it.
func (l *look) service(e store.Entry[cluster.Service]) reconciler.ServiceInput {
	o := e.Value.Owner()
	scale, _ := l.snap.Scale(o.Cluster, o.Name)
	in := reconciler.ServiceInput{
		Owner: o, Spec: e.Value.At(scale.Value), SpecRev: e.Modified, Definitions: l.definition, Tasks: l.attempts(o),
		Recovery: l.recovery(), Since: l.since(), Now: l.now,
	}
	if c, ok := l.snap.Cluster(o.Cluster); ok {
		in.ClusterConstraints = c.Value.Constraints
	}
	if r, ok := l.snap.Rollout(o.Cluster, o.Name); ok {
		in.Rollout, in.RolloutRev = r.Value, r.Modified
	}
	if l.gate != nil && len(e.Value.Update.Gates) > 0 {
		in.Gates = l.gate(o)
	}
	if in.Spec.Mode == cluster.ModeDaemon {
		in.SetNodes(l.daemonNodes)
	}
	return in
}

// recovery is what the leader's decisions know of an earlier recovery of the store.
func (l *look) recovery() reconciler.Recovery {
	var incarnation uint64
	if leader, ok := l.snap.Leader(l.domain); ok {
		incarnation = leader.Value.Incarnation
	}
	decided, _ := l.snap.Recovery(l.domain)
	return reconciler.RecoveryOf(incarnation, decided.Value)
}

// since is when the leader began to count deadlines. Only the leader's own server knows that its clock was set after
// the beginning of its term.
func (l *look) since() time.Time {
	if at := l.begun(); !at.IsZero() {
		return at
	}
	if leader, ok := l.snap.Leader(l.domain); ok {
		return leader.Value.Since
	}
	return time.Time{}
}

// daemonNodes yields the nodes of the domain as daemons look at them, as far as the records tell it.
func (l *look) daemonNodes(yield func(reconciler.DaemonNode) bool) {
	for e := range l.snap.Nodes() {
		name := e.Value.Name
		if e.Value.Domain != l.domain {
			continue
		}
		host, _ := l.snap.Host(name)
		n := reconciler.DaemonNode{
			Node: l.node(name), Gone: host.Value != nil && host.Value.Gone, Silent: l.absence(name) != watcher.Present,
			Alone: host.Value != nil && host.Value.Drain != nil && l.daemonsAlone(name),
		}
		if !yield(n) {
			return
		}
	}
}

// daemonsAlone reports whether nothing but tasks of daemons stands on a node.
func (l *look) daemonsAlone(node string) bool {
	for row := range l.snap.NodeAttempts(node) {
		o, _ := row.Ref()
		e, ok := l.snap.Service(o.Cluster, o.Name)
		if row.Standing() && (!ok || o.Kind != cluster.KindService || e.Value.Mode != cluster.ModeDaemon) {
			return false
		}
	}
	return true
}

// desired returns how many tasks a service wants now: of a daemon one for each of its nodes.
func (l *look) desired(in *reconciler.ServiceInput) int {
	return reconciler.StatusOfService(*in).Desired
}

func (l *look) job(e store.Entry[cluster.Job]) reconciler.JobInput {
	o := e.Value.Owner()
	in := reconciler.JobInput{
		Owner: o, Spec: e.Value, SpecRev: e.Modified, Definitions: l.definition, Tasks: l.attempts(o),
		Recovery: l.recovery(), Now: l.now,
	}
	if c, ok := l.snap.Cluster(o.Cluster); ok {
		in.ClusterConstraints = c.Value.Constraints
	}
	return in
}

func (l *look) definition(ref cluster.Ref) *cluster.TaskDefinition {
	e, _ := l.snap.Definition(ref)
	return e.Value
}

func (l *look) attempts(o cluster.OwnerRef) []reconciler.Task {
	var tasks []reconciler.Task
	for row := range l.snap.Attempts(o) {
		if row.Number == 0 { // a foreign record, which the leader clears
			continue
		}
		t := reconciler.Task{Attempt: row.Attempt, Absence: l.absence(row.Node), Reported: l.reported(row.Node)}
		if h, ok := l.snap.Host(row.Node); ok && !h.Value.Gone {
			t.Drain = h.Value.Drain
		}
		if p := l.pressed(row); p != nil {
			t.Leave = reconciler.PressedLeave(row.Node, p)
		} else if why, leaves := l.misfit(row); leaves {
			t.Leave = why
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// reported reports whether the leader has heard the node and has its full report, by its verdict.
func (l *look) reported(node string) bool {
	e, ok := l.snap.Node(node)
	return ok && e.Value.State != cluster.NodeJoining && l.absence(node) == watcher.Present
}

// absence is what a view makes of a node's silence. What is lost for good is the control plane's to say, by an
// outcome; until then a silent node's tasks are shown as not well.
func (l *look) absence(node string) watcher.Absence {
	if e, ok := l.snap.Node(node); ok && (e.Value.State == cluster.NodeSuspect || e.Value.State == cluster.NodeDown) {
		return watcher.Suspected
	}
	return watcher.Present
}

// pressed returns why its node's agent suggests to move an attempt away, nil where it does not.
func (l *look) pressed(row *store.AttemptRow) *cluster.Pressure {
	stats := l.stats(row.Node)
	if stats == nil || stats.Pressure == nil || stats.Pressure.Victim == "" ||
		stats.Pressure.Victim != snapshot.UUIDOf(row) ||
		!onNode(row) {
		return nil
	}
	return stats.Pressure
}

// diskFull returns what a node says of a disk that is full, nil where none is.
func (l *look) diskFull(node string) *cluster.DiskFull {
	if stats := l.stats(node); stats != nil {
		return stats.DiskFull
	}
	return nil
}

func (l *look) serviceView(e store.Entry[cluster.Service]) api.ServiceView {
	in := l.service(e)
	st := reconciler.StatusOfService(in)
	return api.ServiceView{
		Service: *e.Value, Revision: e.Modified,
		Status: api.ServiceStatus{
			Desired: st.Desired, Running: st.Running, Healthy: st.Healthy, Updated: st.Updated,
			Waiting: st.Waiting, State: st.State, Message: l.why(e.Value.Owner(), st.Message, st.Waiting),
			Versions: l.versions(e.Value, st.Desired), Rollout: st.Rollout, RolloutMessage: st.RolloutMessage,
			Paused: st.Paused, Crashing: l.crashing(in.Owner, st.CrashLooping), GivenUp: st.GivenUp,
			MemoryTrouble: st.MemoryTrouble,
		},
	}
}

func (l *look) jobView(e store.Entry[cluster.Job]) api.JobView {
	st := reconciler.StatusOfJob(l.job(e))
	return api.JobView{
		Job: *e.Value, Revision: e.Modified,
		Status: api.JobStatus{
			Total: st.Total, Pending: st.Pending, Running: st.Running, Succeeded: st.Succeeded,
			Failed: st.Failed, Cancelled: st.Cancelled, State: st.State, Finished: st.Finished,
			Message: l.why(e.Value.Owner(), st.Message, st.Pending),
		},
	}
}

// why adds to an owner's message the reason of the first of its tasks that cannot be placed.
func (l *look) why(o cluster.OwnerRef, message string, waiting int) string {
	if waiting == 0 || l.reasons == nil {
		return message
	}
	seen := l.owner(o)
	for i := range seen.pending {
		w, ok := l.reasons.Waiting(seen.pending[i].Task)
		if !ok || w.Sentence == "" {
			continue
		}
		if message == "" {
			return w.Sentence
		}
		return message + "; " + w.Sentence
	}
	return message
}
