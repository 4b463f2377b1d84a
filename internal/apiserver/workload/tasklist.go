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
	"github.com/berthd/berth/internal/store"
)

// taskFilter says which tasks are asked for; an empty field asks for all.
type taskFilter struct {
	cluster, service, job, node string
	state                       cluster.State
	// all asks for every attempt that is known, not only for what lives, waits, or ended a job's task.
	all bool
	// caller, unless nil, sees some clusters only.
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

// taskList lists the tasks of a snapshot that a filter takes.
type taskList struct {
	*views.Builder

	filter taskFilter
}

// all lists the views of the tasks that the filter takes.
func (l taskList) all() []lists.Item[api.TaskView] {
	var out []lists.Item[api.TaskView]
	for row := range l.filter.rows(l.Snapshot) {
		if v, ok := l.attemptView(row); ok {
			out = append(out, v)
		}
	}
	if l.filter.takesPending() {
		for o := range snapshot.Owners(l.Snapshot, l.filter.cluster) {
			if l.filter.owner(o) {
				out = append(out, l.pendingTasks(o)...)
			}
		}
	}
	slices.SortFunc(out, func(a, b lists.Item[api.TaskView]) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// attemptView shows an attempt; ok is false where the filter leaves it out.
func (l taskList) attemptView(row *store.AttemptRow) (shown lists.Item[api.TaskView], ok bool) {
	owner, known := row.Ref()
	if known && !l.filter.owner(owner) || !known && l.filter.caller != nil && !l.filter.caller.Sees("") ||
		l.filter.node != "" && row.Node != l.filter.node {
		return shown, false
	}
	v := l.Task(row)
	if l.filter.state != "" && v.State != l.filter.state {
		return shown, false
	}
	if !l.filter.all && v.State.Terminal() && (v.Owner.Kind != cluster.KindJob || !l.Concludes(row)) {
		return shown, false
	}
	return lists.Item[api.TaskView]{Key: views.TaskKey(v.ID, v.Attempt), Value: v}, true
}

// takesPending reports whether the filter takes any task that waits: these are on no node.
func (f *taskFilter) takesPending() bool {
	return f.node == "" && (f.state == "" || f.state == cluster.StatePending)
}

// pendingTasks shows the tasks of an owner that wait: they are stored nowhere, but follow from its spec.
func (l taskList) pendingTasks(o cluster.OwnerRef) (all []lists.Item[api.TaskView]) {
	pending := l.Pending(o)
	for i := range pending {
		v := l.PendingTask(&pending[i])
		if l.filter.state == "" || v.State == l.filter.state {
			all = append(all, lists.Item[api.TaskView]{Key: views.TaskKey(v.ID, v.Attempt), Value: v})
		}
	}
	return all
}

// rows returns the attempts among which the filter chooses.
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

// taskTopics are what the list of tasks reads.
const taskTopics = store.TopicAttempts | ownerTopics

// pendingPart names the part of the list of tasks that holds the pending tasks of an owner. The part of the attempts of
// a task is named as the task, and no id of a task has a slash.
func pendingPart(o cluster.OwnerRef) string { return "pending/" + o.Cluster + "/" + o.Name }

// taskPart returns which part of the list a task is in.
func taskPart(i *lists.Item[api.TaskView]) string {
	if i.Value.Attempt == 0 && i.Value.Node == "" {
		return pendingPart(i.Value.Owner)
	}
	return string(i.Value.ID)
}

// changed computes the parts of a list of tasks that changes touched. Whole says that it may be all.
func (l taskList) changed(before *store.Snapshot, c *store.Changes,
) (parts map[string][]lists.Item[api.TaskView], whole bool) {
	owners, whole := changedOwners(l.Snapshot, c)
	if whole {
		return nil, true
	}
	tasks := map[cluster.TaskID]bool{}
	for key := range c.Attempts { // order-free: into a set
		tasks[key.Task] = true
	}
	for node := range c.Nodes { // order-free: into a set
		for row := range l.Snapshot.NodeAttempts(node) {
			tasks[row.Task] = true
		}
	}
	parts = map[string][]lists.Item[api.TaskView]{}
	for o := range owners { // order-free: each is computed by itself
		if !l.filter.owner(o) {
			continue
		}
		if l.filter.takesPending() {
			parts[pendingPart(o)] = l.pendingTasks(o)
		}
		if o.Kind == cluster.KindJob || specRevision(before, o) != specRevision(l.Snapshot, o) {
			for row := range l.Snapshot.Attempts(o) {
				tasks[row.Task] = true
			}
		}
	}
	for id := range tasks { // order-free: each is computed by itself
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

// specRevision returns the revision of an owner's spec, 0 where it has none.
func specRevision(snap *store.Snapshot, o cluster.OwnerRef) uint64 {
	if o.Kind == cluster.KindJob {
		e, _ := snap.Job(o.Cluster, o.Name)
		return e.Modified
	}
	e, _ := snap.Service(o.Cluster, o.Name)
	return e.Modified
}
