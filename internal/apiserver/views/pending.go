package views

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// pendingTasks are the pending tasks of an owner.
type pendingTasks struct {
	tasks []cluster.Pending
	ids   map[cluster.TaskID]bool
}

// Pending returns the pending tasks of a service or job, as the leader's reconciler finds them. It includes ended tasks
// that get another attempt after a delay; their attempt number is 0.
func (b *Builder) Pending(o cluster.OwnerRef) []cluster.Pending { return b.pendingOf(o).tasks }

func (b *Builder) pendingOf(o cluster.OwnerRef) *pendingTasks {
	if known, ok := b.pending[o]; ok {
		return known
	}
	p := &pendingTasks{ids: map[cluster.TaskID]bool{}}
	p.tasks = b.Domain.Decide(o, b.Domain.Tasks(o)).Pending
	for i := range p.tasks {
		p.ids[p.tasks[i].Task] = true
	}
	if o.Kind == cluster.KindService {
		b.addServiceRetries(o, p)
	} else {
		b.addJobRetries(o, p)
	}
	b.pending[o] = p
	return p
}

// addServiceRetries adds the ended tasks of a service that get another attempt after a delay. The reconciler requests
// them only after the delay.
func (b *Builder) addServiceRetries(o cluster.OwnerRef, p *pendingTasks) {
	e, ok := b.Snapshot.Service(o.Cluster, o.Name)
	if !ok {
		return
	}
	for _, id := range b.endedTasks(e, p) {
		p.addRetry(b.Snapshot, cluster.Pending{Task: id, Owner: o, Definition: e.Value.Definition})
	}
}

// addJobRetries adds the ended tasks of a job that get another attempt after a delay.
func (b *Builder) addJobRetries(o cluster.OwnerRef, p *pendingTasks) {
	e, ok := b.Snapshot.Job(o.Cluster, o.Name)
	if !ok || e.Value.Cancelled || e.Value.Deleted {
		return
	}
	status := reconciler.StatusOfJob(b.JobInput(e))
	for k := range e.Value.Steps {
		step := &e.Value.Steps[k]
		if status.Steps[k].Failed > 0 {
			continue
		}
		for i := range step.Count {
			id := cluster.JobTask(o.Cluster, o.Name, e.Value.Generation, step.Name, i)
			if !hasSucceeded(b.Snapshot, id) {
				p.addRetry(b.Snapshot, cluster.Pending{Task: id, Owner: o, Definition: step.Definition})
			}
		}
	}
}

// addRetry adds a task whose last attempt has ended.
func (p *pendingTasks) addRetry(snap *store.Snapshot, task cluster.Pending) {
	var last *store.AttemptRow
	for row := range snap.TaskAttempts(task.Task) {
		last = row
	}
	if last != nil && !p.ids[task.Task] && last.Outcome != nil {
		p.ids[task.Task] = true
		p.tasks = append(p.tasks, task)
	}
}

// endedTasks returns the ended tasks of a service's newest version that the service wants, and whose index no other
// task of the version has.
func (b *Builder) endedTasks(e store.Entry[cluster.Service], p *pendingTasks) (ids []cluster.TaskID) {
	in := b.ServiceInput(e)
	desired, daemon := reconciler.StatusOfService(in).Desired, in.Spec.Mode == cluster.ModeDaemon
	if desired == 0 {
		return nil
	}
	taken := map[int]bool{}
	for id := range p.ids { // order-free: a set is filled
		parts, _ := id.Parts()
		taken[parts.Index] = true
	}
	tasks := slices.DeleteFunc(taskHistories(b.Snapshot, e.Value.Owner()), func(t *taskHistory) bool {
		return !t.isNewestVersion(e.Value) || !daemon && t.parts.Index >= desired
	})
	slices.SortStableFunc(tasks, func(x, y *taskHistory) int {
		return cmp.Compare(x.parts.Generation, y.parts.Generation)
	})
	for _, t := range tasks {
		if live, _, _ := t.counts(b.Records); live {
			taken[t.parts.Index] = true
		}
	}
	for _, t := range slices.Backward(tasks) { // the newest generation first
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

func hasSucceeded(snap *store.Snapshot, task cluster.TaskID) bool {
	for row := range snap.TaskAttempts(task) {
		if row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded {
			return true
		}
	}
	return false
}
