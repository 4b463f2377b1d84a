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

// direct hands a transaction to the server in this process, and waits for the answer as long as ctx says. etcd means to
// do that itself, but looks for why an answer does not come behind a lock that it holds while it writes who its members
// are, on a disk that may hang.
func (e *Engine) direct(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	type answer struct {
		response *pb.TxnResponse
		err      error
	}
	answered := make(chan answer, 1)
	go func() {
		response, err := e.hand(ctx, r)
		answered <- answer{response, err}
	}()
	select {
	case a := <-answered:
		return a.response, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hand is direct, without a bound. What stands before the server for clients would look at each operation again: that
// it has a key and that no two write the same one, which store.CheckGroups did. The rest of it is done here, as etcd
// does it.
func (e *Engine) hand(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	server := e.server.Server
	// The server has another database after it took in another member's snapshot: so the quota is not kept.
	if !storage.NewBackendQuota(server.Logger(), e.config.Quota, server.Backend(), "kv").Available(r) {
		_, _ = server.Alarm(ctx, &pb.AlarmRequest{
			MemberID: uint64(server.MemberID()), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		})
		return nil, rpctypes.ErrNoSpace
	}
	response, err := server.Txn(ctx, r)
	if err != nil {
		return nil, told(ctx, err)
	}
	return response, nil
}

// told turns an error of the server in this process into the one that clients get.
func told(ctx context.Context, err error) error {
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
