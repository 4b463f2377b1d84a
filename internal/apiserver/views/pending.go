package views

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// pendingTasks is what the reconciler says of a service or a job.
type pendingTasks struct {
	pending []cluster.Pending
	waits   map[cluster.TaskID]bool
}

// Pending returns the tasks of an owner that wait.
func (l *Builder) Pending(o cluster.OwnerRef) []cluster.Pending { return l.owner(o).pending }

// owner asks the reconciler, as the control plane does, which tasks of an owner wait.
func (l *Builder) owner(o cluster.OwnerRef) *pendingTasks {
	if known, ok := l.owners[o]; ok {
		return known
	}
	seen := &pendingTasks{waits: map[cluster.TaskID]bool{}}
	seen.pending = l.Domain.Decide(o, l.Domain.Tasks(o)).Pending
	for i := range seen.pending {
		seen.waits[seen.pending[i].Task] = true
	}
	l.backOff(o, seen)
	l.owners[o] = seen
	return seen
}

// backOff adds the tasks that have ended and get another attempt after a delay: the reconciler does not ask for
// them yet.
func (l *Builder) backOff(o cluster.OwnerRef, seen *pendingTasks) {
	add := func(id cluster.TaskID, ref cluster.Ref) {
		var last *store.AttemptRow
		for row := range l.Snapshot.TaskAttempts(id) {
			last = row
		}
		if last != nil && !seen.waits[id] && last.Outcome != nil {
			seen.waits[id] = true
			seen.pending = append(seen.pending, cluster.Pending{Task: id, Owner: o, Definition: ref})
		}
	}
	if o.Kind == cluster.KindService {
		if e, ok := l.Snapshot.Service(o.Cluster, o.Name); ok {
			for _, id := range l.ended(e, seen) {
				add(id, e.Value.Definition)
			}
		}
		return
	}
	e, ok := l.Snapshot.Job(o.Cluster, o.Name)
	if !ok || e.Value.Cancelled || e.Value.Deleted || reconciler.StatusOfJob(l.JobInput(e)).Failed > 0 {
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
func (l *Builder) ended(e store.Entry[cluster.Service], seen *pendingTasks) (ids []cluster.TaskID) {
	in := l.ServiceInput(e)
	desired, daemon := l.desired(&in), in.Spec.Mode == cluster.ModeDaemon
	if desired == 0 {
		return nil
	}
	taken := map[int]bool{}
	for id := range seen.waits { // order-free: a set is filled
		parts, _ := id.Parts()
		taken[parts.Index] = true
	}
	tasks := slices.DeleteFunc(l.tasksOf(e.Value.Owner()), func(t *taskHistory) bool {
		return !t.newestVersion(e.Value) || !daemon && t.parts.Index >= desired
	})
	slices.SortStableFunc(tasks, func(a, b *taskHistory) int {
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

func (l *Builder) succeeded(task cluster.TaskID) bool {
	for row := range l.Snapshot.TaskAttempts(task) {
		if row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded {
			return true
		}
	}
	return false
}

// why adds to an owner's message the reason of the first of its tasks that cannot be placed.
func (l *Builder) why(o cluster.OwnerRef, message string, waiting int) string {
	if waiting == 0 || l.source.Leader.Reasons == nil {
		return message
	}
	seen := l.owner(o)
	for i := range seen.pending {
		w, ok := l.source.Leader.Reasons.Waiting(seen.pending[i].Task)
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
