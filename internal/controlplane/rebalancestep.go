package controlplane

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// rebalanceStep makes the next record of a rebalancing out of the last one and what the tables tell of the tasks.
type rebalanceStep struct {
	loop   *loop
	snap   *store.Snapshot
	now    time.Duration // on the boot-time clock
	rec    cluster.Rebalancing
	events []cluster.Event
}

// advance sees how the open moves come along, opens the next ones in their order, and ends what has nothing left to do.
func (s *rebalanceStep) advance() {
	r := s.loop.rebalancing
	moving := 0
	for _, m := range s.each(cluster.MoveMoving) {
		if o := r.open[m.UUID]; o != nil {
			was := o.closed
			s.follow(m, o)
			if o.closed = m.Over(); o.closed != was {
				s.loop.dirtyTask(m.Task)
			}
		}
		if !m.Over() {
			moving++
		}
	}
	for _, m := range s.each(cluster.MoveWaiting) {
		switch {
		case s.rec.Cancelled:
			s.pass(m, cluster.ReasonCancelled, "the rebalancing was cancelled")
		case moving < s.rec.Parallel && s.begin(m):
			moving++
		}
	}
	if c := s.rec.Counts(); c.Waiting+c.Moving == 0 {
		s.end(c)
	}
}

// each returns the moves in a state.
func (s *rebalanceStep) each(state cluster.RebalanceMoveState) (out []*cluster.RebalancingMove) {
	for i := range s.rec.Moves {
		if s.rec.Moves[i].State == state {
			out = append(out, &s.rec.Moves[i])
		}
	}
	return out
}

// begin opens a move, or passes it over where its task has gone on, or may not move now; it reports whether it is open.
func (s *rebalanceStep) begin(m *cluster.RebalancingMove) bool {
	h := headwayOf(s.snap, m)
	if h.where == staying {
		h = s.held(m)
	}
	if h.where != staying {
		s.pass(m, h.reason, h.why)
		return false
	}
	m.Enter(cluster.MoveMoving, s.loop.now)
	return true
}

// follow sees where the task of an open move is, and closes the move where it got there, or does not get there.
func (s *rebalanceStep) follow(m *cluster.RebalancingMove, o *opened) {
	h := headwayOf(s.snap, m)
	if h.where == staying {
		if o.away, o.aloft = 0, 0; s.rec.Cancelled {
			s.pass(m, cluster.ReasonCancelled, "the rebalancing was cancelled")
			return
		}
		h = s.held(m)
	}
	r := s.loop.rebalancing
	switch h.where {
	case astray:
		s.pass(m, h.reason, h.why)
	case staying:
		if s.now-max(o.since, r.busy) < leavePatience {
			return
		}
		if code, why := refusalAt(m.To, o.refused); code != "" {
			s.pass(m, code, fmt.Sprintf("node %s had no place for it%s", m.To, because(why)))
			return
		}
		s.pass(m, cluster.ReasonPermit, fmt.Sprintf("its service could not spare it within %s", leavePatience))
	case settled:
		r.busy = s.now // what it left is free now
		m.Enter(cluster.MoveDone, s.loop.now)
	case placeless, underway, arrived:
		s.await(m, o, h)
	}
}

// await looks after a task that is on its way.
func (s *rebalanceStep) await(m *cluster.RebalancingMove, o *opened, h headway) {
	s.loop.rebalancing.busy = s.now
	if o.away == 0 {
		o.away = max(1, s.now)
	}
	if h.where != placeless {
		o.aloft = 0
	} else if o.aloft == 0 {
		o.aloft = max(1, s.now)
	}
	switch limit := s.limit(m.Task); {
	case h.where == placeless && s.now-o.aloft >= placePatience:
		w, _ := s.loop.plane.reasons.of(m.Task)
		code, why := refusalAt(m.To, w)
		s.pass(m, cmp.Or(code, cluster.ReasonNodeNotReady),
			fmt.Sprintf("its place on node %s was gone, and it goes where there is one%s", m.To, because(why)))
	case s.now-o.away < limit:
	case h.where == arrived: // what it left takes its time to end
		m.Enter(cluster.MoveDone, s.loop.now)
	default:
		s.pass(m, cluster.ReasonDeadline,
			fmt.Sprintf("it was not healthy on node %s within %s", m.To, cluster.Duration(limit)))
	}
}

// limit is how long a task may be on its way.
func (s *rebalanceStep) limit(task cluster.TaskID) time.Duration {
	healthy := cluster.DefaultHealthyDeadline
	if e, ok := s.service(task); ok {
		healthy = cmp.Or(e.Value.Update.HealthyDeadline, healthy)
	}
	return time.Duration(healthy) + settleMargin
}

// service returns the service that a task is of.
func (s *rebalanceStep) service(task cluster.TaskID) (store.Entry[cluster.Service], bool) {
	parts, _ := task.Parts()
	return s.snap.Service(parts.Cluster, parts.Owner)
}

// held says why a task that stays on its node may not move now: its service is rolled out, which moves tasks itself.
func (s *rebalanceStep) held(m *cluster.RebalancingMove) headway {
	e, ok := s.service(m.Task)
	if !ok {
		return headway{astray, cluster.ReasonDeleted, "there is no such service"}
	}
	r, ok := s.snap.Rollout(e.Value.Cluster, e.Value.Name)
	if !ok || r.Value.Generation != e.Value.Generation || !r.Value.State.Ended() {
		return headway{astray, cluster.ReasonRollout, "its service is rolled out"}
	}
	return headway{where: staying}
}

// pass passes a move over, and tells why unless it was somebody's wish.
func (s *rebalanceStep) pass(m *cluster.RebalancingMove, reason cluster.ReasonCode, why string) {
	m.Pass(reason, why, s.loop.now)
	if reason == cluster.ReasonCancelled {
		return
	}
	e := cluster.Event{
		Type: "rebalance.passed", Task: m.Task, Attempt: m.Attempt, Node: m.From, Reason: reason,
		Message: fmt.Sprintf("rebalancing %d passed over the move to node %s: %s", s.rec.ID, m.To, m.Why),
	}
	if o, ok := (&store.AttemptRow{Task: m.Task}).Ref(); ok {
		e.Cluster, e.Owner = o.Cluster, &o
	}
	s.events = append(s.events, e)
}

// end writes that nothing is left to do.
func (s *rebalanceStep) end(c cluster.RebalanceCounts) {
	s.rec.State, s.rec.Ended = cluster.RebalancingDone, s.loop.now.UTC()
	if s.rec.Cancelled {
		s.rec.State = cluster.RebalancingCancelled
	}
	message := fmt.Sprintf("rebalancing %d is %s: of %d moves %d were carried out, a gain of %d points, and "+
		"%d were passed over",
		s.rec.ID, s.rec.State, len(s.rec.Moves), c.Done, c.Gain, c.Passed)
	s.events = append(s.events,
		cluster.Event{
			Type: "rebalance.ended", Reason: cluster.ReasonRebalance, Count: c.Done, Message: message,
			By: s.rec.CancelledBy,
		})
}

// refusalAt finds what a node said to a task that is for that node alone, in the answers of all nodes.
func refusalAt(node string, w cluster.Waiting) (cluster.ReasonCode, string) {
	// what the others say
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

// headway is how far the task of a move got.
type headway struct {
	where  whereabouts
	reason cluster.ReasonCode // of one that is astray, with why
	why    string
}

// whereabouts is where the task of a move is.
type whereabouts int

const (
	staying   whereabouts = iota // on the node that it is to leave
	placeless                    // it has left, or may end there, and its next attempt is not placed
	underway                     // its next attempt is on the other node, or its last one is about to end for it
	arrived                      // its next attempt is healthy there
	settled                      // and nothing is left of the last one
	astray                       // it went another way
)

// headwayOf tells how far the task of a move got by the records of its attempts alone.
func headwayOf(snap *store.Snapshot, m *cluster.RebalancingMove) headway {
	var old, newest *store.AttemptRow
	for row := range snap.TaskAttempts(m.Task) {
		if newest = row; row.Number == m.Attempt {
			old = row
		}
	}
	switch {
	case newest == nil || old == nil && newest.Number < m.Attempt:
		return headway{astray, cluster.ReasonDeleted, "the task is gone"}
	case old != nil && rowUUID(old) != m.UUID:
		return headway{astray, cluster.ReasonReplaced, fmt.Sprintf("its attempt %d is another one", m.Attempt)}
	case newest.Number > m.Attempt:
		return furtherOf(old, newest, m)
	case old.Outcome != nil && old.Outcome.Reason == cluster.ReasonRebalance:
		return headway{where: placeless}
	case old.Outcome != nil:
		return headway{astray, old.Outcome.Reason, "it ended before it moved" + because(old.Outcome.Message)}
	case old.Desired == nil || old.Desired.Stop == nil:
		return headway{where: staying}
	case old.Desired.Stop.Reason == cluster.ReasonRebalance:
		return headway{where: underway}
	}
	return headway{
		astray, old.Desired.Stop.Reason,
		"it was told to stop before it moved" + because(old.Desired.Stop.Message),
	}
}

// furtherOf tells it of a task that has a later attempt.
func furtherOf(old, newest *store.AttemptRow, m *cluster.RebalancingMove) headway {
	switch {
	case newest.Node != m.To:
		return headway{
			astray, cluster.ReasonReplaced,
			fmt.Sprintf("attempt %d of it is on node %s", newest.Number, newest.Node),
		}
	case newest.Outcome != nil:
		return headway{
			astray, newest.Outcome.Reason,
			fmt.Sprintf("attempt %d of it ended on node %s%s", newest.Number, newest.Node,
				because(newest.Outcome.Message)),
		}
	case !newest.Observed.Healthy() || newest.Desired == nil || newest.Desired.Stop != nil:
		return headway{where: underway}
	case old != nil && old.Standing() && (old.Observed == nil || !old.Observed.Gone):
		return headway{where: arrived}
	}
	return headway{where: settled}
}

// because adds a sentence to another one.
func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
