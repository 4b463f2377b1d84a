package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// busy is the pause before a write is offered again that etcd had not accepted yet.
const busy = 5 * time.Millisecond

// Commit is part of store.Engine.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, limits()); err != nil {
		return store.Result{}, err
	}
	if err := e.enter(ctx); err != nil {
		return store.Result{}, err
	}
	writes := false
	nested := make([]clientv3.Op, len(groups))
	for i, g := range groups {
		ops, err := operations(g.Ops)
		if err != nil {
			return store.Result{}, fmt.Errorf("group %d: %w", i, err)
		}
		writes = writes || len(ops) > 0
		nested[i] = clientv3.OpTxn(compares(g.Compares), ops, nil)
	}
	if writes {
		if err := e.space.check(ctx); err != nil {
			return store.Result{}, err
		}
	}
	response, err := e.txn(ctx, nested)
	if err != nil && !writes {
		return store.Result{}, e.fault(ctx, err) // what writes nothing leaves no doubt
	}
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

// txn sends a transaction, again while etcd says that it has not taken it.
func (e *Engine) txn(ctx context.Context, nested []clientv3.Op) (*clientv3.TxnResponse, error) {
	for {
		response, err := e.client.Txn(ctx).Then(nested...).Commit()
		if err == nil {
			return response, nil
		}
		if !errors.Is(err, rpctypes.ErrTooManyRequests) {
			err = refusal(err)
			if errors.Is(err, store.ErrNoSpace) {
				e.space.full.Store(true)
			}
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.life.Done():
			return nil, store.ErrClosed
		case <-time.After(busy):
		}
	}
}

// refusal turns an error of a write into the contract's: what etcd is known to say
// before it writes, and for all else that the result is unknown.
func refusal(err error) error {
	for _, known := range []struct{ etcd, store error }{
		{rpctypes.ErrDuplicateKey, store.ErrInvalid},
		{rpctypes.ErrEmptyKey, store.ErrInvalid},
		{rpctypes.ErrTooManyOps, store.ErrTooLarge},
		{rpctypes.ErrRequestTooLarge, store.ErrTooLarge},
		{rpctypes.ErrNoSpace, store.ErrNoSpace},
		{rpctypes.ErrLeaseNotFound, store.ErrSessionExpired},
	} {
		if errors.Is(err, known.etcd) {
			return fmt.Errorf("%w: %w", known.store, err)
		}
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, err)
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
