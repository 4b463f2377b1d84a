package apiserver

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/observe"
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

// taskKey orders tasks by cluster, owner, generation, step, index and attempt.
func taskKey(id cluster.TaskID, attempt int) string {
	p, ok := id.Parts()
	if !ok {
		return string(id)
	}
	return fmt.Sprintf("%s.%s.%020d.%s.%06d/%06d", p.Cluster, p.Owner, p.Generation, p.Step, p.Index, attempt)
}

// tasks lists the views of the tasks that a filter takes.
func (l *look) tasks(f taskFilter) []lists.Item[api.TaskView] {
	var out []lists.Item[api.TaskView]
	for row := range f.rows(l.snap) {
		if v, ok := l.attemptView(f, row); ok {
			out = append(out, v)
		}
	}
	if f.takesPending() {
		for o := range snapshot.Owners(l.snap, f.cluster) {
			if f.owner(o) {
				out = append(out, l.pendingTasks(f, o)...)
			}
		}
	}
	slices.SortFunc(out, func(a, b lists.Item[api.TaskView]) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// attemptView shows an attempt; ok is false where the filter leaves it out.
func (l *look) attemptView(f taskFilter, row *store.AttemptRow) (shown lists.Item[api.TaskView], ok bool) {
	owner, known := row.Ref()
	if known && !f.owner(owner) || !known && f.caller != nil && !f.caller.Sees("") || f.node != "" &&
		row.Node != f.node {
		return shown, false
	}
	v := l.taskView(row)
	if f.state != "" && v.State != f.state {
		return shown, false
	}
	if !f.all && v.State.Terminal() && (v.Owner.Kind != cluster.KindJob || !l.concludes(row)) {
		return shown, false
	}
	return lists.Item[api.TaskView]{Key: taskKey(v.ID, v.Attempt), Value: v}, true
}

// takesPending reports whether the filter takes any task that waits: these are on no node.
func (f *taskFilter) takesPending() bool {
	return f.node == "" && (f.state == "" || f.state == cluster.StatePending)
}

// pendingTasks shows the tasks of an owner that wait: they are stored nowhere, but follow from its spec.
func (l *look) pendingTasks(f taskFilter, o cluster.OwnerRef) (all []lists.Item[api.TaskView]) {
	pending := l.owner(o).pending
	for i := range pending {
		v := l.pendingView(&pending[i])
		if f.state == "" || v.State == f.state {
			all = append(all, lists.Item[api.TaskView]{Key: taskKey(v.ID, v.Attempt), Value: v})
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

// concludes reports whether an ended attempt is the last word on a task of a job: it is the newest one, of the
// newest generation, and the task does not wait for another.
func (l *look) concludes(row *store.AttemptRow) bool {
	snap := l.snap
	for later := range snap.TaskAttempts(row.Task) {
		if later.Number > row.Number {
			return false
		}
	}
	p, ok := row.Task.Parts()
	if !ok {
		return true
	}
	job, ok := snap.Job(p.Cluster, p.Owner)
	if !ok {
		return true
	}
	if job.Value.Generation != p.Generation {
		return false
	}
	return !l.owner(job.Value.Owner()).waits[row.Task]
}

// taskView shows one attempt, with what it uses.
func (l *look) taskView(row *store.AttemptRow) api.TaskView {
	v := taskView(l.snap, row)
	v.Used = l.use(row)
	if p := l.Pressure(row); p != nil {
		v.Pressed = orElse(p.Why, p.Message)
	}
	v.Misplaced = l.misplaced(row)
	return v
}

// taskView shows what the records say of one attempt.
func taskView(snap *store.Snapshot, row *store.AttemptRow) api.TaskView {
	shown := lifecycle.Shown(row.Attempt)
	o := row.Observed
	leaving := moves(row) && o != nil && o.UUID == row.Outcome.UUID && o.State == cluster.StateRunning
	if leaving { // its outcome is written, and it goes on until the next attempt is healthy
		shown.State, shown.Health = o.State, o.Health
	}
	v := api.TaskView{
		ID: row.Task, Attempt: row.Number, Node: row.Node,
		State: shown.State, Health: shown.Health, Reason: shown.Reason, Message: shown.Message,
	}
	v.Owner, _ = row.Ref()
	if p, ok := row.Task.Parts(); ok {
		v.Generation, v.Step, v.Index = p.Generation, p.Step, p.Index
		if v.Owner.Name == "" {
			v.Owner = cluster.OwnerRef{Kind: snapshot.KindOf(p), Cluster: p.Cluster, Name: p.Owner}
		}
	}
	if d := row.Desired; d != nil {
		v.UUID, v.Definition, v.Ports, v.Placed = d.UUID, d.Definition, d.Ports, d.Placed
	}
	if o := row.Observed; o != nil && (v.UUID == "" || o.UUID == v.UUID) {
		v.UUID = o.UUID
		v.Started, v.Finished, v.Restarts = o.Started, o.Finished, o.Restarts
		v.Containers, v.LogTail = o.Containers, o.LogTail
	}
	if o := row.Outcome; o != nil && !leaving {
		v.UUID, v.Definition = o.UUID, o.Definition
		v.Placed, v.Started, v.Finished = o.Placed, o.Begun, o.Ended
		v.Exit, v.LogTail = o.Exit, o.LogTail
	}
	if row.Unreadable {
		v.Message = "its record in the store cannot be read or is another's; it stays on its node until " +
			"that has reported"
	}
	if strings.HasPrefix(v.Message, movesOff) && (!moves(row) || !observe.HoldsRoom(row)) {
		v.Message = fmt.Sprintf("it moved off node %s, which was drained, and another attempt took its place", v.Node)
	}
	if before, _, ok := strings.Cut(v.Message, movesOn); ok && (!moves(row) || !observe.HoldsRoom(row)) {
		v.Message = before + ": it moved, and another attempt took its place"
	}
	tellSilent(snap, row, &v)
	if status, ok := snap.NodeStatus(v.Node); ok {
		v.Address = status.Value.Facts.Address
	}
	return v
}

// movesOff is how the outcome of an attempt begins that moves off a drained node; it is written before the attempt has
// left.
const movesOff = "it moves off node "

// movesOn is how that of one ends that moves for another reason.
const movesOn = ": it moves, and runs on until "

// tellSilent says of what stands on a node that is down that nobody knows how it does: what was seen last may be long
// over.
func tellSilent(snap *store.Snapshot, row *store.AttemptRow, v *api.TaskView) {
	node, ok := snap.Node(row.Node)
	if !ok || node.Value.State != cluster.NodeDown || v.State.Terminal() || !observe.HoldsRoom(row) {
		return
	}
	v.Reason = cluster.ReasonNodeDown
	if v.Health != "" {
		v.Health = cluster.HealthUnknown
	}
	v.Message = fmt.Sprintf("node %s is silent: nobody knows how it does there", row.Node)
	if d := row.Desired; d != nil && d.OnDisconnect == cluster.DisconnectWait {
		v.Message = fmt.Sprintf("node %s is silent, and the task waits for it (on_disconnect: wait); if the "+
			"machine never comes back: `berth node forget %s`", row.Node, row.Node)
	}
}

// pendingView shows a task that waits, with the scheduler's reason or else what became of its last attempt.
func (l *look) pendingView(w *cluster.Pending) api.TaskView {
	id := w.Task
	v := api.TaskView{ID: id, Owner: w.Owner, Definition: w.Definition, State: cluster.StatePending}
	if p, ok := id.Parts(); ok {
		v.Generation, v.Step, v.Index = p.Generation, p.Step, p.Index
	}
	if l.reasons != nil {
		if why, ok := l.reasons.Waiting(id); ok {
			v.Message = why.Sentence
			if len(why.Refusals) > 0 {
				v.Reason = why.Refusals[0].Code
			}
			return v
		}
	}
	var last *store.AttemptRow
	for row := range l.snap.TaskAttempts(id) {
		last = row
	}
	if last != nil {
		shown := lifecycle.Shown(last.Attempt)
		v.Reason = shown.Reason
		v.Message = fmt.Sprintf("attempt %d %s", last.Number, shown.State)
		if shown.Message != "" {
			v.Message += ": " + shown.Message
		}
	}
	return v
}
