package apiserver

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// look is one look at a snapshot: what its views have in common, computed once. Not for concurrent use.
type look struct {
	*observe.Records
	observed *observe.Domain
	snap     *store.Snapshot
	domain   string
	now      time.Time
	reasons  Reasons
	values   func() *scheduler.ValueModel
	owners   map[cluster.OwnerRef]*ownerLook
}

// ownerLook is what the reconciler says of a service or a job.
type ownerLook struct {
	pending []cluster.Pending
	waits   map[cluster.TaskID]bool
}

func (s *Server) look(snap *store.Snapshot) *look {
	l := &look{
		snap: snap, domain: s.cfg.Domain, now: s.cfg.Now(), reasons: s.cfg.Reasons, values: s.cfg.DeviceValueModel,
		owners: map[cluster.OwnerRef]*ownerLook{},
	}
	c := observe.RecordsConfig{
		Domain: l.domain, Snapshot: snap, Now: l.now, Since: s.cfg.Since, Pulse: s.cfg.Tables.Pulse, Gates: s.cfg.Gates,
	}
	if l.reasons != nil {
		c.Victims = l.reasons.Victims
	}
	l.observed, l.Records = observe.NewRecords(c)
	return l
}

// owner asks the reconciler, as the control plane does, which tasks of an owner wait.
func (l *look) owner(o cluster.OwnerRef) *ownerLook {
	if known, ok := l.owners[o]; ok {
		return known
	}
	seen := &ownerLook{waits: map[cluster.TaskID]bool{}}
	seen.pending = l.observed.Decide(o, l.observed.Tasks(o)).Pending
	for i := range seen.pending {
		seen.waits[seen.pending[i].Task] = true
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

// service returns what the control plane looks at when it decides about a service.
func (l *look) service(e store.Entry[cluster.Service]) reconciler.ServiceInput {
	o := e.Value.Owner()
	return l.observed.ServiceInput(o, e, l.observed.Tasks(o))
}

// desired returns how many tasks a service wants now: of a daemon one for each of its nodes.
func (l *look) desired(in *reconciler.ServiceInput) int {
	return reconciler.StatusOfService(*in).Desired
}

func (l *look) job(e store.Entry[cluster.Job]) reconciler.JobInput {
	o := e.Value.Owner()
	return l.observed.JobInput(o, e, l.observed.Tasks(o))
}

// diskFull returns what a node says of a disk that is full, nil where none is.
func (l *look) diskFull(node string) *cluster.DiskFull {
	if stats := l.Stats(node); stats != nil {
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
