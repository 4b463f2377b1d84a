package controlplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// Times of a rebalancing. They count on the boot-time clock, from when this leader saw what they count from (P9.1).
const (
	// leavePatience is how long an open move may find no place, or its service not spare it, while no other is on its
	// way, of which either may come.
	leavePatience = 30 * time.Second
	// placePatience is how long a task that has left may wait for its place on the other node: then it goes wherever
	// there is one.
	placePatience = 15 * time.Second
	// settleMargin is how much longer than the service's tasks may take to become healthy a move may take.
	settleMargin = time.Minute
	// rebalanceEvery is how often a leader looks how a rebalancing comes along, without being told of a change.
	rebalanceEvery = time.Second
)

// rebalancing is what a leader knows of the rebalancing that runs, if one does: the moves that its record calls moving.
// They are the only ones that tasks leave for, so none ever leaves without the record saying so first; and where it
// stands is seen from the attempts of its task alone (see headwayOf). So whoever leads next goes on from there, and a
// task never moves twice for one move.
type rebalancing struct {
	open map[string]*opened // by the UUID of the attempt that leaves
	busy time.Duration      // when a move was last on its way
}

// opened is a move whose task may leave.
type opened struct {
	task  cluster.TaskID
	leave *reconciler.Leave
	// closed says that it may not any more: the next record will say that the move is over.
	closed bool
	// since is when this leader first saw it open, away when it first saw it on its way, and aloft when it first saw it
	// without a place; 0 for never.
	since, away, aloft time.Duration
	// refused is why there was no place for it last.
	refused cluster.Waiting
}

func newRebalancing() *rebalancing { return &rebalancing{open: map[string]*opened{}} }

// of returns why an attempt is to leave its node, or, while its next attempt has no place, has left it; nil where no
// open move says so.
func (r *rebalancing) of(row *store.AttemptRow) *reconciler.Leave {
	if len(r.open) == 0 || row.Outcome != nil && row.Outcome.Reason != cluster.ReasonRebalance {
		return nil
	}
	if o := r.open[rowUUID(row)]; o != nil && !o.closed {
		return o.leave
	}
	return nil
}

// refuse keeps why there is no place for a task that should leave.
func (r *rebalancing) refuse(w cluster.Waiting) {
	for _, o := range r.open { // order-free: at most one is of the task
		if o.task == w.Task {
			o.refused = w
		}
	}
}

// rowUUID returns the UUID of an attempt, empty where no record tells it.
func rowUUID(row *store.AttemptRow) string {
	switch {
	case row.Desired != nil:
		return row.Desired.UUID
	case row.Outcome != nil:
		return row.Outcome.UUID
	case row.Observed != nil:
		return row.Observed.UUID
	}
	return ""
}

// rebalance moves the rebalancing of the domain on, if one runs, and returns how soon to look again. What it closes is
// closed for the decisions of this cycle already; what it opens is open once the record says so.
func (l *loop) rebalance(snap *store.Snapshot, units *[]store.Unit) time.Duration {
	l.trimRebalancings(snap, units)
	e, runs := snap.RunningRebalancing(l.config.Domain)
	l.learnRebalancing(e.Value)
	if !runs {
		return lookAnyway
	}
	s := &rebalanceStep{loop: l, snap: snap, now: l.config.Clock(), rec: *e.Value}
	s.rec.Moves = slices.Clone(e.Value.Moves)
	s.advance()
	if len(s.events) == 0 && slices.Equal(s.rec.Moves, e.Value.Moves) {
		return rebalanceEvery
	}
	var u store.Unit
	u.Compare(e.Key, e.Modified)
	if err := u.Put(e.Key, &s.rec); err != nil {
		l.config.Logger.Error("a rebalancing cannot be written", "id", s.rec.ID, "error", err)
		return rebalanceEvery
	}
	u.Events = s.events
	*units = append(*units, u)
	return rebalanceEvery
}

// learnRebalancing brings what is open to what the record says; nil for none.
func (l *loop) learnRebalancing(rec *cluster.Rebalancing) {
	r, now := l.rebalancing, l.config.Clock()
	if rec == nil && len(r.open) == 0 {
		return
	}
	open := map[string]*opened{}
	if rec != nil {
		for i := range rec.Moves {
			m := &rec.Moves[i]
			if m.State != cluster.MoveMoving {
				continue
			}
			o := r.open[m.UUID]
			if o == nil {
				o = &opened{task: m.Task, since: now, leave: leaveFor(rec, m)}
				l.dirtyTask(m.Task)
			}
			open[m.UUID] = o
		}
	}
	for uuid, o := range r.open { // order-free: each by itself
		if open[uuid] == nil {
			l.dirtyTask(o.task)
		}
	}
	r.open = open
}

// leaveFor is what a move tells the reconciler.
func leaveFor(rec *cluster.Rebalancing, m *cluster.RebalancingMove) *reconciler.Leave {
	why := ""
	if m.Message != "" {
		why = " (" + m.Message + ")"
	}
	return &reconciler.Leave{
		Reason: cluster.ReasonRebalance, Since: m.At, To: m.To,
		Message: fmt.Sprintf("rebalancing %d moves it from node %s to %s%s", rec.ID, m.From, m.To, why),
	}
}

func (l *loop) dirtyTask(task cluster.TaskID) {
	if o, ok := (&store.AttemptRow{Task: task}).Ref(); ok {
		l.dirty[o] = true
	}
}

// trimRebalancings deletes the oldest of the domain's that have ended, beyond those that are kept.
func (l *loop) trimRebalancings(snap *store.Snapshot, units *[]store.Unit) {
	var ended []store.Entry[cluster.Rebalancing]
	for e := range snap.Rebalancings() {
		if e.Value.Domain == l.config.Domain && !e.Value.Running() {
			ended = append(ended, e)
		}
	}
	for _, e := range ended[:max(0, len(ended)-cluster.KeptRebalancings)] {
		var u store.Unit
		u.Compare(e.Key, e.Modified)
		u.Delete(e.Key)
		*units = append(*units, u)
	}
}
