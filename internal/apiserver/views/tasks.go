package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// TaskKey returns the key of a task in lists, ordered by cluster, owner, generation, step, index and attempt.
func TaskKey(id cluster.TaskID, attempt int) string {
	p, ok := id.Parts()
	if !ok {
		return string(id)
	}
	return fmt.Sprintf("%s.%s.%020d.%s.%06d/%06d", p.Cluster, p.Owner, p.Generation, p.Step, p.Index, attempt)
}

// IsFinal reports whether an ended attempt concludes a task of a job: it is the newest attempt of the newest
// generation, and no other attempt is pending.
func (b *Builder) IsFinal(row *store.AttemptRow) bool {
	b = b.ofTask(row.Task)
	snap := b.Snapshot
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
	return !b.queue.pendingOf(job.Value.Owner()).has(row.Task)
}

// Task shows an attempt with its usage.
func (b *Builder) Task(row *store.AttemptRow) api.TaskView {
	b = b.ofTask(row.Task)
	v := taskView(b.Snapshot, row)
	v.Used = b.use(row)
	if p := b.Records.Pressure(row); p != nil {
		v.Pressed = cmp.Or(p.Why, p.Message)
	}
	v.Misplaced = b.violationText(row)
	return v
}

// taskView shows an attempt as its records have it.
func taskView(snap *store.Snapshot, row *store.AttemptRow) api.TaskView {
	shown := lifecycle.Shown(row.Attempt)
	o := row.Observed
	leaving := isMoving(row) && o != nil && o.UUID == row.Outcome.UUID && o.State == cluster.StateRunning
	if leaving { // it has its outcome, and runs until the next attempt is healthy
		shown.State, shown.Health = o.State, o.Health
	}
	v := api.TaskView{
		ID: row.Task, Attempt: row.Number, Node: row.Node,
		State: shown.State, Health: shown.Health, Reason: shown.Reason, Message: shown.Message,
	}
	v.Owner, _ = row.Ref()
	if p, ok := row.Task.Parts(); ok {
		v.Generation, v.Step, v.Index = p.Generation, p.Step, p.Index
		v.Parameters, _ = snap.ParametersOf(p)
		if v.Owner.Name == "" {
			v.Owner, _ = row.Task.Owner()
		}
	}
	if d := row.Desired; d != nil {
		v.UUID, v.Definition, v.Ports, v.Placed = d.UUID, d.Definition, d.Ports, d.Placed
	}
	if o := row.Observed; o != nil && (v.UUID == "" || o.UUID == v.UUID) {
		v.UUID = o.UUID
		v.Started, v.Finished, v.Restarts = o.Started, o.Finished, o.Restarts
		v.Containers, v.LogTail = o.Containers, o.LogTail
		if v.State == cluster.StateStarting || v.State == cluster.StatePreparing {
			v.NextStart = o.NextStart
		}
	}
	if o := row.Outcome; o != nil && !leaving {
		v.UUID, v.Definition = o.UUID, o.Definition
		v.Placed, v.Started, v.Finished = o.Placed, o.Begun, o.Ended
		v.Exit, v.LogTail = o.Exit, o.LogTail
	}
	switch {
	case observe.IsCommand(snap, row):
		v.Message = "a record of another program: the task starts here once its service or job needs it"
	case row.IsUnreadable():
		v.Message = "unreadable or foreign record in the store; the task stays until its node reports"
	}
	if strings.HasPrefix(v.Message, cluster.MessageMovesOff) && (!isMoving(row) || !observe.HoldsRoom(row)) {
		v.Message = fmt.Sprintf("moved off node %s (drained), replaced by another attempt", v.Node)
	}
	before, _, ok := strings.Cut(v.Message, cluster.MessageMoves)
	if ok && (!isMoving(row) || !observe.HoldsRoom(row)) {
		v.Message = before + ": moved, replaced by another attempt"
	}
	markSilent(snap, row, &v)
	if status, ok := snap.NodeStatus(v.Node); ok {
		v.Address = status.Value.Facts.Address
	}
	return v
}

// SteadyTask returns a task's view without the fields that change all the time.
func SteadyTask(v api.TaskView) api.TaskView {
	v.Used, v.Pressed = nil, ""
	return v
}

// markSilent changes the view of an attempt on a node that is down: its last known state may be outdated.
func markSilent(snap *store.Snapshot, row *store.AttemptRow, v *api.TaskView) {
	node, ok := snap.Node(row.Node)
	if !ok || node.Value.State != cluster.NodeDown || v.State.Terminal() || !observe.HoldsRoom(row) {
		return
	}
	v.Reason = cluster.ReasonNodeDown
	if v.Health != "" {
		v.Health = cluster.HealthUnknown
	}
	v.Message = fmt.Sprintf("node %s is silent: the state of the task is unknown", row.Node)
	if d := row.Desired; d != nil && d.OnDisconnect == cluster.DisconnectWait {
		v.Message = fmt.Sprintf("node %s is silent, the task waits for it (on_disconnect: wait); if it never "+
			"comes back: `%s %s`", row.Node, cluster.ForgetCommand, row.Node)
	}
}

// PendingTask shows a pending task with the scheduler's reason, or else the end of its last attempt. A request for
// several tasks is one view.
func (b *Builder) PendingTask(w *cluster.Pending) api.TaskView {
	b = b.ofTask(w.Task)
	id := w.Task
	v := api.TaskView{ID: id, Owner: w.Owner, Definition: w.Definition, State: cluster.StatePending}
	if p, ok := id.Parts(); ok {
		v.Generation, v.Step, v.Index = p.Generation, p.Step, p.Index
		if v.Further = w.Further; v.Further == 0 {
			v.Parameters, _ = b.Snapshot.ParametersOf(p)
		}
	}
	if why, ok := b.waitingReason(id); ok {
		v.Message = why.Sentence
		if len(why.Refusals) > 0 {
			v.Reason = why.Refusals[0].Code
		}
		return v
	}
	var last *store.AttemptRow
	for row := range b.Snapshot.TaskAttempts(id) {
		last = row
	}
	if last != nil {
		shown := lifecycle.Shown(last.Attempt)
		v.Reason = shown.Reason
		v.Message = fmt.Sprintf("attempt %d %s", last.Number, shown.State) + respond.Suffix(shown.Message)
	}
	return v
}
