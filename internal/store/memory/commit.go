package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/store"
)

// Commit is part of store.Engine. A Crash can catch it in two stages: before it takes the lock and after it releases
// it.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, e.d.limits); err != nil {
		return store.Result{}, err
	}
	if e.d.consul {
		if err := store.CheckTextKeys(groups); err != nil {
			return store.Result{}, err
		}
	}
	groups = clone(groups) // a crash may delay the commit beyond the call
	crashes, err := e.lockWhenUp(ctx)
	if err != nil {
		return store.Result{}, err
	}
	e.d.mu.Unlock()
	if e.hooks.Before != nil {
		if err := e.hooks.Before(ctx, groups); err != nil {
			return store.Result{}, err
		}
	}

	result, err := e.apply(ctx, crashes, groups)
	if err != nil || e.hooks.After == nil {
		return result, err
	}
	if err := e.hooks.After(ctx, groups, result); err != nil {
		return store.Result{}, err
	}
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if e.d.crashes != crashes {
		return store.Result{}, fmt.Errorf("the engine crashed before it answered: %w", store.ErrUnknown)
	}
	return result, nil
}

// apply carries out a commit, or resolves it by chance if the engine crashed since the call began.
func (e *Engine) apply(ctx context.Context, crashes int, groups []store.Group) (store.Result, error) {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if e.d.crashes != crashes {
		e.d.resolveInFlight(groups)
		return store.Result{}, fmt.Errorf("the engine crashed: %w", store.ErrUnknown)
	}
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	select {
	case <-e.closed:
		return store.Result{}, store.ErrClosed
	default:
	}
	result, err := e.d.commit(groups)
	if err == nil {
		result.Revision = e.raiseFloor(result.Revision)
	}
	return result, err
}

// resolveInFlight applies a commit that a crash caught now, some time later, or never. The lock is held.
func (d *data) resolveInFlight(groups []store.Group) {
	late := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		_, _ = d.commit(groups) // the caller has its answer already
	}
	switch d.random.IntN(3) {
	case 0:
		_, _ = d.commit(groups)
	case 1:
		time.AfterFunc(time.Duration(d.random.Int64N(int64(100*time.Millisecond))), late)
	}
}

// commit evaluates the compares of all groups, then writes. The lock is held.
func (d *data) commit(groups []store.Group) (store.Result, error) {
	applied := make([]bool, len(groups))
	writes := false
	for i, g := range groups {
		applied[i] = !slices.ContainsFunc(g.Compares, func(c store.Compare) bool { return !d.holds(c) })
		writes = writes || len(g.Ops) > 0
	}
	if writes && d.full {
		return store.Result{}, store.ErrNoSpace
	}
	at := d.revision + 1
	for i, g := range groups {
		if !applied[i] {
			continue
		}
		for _, op := range g.Ops {
			d.write(at, op)
		}
	}
	d.finishRevision(at)
	if d.reachesQuotaNext && slices.ContainsFunc(groups, writesValue) {
		d.reachesQuotaNext, d.full = false, true
		return store.Result{}, fmt.Errorf("the write reached the quota: %w: %w", store.ErrUnknown, store.ErrNoSpace)
	}
	return store.Result{Applied: applied, Revision: d.revision}, nil
}

// writesValue reports whether a group writes something other than a deletion.
func writesValue(g store.Group) bool {
	return slices.ContainsFunc(g.Ops, func(op store.Op) bool { return !op.Delete })
}

// holds reports whether a compare holds now.
func (d *data) holds(c store.Compare) bool {
	record, exists := d.records[c.Key]
	if c.Modified == store.AnyModified {
		return exists
	}
	return record.Modified == c.Modified // an absent record has the revision 0
}

// write applies one operation at a revision.
func (d *data) write(at uint64, op store.Op) {
	old, existed := d.records[op.Key]
	if op.Delete {
		if !existed {
			return
		}
		delete(d.records, op.Key)
		d.keys = nil
		if d.consul {
			d.tombstones[op.Key] = at
		}
	} else {
		if d.consul && existed && bytes.Equal(old.Value, op.Value) {
			return
		}
		record := store.Record{Key: op.Key, Value: op.Value, Created: at, Modified: at}
		if existed {
			record.Created = old.Created
		} else {
			d.keys = nil
		}
		d.records[op.Key] = record
	}
	d.events = append(d.events, event{revision: at, key: op.Key})
}

// finishRevision ends the writes of one revision, if there were any. It advances the revision, wakes watches, and drops
// history beyond its limit.
func (d *data) finishRevision(at uint64) {
	if n := len(d.events); n == 0 || d.events[n-1].revision != at {
		return
	}
	d.revision = at
	d.notifyObserver(at)
	if extra := len(d.events) - d.history; extra > d.history/4 {
		d.compact(d.events[extra-1].revision)
	}
	d.wakeWaiters()
}

// notifyObserver passes the changes of the last revision to the observer. The lock is held.
func (d *data) notifyObserver(at uint64) {
	if d.observe == nil {
		return
	}
	from, _ := slices.BinarySearchFunc(d.events, at, byRevision)
	changes := make([]store.Change, 0, len(d.events)-from)
	for _, e := range d.events[from:] {
		record, exists := d.records[e.key]
		if !exists {
			record = store.Record{Key: e.key, Modified: at}
		}
		changes = append(changes, store.Change{Record: record, Deleted: !exists})
	}
	d.observe(changes, at, false)
}

// compact drops the history up to and including a revision.
func (d *data) compact(revision uint64) {
	n, _ := slices.BinarySearchFunc(d.events, revision+1, byRevision)
	d.events = slices.Clone(d.events[n:])
	maps.DeleteFunc(d.tombstones, func(_ string, deleted uint64) bool { return deleted <= revision })
	d.compacted = revision
}

func byRevision(e event, revision uint64) int {
	switch {
	case e.revision < revision:
		return -1
	case e.revision > revision:
		return 1
	}
	return 0
}

func clone(groups []store.Group) []store.Group {
	copied := make([]store.Group, len(groups))
	for i, g := range groups {
		copied[i] = store.Group{Compares: slices.Clone(g.Compares), Ops: slices.Clone(g.Ops)}
		for j := range copied[i].Ops {
			copied[i].Ops[j].Value = bytes.Clone(g.Ops[j].Value)
		}
	}
	return copied
}

// Unacknowledged is an After hook that loses every acknowledgement.
func Unacknowledged(context.Context, []store.Group, store.Result) error {
	return fmt.Errorf("the acknowledgement was lost: %w", store.ErrUnknown)
}

// Refuse returns a Before hook that refuses every commit with the error.
func Refuse(err error) func(context.Context, []store.Group) error {
	if err == nil {
		err = errors.New("refused by a hook")
	}
	return func(context.Context, []store.Group) error { return err }
}
