package views

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// maxListed is the largest number of tasks of one request that a view shows one by one. Of a larger request it shows
// the first task, which may have a reason of its own, and all others as one entry.
const maxListed = 100

// pendingTasks are the requests for the pending tasks of an owner.
type pendingTasks struct {
	tasks   []cluster.Pending
	index   *cluster.TaskIndex // of tasks, without the retries
	retries map[cluster.TaskID]bool
}

func (p *pendingTasks) has(task cluster.TaskID) bool {
	_, found := p.index.Find(task)
	return found || p.retries[task]
}

// Pending returns the pending tasks of a service or job, as the leader's reconciler finds them. It includes ended tasks
// that get another attempt after a delay; their attempt number is 0. Many equal tasks may be one request
// (Pending.Further).
func (b *Builder) Pending(o cluster.OwnerRef) []cluster.Pending {
	return b.Of(o.Cluster).queue.pendingOf(o).tasks
}

// FindPending returns the request for one pending task of an owner; ok is false if the task is not pending.
func (b *Builder) FindPending(o cluster.OwnerRef, task cluster.TaskID) (p cluster.Pending, ok bool) {
	b = b.Of(o.Cluster)
	for _, p := range b.queue.pendingOf(o).tasks {
		if r := p.Range(); r.Has(task) {
			one := p.Single()
			one.Task = task
			return one, true
		}
	}
	return p, false
}

func (q *queue) pendingOf(o cluster.OwnerRef) *pendingTasks {
	if known, ok := q.pending[o]; ok {
		return known
	}
	p := &pendingTasks{
		tasks: listed(q.Domain.Decide(o, q.Domain.Tasks(o)).Pending), retries: map[cluster.TaskID]bool{},
	}
	p.index = cluster.IndexTasks(cluster.RangesOf(p.tasks))
	if o.Kind == cluster.KindService {
		q.addServiceRetries(o, p)
	} else {
		q.addJobRetries(o, p)
	}
	q.pending[o] = p
	return p
}

// listed returns requests as views show them; see maxListed.
func listed(requests []cluster.Pending) []cluster.Pending {
	if !slices.ContainsFunc(requests, func(p cluster.Pending) bool { return p.Tasks() > 1 }) {
		return requests
	}
	list := make([]cluster.Pending, 0, len(requests))
	for i := range requests {
		switch p := &requests[i]; {
		case p.Tasks() == 1:
			list = append(list, *p)
		case p.Tasks() > maxListed:
			list = append(list, p.Single(), p.Skip(1))
		default:
			list = append(list, cluster.Expand(requests[i:i+1])...)
		}
	}
	return list
}

// addServiceRetries adds the ended tasks of a service that get another attempt after a delay. The reconciler requests
// them only after the delay.
func (q *queue) addServiceRetries(o cluster.OwnerRef, p *pendingTasks) {
	e, ok := q.Snapshot.Service(o.Cluster, o.Name)
	if !ok {
		return
	}
	for _, id := range q.endedTasks(e, p) {
		p.addRetry(q.Snapshot, cluster.Pending{Task: id, Owner: o, Definition: e.Value.Definition})
	}
}

// addJobRetries adds the ended tasks of a job that get another attempt after a delay.
func (q *queue) addJobRetries(o cluster.OwnerRef, p *pendingTasks) {
	e, ok := q.Snapshot.Job(o.Cluster, o.Name)
	if !ok || e.Value.Cancelled || e.Value.Deleted {
		return
	}
	status := reconciler.StatusOfJob(q.Domain.JobInput(o, e, q.Domain.Tasks(o)))
	unfinished := map[string][]*taskHistory{} // by step
	for _, t := range taskHistories(q.Snapshot, o) {
		if t.parts.Generation == e.Value.Generation && !t.hasSucceeded() {
			unfinished[t.parts.Step] = append(unfinished[t.parts.Step], t)
		}
	}
	for k := range e.Value.Steps {
		step := &e.Value.Steps[k]
		if status.Steps[k].Failed > 0 {
			continue
		}
		for _, t := range unfinished[step.Name] {
			if t.parts.Index < step.Count {
				p.addRetry(q.Snapshot, cluster.Pending{Task: t.id, Owner: o, Definition: step.Definition})
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
	if last != nil && !p.has(task.Task) && last.Outcome != nil {
		p.tasks = append(p.tasks, task)
		p.retries[task.Task] = true
	}
}

// endedTasks returns the ended tasks of a service's newest version that the service wants, and whose index no other
// task of the version has.
func (q *queue) endedTasks(e store.Entry[cluster.Service], p *pendingTasks) (ids []cluster.TaskID) {
	o := e.Value.Owner()
	in := q.Domain.ServiceInput(o, e, q.Domain.Tasks(o))
	desired, daemon := reconciler.StatusOfService(in).Desired, in.Spec.Mode == cluster.ModeDaemon
	if desired == 0 {
		return nil
	}
	taken := map[int]bool{}
	for i := range p.tasks {
		parts, _ := p.tasks[i].Task.Parts()
		taken[parts.Index] = true
	}
	tasks := slices.DeleteFunc(taskHistories(q.Snapshot, o), func(t *taskHistory) bool {
		return !t.isNewestVersion(e.Value) || !daemon && t.parts.Index >= desired
	})
	slices.SortStableFunc(tasks, func(x, y *taskHistory) int {
		return cmp.Compare(x.parts.Generation, y.parts.Generation)
	})
	for _, t := range tasks {
		if live, _, _ := t.counts(q.Records); live {
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

func (t *taskHistory) hasSucceeded() bool {
	return slices.ContainsFunc(t.attempts, func(row *store.AttemptRow) bool {
		return row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded
	})
}
