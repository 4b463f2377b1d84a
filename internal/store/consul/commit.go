package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// transaction is a call of Commit as one transaction of Consul, which is applied as a whole or not at all. So refused
// groups have to be left out, and the others sent again. Then each refused group has a pin: a compare that holds as
// long as the group is refused. So all groups are decided at one state of the store.
type transaction struct {
	groups  []store.Group
	refused []bool
	pins    []store.Compare
}

// operations are the operations of a transaction: first all compares, so that they see nothing of the writes, then the
// writes.
type operations struct {
	ops api.TxnOps
	// compares belong to the first operations, and groups are theirs; -1 for a pin.
	compares []store.Compare
	groups   []int
	keys     []string // those that are written
	// foreign says that another program wrote the keys before.
	foreign bool
}

// operations returns the operations of the groups that are not refused, and of the pins, with keys of Consul.
func (t *transaction) operations(k keyspace) operations {
	var out operations
	compare := func(group int, c store.Compare) {
		op := kvOp(api.KVCheckIndex, k.key(c.Key))
		switch c.Modified {
		case 0:
			op.KV.Verb = api.KVCheckNotExists
		case store.AnyModified:
			op.KV.Verb = api.KVGet
		default:
			op.KV.Index = c.Modified
		}
		out.ops, out.compares = append(out.ops, op), append(out.compares, c)
		out.groups = append(out.groups, group)
	}
	for _, pin := range t.pins {
		compare(-1, pin)
	}
	for i, g := range t.groups {
		if t.refused[i] {
			continue
		}
		for _, c := range g.Compares {
			compare(i, c)
		}
	}
	for i, g := range t.groups {
		if t.refused[i] {
			continue
		}
		for _, w := range g.Ops {
			out.keys = append(out.keys, w.Key)
			op := kvOp(api.KVDelete, k.key(w.Key))
			if !w.Delete {
				op.KV.Verb, op.KV.Value = api.KVSet, w.Value
			}
			out.ops = append(out.ops, op)
		}
	}
	return out
}

// failedCompares returns a failed compare for each group that has one, and an error for any other failure.
func (o *operations) failedCompares(errs api.TxnErrors) (failed map[int]store.Compare, err error) {
	failed = map[int]store.Compare{}
	for _, f := range errs {
		if f.OpIndex < 0 || f.OpIndex >= len(o.compares) {
			return nil, fmt.Errorf("consul refused an operation: %s: %w", f.What, store.ErrUnavailable)
		}
		failed[o.groups[f.OpIndex]] = o.compares[f.OpIndex]
	}
	return failed, nil
}

// refuse leaves out the groups with a failed compare.
func (t *transaction) refuse(failed map[int]store.Compare) {
	for group := range failed { // order-free: a set
		t.refused[group] = true
	}
}

// reset has all groups decided again.
func (t *transaction) reset() {
	clear(t.refused)
	t.pins = nil
}

// hasWrites reports whether a group that is not refused writes.
func (t *transaction) hasWrites() bool {
	for i, g := range t.groups {
		if !t.refused[i] && len(g.Ops) > 0 {
			return true
		}
	}
	return false
}

// pin adds a pin for each refused group. It returns false if a failed compare holds now.
func (t *transaction) pin(ctx context.Context, e *Engine, failed map[int]store.Compare) (bool, error) {
	compares := slices.Collect(maps.Values(failed))
	keys := make([]string, len(compares))
	for i, c := range compares {
		keys[i] = c.Key
	}
	records, err := e.ReadTogether(ctx, keys...)
	if err != nil {
		return false, err
	}
	for i, c := range compares {
		now := records[i].Modified
		if now == c.Modified || now > 0 && c.Modified == store.AnyModified {
			return false, nil
		}
		t.pins = append(t.pins, store.Compare{Key: c.Key, Modified: now})
	}
	return true, nil
}

// result returns the result at a revision.
func (t *transaction) result(revision uint64) store.Result {
	applied := make([]bool, len(t.groups))
	for i := range applied {
		applied[i] = !t.refused[i]
	}
	return store.Result{Applied: applied, Revision: revision}
}

// Commit is part of store.Engine.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := e.checkOpen(ctx); err != nil {
		return store.Result{}, err
	}
	if err := store.CheckGroups(groups, e.Limits()); err != nil {
		return store.Result{}, err
	}
	if err := checkKeys(groups); err != nil {
		return store.Result{}, err
	}
	t := transaction{groups: groups, refused: make([]bool, len(groups))}
	if !t.hasWrites() {
		return e.commitCompares(ctx, &t)
	}
	until := time.Now().Add(commitTimeout)
	for wait := firstPause / 4; ; {
		o := t.operations(e.keyspace)
		revision, errs, err := e.lanes.commit(ctx, &o)
		e.noteSpace(err)
		if err != nil {
			return store.Result{}, err
		}
		if len(errs) == 0 {
			return t.result(revision), nil
		}
		failed, err := o.failedCompares(errs)
		if err != nil {
			return store.Result{}, err
		}
		if len(t.pins) == 0 {
			if t.refuse(failed); !t.hasWrites() {
				return e.resultNow(ctx, &t)
			}
			pinned, err := t.pin(ctx, e, failed)
			if err != nil {
				return store.Result{}, err
			}
			if pinned {
				continue
			}
		}
		// The state is another one, and nothing was written.
		t.reset()
		if err := pause.For(ctx, wait); err != nil {
			return store.Result{}, err
		}
		if wait = min(2*wait, longestPause); time.Now().After(until) {
			return store.Result{}, fmt.Errorf("others changed what the commit compares, again and again: %w",
				store.ErrUnavailable)
		}
	}
}

// commitCompares is a call that writes nothing. A read shows which compares hold.
func (e *Engine) commitCompares(ctx context.Context, t *transaction) (store.Result, error) {
	if o := t.operations(e.keyspace); len(o.ops) > 0 {
		_, errs, err := e.readTogether(ctx, o.ops)
		if err != nil {
			return store.Result{}, err
		}
		failed, err := o.failedCompares(errs)
		if err != nil {
			return store.Result{}, err
		}
		t.refuse(failed)
	}
	return e.resultNow(ctx, t)
}

// resultNow returns the result of a call that wrote nothing, at the present revision.
func (e *Engine) resultNow(ctx context.Context, t *transaction) (store.Result, error) {
	present, err := e.readHeads(ctx)
	if err != nil {
		return store.Result{}, err
	}
	return t.result(present.revision), nil
}

// noteSpace notes whether Consul's disk is full, by the result of a write.
func (e *Engine) noteSpace(err error) {
	if err == nil || errors.Is(err, store.ErrNoSpace) {
		e.noSpace.Store(err != nil)
	}
}

// entryOf returns the entry of a commit. The keys are left out if the request had no room for them.
func entryOf(number uint64, o *operations) (entry, error) {
	made := entry{Number: number, Keys: o.keys, Foreign: o.foreign}
	value, err := json.Marshal(made)
	if err != nil {
		return entry{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	size := (len(o.ops)+logOperations)*operationBytes + base64Len(len(value)) + 4*maxHeadKeys // the rest for the head
	for i, op := range o.ops {
		size += base64Len(len(op.KV.Value))
		if i < len(o.compares) {
			size += len(o.compares[i].Key)
		}
	}
	for _, key := range o.keys {
		size += len(key)
	}
	if size > maxRequestBytes {
		return entry{Number: number, Whole: true}, nil
	}
	return made, nil
}

func base64Len(n int) int { return (n + 2) / 3 * 4 }
