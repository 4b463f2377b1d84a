package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// Commit is part of store.Engine. Each group is a transaction nested in one, and a single group is a transaction by
// itself.
//
// etcd reads the whole value of a record that a transaction compares. Groups often compare the same large record, such
// as a plan record. The outer transaction therefore makes the compares that several groups share, once. If all of them
// hold, the groups' own compares decide. If one of them fails, nothing was written, and Commit sends the groups again
// with all of their compares.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, e.limits); err != nil {
		return store.Result{}, err
	}
	if err := e.checkOpen(ctx); err != nil {
		return store.Result{}, err
	}
	shared := sharedCompares(groups)
	response, err := e.commit(ctx, groups, shared)
	if err == nil && !response.Succeeded && len(groups) > 1 {
		response, err = e.commit(ctx, groups, nil)
	}
	if err != nil {
		return store.Result{}, err
	}
	result := store.Result{Applied: make([]bool, len(groups)), Revision: uint64(response.Header.Revision)}
	for i := range groups {
		result.Applied[i] = response.Succeeded && (len(groups) == 1 || response.Responses[i].GetResponseTxn().Succeeded)
	}
	e.observe(result.Revision)
	return result, nil
}

// commit sends groups as one transaction, which makes the shared compares; each group makes the rest.
func (e *Engine) commit(ctx context.Context, groups []store.Group, shared map[store.Compare]bool) (*pb.TxnResponse,
	error,
) {
	all := newTransaction(e.prefix, groups, shared).request(groups, shared)
	writes, puts := false, false
	for i := range groups {
		for j := range groups[i].Ops {
			writes, puts = true, puts || !groups[i].Ops[j].Delete
		}
	}
	return e.txn(ctx, all, writes, puts)
}

// sharedCompares returns the compares of existing records that more than one group makes, nil for none. A compare with
// an absent record is cheap and is not shared.
func sharedCompares(groups []store.Group) map[store.Compare]bool {
	if len(groups) < 2 {
		return nil
	}
	demands := 0
	for i := range groups {
		demands += len(groups[i].Compares)
	}
	seen, shared := make(map[store.Compare]int, demands), map[store.Compare]bool{}
	for i := range groups {
		for _, c := range groups[i].Compares {
			if c.Modified == 0 {
				continue
			}
			if first, ok := seen[c]; ok && first != i {
				shared[c] = true
			} else {
				seen[c] = i
			}
		}
	}
	return shared
}

// txn sends a transaction. A transaction without writes has no unknown result. A transaction without puts is sent even
// at the quota.
func (e *Engine) txn(ctx context.Context, all *pb.TxnRequest, writes, puts bool) (*pb.TxnResponse, error) {
	send := func(ctx context.Context) (*pb.TxnResponse, error) {
		response, err := e.transact(ctx, all)
		return response, clientv3.ContextError(ctx, err)
	}
	if !writes {
		response, err := retryRead(ctx, e, send)
		if err == nil {
			return response, nil
		}
		if refused := e.writeError(err); !errors.Is(refused, store.ErrUnknown) {
			return nil, refused
		}
		return nil, e.readError(ctx, err)
	}
	if err := e.checkSpace(ctx, puts); err != nil {
		return nil, err
	}
	response, err := retryWrite(ctx, e, send)
	if errors.Is(err, store.ErrNoSpace) {
		e.space.noteQuotaReached()
	}
	return response, err
}
