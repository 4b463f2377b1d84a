package workload

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/selector"
	"github.com/berthd/berth/internal/store"
)

// taskFilter selects tasks; an empty field selects all.
type taskFilter struct {
	cluster, service, job, node string
	state                       cluster.State
	// labels selects by the labels of the owner.
	labels selector.Labels
	// all includes every attempt with a record, not only live and pending ones and the final attempts of jobs.
	all bool
	// caller, unless nil, limits the tasks to the clusters that it sees.
	caller *access.Caller
}

func (f *taskFilter) owner(o cluster.OwnerRef) bool {
	switch {
	case f.caller != nil && !f.caller.Sees(o.Cluster):
		return false
	case f.cluster != "" && o.Cluster != f.cluster,
		f.service != "" && (o.Kind != cluster.KindService || o.Name != f.service),
		f.job != "" && (o.Kind != cluster.KindJob || o.Name != f.job):
		return false
	}
	return true
}

// selects reports whether the filter selects tasks of an owner. An owner that is gone has no labels.
func (l taskList) selects(o cluster.OwnerRef) bool {
	if !l.filter.owner(o) {
		return false
	}
	if len(l.filter.labels) == 0 {
		return true
	}
	var labels cluster.Labels
	if o.Kind == cluster.KindJob {
		if e, ok := l.Snapshot.Job(o.Cluster, o.Name); ok {
			labels = e.Value.Labels
		}
	} else if e, ok := l.Snapshot.Service(o.Cluster, o.Name); ok {
		labels = e.Value.Labels
	}
	return l.filter.labels.Matches(labels)
}

// taskList lists the tasks of a snapshot that a filter selects.
type taskList struct {
	*views.Builder

	filter taskFilter
}

// ownerTasks are what the tasks of owners of one name are made of.
type ownerTasks struct {
	owners   []cluster.OwnerRef // none if they are gone
	attempts []*store.AttemptRow
}

// page returns the views of the selected tasks in a window, and the next one. The tasks of all owners may be a million,
// so it computes those of the owners that the window reaches.
func (l taskList) page(w lists.Window) (all []lists.Item[api.TaskView]) {
	first := keysOfTask(w.After)
	parts := map[string]*ownerTasks{} // by what their keys begin with
	part := func(keys string) *ownerTasks {
		if parts[keys] == nil {
			parts[keys] = &ownerTasks{}
		}
		return parts[keys]
	}
	for o := range snapshot.Owners(l.Snapshot, l.filter.cluster) {
		if keys := keysOf(o); keys >= first && l.selects(o) {
			p := part(keys)
			p.owners = append(p.owners, o)
		}
	}
	for row := range l.filter.rows(l.Snapshot) {
		if keys := keysOfTask(string(row.Task)); keys >= first {
			p := part(keys)
			p.attempts = append(p.attempts, row)
		}
	}
	for _, keys := range slices.Sorted(maps.Keys(parts)) {
		for _, v := range l.tasksOf(parts[keys]) {
			if v.Key > w.After {
				all = append(all, v)
			}
		}
		if w.Limit > 0 && len(all) > w.Limit {
			break
		}
	}
	slices.SortFunc(all, func(a, b lists.Item[api.TaskView]) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// tasksOf returns the views of the selected tasks of owners.
func (l taskList) tasksOf(p *ownerTasks) (all []lists.Item[api.TaskView]) {
	for _, row := range p.attempts {
		if v, ok := l.attemptView(row); ok {
			all = append(all, v)
		}
	}
	for _, o := range p.owners {
		if l.filter.includesPending() {
			all = append(all, l.pendingTasks(o)...)
		}
		if l.filter.includesPacked() && o.Kind == cluster.KindJob {
			all = append(all, l.packedTasks(o)...)
		}
	}
	return all
}

// keysOf returns what the keys of all tasks of an owner, and of no other one, begin with.
func keysOf(o cluster.OwnerRef) string { return o.Cluster + "." + o.Name + "." }

// keysOfTask returns what the keys of all tasks of a task's owner begin with. The text is the task's id or key.
func keysOfTask(text string) string {
	if _, rest, ok := strings.Cut(text, "."); ok {
		if i := strings.IndexByte(rest, '.'); i >= 0 {
			return text[:len(text)-len(rest)+i+1]
		}
	}
	return text
}

// attemptView shows an attempt; ok is false if the filter excludes it.
func (l taskList) attemptView(row *store.AttemptRow) (shown lists.Item[api.TaskView], ok bool) {
	owner, known := row.Ref()
	if known && !l.selects(owner) || !known && l.filter.caller != nil && !l.filter.caller.Sees("") ||
		l.filter.node != "" && row.Node != l.filter.node {
		return shown, false
	}
	if row.Packed && !l.filter.expandsPacked() {
		return shown, false
	}
	v := l.Task(row)
	l.filter.caller.ShowTask(&v)
	if l.filter.state != "" && v.State != l.filter.state {
		return shown, false
	}
	if !l.filter.all && v.State.Terminal() && (v.Owner.Kind != cluster.KindJob || !l.IsFinal(row)) {
		return shown, false
	}
	return lists.Item[api.TaskView]{Key: views.TaskKey(v.ID, v.Attempt), Value: v}, true
}

// includesPending reports whether the filter may select pending tasks, which are on no node.
func (f *taskFilter) includesPending() bool {
	return f.node == "" && (f.state == "" || f.state == cluster.StatePending)
}

// expandsPacked reports whether the list has each of the packed tasks of large steps: if it has all attempts, or those
// that succeeded. Otherwise it has ranges of them.
func (f *taskFilter) expandsPacked() bool { return f.all || f.state == cluster.StateSucceeded }

// includesPacked reports whether the filter may select packed tasks.
func (f *taskFilter) includesPacked() bool {
	return f.service == "" && (f.state == "" || f.state == cluster.StateSucceeded)
}

// packedTasks shows the packed tasks of a job.
func (l taskList) packedTasks(job cluster.OwnerRef) (all []lists.Item[api.TaskView]) {
	for e := range l.Snapshot.PackedTasks(job) {
		p := e.Value
		for i := 0; i < len(p.Indices); {
			id := cluster.JobTask(p.Cluster, p.Job, p.Generation, p.Step, p.Indices[i])
			end := i + 1
			if l.filter.expandsPacked() {
				for row := range l.Snapshot.TaskAttempts(id) {
					if v, ok := l.attemptView(row); ok && row.Packed {
						all = append(all, v)
					}
				}
			} else if l.filter.node == "" {
				for end < len(p.Indices) && p.Indices[end] == p.Indices[end-1]+1 {
					end++
				}
				v := api.TaskView{
					ID: id, Attempt: 1, Owner: job, Generation: p.Generation, Step: p.Step, Index: p.Indices[i],
					Further: end - i - 1, Definition: p.Definition, State: cluster.StateSucceeded,
					Finished: p.LastEnded,
				}
				all = append(all, lists.Item[api.TaskView]{Key: views.TaskKey(v.ID, v.Attempt), Value: v})
			}
			i = end
		}
	}
	return all
}

// pendingTasks shows the pending tasks of an owner. They have no records, but follow from the owner's spec.
func (l taskList) pendingTasks(o cluster.OwnerRef) (all []lists.Item[api.TaskView]) {
	pending := l.Pending(o)
	for i := range pending {
		v := l.PendingTask(&pending[i])
		l.filter.caller.ShowTask(&v)
		if l.filter.state == "" || v.State == l.filter.state {
			all = append(all, lists.Item[api.TaskView]{Key: views.TaskKey(v.ID, v.Attempt), Value: v})
		}
	}
	return all
}

// rows returns the attempts among which the filter selects.
func (f *taskFilter) rows(snap *store.Snapshot) iter.Seq[*store.AttemptRow] {
	switch {
	case f.node != "":
		return snap.NodeAttempts(f.node)
	case f.cluster != "" && f.service != "":
		return snap.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: f.cluster, Name: f.service})
	case f.cluster != "" && f.job != "":
		return snap.Attempts(cluster.OwnerRef{Kind: cluster.KindJob, Cluster: f.cluster, Name: f.job})
	}
	return snap.AllAttempts()
}

// taskTopics are the topics of the list of tasks.
const taskTopics = store.TopicAttempts | ownerTopics

// pendingPart returns the part of the list that holds the pending tasks of an owner. The attempts of a task are in a
// part named after the task; no task id contains a slash.
func pendingPart(o cluster.OwnerRef) string { return "pending/" + o.Cluster + "/" + o.Name }

// packedPart returns the part of the list that holds the ranges of packed tasks of a job.
func packedPart(o cluster.OwnerRef) string { return "packed/" + o.Cluster + "/" + o.Name }

// taskPart returns the part of the list that holds a task.
func taskPart(i *lists.Item[api.TaskView]) string {
	if i.Value.State == cluster.StateSucceeded && i.Value.Node == "" { // a range has no node
		return packedPart(i.Value.Owner)
	}
	if i.Value.Attempt == 0 && i.Value.Node == "" {
		return pendingPart(i.Value.Owner)
	}
	return string(i.Value.ID)
}

// changed computes the parts of the list that changes touch. Whole says that they may touch all.
func (l taskList) changed(before *store.Snapshot, c *store.Changes,
) (parts map[string][]lists.Item[api.TaskView], whole bool) {
	owners, whole := changedOwners(l.Snapshot, c)
	if whole {
		return nil, true
	}
	tasks := map[cluster.TaskID]bool{}
	for key := range c.Attempts { // order-free: a set is filled
		tasks[key.Task] = true
	}
	for node := range c.Nodes { // order-free: a set is filled
		for row := range l.Snapshot.NodeAttempts(node) {
			tasks[row.Task] = true
		}
	}
	parts = map[string][]lists.Item[api.TaskView]{}
	for o := range owners { // order-free: each on its own
		if !l.filter.owner(o) {
			continue
		}
		parts[pendingPart(o)], parts[packedPart(o)] = nil, nil // its labels may be others now
		selected := l.selects(o)
		if selected && l.filter.includesPending() {
			parts[pendingPart(o)] = l.pendingTasks(o)
		}
		if selected && l.filter.includesPacked() && !l.filter.expandsPacked() && o.Kind == cluster.KindJob {
			parts[packedPart(o)] = l.packedTasks(o)
		}
		if o.Kind == cluster.KindJob || specRevision(before, o) != specRevision(l.Snapshot, o) {
			for row := range l.Snapshot.Attempts(o) {
				tasks[row.Task] = true
			}
		}
	}
	for id := range tasks { // order-free: each on its own
		var all []lists.Item[api.TaskView]
		for row := range l.Snapshot.TaskAttempts(id) {
			if v, ok := l.attemptView(row); ok {
				all = append(all, v)
			}
		}
		parts[string(id)] = all
	}
	return parts, false
}

// specRevision returns the revision of an owner's spec, 0 if it has none.
func specRevision(snap *store.Snapshot, o cluster.OwnerRef) uint64 {
	if o.Kind == cluster.KindJob {
		e, _ := snap.Job(o.Cluster, o.Name)
		return e.Modified
	}
	e, _ := snap.Service(o.Cluster, o.Name)
	return e.Modified
}
