package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
)

// Unit is a write that is applied or refused by itself: operations with their preconditions, and the events that report
// them.
type Unit struct {
	Group
	Events []cluster.Event
}

// Compare adds a precondition: the record under key has this revision, 0 for none.
func (u *Unit) Compare(key string, revision uint64) {
	u.Compares = append(u.Compares, Compare{Key: key, Modified: revision})
}

// Put adds a write of a record.
func (u *Unit) Put(key string, record any) error {
	value, err := Encode(record)
	if err != nil {
		return err
	}
	u.Ops = append(u.Ops, Op{Key: key, Value: value})
	return nil
}

// Mark adds a write of the bare text "true" (see Prefix.Scheduled).
func (u *Unit) Mark(key string) { u.Ops = append(u.Ops, Op{Key: key, Value: []byte("true")}) }

// Delete adds a deletion.
func (u *Unit) Delete(key string) { u.Ops = append(u.Ops, Op{Key: key, Delete: true}) }

// Event adds an event.
func (u *Unit) Event(e cluster.Event) { u.Events = append(u.Events, e) }

// Fence is the leader's right to write: the revision of the epoch record, which every write of the control plane
// compares (P1.4).
type Fence struct {
	Key         string
	Modified    uint64
	Incarnation uint64
	Epoch       uint64
}

// Writer commits units. It is safe for concurrent use.
type Writer struct {
	// Without switches clauses off, in the writer and in its users such as PlanLog. It is set before the first use.
	Without clause.Set

	engine Engine
	prefix Prefix
	fence  *Fence
	now    func() time.Time
	// incarnation returns the incarnation for events.
	incarnation func() uint64
}

// NewWriter returns a writer whose every unit compares the fence. A nil fence is for writers other than the control
// plane; then incarnation returns the incarnation for events.
func NewWriter(e Engine, p Prefix, fence *Fence, incarnation func() uint64) *Writer {
	if fence != nil {
		incarnation = func() uint64 { return fence.Incarnation }
	}
	return &Writer{engine: e, prefix: p, fence: fence, now: time.Now, incarnation: incarnation}
}

// Clock sets the clock that dates events and plans, in place of the machine's. It is called before the first use.
func (w *Writer) Clock(now func() time.Time) { w.now = now }

// MaxUnitOperations returns how many compares and operations one unit can have.
func (w *Writer) MaxUnitOperations() int { return w.engine.Limits().Operations - groupOverheadOps }

// maxMergedUnits limits the units in one group. A group carries one key of events for all its units (P8.1), so merging
// makes the event log cheap. The units of a refused group are retried in groups of maxRetriedUnits, and those of a
// group that is refused again one by one.
const (
	maxMergedUnits  = 128
	maxRetriedUnits = 16
)

// Commit writes units as independently as necessary: it refuses a unit whose compares do not hold, and writes the rest.
// It returns which units were applied, and a revision that holds all of them. On an error the units in applied are
// durable. If the error wraps ErrUnknown, the result of the other units is unknown. A unit that is malformed or over
// the engine's limits by itself is refused. Commit reports such a unit by an error that wraps ErrInvalid or
// ErrTooLarge, after it wrote all other units.
//
// If two units write the same key, the later one is written after the earlier one. If the later one compares a record
// that the earlier one changed, it is refused.
func (w *Writer) Commit(ctx context.Context, units []Unit) (applied []bool, revision uint64, err error) {
	c := &commit{writer: w, units: units, applied: make([]bool, len(units))}
	for _, round := range splitRounds(units) {
		if err := c.round(ctx, round); err != nil {
			return c.applied, c.revision, err
		}
	}
	return c.applied, c.revision, errors.Join(c.unwritable...)
}

// commit is the state of one call of Writer.Commit.
type commit struct {
	writer     *Writer
	units      []Unit
	applied    []bool
	revision   uint64
	unwritable []error // one for each unit that can never be written
}

// round writes units that have no written key in common. It merges them first, and retries the units of refused groups
// in smaller groups and at last one by one.
func (c *commit) round(ctx context.Context, members []int) error {
	limits := c.writer.engine.Limits()
	groups := chunkUnits(c.units, members, limits)
	for _, next := range []int{maxRetriedUnits, 1} {
		refused, err := c.send(ctx, packCalls(groups, c.units, limits))
		if err != nil || len(refused) == 0 {
			return err
		}
		groups = groups[:0:0]
		for _, together := range refused {
			for part := range slices.Chunk(together, next) {
				groups = append(groups, part)
			}
		}
	}
	_, err := c.send(ctx, packCalls(groups, c.units, limits))
	return err
}

// send makes calls one after the other and returns the refused groups of more than one unit. It splits a call that the
// engine refuses as a whole for its form.
func (c *commit) send(ctx context.Context, calls [][][]int) (refused [][]int, err error) {
	for _, call := range calls {
		res, err := c.writer.write(ctx, c.units, call)
		switch {
		case errors.Is(err, ErrTooLarge) || errors.Is(err, ErrInvalid):
			if err := c.split(ctx, call, err); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		c.revision = max(c.revision, res.Revision)
		for i, members := range call {
			for _, u := range members {
				c.applied[u] = res.Applied[i]
			}
			if !res.Applied[i] && len(members) > 1 {
				refused = append(refused, members)
			}
		}
	}
	return refused, nil
}

// split sends each unit of a call by itself, and records the error of a unit that is alone in its call.
func (c *commit) split(ctx context.Context, call [][]int, err error) error {
	var each [][][]int
	for _, members := range call {
		for _, u := range members {
			each = append(each, [][]int{{u}})
		}
	}
	if len(each) > 1 {
		_, err := c.send(ctx, each)
		return err
	}
	c.unwritable = append(c.unwritable, err)
	return nil
}

// write sends one call; each element of groups lists the units merged in it.
func (w *Writer) write(ctx context.Context, units []Unit, groups [][]int) (Result, error) {
	out := make([]Group, len(groups))
	for i, members := range groups {
		g, err := w.merge(units, members)
		if err != nil {
			return Result{}, err
		}
		out[i] = g
	}
	res, err := w.engine.Commit(ctx, out)
	if err != nil {
		return res, fmt.Errorf("commit: %w", err)
	}
	return res, nil
}

// merge makes one group of units, with one key for their events.
func (w *Writer) merge(units []Unit, members []int) (Group, error) {
	var g Group
	if w.fence != nil && !w.Without.Off(clause.Fence) {
		g.Compares = append(g.Compares, Compare{Key: w.fence.Key, Modified: w.fence.Modified})
	}
	compares, ops, eventCount := 1, 1, 0
	for _, m := range members {
		compares, ops = compares+len(units[m].Compares), ops+len(units[m].Ops)
		eventCount += len(units[m].Events)
	}
	g.Compares, g.Ops = slices.Grow(g.Compares, compares), make([]Op, 0, ops)
	events := make([]cluster.Event, 0, eventCount)
	seen := map[Compare]bool{}
	for _, m := range members {
		for _, c := range units[m].Compares {
			if c.Modified != 0 { // a repeated compare may cost a read of the engine, except for an absent record
				if seen[c] {
					continue
				}
				seen[c] = true
			}
			g.Compares = append(g.Compares, c)
		}
		g.Ops = append(g.Ops, units[m].Ops...)
		events = append(events, units[m].Events...)
	}
	if len(events) == 0 {
		return g, nil
	}
	op, err := w.eventOp(events)
	if err != nil {
		return g, err
	}
	g.Ops = append(g.Ops, op)
	return g, nil
}

func (w *Writer) eventOp(events []cluster.Event) (Op, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Op{}, fmt.Errorf("make an event id: %w", err)
	}
	b := cluster.EventBatch{ID: id.String(), Incarnation: w.incarnation(), At: w.now().UTC(), Events: events}
	value, err := Encode(&b)
	return Op{Key: w.prefix.Event(b.ID), Value: value}, err
}

// splitRounds splits the units into rounds, so that no two units of a round write the same key. Mostly there is one
// round.
func splitRounds(units []Unit) [][]int {
	last := map[string]int{} // the round in which a key was written last, counted from 1
	var out [][]int
	for i := range units {
		n := 1
		for j := range units[i].Ops {
			n = max(n, last[units[i].Ops[j].Key]+1)
		}
		for j := range units[i].Ops {
			last[units[i].Ops[j].Key] = n
		}
		for len(out) < n {
			out = append(out, nil)
		}
		out[n-1] = append(out[n-1], i)
	}
	return out
}

// chunkUnits splits units into groups of at most maxMergedUnits that keep the limits. A unit that does not keep them is
// a group by itself.
func chunkUnits(units []Unit, members []int, limits Limits) [][]int {
	var out [][]int
	ops, size := 0, 0
	for _, u := range members {
		o, s := measureUnit(&units[u])
		last := len(out) - 1
		if last < 0 || len(out[last]) == maxMergedUnits || groupOverheadOps+ops+o > limits.Operations ||
			groupOverheadBytes+size+s > limits.Bytes {
			out = append(out, nil)
			last++
			ops, size = 0, 0
		}
		out[last] = append(out[last], u)
		ops, size = ops+o, size+s
	}
	return out
}

// groupOverheadOps and groupOverheadBytes are added to the size of a group for its fence and its events.
const (
	groupOverheadOps   = 2
	groupOverheadBytes = 512
)

// packCalls combines groups into calls that keep the engine's limits.
func packCalls(groups [][]int, units []Unit, limits Limits) [][][]int {
	var calls [][][]int
	var ops, size int
	for _, members := range groups {
		o, s := groupOverheadOps, groupOverheadBytes
		for _, u := range members {
			uo, us := measureUnit(&units[u])
			o, s = o+uo, s+us
		}
		if len(calls) == 0 || ops+o > limits.Operations || size+s > limits.Bytes {
			calls = append(calls, nil)
			ops, size = 0, 0
		}
		calls[len(calls)-1] = append(calls[len(calls)-1], members)
		ops, size = ops+o, size+s
	}
	return calls
}

// measureUnit returns the operations and the approximate bytes of a unit; send splits a call that was underestimated.
func measureUnit(u *Unit) (ops, size int) {
	for i := range u.Compares {
		size += len(u.Compares[i].Key)
	}
	for i := range u.Ops {
		size += len(u.Ops[i].Key) + len(u.Ops[i].Value)
	}
	for i := range u.Events {
		e := &u.Events[i]
		size += 250 + len(e.Cluster)*2 + len(e.Task) + len(e.Node) + len(e.Message) + len(e.Message)/4
	}
	return len(u.Compares) + len(u.Ops), size
}
