package apiserver

import (
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// look is one look at a snapshot: what its views have in common, computed once. Not for concurrent use.
type look struct {
	snap    *store.Snapshot
	now     time.Time
	reasons Reasons
	owners  map[cluster.OwnerRef]*ownerLook
}

// ownerLook is what the reconciler says of a service or a job.
type ownerLook struct {
	pending []cluster.Pending
	waits   map[cluster.TaskID]bool
}

func (s *Server) look(snap *store.Snapshot) *look {
	return &look{snap: snap, now: s.cfg.Now(), reasons: s.cfg.Reasons, owners: map[cluster.OwnerRef]*ownerLook{}}
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
			for i := range e.Value.Desired() {
				add(cluster.ServiceTask(o.Cluster, o.Name, e.Value.Generation, i), e.Value.Definition)
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

func (l *look) succeeded(task cluster.TaskID) bool {
	for row := range l.snap.TaskAttempts(task) {
		if row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded {
			return true
		}
	}
	return false
}

func (l *look) service(e store.Entry[cluster.Service]) reconciler.ServiceInput {
	o := e.Value.Owner()
	return reconciler.ServiceInput{
		Owner: o, Spec: e.Value, SpecRev: e.Modified, Definitions: l.definition, Tasks: l.attempts(o), Now: l.now,
	}
}

func (l *look) job(e store.Entry[cluster.Job]) reconciler.JobInput {
	o := e.Value.Owner()
	return reconciler.JobInput{
		Owner: o, Spec: e.Value, SpecRev: e.Modified, Definitions: l.definition, Tasks: l.attempts(o), Now: l.now,
	}
}

func (l *look) definition(ref cluster.Ref) *cluster.TaskDefinition {
	e, _ := l.snap.Definition(ref)
	return e.Value
}

func (l *look) attempts(o cluster.OwnerRef) []reconciler.Task {
	var tasks []reconciler.Task
	for row := range l.snap.Attempts(o) {
		tasks = append(tasks, reconciler.Task{Attempt: row.Attempt, Absence: l.absence(row.Node)})
	}
	return tasks
}

// absence is what a view makes of a node's silence. What is lost for good is the control plane's to say, by an
// outcome; until then a silent node's tasks are shown as not well.
func (l *look) absence(node string) watcher.Absence {
	if e, ok := l.snap.Node(node); ok && (e.Value.State == cluster.NodeSuspect || e.Value.State == cluster.NodeDown) {
		return watcher.Suspected
	}
	return watcher.Present
}

func (l *look) serviceView(e store.Entry[cluster.Service]) api.ServiceView {
	st := reconciler.StatusOfService(l.service(e))
	return api.ServiceView{
		Service: *e.Value, Revision: e.Modified,
		Status: api.ServiceStatus{
			Desired: st.Desired, Running: st.Running, Healthy: st.Healthy, Updated: st.Updated,
			Waiting: st.Waiting, State: st.State, Message: l.why(e.Value.Owner(), st.Message, st.Waiting),
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
