package workload

import (
	"iter"
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

// page returns the views of the selected tasks in a window, and the next one. The tasks of all owners may be a million,
// so it computes those of the owners that the window reaches.
func (l taskList) page(w lists.Window) []lists.Item[api.TaskView] {
	byKey := func(a, b lists.Item[api.TaskView]) int { return strings.Compare(a.Key, b.Key) }
	var attempts, out []lists.Item[api.TaskView]
	for row := range l.filter.rows(l.Snapshot) {
		if v, ok := l.attemptView(row); ok && (w.After == "" || v.Key > w.After) {
			attempts = append(attempts, v)
		}
	}
	slices.SortFunc(attempts, byKey)
	owners := slices.SortedFunc(snapshot.Owners(l.Snapshot, l.filter.cluster), func(a, b cluster.OwnerRef) int {
		return strings.Compare(keysOf(a), keysOf(b))
	})
	for i, o := range owners {
		if w.Limit > 0 {
			before, _ := slices.BinarySearchFunc(attempts, keysOf(o), func(v lists.Item[api.TaskView], key string) int {
				return strings.Compare(v.Key, key)
			})
			if len(out)+before > w.Limit { // the keys of the remaining owners are higher
				attempts = attempts[:before]
				break
			}
		}
		isBefore := i+1 < len(owners) && keysOf(owners[i+1]) <= w.After
		if isBefore || !l.selects(o) {
			continue
		}
		var tasks []lists.Item[api.TaskView]
		if l.filter.includesPending() {
			tasks = l.pendingTasks(o)
		}
		if l.filter.includesPacked() && o.Kind == cluster.KindJob {
			tasks = append(tasks, l.packedTasks(o)...)
		}
		for _, v := range tasks {
			if w.After == "" || v.Key > w.After {
				out = append(out, v)
			}
		}
	}
	out = append(out, attempts...)
	slices.SortFunc(out, byKey)
	return out
}

// keysOf returns what the keys of all tasks of an owner, and of no other one, begin with.
func keysOf(o cluster.OwnerRef) string { return o.Cluster + "." + o.Name + "." }

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
