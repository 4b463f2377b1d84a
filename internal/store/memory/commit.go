package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/store"
)

// Commit is part of store.Engine. Its two stages, before and after the lock, are
// where a Crash catches it.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, e.d.limits); err != nil {
		return store.Result{}, err
	}
	groups = clone(groups) // a commit that a crash delays outlives the call
	life, err := e.enter(ctx)
	if err != nil {
		return store.Result{}, err
	}
	e.d.mu.Unlock()
	if e.hooks.Before != nil {
		if err := e.hooks.Before(ctx, groups); err != nil {
			return store.Result{}, err
		}
	}

	result, err := e.apply(ctx, life, groups)
	if err != nil || e.hooks.After == nil {
		return result, err
	}
	if err := e.hooks.After(ctx, groups, result); err != nil {
		return store.Result{}, err
	}
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if e.d.life != life {
		return store.Result{}, fmt.Errorf("the engine crashed before it answered: %w", store.ErrUnknown)
	}
	return result, nil
}

// apply carries out a commit, or lets the crash that came in between decide its fate.
func (e *Engine) apply(ctx context.Context, life int, groups []store.Group) (store.Result, error) {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if e.d.life != life {
		e.d.fate(groups)
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
	return e.d.commit(groups)
}

// fate lets a commit that a crash caught happen now, some time later, or never. The lock is held.
func (d *data) fate(groups []store.Group) {
	late := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		_, _ = d.commit(groups) // nobody is left to hear of it
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
		if !applied[i] {
			continue
		}
		for _, op := range g.Ops {
			if _, live := d.sessions[op.Session]; op.Session != "" && !op.Delete && !live {
				return store.Result{}, fmt.Errorf("key %q: %w", op.Key, store.ErrSessionExpired)
			}
		}
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
	d.settle(at)
	if d.brim && slices.ContainsFunc(groups, puts) {
		d.brim, d.full = false, true
		return store.Result{}, fmt.Errorf("the write reached the quota: %w: %w", store.ErrUnknown, store.ErrNoSpace)
	}
	return store.Result{Applied: applied, Revision: d.revision}, nil
}

// puts tells whether a group writes something other than a deletion.
func puts(g store.Group) bool {
	return slices.ContainsFunc(g.Ops, func(op store.Op) bool { return !op.Delete })
}

// holds tells whether a compare is true now.
func (d *data) holds(c store.Compare) bool {
	record, stands := d.records[c.Key]
	if c.Modified == store.AnyModified {
		return stands
	}
	return record.Modified == c.Modified // an absent record has the revision 0
}

// write applies one operation at a revision.
func (d *data) write(at uint64, op store.Op) {
	old, stood := d.records[op.Key]
	if op.Delete {
		if !stood {
			return
		}
		delete(d.records, op.Key)
		d.tie(op.Key, "")
		d.keys = nil
	} else {
		record := store.Record{Key: op.Key, Value: op.Value, Created: at, Modified: at}
		if stood {
			record.Created = old.Created
		} else {
			d.keys = nil
		}
		d.records[op.Key] = record
		d.tie(op.Key, op.Session)
	}
	d.events = append(d.events, event{revision: at, key: op.Key})
}

// settle ends the writes of one revision, if there were any: the revision counts from
// now on, watches wake, and history beyond its bound is forgotten.
func (d *data) settle(at uint64) {
	if n := len(d.events); n == 0 || d.events[n-1].revision != at {
		return
	}
	d.revision = at
	d.show(at)
	if extra := len(d.events) - d.history; extra > d.history/4 {
		d.forget(d.events[extra-1].revision)
	}
	d.announce()
}

// show tells the observer what the last revision changed. The lock is held.
func (d *data) show(at uint64) {
	if d.observe == nil {
		return
	}
	from, _ := slices.BinarySearchFunc(d.events, at, byRevision)
	changes := make([]store.Change, 0, len(d.events)-from)
	for _, e := range d.events[from:] {
		record, stands := d.records[e.key]
		if !stands {
			record = store.Record{Key: e.key, Modified: at}
		}
		changes = append(changes, store.Change{Record: record, Deleted: !stands})
	}
	d.observe(changes, at, false)
}

// forget drops the history up to and including a revision.
func (d *data) forget(revision uint64) {
	n, _ := slices.BinarySearchFunc(d.events, revision+1, byRevision)
	d.events = slices.Clone(d.events[n:])
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
