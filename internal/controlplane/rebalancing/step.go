package rebalancing

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// step makes the next record of a rebalancing from the last one and the attempts of its tasks.
type step struct {
	rebalancing *Rebalancing
	snap        *store.Snapshot
	boot        time.Duration // boot-time clock
	now         time.Time
	rec         cluster.Rebalancing
	events      []cluster.Event
}

// advance follows the open moves, opens the next ones in their order, and ends the rebalancing if nothing is left to
// do.
func (s *step) advance() {
	r := s.rebalancing
	moving := 0
	for _, m := range s.movesIn(cluster.MoveMoving) {
		if o := r.open[m.UUID]; o != nil {
			was := o.closed
			s.followOpen(m, o)
			if o.closed = m.Over(); o.closed != was {
				s.rebalancing.config.MarkTask(m.Task)
			}
		}
		if !m.Over() {
			moving++
		}
	}
	for _, m := range s.movesIn(cluster.MoveWaiting) {
		switch {
		case s.rec.Cancelled:
			s.passOver(m, cluster.ReasonCancelled, "the rebalancing was cancelled")
		case moving < s.rec.Parallel && s.open(m):
			moving++
		}
	}
	if c := s.rec.Counts(); c.Waiting+c.Moving == 0 {
		s.finish(c)
	}
}

// movesIn returns the moves in a state.
func (s *step) movesIn(state cluster.RebalanceMoveState) (out []*cluster.RebalancingMove) {
	for i := range s.rec.Moves {
		if s.rec.Moves[i].State == state {
			out = append(out, &s.rec.Moves[i])
		}
	}
	return out
}

// open opens a move, or passes it over if its task was replaced or may not move now. It reports whether the move is
// open.
func (s *step) open(m *cluster.RebalancingMove) bool {
	h := progressOf(s.snap, m)
	if h.stage == staying {
		h = s.mayMove(m)
	}
	if h.stage != staying {
		s.passOver(m, h.reason, h.why)
		return false
	}
	m.Enter(cluster.MoveMoving, s.now)
	return true
}

// followOpen follows the task of an open move, and closes the move if the task has arrived or will not arrive.
func (s *step) followOpen(m *cluster.RebalancingMove, o *openMove) {
	h := progressOf(s.snap, m)
	if h.stage == staying {
		if o.onWaySince, o.placelessSince = 0, 0; s.rec.Cancelled {
			s.passOver(m, cluster.ReasonCancelled, "the rebalancing was cancelled")
			return
		}
		h = s.mayMove(m)
	}
	r := s.rebalancing
	switch h.stage {
	case diverted:
		s.passOver(m, h.reason, h.why)
	case staying:
		if s.boot-max(o.openSince, r.lastOnWay) < maxLeaveWait {
			return
		}
		if code, why := refusalAt(m.To, o.refused); code != "" {
			s.passOver(m, code, fmt.Sprintf("node %s had no room for it%s", m.To, withReason(why)))
			return
		}
		s.passOver(m, cluster.ReasonPermit,
			fmt.Sprintf("without it, its service would have been below min_healthy for %s", maxLeaveWait))
	case settled:
		r.lastOnWay = s.boot // its former place is free now
		m.Enter(cluster.MoveDone, s.now)
	case placeless, underway, arrived:
		s.followOnWay(m, o, h)
	}
}

// followOnWay follows a task that is on its way.
func (s *step) followOnWay(m *cluster.RebalancingMove, o *openMove, h moveProgress) {
	s.rebalancing.lastOnWay = s.boot
	if o.onWaySince == 0 {
		o.onWaySince = max(1, s.boot)
	}
	if h.stage != placeless {
		o.placelessSince = 0
	} else if o.placelessSince == 0 {
		o.placelessSince = max(1, s.boot)
	}
	switch limit := s.maxTimeOnWay(m.Task); {
	case h.stage == placeless && s.boot-o.placelessSince >= maxPlaceWait:
		w, _ := s.rebalancing.config.Reason(m.Task)
		code, why := refusalAt(m.To, w)
		s.passOver(m, cmp.Or(code, cluster.ReasonNodeNotReady),
			fmt.Sprintf("its room on node %s was taken, and it goes to another node%s", m.To, withReason(why)))
	case s.boot-o.onWaySince < limit:
	case h.stage == arrived: // its former attempt takes long to end
		m.Enter(cluster.MoveDone, s.now)
	default:
		s.passOver(m, cluster.ReasonDeadline,
			fmt.Sprintf("it was not healthy on node %s within %s", m.To, cluster.Duration(limit)))
	}
}

// maxTimeOnWay returns how long a task may be on its way.
func (s *step) maxTimeOnWay(task cluster.TaskID) time.Duration {
	healthy := cluster.DefaultHealthyDeadline
	if e, ok := s.serviceOf(task); ok {
		healthy = cmp.Or(e.Value.Update.HealthyDeadline, healthy)
	}
	return time.Duration(healthy) + settleMargin
}

// serviceOf returns the service of a task.
func (s *step) serviceOf(task cluster.TaskID) (store.Entry[cluster.Service], bool) {
	parts, _ := task.Parts()
	return s.snap.Service(parts.Cluster, parts.Owner)
}

// mayMove returns staying for a task that may move now, and otherwise why it may not: a rollout of its service moves
// tasks itself.
func (s *step) mayMove(m *cluster.RebalancingMove) moveProgress {
	e, ok := s.serviceOf(m.Task)
	if !ok {
		return moveProgress{diverted, cluster.ReasonDeleted, "there is no such service"}
	}
	r, ok := s.snap.Rollout(e.Value.Cluster, e.Value.Name)
	if !ok || r.Value.Generation != e.Value.Generation || !r.Value.State.Ended() {
		return moveProgress{diverted, cluster.ReasonRollout, "its service is in a rollout"}
	}
	return moveProgress{stage: staying}
}

// passOver passes a move over. It adds an event unless the move was cancelled.
func (s *step) passOver(m *cluster.RebalancingMove, reason cluster.ReasonCode, why string) {
	m.Pass(reason, why, s.now)
	if reason == cluster.ReasonCancelled {
		return
	}
	e := cluster.Event{
		Type: "rebalance.passed", Task: m.Task, Attempt: m.Attempt, Node: m.From, Reason: reason,
		Message: fmt.Sprintf("rebalancing %d skipped the move to node %s: %s", s.rec.ID, m.To, m.Why),
	}
	if o, ok := m.Task.Owner(); ok {
		e.Cluster, e.Owner = o.Cluster, &o
	}
	s.events = append(s.events, e)
}

// finish records that nothing is left to do.
func (s *step) finish(c cluster.RebalanceCounts) {
	s.rec.State, s.rec.Ended = cluster.RebalancingDone, s.now.UTC()
	if s.rec.Cancelled {
		s.rec.State = cluster.RebalancingCancelled
	}
	message := fmt.Sprintf("rebalancing %d is %s: %d moves, of which %d were carried out (gain %d points) and "+
		"%d skipped",
		s.rec.ID, s.rec.State, len(s.rec.Moves), c.Done, c.Gain, c.Passed)
	s.events = append(s.events,
		cluster.Event{
			Type: "rebalance.ended", Reason: cluster.ReasonRebalance, Count: c.Done, Message: message,
			By: s.rec.CancelledBy,
		})
}

// refusalAt returns the refusal of one node, from the refusals of all nodes to a task that may go to that node alone.
func refusalAt(node string, w cluster.Waiting) (cluster.ReasonCode, string) {
	// The other nodes refuse by this constraint.
	elsewhere := scheduler.Text(cluster.Constraint{Attribute: "node.name", Op: cluster.OpEqual, Value: node})
	for _, r := range w.Refusals {
		if r.Code != cluster.ReasonConstraint || r.Detail != elsewhere {
			return r.Code, scheduler.Sentence([]cluster.RefusalCount{{Refusal: r.Refusal}})
		}
	}
	if len(w.Refusals) > 0 {
		return cluster.ReasonNodeNotReady, "the node is gone"
	}
	return "", ""
}

// moveProgress is how far the task of a move got.
type moveProgress struct {
	stage  moveStage
	reason cluster.ReasonCode // of a diverted task, as is why
	why    string
}

// moveStage is where the task of a move is.
type moveStage int

const (
	staying   moveStage = iota // on the node that the task is to leave
	placeless                  // the task has left, or may end there, and its next attempt is not placed
	underway                   // the next attempt is on the other node, or the last one is about to end for it
	arrived                    // the next attempt is healthy there
	settled                    // the next attempt is healthy there, and nothing is left of the last one
	diverted                   // the task was replaced or stopped for another reason
)

// progressOf returns how far the task of a move got, by the records of its attempts alone.
func progressOf(snap *store.Snapshot, m *cluster.RebalancingMove) moveProgress {
	var old, newest *store.AttemptRow
	for row := range snap.TaskAttempts(m.Task) {
		if newest = row; row.Number == m.Attempt {
			old = row
		}
	}
	switch {
	case newest == nil || old == nil && newest.Number < m.Attempt:
		return moveProgress{diverted, cluster.ReasonDeleted, "the task is gone"}
	case old != nil && observe.UUID(old) != m.UUID:
		return moveProgress{diverted, cluster.ReasonReplaced, fmt.Sprintf("its attempt %d is another one", m.Attempt)}
	case newest.Number > m.Attempt:
		return progressWithNext(old, newest, m)
	case old.Outcome != nil && old.Outcome.Reason == cluster.ReasonRebalance:
		return moveProgress{stage: placeless}
	case old.Outcome != nil:
		return moveProgress{diverted, old.Outcome.Reason, "it ended before it moved" + withReason(old.Outcome.Message)}
	case old.Desired == nil || old.Desired.Stop == nil:
		return moveProgress{stage: staying}
	case old.Desired.Stop.Reason == cluster.ReasonRebalance:
		return moveProgress{stage: underway}
	}
	return moveProgress{
		diverted, old.Desired.Stop.Reason,
		"its stop was requested before it moved" + withReason(old.Desired.Stop.Message),
	}
}

// progressWithNext returns how far a task got that has a later attempt.
func progressWithNext(old, newest *store.AttemptRow, m *cluster.RebalancingMove) moveProgress {
	switch {
	case newest.Node != m.To:
		return moveProgress{
			diverted, cluster.ReasonReplaced,
			fmt.Sprintf("attempt %d of it is on node %s", newest.Number, newest.Node),
		}
	case newest.Outcome != nil:
		return moveProgress{
			diverted, newest.Outcome.Reason,
			fmt.Sprintf("attempt %d of it ended on node %s%s", newest.Number, newest.Node,
				withReason(newest.Outcome.Message)),
		}
	case !newest.Observed.Healthy() || newest.Desired == nil || newest.Desired.Stop != nil:
		return moveProgress{stage: underway}
	case old != nil && old.Standing() && (old.Observed == nil || !old.Observed.Gone):
		return moveProgress{stage: arrived}
	}
	return moveProgress{stage: settled}
}

// withReason returns a reason as the end of a sentence; empty for none.
func withReason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
