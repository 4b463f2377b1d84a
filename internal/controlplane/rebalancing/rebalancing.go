// Package rebalancing carries out the rebalancing of a domain for its leader: it opens moves and follows their tasks.
package rebalancing

import (
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// Times of a rebalancing, on the boot-time clock. They count from when this leader first saw the state (P9.1).
const (
	// maxLeaveWait is how long an open move may find no place, or no permit from its service. It counts only while no
	// other move is on its way, as that may change both.
	maxLeaveWait = 30 * time.Second
	// maxPlaceWait is how long a task that has left may wait for its place on the other node. After that it goes to any
	// node.
	maxPlaceWait = 15 * time.Second
	// settleMargin is how much longer a move may take than the service's tasks may take to become healthy.
	settleMargin = time.Minute
	// rebalanceInterval is the time between two decisions about a rebalancing if nothing changes.
	rebalanceInterval = time.Second
)

// Rebalancing is what a leader knows of the rebalancing that runs: the moves that its record calls moving. Tasks leave
// for these moves alone, so none ever leaves before the record says so. The state of a move follows from the attempts
// of its task alone (see progressOf). So the next leader continues from there, and a task never moves twice for one
// move.
type Rebalancing struct {
	config    Config
	open      map[string]*openMove // by UUID of the attempt that leaves
	lastOnWay time.Duration        // last time at which a move was on its way
}

// openMove is a move whose task may leave.
type openMove struct {
	task  cluster.TaskID
	leave *reconciler.Leave
	// closed says that the task may not leave any more: the next record will say that the move is over.
	closed bool
	// openSince is when this leader first saw the move open. onWaySince is when it first saw the task on its way, and
	// placelessSince when it first saw the task without a place; 0 for never.
	openSince, onWaySince, placelessSince time.Duration
	// refused is the last reason why there was no place for the task.
	refused cluster.Waiting
}

// never is the wait for what time alone does not bring.
const never = time.Duration(math.MaxInt64)

// Config is what New needs.
type Config struct {
	Domain string
	Logger *slog.Logger
	// Clock reads the boot-time clock (P9).
	Clock func() time.Duration
	// MarkTask has the next cycle decide for the owner of a task.
	MarkTask func(cluster.TaskID)
	// Reason returns why a task waits, by the last placement.
	Reason func(cluster.TaskID) (cluster.Waiting, bool)
}

// New returns a rebalancing without open moves.
func New(c Config) *Rebalancing {
	return &Rebalancing{config: c, open: map[string]*openMove{}}
}

// LeaveReason returns why an attempt is to leave its node, or has left it while its next attempt has no place. It
// returns nil if no open move concerns the attempt.
func (r *Rebalancing) LeaveReason(row *store.AttemptRow) *reconciler.Leave {
	if len(r.open) == 0 || row.Outcome != nil && row.Outcome.Reason != cluster.ReasonRebalance {
		return nil
	}
	if o := r.open[observe.UUID(row)]; o != nil && !o.closed {
		return o.leave
	}
	return nil
}

// NoteRefusal keeps why there is no place for a task that should leave.
func (r *Rebalancing) NoteRefusal(w cluster.Waiting) {
	for _, o := range r.open { // order-free: at most one is of the task
		if o.task == w.Task {
			o.refused = w
		}
	}
}

// Advance advances the rebalancing of the domain, if one runs, and returns the wait until the next call. The
// decisions of this cycle treat a closed move as closed already. An opened move counts once the record says so.
func (r *Rebalancing) Advance(snap *store.Snapshot, now time.Time, units *[]store.Unit) time.Duration {
	r.trim(snap, units)
	e, runs := snap.RunningRebalancing(r.config.Domain)
	r.learn(e.Value)
	if !runs {
		return never
	}
	s := &step{rebalancing: r, snap: snap, boot: r.config.Clock(), now: now, rec: *e.Value}
	s.rec.Moves = slices.Clone(e.Value.Moves)
	s.advance()
	if len(s.events) == 0 && slices.Equal(s.rec.Moves, e.Value.Moves) {
		return rebalanceInterval
	}
	var u store.Unit
	u.Compare(e.Key, e.Modified)
	if err := u.Put(e.Key, &s.rec); err != nil {
		r.config.Logger.Error("a rebalancing cannot be written", "id", s.rec.ID, "error", err)
		return rebalanceInterval
	}
	u.Events = s.events
	*units = append(*units, u)
	return rebalanceInterval
}

// learn brings the open moves to the record; nil for none.
func (r *Rebalancing) learn(rec *cluster.Rebalancing) {
	now := r.config.Clock()
	if rec == nil && len(r.open) == 0 {
		return
	}
	open := map[string]*openMove{}
	if rec != nil {
		for i := range rec.Moves {
			m := &rec.Moves[i]
			if m.State != cluster.MoveMoving {
				continue
			}
			o := r.open[m.UUID]
			if o == nil {
				o = &openMove{task: m.Task, openSince: now, leave: observe.RebalancingLeave(rec, m)}
				r.config.MarkTask(m.Task)
			}
			open[m.UUID] = o
		}
	}
	for uuid, o := range r.open { // order-free: each by itself
		if open[uuid] == nil {
			r.config.MarkTask(o.task)
		}
	}
	r.open = open
}

// trim deletes the oldest rebalancings of the domain that have ended, beyond those that are kept.
func (r *Rebalancing) trim(snap *store.Snapshot, units *[]store.Unit) {
	var ended []store.Entry[cluster.Rebalancing]
	for e := range snap.Rebalancings() {
		if e.Value.Domain == r.config.Domain && !e.Value.Running() {
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
