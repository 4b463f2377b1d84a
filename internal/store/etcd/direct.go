package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage"
)

// transactDirect passes a transaction to the server in this process, and waits for the answer no longer than ctx. etcd
// also intends to end with ctx. But to find the reason of a late answer it takes a lock that it holds while it writes
// the members to a disk, which may hang.
func (c *calls) transactDirect(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	type answer struct {
		response *pb.TxnResponse
		err      error
	}
	answered := make(chan answer, 1)
	go func() {
		response, err := c.transactUnbounded(ctx, r)
		answered <- answer{response, err}
	}()
	select {
	case a := <-answered:
		return a.response, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// transactUnbounded is transactDirect without a time limit. It skips etcd's layer for clients, which would check each
// operation again for an empty key and duplicate keys; store.CheckGroups did that. It does the rest of that layer as
// etcd does.
func (c *calls) transactUnbounded(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	server := c.server.Server
	// The quota is not cached: the server has another database after it received another member's snapshot.
	if !storage.NewBackendQuota(server.Logger(), c.config.Quota, server.Backend(), "kv").Available(r) {
		_, _ = server.Alarm(ctx, &pb.AlarmRequest{
			MemberID: uint64(server.MemberID()), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		})
		return nil, rpctypes.ErrNoSpace
	}
	response, err := server.Txn(ctx, r)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	return response, nil
}

// clientError turns an error of the server in this process into the error that clients get.
func clientError(ctx context.Context, err error) error {
	for _, known := range []struct{ server, client error }{
		{etcderrors.ErrTooManyRequests, rpctypes.ErrTooManyRequests},
		{etcderrors.ErrRequestTooLarge, rpctypes.ErrRequestTooLarge},
		{etcderrors.ErrNoSpace, rpctypes.ErrNoSpace},
		{etcderrors.ErrNoLeader, rpctypes.ErrNoLeader},
		{etcderrors.ErrLeaderChanged, rpctypes.ErrLeaderChanged},
		{etcderrors.ErrStopped, rpctypes.ErrStopped},
		{etcderrors.ErrTimeout, rpctypes.ErrTimeout},
		{etcderrors.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToLeaderFail},
		{etcderrors.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutDueToConnectionLost},
		{etcderrors.ErrTimeoutWaitAppliedIndex, rpctypes.ErrTimeoutWaitAppliedIndex},
		{etcderrors.ErrUnhealthy, rpctypes.ErrUnhealthy},
		{etcderrors.ErrCorrupt, rpctypes.ErrCorrupt},
		{lease.ErrLeaseNotFound, rpctypes.ErrLeaseNotFound},
	} {
		if errors.Is(err, known.server) {
			return known.client
		}
	}
	if errors.Is(err, etcderrors.ErrCanceled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
