package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/berthd/berth/internal/store"
)

// Commit is part of store.Engine. Each group is a transaction nested in one, and a single group is a transaction by
// itself.
//
// etcd reads the whole value of a record that a transaction compares. Groups often compare the same large record, such
// as a plan record. The outer transaction therefore makes the compares that several groups share, once. If all of them
// hold, the groups' own compares decide. If one of them fails, nothing was written, and Commit sends the groups again
// with all of their compares.
func (r *records) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if err := store.CheckGroups(groups, r.limits); err != nil {
		return store.Result{}, err
	}
	if err := r.checkOpen(ctx); err != nil {
		return store.Result{}, err
	}
	shared := sharedCompares(groups)
	response, err := r.commit(ctx, groups, shared)
	if err == nil && !response.Succeeded && len(groups) > 1 {
		response, err = r.commit(ctx, groups, nil)
	}
	if err != nil {
		return store.Result{}, err
	}
	result := store.Result{Applied: make([]bool, len(groups)), Revision: uint64(response.Header.Revision)}
	for i := range groups {
		result.Applied[i] = response.Succeeded && (len(groups) == 1 || response.Responses[i].GetResponseTxn().Succeeded)
	}
	r.observe(result.Revision)
	return result, nil
}

// commit sends groups as one transaction, which makes the shared compares; each group makes the rest.
func (r *records) commit(ctx context.Context, groups []store.Group, shared map[store.Compare]bool) (*pb.TxnResponse,
	error,
) {
	all := newTransaction(r.prefix, groups, shared).request(groups, shared)
	writes, puts := false, false
	for i := range groups {
		for j := range groups[i].Ops {
			writes, puts = true, puts || !groups[i].Ops[j].Delete
		}
	}
	return r.txn(ctx, all, writes, puts)
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
