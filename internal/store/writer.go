package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/cluster"
)

// Unit is a write that stands or falls alone: operations with what they compare, and the
// events that tell of them.
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

// Mark adds a write of the bare word "true" (see Prefix.Scheduled).
func (u *Unit) Mark(key string) { u.Ops = append(u.Ops, Op{Key: key, Value: []byte("true")}) }

// Delete adds a deletion.
func (u *Unit) Delete(key string) { u.Ops = append(u.Ops, Op{Key: key, Delete: true}) }

// Event adds an event.
func (u *Unit) Event(e cluster.Event) { u.Events = append(u.Events, e) }

// Fence is the leader's right to write: the epoch record that every write of the control plane compares (P1.4).
type Fence struct {
	Key         string
	Modified    uint64
	Incarnation uint64
	Epoch       uint64
}

// Writer commits units. It is safe for concurrent use.
type Writer struct {
	engine Engine
	prefix Prefix
	fence  *Fence
	now    func() time.Time
	// incarnation of events written without a fence.
	incarnation func() uint64
}

// NewWriter returns a writer whose every unit compares the fence. A nil fence is for writers
// other than the control plane; then incarnation tells what to stamp on events.
func NewWriter(e Engine, p Prefix, fence *Fence, incarnation func() uint64) *Writer {
	if fence != nil {
		incarnation = func() uint64 { return fence.Incarnation }
	}
	return &Writer{engine: e, prefix: p, fence: fence, now: time.Now, incarnation: incarnation}
}

// mergeUnits is how many units one group holds at first. A group carries one key of events for all its units
// (P8.1), so merging makes the event log cheap; a refused group is tried again unit by unit.
const mergeUnits = 128

// Commit writes units as independently as need be: a unit that does not hold is refused, the rest is written. It
// returns which units were applied and a revision that holds all of them. On an error what the returned
// slice says applied is durable; for the rest nothing is known if the error wraps ErrUnknown.
//
// No two units of a call may write the same key.
func (w *Writer) Commit(ctx context.Context, units []Unit) (applied []bool, revision uint64, err error) {
	applied = make([]bool, len(units))
	limits := w.engine.Limits()
	var single []int
	for _, call := range pack(chunk(units, mergeUnits), units, limits) {
		res, err := w.write(ctx, units, call)
		if err != nil {
			return applied, revision, err
		}
		revision = max(revision, res.Revision)
		for i, members := range call {
			for _, u := range members {
				applied[u] = res.Applied[i]
			}
			if !res.Applied[i] && len(members) > 1 {
				single = append(single, members...)
			}
		}
	}
	alone := make([][]int, len(single))
	for i, u := range single {
		alone[i] = []int{u}
	}
	for _, call := range pack(alone, units, limits) {
		res, err := w.write(ctx, units, call)
		if err != nil {
			return applied, revision, err
		}
		revision = max(revision, res.Revision)
		for i, members := range call {
			applied[members[0]] = res.Applied[i]
		}
	}
	return applied, revision, nil
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
	if w.fence != nil {
		g.Compares = append(g.Compares, Compare{Key: w.fence.Key, Modified: w.fence.Modified})
	}
	var events []cluster.Event
	seen := map[Compare]bool{}
	for _, m := range members {
		for _, c := range units[m].Compares {
			if !seen[c] {
				seen[c] = true
				g.Compares = append(g.Compares, c)
			}
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

// chunk cuts the units in runs of at most n.
func chunk(units []Unit, n int) [][]int {
	var out [][]int
	for i := range units {
		if i%n == 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], i)
	}
	return out
}

// eventRoom is added to a group's size for its events' key and the fence.
const eventRoom = 512

// pack lays groups into calls that keep the engine's limits. A group that is over the limits by itself is cut into
// its units; a unit that is over them is sent all the same and refused by the engine.
func pack(groups [][]int, units []Unit, limits Limits) [][][]int {
	var calls [][][]int
	var ops, size int
	add := func(members []int, o, s int) {
		if len(calls) == 0 || ops+o > limits.Operations || size+s > limits.Bytes {
			calls = append(calls, nil)
			ops, size = 0, 0
		}
		calls[len(calls)-1] = append(calls[len(calls)-1], members)
		ops, size = ops+o, size+s
	}
	for _, members := range groups {
		o, s := weigh(units, members)
		if len(members) > 1 && (o > limits.Operations || s > limits.Bytes) {
			for _, m := range members {
				o, s := weigh(units, []int{m})
				add([]int{m}, o, s)
			}
			continue
		}
		add(members, o, s)
	}
	return calls
}

// weigh returns the operations and bytes of a group of units.
func weigh(units []Unit, members []int) (ops, size int) {
	ops, size = 2, eventRoom
	for _, m := range members {
		u := &units[m]
		ops += len(u.Compares) + len(u.Ops)
		for i := range u.Compares {
			size += len(u.Compares[i].Key)
		}
		for i := range u.Ops {
			size += len(u.Ops[i].Key) + len(u.Ops[i].Value)
		}
		size += 200 * len(u.Events)
	}
	return ops, size
}
