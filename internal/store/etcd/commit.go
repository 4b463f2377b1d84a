package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// Commit is part of store.Engine. Each group is a transaction nested in one, and a single group is one by itself.
//
// etcd reads the whole value of a record that a transaction compares, and groups often compare the same large one: a
// plan record. What several groups compare is therefore asked once, by the transaction around them. Where all of it
// holds, the groups' own compares decide; where it does not, nothing was written, and the groups are sent again with
// everything that they compare.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, e.limits); err != nil {
		return store.Result{}, err
	}
	if err := e.enter(ctx); err != nil {
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

// commit sends groups as one transaction, which compares what they share; the groups compare the rest.
func (e *Engine) commit(ctx context.Context, groups []store.Group, shared map[store.Compare]bool) (*pb.TxnResponse,
	error,
) {
	all, err := newTransaction(e.prefix, groups, shared).request(groups, shared)
	if err != nil {
		return nil, err
	}
	writes, puts := false, false
	for i := range groups {
		for j := range groups[i].Ops {
			writes, puts = true, puts || !groups[i].Ops[j].Delete
		}
	}
	return e.txn(ctx, all, writes, puts)
}

// sharedCompares returns the demands on records that exist which more than one group makes, nil for none. That a record
// does not exist costs nothing to find out.
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

// txn sends a transaction. One that writes nothing leaves no doubt, whatever happens to it; one that puts nothing is
// taken also at the quota.
func (e *Engine) txn(ctx context.Context, all *pb.TxnRequest, writes, puts bool) (*pb.TxnResponse, error) {
	send := func(ctx context.Context) (*pb.TxnResponse, error) {
		response, err := e.transact(ctx, all)
		return response, clientv3.ContextError(ctx, err)
	}
	if !writes {
		response, err := reading(ctx, e, send)
		if err == nil {
			return response, nil
		}
		if refused := e.refusal(err); !errors.Is(refused, store.ErrUnknown) {
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
