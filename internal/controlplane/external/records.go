package external

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// recordKey is the key of a record that another program wrote, in a domain whose scheduler has the type kv (P3.9).
type recordKey struct {
	node string
	task cluster.TaskID
}

// TakeRecord takes the record of another program at the key of a desired record as a command, if the domain's
// scheduler has the type kv. It reports whether the record stays until the command is carried out or refused; otherwise
// the leader replaces or deletes it now. refusal is why the command was refused, "" if it was not.
//
// A record that stays is the command itself: the next leader takes it again.
func (s *Scheduler) TakeRecord(in *Inputs, row *store.AttemptRow) (stays bool, refusal string) {
	if !s.record.HasKVScheduler() || s.config.BuiltinAlone {
		return false, ""
	}
	if !cluster.ValidNodeName(row.Node) { // it is removed as a stray
		return true, ""
	}
	if observe.IsCommand(in.Domain.Snapshot, row) {
		if hasRemains(in.Domain.Snapshot, row) { // whose removal the record hinders (P3.6)
			return false, "an earlier attempt of the task is still on the node"
		}
		s.records[recordKey{row.Node, row.Task}] = true
		return true, ""
	}
	if row.Foreign.Fault != nil {
		return false, row.Foreign.Fault.Error()
	}
	switch {
	case !bool(row.Foreign.Command.Stop) && row.IsForeign():
		return false, "it may have replaced a record of Berth; create the key instead"
	case !bool(row.Foreign.Command.Stop):
		return false, ""
	}
	if row.IsForeign() { // the record that it replaced is made again from the agent's report, and is not known yet
		return false, "no server knew the record that it replaced; write it again"
	}
	return s.takeStop(in, row)
}

// takeStop takes the command of a record to end the attempt that it replaced the record of.
func (s *Scheduler) takeStop(in *Inputs, row *store.AttemptRow) (stays bool, refusal string) {
	c, uuid := &row.Foreign.Command, observe.UUID(row)
	switch {
	case s.leaving[uuid] != nil:
		return true, ""
	case row.Outcome != nil || row.Desired == nil || row.Desired.Stop != nil:
		return false, ""
	case c.Attempt != 0 && c.Attempt != row.Number || c.UUID != "" && c.UUID != uuid:
		return false, fmt.Sprintf("attempt %d with the uuid %s is on the node", row.Number, uuid)
	case s.takeExpired(row):
		return false, expiredText
	case awaitsReports(in, row):
		s.undecided[row.Task] = true
		return true, ""
	}
	var out cluster.ProposalResult
	command := cluster.ProposalCommand{
		Action: cluster.ProposeEvict, Task: row.Task, UUID: uuid, Reason: c.Reason,
	}
	if !s.mayLeave(in, row, &command, &out) {
		return false, out.Message
	}
	s.leave(in, row, &command, row)
	return true, ""
}

// awaitsReports reports whether the leader has yet to hear of attempts of the owner of an attempt, and so cannot tell
// whether the owner can spare one.
func awaitsReports(in *Inputs, row *store.AttemptRow) bool {
	o, _ := row.Ref()
	for other := range in.Domain.Snapshot.Attempts(o) {
		if !other.IsForeign() && other.Outcome == nil && isAwaited(in, other.Node) {
			return true
		}
	}
	return false
}

// expiredText is why a task did not leave its node within leaveTimeout.
const expiredText = "its service could not spare the task for 30 seconds"

// takeExpired reports whether the task of a record could not leave its node in time, and forgets it.
func (d *departures) takeExpired(record *store.AttemptRow) bool {
	key := recordKey{record.Node, record.Task}
	expired := d.expired[key] == record.DesiredRev
	delete(d.expired, key)
	return expired
}

// hasRemains reports whether records of an attempt of a row's task are on the row's node.
func hasRemains(snap *store.Snapshot, row *store.AttemptRow) bool {
	for other := range snap.TaskAttempts(row.Task) {
		if !other.IsForeign() && other.Node == row.Node && other.Standing() {
			return true
		}
	}
	return false
}

// liveElsewhere returns the attempt of a row's task on another node that has not ended, or nil.
func liveElsewhere(snap *store.Snapshot, row *store.AttemptRow) *store.AttemptRow {
	for other := range snap.TaskAttempts(row.Task) {
		if !other.IsForeign() && other.Node != row.Node && other.Outcome == nil {
			return other
		}
	}
	return nil
}

// commands returns the records that command to start or to move a task, the oldest first.
func (s *Scheduler) commands(snap *store.Snapshot) []*store.AttemptRow {
	rows := make([]*store.AttemptRow, 0, len(s.records))
	for key := range s.records { // order-free: sorted
		row, ok := snap.ForeignRow(key.node, key.task)
		if !ok || !observe.IsCommand(snap, row) {
			delete(s.records, key)
			continue
		}
		if cluster.ValidNodeName(row.Node) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *store.AttemptRow) int {
		return cmp.Or(cmp.Compare(a.DesiredRev, b.DesiredRev), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Node, b.Node))
	})
	return rows
}

// checkRecords checks the commands in records: it refuses some, has tasks leave for others, and returns the requests of
// those that start a pending task.
func (r *Round) checkRecords(in *Inputs) (asked []cluster.Pending) {
	s := r.scheduler
	rows := s.commands(in.Domain.Snapshot)
	if len(rows) == 0 {
		return nil
	}
	tasks := make([]cluster.TaskID, len(rows))
	for i, row := range rows {
		tasks[i] = row.Task
	}
	slices.Sort(tasks)
	single := isolate(in.Pending, slices.Compact(tasks))
	for _, row := range rows {
		o, ok := row.Ref()
		c := &row.Foreign.Command
		switch live := liveElsewhere(in.Domain.Snapshot, row); {
		case !ok || s.config.IsUndecided(o): // the decision about the owner comes first
		case row.Foreign.Fault != nil:
			r.refuseRecord(row, cluster.ReasonScheduler, row.Foreign.Fault.Error())
		case bool(c.Stop):
			r.refuseRecord(row, cluster.ReasonStale, "no attempt of the task is on the node")
		case !isInFleet(in, row.Node):
			r.refuseRecord(row, cluster.ReasonStale, "the domain has no node "+row.Node)
		case s.takeExpired(row):
			r.refuseRecord(row, cluster.ReasonPermit, expiredText)
		case live != nil:
			r.moveByRecord(in, row, live)
		default:
			if p := r.pendingOf(in, row, single[row.Task]); p != nil {
				r.records[row.Task] = row
				asked = append(asked, *p)
			}
		}
	}
	return r.keepWholeGangs(asked)
}

// keepWholeGangs leaves out the requests of gangs of which some tasks have no record yet: these records wait.
func (r *Round) keepWholeGangs(asked []cluster.Pending) []cluster.Pending {
	tasks := map[string]int{}
	for i := range asked {
		tasks[asked[i].Gang]++
	}
	return slices.DeleteFunc(asked, func(p cluster.Pending) bool {
		isPart := p.Gang != "" && tasks[p.Gang] < p.GangSize
		if isPart {
			delete(r.records, p.Task)
		}
		return isPart
	})
}

// isAwaited reports whether a node joins, or whether the leader has not heard a ready node yet.
func isAwaited(in *Inputs, node string) bool {
	n, ok := in.Domain.Snapshot.Node(node)
	return ok && (n.Value.State == cluster.NodeJoining ||
		n.Value.State == cluster.NodeReady && !in.Domain.Leader.HasReported(node))
}

func isInFleet(in *Inputs, node string) bool {
	_, _, ok := in.Fleet.Node(node)
	return ok
}

// pendingOf returns the request for the pending task that a record starts, or nil if the command is refused or has to
// wait. p is the task as it waits for any node, nil if it does not.
func (r *Round) pendingOf(in *Inputs, row *store.AttemptRow, p *cluster.Pending) *cluster.Pending {
	stale := func(format string, args ...any) *cluster.Pending {
		r.refuseRecord(row, cluster.ReasonStale, fmt.Sprintf(format, args...))
		return nil
	}
	o, _ := row.Ref()
	attempt := row.Foreign.Command.Attempt
	switch {
	case p == nil:
		bound := isolate(r.scheduler.config.Pending(o), []cluster.TaskID{row.Task})[row.Task]
		switch {
		case bound != nil && bound.OnlyNode == row.Node:
			return nil // it is placed there without a command
		case bound != nil:
			return stale("the task is for the node %s alone", bound.OnlyNode)
		case r.mayBecomePending(in, row.Task):
			return nil
		}
		return stale("no service or job needs the task")
	case attempt != 0 && attempt != p.Attempt:
		return stale("attempt %d of the task waits, not attempt %d", p.Attempt, attempt)
	case r.records[row.Task] != nil:
		return stale("another record starts it on the node %s", r.records[row.Task].Node)
	case isAwaited(in, row.Node), heldText(p) != "": // the task starts there as soon as it may
		return nil
	}
	one := *p
	one.OnlyNode = row.Node
	return &one
}

// mayBecomePending reports whether a task that is not pending is one that its service or job may need: a rollout has
// not come to it yet, or a step before it has not ended.
func (r *Round) mayBecomePending(in *Inputs, task cluster.TaskID) bool {
	parts, _ := task.Parts()
	if parts.Step == "" {
		e, ok := in.Domain.Snapshot.Service(parts.Cluster, parts.Owner)
		scale, _ := in.Domain.Snapshot.Scale(parts.Cluster, parts.Owner)
		return ok && !e.Value.Deleted && e.Value.Mode != cluster.ModeDaemon &&
			e.Value.Generation == parts.Generation && parts.Index < e.Value.At(scale.Value).Count
	}
	o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: parts.Cluster, Name: parts.Owner}
	e, ok := in.Domain.Snapshot.Job(parts.Cluster, parts.Owner)
	if !ok || e.Value.Deleted || e.Value.Cancelled || e.Value.Generation != parts.Generation {
		return false
	}
	left, known := r.jobs[o]
	if !known {
		left = newRemainder(in.Domain.JobInput(o, e, in.Domain.Tasks(o)))
		r.jobs[o] = left
	}
	for row := range in.Domain.Snapshot.TaskAttempts(task) {
		if row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded {
			return false
		}
	}
	return parts.Index < left.count[parts.Step] && !left.failed[task]
}

// remainder is what may still begin of a job.
type remainder struct {
	count  map[string]int // the tasks of each step that has not ended
	failed map[cluster.TaskID]bool
}

func newRemainder(in reconciler.JobInput) remainder {
	left := remainder{count: map[string]int{}, failed: map[cluster.TaskID]bool{}}
	for _, step := range reconciler.StatusOfJob(in).Steps {
		if !step.State.Ended() {
			left.count[step.Name] = in.Spec.Step(step.Name).Count
		}
	}
	for _, t := range reconciler.FailedTasks(in) {
		left.failed[t.ID] = true
	}
	return left
}

// moveByRecord has a running task leave for the node of a record. The record waits for it.
func (r *Round) moveByRecord(in *Inputs, row, live *store.AttemptRow) {
	s, uuid := r.scheduler, observe.UUID(live)
	switch l := s.leaving[uuid]; {
	case l != nil && (l.leave.To == "" || l.leave.To == row.Node), live.Desired == nil, live.Desired.Stop != nil:
		return
	case l != nil:
		r.refuseRecord(row, cluster.ReasonStale, "the task moves to the node "+l.leave.To)
		return
	case isAwaited(in, row.Node), awaitsReports(in, live):
		return
	}
	var out cluster.ProposalResult
	c := cluster.ProposalCommand{
		Action: cluster.ProposeMove, Task: row.Task, Node: row.Node, UUID: uuid, Reason: row.Foreign.Command.Reason,
	}
	if !s.mayLeave(in, live, &c, &out) {
		r.refuseRecord(row, out.Code, out.Message)
		return
	}
	s.leave(in, live, &c, row)
}

// refuseRecord deletes the record of a command that is refused, with the event that says why.
func (r *Round) refuseRecord(row *store.AttemptRow, code cluster.ReasonCode, why string) {
	key := r.scheduler.config.Prefix.Desired(row.Node, row.Task)
	o, _ := row.Ref()
	var u store.Unit
	u.Compare(key, row.DesiredRev)
	u.Delete(key)
	u.Event(cluster.Event{
		Type: "task.record-refused", Cluster: o.Cluster, Owner: &o, Task: row.Task, Node: row.Node, Reason: code,
		Message: "the record of another program was refused: " + why,
	})
	r.Refusals = append(r.Refusals, u)
}
