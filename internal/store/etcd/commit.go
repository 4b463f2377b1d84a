package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// Commit is part of store.Engine. Each group is a transaction nested in one.
//
// etcd reads the whole value of a record that a transaction compares, and groups often compare the same large one: a plan record.
// What several groups compare is therefore asked once, by the transaction around them. Where all of it holds, the groups' own compares
// decide; where it does not, nothing was written, and the groups are sent again with everything that they compare.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, e.limits); err != nil {
		return store.Result{}, err
	}
	if err := e.enter(ctx); err != nil {
		return store.Result{}, err
	}
	shared := sharedCompares(groups)
	response, err := e.commit(ctx, groups, shared)
	if err == nil && !response.Succeeded {
		response, err = e.commit(ctx, groups, nil)
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

// commit sends groups as one transaction, which compares what they share; the groups compare the rest.
func (e *Engine) commit(ctx context.Context, groups []store.Group, shared map[store.Compare]bool) (*pb.TxnResponse, error) {
	writes, puts := false, false
	all := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(groups))}
	for c := range shared { // order-free: all have to hold
		all.Compare = append(all.Compare, compare(c))
	}
	for i := range groups {
		g := &groups[i]
		nested := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(g.Ops))}
		if own := len(g.Compares); own > 0 {
			nested.Compare = make([]*pb.Compare, 0, own)
		}
		for _, c := range g.Compares {
			if !shared[c] {
				nested.Compare = append(nested.Compare, compare(c))
			}
		}
		for j := range g.Ops {
			op, err := operation(&g.Ops[j])
			if err != nil {
				return nil, fmt.Errorf("group %d: %w", i, err)
			}
			nested.Success[j] = op
			writes, puts = true, puts || !g.Ops[j].Delete
		}
		all.Success[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: nested}}
	}
	return e.txn(ctx, all, writes, puts)
}

// sharedCompares returns the demands on records that exist which more than one group makes, nil for none. That a record does not exist
// costs nothing to find out.
func sharedCompares(groups []store.Group) map[store.Compare]bool {
	if len(groups) < 2 {
		return nil
	}
	seen, shared := map[store.Compare]int{}, map[store.Compare]bool{}
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

// txn sends a transaction. One that writes nothing leaves no doubt, whatever happens to it; one that puts nothing is taken also at
// the quota.
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

func compare(c store.Compare) *pb.Compare {
	demand := &pb.Compare{Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: []byte(c.Key)}
	revision := int64(c.Modified)
	if c.Modified == store.AnyModified {
		demand.Result, revision = pb.Compare_GREATER, 0
	}
	demand.TargetUnion = &pb.Compare_ModRevision{ModRevision: revision}
	return demand
}

func operation(w *store.Op) (*pb.RequestOp, error) {
	if w.Delete {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(w.Key)},
		}}, nil
	}
	put := &pb.PutRequest{Key: []byte(w.Key), Value: w.Value}
	if w.Session != "" {
		id, err := leaseID(w.Session)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", w.Key, err)
		}
		put.Lease = int64(id)
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}, nil
}
