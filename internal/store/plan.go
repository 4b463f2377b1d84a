package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
)

// ErrFenced says that another leader has taken over: the writer's epoch is no longer the store's (P1.4).
var ErrFenced = errors.New("another leader has taken over")

// Bounds of a plan record.
const (
	maxPlanTasks = 4096
	// planOverhead is how many operations of a record are not its owners' compares.
	planOverhead = 8
	// priorCompares is how many compares a later attempt of a task takes.
	priorCompares = 3
)

// PlanLog appends plan records (P3.3): the durable unit of placement. One goroutine, the leader's
// committer, may use it.
type PlanLog struct {
	writer  *Writer
	tables  *Tables
	next    uint64
	unknown bool // the result of writing next was lost
}

// NewPlanLog continues the log after the newest record of the tables, which hold the leader's epoch record (P1.5).
func NewPlanLog(w *Writer, t *Tables) *PlanLog {
	return &PlanLog{writer: w, tables: t, next: t.Snapshot().LastPlan() + 1}
}

// Proposal is what is to become one plan record, with the events that tell of it.
type Proposal struct {
	Owners []cluster.PlanOwner
	Events []cluster.Event
}

// Tasks returns how many tasks are placed.
func (p *Proposal) Tasks() int {
	n := 0
	for i := range p.Owners {
		n += len(p.Owners[i].Tasks)
	}
	return n
}

// Room tells how many compares and tasks one record may hold (P3.8). Each owner takes one compare, and each task's
// attempt what Compares says.
func (l *PlanLog) Room() (compares, tasks int) {
	return planRoom(l.writer.engine.Limits())
}

func planRoom(limit Limits) (compares, tasks int) {
	compares = max(1, limit.Operations-planOverhead)
	return compares, max(1, min(maxPlanTasks, limit.Bytes/512))
}

// GangRoom tells how many tasks of one owner fit into one record of such an engine, whichever attempts they are: what
// has to be placed as a whole must not be more.
func GangRoom(limit Limits) int {
	compares, tasks := planRoom(limit)
	return max(1, min(tasks, (compares-1)/priorCompares))
}

// Compares tells how many compares the placement of an attempt with the number takes.
func (l *PlanLog) Compares(attempt int) int {
	if attempt <= 1 {
		return 0
	}
	return priorCompares
}

// Append writes a plan record. Owners whose spec changed since, and tasks whose earlier attempt has no outcome (P3.7)
// or still stands on the chosen node (P3.6), are left out of it, and with one such task all of an owner that is placed
// as a whole; the tables will show them as waiting. The returned revision holds the record; 0 says that nothing was
// left to write.
//
// An error that wraps ErrUnknown leaves the placements charged until Settle tells what became of them.
func (l *PlanLog) Append(ctx context.Context, p Proposal) (revision uint64, err error) {
	if l.unknown {
		return 0, errors.New("append a plan: the last one is not settled")
	}
	for range 3 {
		if len(p.Owners) == 0 {
			return 0, nil
		}
		rev, applied, err := l.write(ctx, p)
		if err != nil || applied {
			return rev, err
		}
		if p.Owners, err = l.current(ctx, p.Owners); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (l *PlanLog) write(ctx context.Context, p Proposal) (revision uint64, applied bool, err error) {
	u, err := l.unit(p)
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

func (l *PlanLog) unit(p Proposal) (Unit, error) {
	prefix := l.writer.prefix
	record := &cluster.PlanRecord{Seq: l.next, At: l.writer.now().UTC(), Owners: p.Owners}
	if f := l.writer.fence; f != nil {
		record.Token = cluster.Token{Incarnation: f.Incarnation, Epoch: f.Epoch}
	}
	u := Unit{Events: p.Events}
	u.Compare(prefix.Plan(l.next), 0)
	seen := map[string]bool{}
	for i := range p.Owners {
		o := &p.Owners[i]
		if key := prefix.Owner(o.Owner); !seen[key] {
			seen[key] = true
			u.Compare(key, o.Rev)
		}
		for j := range o.Tasks {
			for _, c := range l.priorAttempt(o, &o.Tasks[j]) {
				u.Compare(c.Key, c.Modified)
			}
		}
	}
	return u, u.Put(prefix.Plan(l.next), record)
}

// priorAttempt is what a later attempt of a task compares: the one before has ended (P3.7), and none stands
// on the node (P3.6).
func (l *PlanLog) priorAttempt(o *cluster.PlanOwner, t *cluster.Placed) []Compare {
	if t.Attempt <= 1 {
		return nil
	}
	prefix, id := l.writer.prefix, o.TaskID(t.Index)
	var demands []Compare
	if !l.writer.Without.Off(clause.NextAttempt) {
		demands = append(demands, Compare{Key: prefix.Outcome(id, t.Attempt-1), Modified: AnyModified})
	}
	if !l.writer.Without.Off(clause.CleanNode) {
		demands = append(demands, Compare{Key: prefix.Desired(t.Node, id)}, Compare{Key: prefix.Observed(t.Node, id)})
	}
	return demands
}

// current returns the owners that a refused record may be written with again. It reads the engine, since the tables may
// not yet hold what refused it.
func (l *PlanLog) current(ctx context.Context, owners []cluster.PlanOwner) ([]cluster.PlanOwner, error) {
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
	if !ok { // by nobody who leads: the next try takes the next number
		l.next++
		return nil, fmt.Errorf("append plan %d: the number is taken", l.next-1)
	}
	var kept []cluster.PlanOwner
	for _, o := range owners {
		ok, err := l.holds(ctx, Compare{Key: prefix.Owner(o.Owner), Modified: o.Rev})
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		var tasks []cluster.Placed
		for _, t := range o.Tasks {
			ok, err := l.holds(ctx, l.priorAttempt(&o, &t)...)
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

// Unsettled reports whether the result of the last Append is not known.
func (l *PlanLog) Unsettled() bool { return l.unknown }

// Settle finds out what became of a plan whose result was lost, by creating an empty record under its number: if that
// is refused, the plan was written (P3.3, T6). The tables hold the truth once they reach the returned revision.
func (l *PlanLog) Settle(ctx context.Context) (revision uint64, err error) {
	if !l.unknown {
		return 0, nil
	}
	u, err := l.unit(Proposal{})
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

// ProjectionUnit writes an attempt's own desired record from its plan record (P3.4): only if
// that still stands and the attempt has not ended.
func ProjectionUnit(prefix Prefix, r *AttemptRow) (Unit, error) {
	return ProjectionWithout(prefix, r, 0)
}

// ProjectionWithout is ProjectionUnit with clauses switched off.
func ProjectionWithout(prefix Prefix, r *AttemptRow, without clause.Set) (Unit, error) {
	u := Unit{Group: Group{Compares: make([]Compare, 0, 6), Ops: make([]Op, 0, 3)}} // a status may be added
	if !without.Off(clause.Projection) {
		u.Compare(prefix.Plan(r.Plan), r.PlanRev)
		u.Compare(prefix.Outcome(r.Task, r.Number), 0)
	}
	u.Compare(prefix.Desired(r.Node, r.Task), 0)
	u.Mark(prefix.Scheduled(r.Task))
	return u, u.Put(prefix.Desired(r.Node, r.Task), r.Desired)
}

// TrimUnit deletes a plan record, or empties the newest one so that its number is not used again. It
// returns false while a task of the record is neither projected nor ended, and for a record that settled a lost plan
// while its leader's epoch lasts: the lost one may still arrive, and nothing else refuses it (P3.3, T6).
func TrimUnit(prefix Prefix, s *Snapshot, e Entry[cluster.PlanRecord]) (Unit, bool, error) {
	p := e.Value
	for i := range p.Owners {
		o := &p.Owners[i]
		for j := range o.Tasks {
			r, ok := s.Attempt(o.TaskID(o.Tasks[j].Index), o.Tasks[j].Attempt)
			if ok && r.Outcome == nil && (r.DesiredRev == 0 || r.Unreadable) {
				return Unit{}, false, nil
			}
		}
	}
	newest := p.Seq == s.LastPlan()
	if len(p.Owners) == 0 && (newest || e.Created == e.Modified && s.reigns(p.Token)) {
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

// reigns reports whether a leader of the token's epoch is the newest of its domain.
func (s *Snapshot) reigns(t cluster.Token) bool {
	for e := range scan(s.leaders, "") {
		if e.Value.Epoch == t.Epoch && e.Value.Incarnation == t.Incarnation {
			return true
		}
	}
	return false
}
