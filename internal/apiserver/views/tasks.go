package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// TaskKey orders tasks by cluster, owner, generation, step, index and attempt.
func TaskKey(id cluster.TaskID, attempt int) string {
	p, ok := id.Parts()
	if !ok {
		return string(id)
	}
	return fmt.Sprintf("%s.%s.%020d.%s.%06d/%06d", p.Cluster, p.Owner, p.Generation, p.Step, p.Index, attempt)
}

// Concludes reports whether an ended attempt is the last word on a task of a job: it is the newest one, of the
// newest generation, and the task does not wait for another.
func (l *Builder) Concludes(row *store.AttemptRow) bool {
	snap := l.Snapshot
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

// Task shows one attempt, with what it uses.
func (l *Builder) Task(row *store.AttemptRow) api.TaskView {
	v := taskView(l.Snapshot, row)
	v.Used = l.use(row)
	if p := l.Records.Pressure(row); p != nil {
		v.Pressed = cmp.Or(p.Why, p.Message)
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

// SteadyTask returns a task's view without what changes all the time.
func SteadyTask(v api.TaskView) api.TaskView {
	v.Used, v.Pressed = nil, ""
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

// PendingTask shows a task that waits, with the scheduler's reason or else what became of its last attempt.
func (l *Builder) PendingTask(w *cluster.Pending) api.TaskView {
	id := w.Task
	v := api.TaskView{ID: id, Owner: w.Owner, Definition: w.Definition, State: cluster.StatePending}
	if p, ok := id.Parts(); ok {
		v.Generation, v.Step, v.Index = p.Generation, p.Step, p.Index
	}
	if l.source.Leader.Reasons != nil {
		if why, ok := l.source.Leader.Reasons.Waiting(id); ok {
			v.Message = why.Sentence
			if len(why.Refusals) > 0 {
				v.Reason = why.Refusals[0].Code
			}
			return v
		}
	}
	var last *store.AttemptRow
	for row := range l.Snapshot.TaskAttempts(id) {
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
