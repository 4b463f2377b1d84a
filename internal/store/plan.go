package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
)

// ErrFenced reports that another leader has taken over: the writer's epoch is no longer the store's (P1.4).
var ErrFenced = errors.New("another leader has taken over")

// Bounds of a plan record.
const (
	maxPlanTasks = 4096
	// planOverheadOps is the number of operations of a record besides the compares of its owners.
	planOverheadOps = 8
	// comparesPerRetry is the number of compares for an attempt after the first of its task.
	comparesPerRetry = 3
	// projectionOps is the number of operations for the records of a projected attempt, with the compare that its
	// desired record does not exist. The compares of a later attempt contain that one.
	projectionOps = 3
	// planTaskBytes and projectedTaskBytes are what a task takes at most in a plan record without and with the records
	// of its own.
	planTaskBytes      = 512
	projectedTaskBytes = 2048
)

// PlanLog appends plan records (P3.3): the durable unit of placement. One goroutine, the leader's
// committer, may use it.
type PlanLog struct {
	writer  *Writer
	tables  *Tables
	next    uint64
	unknown bool // the result of the write of plan next is unknown
}

// NewPlanLog continues the log of the domain with the number, after its newest record of the tables. The tables must
// contain the leader's epoch record (P1.5).
func NewPlanLog(w *Writer, t *Tables, domain uint64) *PlanLog {
	return &PlanLog{writer: w, tables: t, next: t.Snapshot().LastPlan(domain) + 1}
}

// PlanBatch is the content of one plan record, with the events that report it.
type PlanBatch struct {
	Owners []cluster.PlanOwner
	Events []cluster.Event
	// Projected says that the transaction of the plan record also writes the records of its attempts (P3.4).
	Projected bool
	// Requires are preconditions of the whole record, such as the claim of the scheduler that chose the nodes.
	Requires []Compare
	// Replaces holds the revisions of the records of other programs that the records of attempts take the place of
	// (P3.9), by task.
	Replaces map[cluster.TaskID]uint64
}

// Tasks returns the number of placed tasks.
func (b *PlanBatch) Tasks() int {
	n := 0
	for i := range b.Owners {
		n += len(b.Owners[i].Tasks)
	}
	return n
}

// PlanRoom is what one plan record may hold (P3.8).
type PlanRoom struct {
	// Operations are those for owners and attempts: one for each owner, and for each attempt what Operations returns.
	Operations, Tasks int
	projected         bool
}

// Room returns what one record may hold. Projected records hold fewer tasks.
func (l *PlanLog) Room(projected bool) PlanRoom { return planRoom(l.writer.engine.Limits(), projected) }

func planRoom(limit Limits, projected bool) PlanRoom {
	size := planTaskBytes
	if projected {
		size = projectedTaskBytes
	}
	return PlanRoom{
		Operations: max(1, limit.Operations-planOverheadOps), Tasks: max(1, min(maxPlanTasks, limit.Bytes/size)),
		projected: projected,
	}
}

// OperationsOf returns the number of operations that the placement of an attempt takes.
func (r PlanRoom) OperationsOf(attempt int) (n int) {
	if attempt > 1 {
		n = comparesPerRetry
	}
	switch {
	case r.projected && attempt > 1:
		n += projectionOps - 1
	case r.projected:
		n = projectionOps
	}
	return n
}

// GangRoom returns the number of tasks of one owner that fit into one record of an engine with these limits, whatever
// their attempts are. A group of tasks that is placed as a whole must not be larger.
func GangRoom(limit Limits) int {
	room := planRoom(limit, false)
	return max(1, min(room.Tasks, (room.Operations-1)/comparesPerRetry))
}

// Append writes a plan record. The record leaves out owners whose spec changed since. It leaves out tasks whose earlier
// attempt has no outcome (P3.7) or still is on the chosen node (P3.6). An owner that is placed as a whole is left out
// with any one of its tasks. All of them are left out if what the batch requires does not hold. The tables continue
// showing all of them as waiting. The tables hold the record once they reach the returned revision; revision 0 says
// that nothing was left to write. placed is the number of placements in the record.
//
// An error that wraps ErrUnknown leaves the placements charged until Settle has found the result.
func (l *PlanLog) Append(ctx context.Context, b PlanBatch) (revision uint64, placed int, err error) {
	if l.unknown {
		return 0, 0, errors.New("append a plan: the last one is not settled")
	}
	for range 3 {
		if len(b.Owners) == 0 {
			return 0, 0, nil
		}
		rev, applied, err := l.write(ctx, b)
		if err != nil {
			return rev, 0, err
		}
		if applied {
			return rev, b.Tasks(), nil
		}
		if b.Owners, err = l.dropStale(ctx, &b); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, nil
}

func (l *PlanLog) write(ctx context.Context, b PlanBatch) (revision uint64, applied bool, err error) {
	u, err := l.unit(&b)
	if err != nil {
		return 0, false, err
	}
	ok, rev, err := l.writer.Commit(ctx, []Unit{u})
	if err != nil {
		l.unknown = errors.Is(err, ErrUnknown)
		if l.unknown && l.writer.Without.Off(clause.PlanSettled) {
			l.unknown = false
			l.next++
		}
		return 0, false, fmt.Errorf("append plan %d: %w", l.next, err)
	}
	if ok[0] {
		l.next++
	}
	return rev, ok[0], nil
}

func (l *PlanLog) unit(b *PlanBatch) (Unit, error) {
	prefix := l.writer.prefix
	record := &cluster.PlanRecord{Seq: l.next, At: l.writer.now().UTC(), Owners: b.Owners}
	if f := l.writer.fence; f != nil {
		record.Token = cluster.Token{Incarnation: f.Incarnation, Epoch: f.Epoch}
	}
	u := Unit{Events: b.Events}
	u.Compares = slices.Clone(b.Requires)
	u.Compare(prefix.Plan(l.next), 0)
	if err := u.Put(prefix.Plan(l.next), record); err != nil {
		return u, err
	}
	seen := map[string]bool{}
	for i := range b.Owners {
		o := &b.Owners[i]
		if key := prefix.Owner(o.Owner); !seen[key] {
			seen[key] = true
			u.Compare(key, o.Rev)
		}
		for j := range o.Tasks {
			for _, c := range l.comparesOf(b, o, &o.Tasks[j]) {
				u.Compare(c.Key, c.Modified)
			}
			if !b.Projected {
				continue
			}
			d := record.Desired(o, &o.Tasks[j])
			u.Mark(prefix.Scheduled(d.Task))
			if err := u.Put(prefix.Desired(d.Node, d.Task), d); err != nil {
				return u, err
			}
		}
	}
	return u, nil
}

// comparesOf returns the preconditions of an attempt: those of a later attempt of a task and, of one that is projected
// with its plan record, that it has no desired record, or the one that it replaces. The compare of the plan record
// stands for the other compares of a projection: no attempt has ended before it was placed.
func (l *PlanLog) comparesOf(b *PlanBatch, o *cluster.PlanOwner, t *cluster.Placed) []Compare {
	id := o.TaskID(t.Index)
	desired := Compare{Key: l.writer.prefix.Desired(t.Node, id), Modified: b.Replaces[id]}
	compares := l.comparePriorAttempt(o, t, desired)
	if b.Projected && !slices.Contains(compares, desired) {
		compares = append(compares, desired)
	}
	return compares
}

// comparePriorAttempt returns the preconditions of a later attempt of a task. The attempt before it has ended (P3.7),
// and no attempt is on the node (P3.6): desired is the compare of the attempt's desired record.
func (l *PlanLog) comparePriorAttempt(o *cluster.PlanOwner, t *cluster.Placed, desired Compare) []Compare {
	if t.Attempt <= 1 {
		return nil
	}
	prefix, id := l.writer.prefix, o.TaskID(t.Index)
	var compares []Compare
	if !l.writer.Without.Off(clause.NextAttempt) {
		compares = append(compares, Compare{Key: prefix.Outcome(id, t.Attempt-1), Modified: AnyModified})
	}
	if !l.writer.Without.Off(clause.CleanNode) {
		compares = append(compares, desired, Compare{Key: prefix.Observed(t.Node, id)})
	}
	return compares
}

// dropStale returns the owners and tasks for the next write of a refused record, without the stale ones. It reads the
// engine, since the tables may not yet hold the change that refused the record.
func (l *PlanLog) dropStale(ctx context.Context, b *PlanBatch) ([]cluster.PlanOwner, error) {
	prefix := l.writer.prefix
	if f := l.writer.fence; f != nil && !l.writer.Without.Off(clause.Fence) {
		ok, err := l.holds(ctx, Compare{Key: f.Key, Modified: f.Modified})
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("append plan %d: %w", l.next, ErrFenced)
		}
	}
	ok, err := l.holds(ctx, Compare{Key: prefix.Plan(l.next)})
	if err != nil {
		return nil, err
	}
	if !ok { // another program took it: the next try takes the next number
		l.next++
		return nil, fmt.Errorf("append plan %d: the number is taken", l.next-1)
	}
	if ok, err := l.holds(ctx, b.Requires...); err != nil || !ok {
		return nil, err
	}
	var kept []cluster.PlanOwner
	for _, o := range b.Owners {
		ok, err := l.holds(ctx, Compare{Key: prefix.Owner(o.Owner), Modified: o.Rev})
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		var tasks []cluster.Placed
		for _, t := range o.Tasks {
			ok, err := l.holds(ctx, l.comparesOf(b, &o, &t)...)
			if err != nil {
				return nil, err
			}
			if ok {
				tasks = append(tasks, t)
			}
		}
		if o.Whole && len(tasks) < len(o.Tasks) {
			continue
		}
		if o.Tasks = tasks; len(tasks) > 0 {
			kept = append(kept, o)
		}
	}
	return kept, nil
}

// holds reports whether all compares hold now.
func (l *PlanLog) holds(ctx context.Context, compares ...Compare) (bool, error) {
	for _, c := range compares {
		r, err := l.writer.engine.Read(ctx, c.Key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return false, fmt.Errorf("read %s: %w", c.Key, err)
		}
		exists := err == nil
		if c.Modified == AnyModified && !exists || c.Modified != AnyModified && r.Modified != c.Modified {
			return false, nil
		}
	}
	return true, nil
}

// Unsettled reports whether the result of the last Append is unknown.
func (l *PlanLog) Unsettled() bool { return l.unknown }

// UnknownPlan returns the number of the plan record whose write has an unknown result; 0 if there is none.
func (l *PlanLog) UnknownPlan() uint64 {
	if l.unknown {
		return l.next
	}
	return 0
}

// Settle finds the result of a plan whose answer was lost. It creates an empty record under the plan's number; if that
// is refused, the plan was written (P3.3, T6). The tables hold the result once they reach the returned revision.
func (l *PlanLog) Settle(ctx context.Context) (revision uint64, err error) {
	if !l.unknown {
		return 0, nil
	}
	u, err := l.unit(&PlanBatch{})
	if err != nil {
		return 0, err
	}
	ok, rev, err := l.writer.Commit(ctx, []Unit{u})
	if err != nil {
		return 0, fmt.Errorf("settle plan %d: %w", l.next, err)
	}
	if !ok[0] {
		r, err := l.writer.engine.Read(ctx, l.writer.prefix.Plan(l.next))
		if err != nil {
			return 0, fmt.Errorf("settle plan %d: %w", l.next, ErrFenced)
		}
		rev = r.Modified
	}
	l.unknown = false
	l.next++
	return rev, nil
}

// ProjectionUnit returns the write of an attempt's desired record from its plan record (P3.4). The write compares that
// the plan record still exists and that the attempt has not ended, unless that clause is switched off.
func ProjectionUnit(prefix Prefix, r *AttemptRow, without clause.Set) (Unit, error) {
	u := Unit{Group: Group{Compares: make([]Compare, 0, 6), Ops: make([]Op, 0, 3)}} // with capacity for a status
	if !without.Off(clause.Projection) {
		u.Compare(prefix.Plan(r.Plan), r.PlanRev)
		u.Compare(prefix.Outcome(r.Task, r.Number), 0)
	}
	u.Compare(prefix.Desired(r.Node, r.Task), 0)
	u.Mark(prefix.Scheduled(r.Task))
	return u, u.Put(prefix.Desired(r.Node, r.Task), r.Desired)
}

// TrimUnit deletes a plan record, or empties the newest one so that its number is not used again. It returns false
// while a task of the record is neither projected nor ended. A record that settled a lost plan is also kept until its
// leader's epoch is over. The lost plan may still arrive, and only this record refuses it (P3.3, T6).
func TrimUnit(prefix Prefix, s *Snapshot, e Entry[cluster.PlanRecord]) (Unit, bool, error) {
	p := e.Value
	for i := range p.Owners {
		o := &p.Owners[i]
		for j := range o.Tasks {
			r, ok := s.Attempt(o.TaskID(o.Tasks[j].Index), o.Tasks[j].Attempt)
			if ok && r.Outcome == nil && (r.DesiredRev == 0 || r.IsUnreadable()) {
				return Unit{}, false, nil
			}
		}
	}
	newest := p.Seq == s.LastPlan(cluster.DomainOfPlan(p.Seq))
	if len(p.Owners) == 0 && (newest || e.Created == e.Modified && s.isCurrentEpoch(p.Token)) {
		return Unit{}, false, nil
	}
	var u Unit
	u.Compare(e.Key, e.Modified)
	if !newest {
		u.Delete(e.Key)
		return u, true, nil
	}
	return u, true, u.Put(e.Key, &cluster.PlanRecord{Seq: p.Seq, Token: p.Token, At: p.At})
}

// isCurrentEpoch reports whether the token has the epoch and incarnation of the present leader record of a domain.
func (s *Snapshot) isCurrentEpoch(t cluster.Token) bool {
	for e := range scan(s.leaders, "") {
		if e.Value.Epoch == t.Epoch && e.Value.Incarnation == t.Incarnation {
			return true
		}
	}
	return false
}
