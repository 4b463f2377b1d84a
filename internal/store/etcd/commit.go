package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// Commit is part of store.Engine.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, e.limits); err != nil {
		return store.Result{}, err
	}
	if err := e.enter(ctx); err != nil {
		return store.Result{}, err
	}
	writes, puts := false, false
	nested := make([]clientv3.Op, len(groups))
	for i, g := range groups {
		ops, err := operations(g.Ops)
		if err != nil {
			return store.Result{}, fmt.Errorf("group %d: %w", i, err)
		}
		writes = writes || len(ops) > 0
		puts = puts || slices.ContainsFunc(g.Ops, func(op store.Op) bool { return !op.Delete })
		nested[i] = clientv3.OpTxn(compares(g.Compares), ops, nil)
	}
	response, err := e.txn(ctx, nested, writes, puts)
	if err != nil {
		return store.Result{}, err
	}
	result := store.Result{Applied: make([]bool, len(groups)), Revision: uint64(response.Header.Revision)}
	for i, r := range response.Responses {
		result.Applied[i] = r.GetResponseTxn().Succeeded
	}
	e.observe(result.Revision)
	return result, nil
}

// txn sends a transaction. One that writes nothing leaves no doubt, whatever happens to it; one that puts nothing is taken also at
// the quota.
func (e *Engine) txn(ctx context.Context, nested []clientv3.Op, writes, puts bool) (*clientv3.TxnResponse, error) {
	send := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return e.client.Txn(ctx).Then(nested...).Commit()
	}
	if !writes {
		response, err := reading(ctx, e, send)
		if err == nil {
			return response, nil
		}
		if refused := refusal(err); !errors.Is(refused, store.ErrUnknown) {
			return nil, refused
		}
		return nil, e.fault(ctx, err)
	}
	if err := e.room(ctx, puts); err != nil {
		return nil, err
	}
	response, err := writing(ctx, e, send)
	if errors.Is(err, store.ErrNoSpace) {
		e.space.filled()
	}
	return response, err
}

func compares(demands []store.Compare) []clientv3.Cmp {
	cmps := make([]clientv3.Cmp, len(demands))
	for i, c := range demands {
		if c.Modified == store.AnyModified {
			cmps[i] = clientv3.Compare(clientv3.ModRevision(c.Key), ">", 0)
		} else {
			cmps[i] = clientv3.Compare(clientv3.ModRevision(c.Key), "=", int64(c.Modified))
		}
	}
	return cmps
}

func operations(writes []store.Op) ([]clientv3.Op, error) {
	ops := make([]clientv3.Op, len(writes))
	for i, w := range writes {
		switch {
		case w.Delete:
			ops[i] = clientv3.OpDelete(w.Key)
		case w.Session == "":
			ops[i] = clientv3.OpPut(w.Key, string(w.Value))
		default:
			id, err := leaseID(w.Session)
			if err != nil {
				return nil, fmt.Errorf("key %q: %w", w.Key, err)
			}
			ops[i] = clientv3.OpPut(w.Key, string(w.Value), clientv3.WithLease(id))
		}
	}
	return ops, nil
}
