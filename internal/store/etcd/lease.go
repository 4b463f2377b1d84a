package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errLeaseExpired says that etcd has no lease of the given id any more. Nothing was written.
var errLeaseExpired = errors.New("the lease has expired")

// recordLease is a lease of etcd. etcd deletes its records when it ends: by end, or by itself between one and two ttl
// after it was granted. A restart of etcd and a change of its leader start the ttl again.
type recordLease struct {
	calls *calls
	id    clientv3.LeaseID
}

// grantLease returns a new lease. etcd counts in whole seconds: the ttl is rounded up.
func (c *calls) grantLease(ctx context.Context, ttl time.Duration) (*recordLease, error) {
	if err := c.checkOpen(ctx); err != nil {
		return nil, err
	}
	if err := c.checkSpace(ctx, true); err != nil {
		return nil, err
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	granted, err := retryWrite(ctx, c, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return c.client.Grant(ctx, seconds)
	})
	if err != nil {
		return nil, fmt.Errorf("grant a lease: %w", err)
	}
	return &recordLease{calls: c, id: granted.ID}, nil
}

// create writes a record that ends with the lease, unless there is a record under the key already. It reports whether
// it wrote the record.
func (l *recordLease) create(ctx context.Context, key string, value []byte) (bool, error) {
	if err := l.calls.checkOpen(ctx); err != nil {
		return false, err
	}
	at := []byte(l.calls.prefix + key)
	response, err := l.calls.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: at, TargetUnion: &pb.Compare_ModRevision{},
		}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: at, Value: value, Lease: int64(l.id)},
		}}},
	}, true, true)
	if err != nil {
		return false, err
	}
	l.calls.observe(uint64(response.Header.Revision))
	return response.Succeeded, nil
}

// end ends the lease and deletes its records immediately. An expired lease is no error.
func (l *recordLease) end(ctx context.Context) error {
	if err := l.calls.checkOpen(ctx); err != nil {
		return err
	}
	_, err := retryWrite(ctx, l.calls, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return l.calls.client.Revoke(ctx, l.id)
	})
	if errors.Is(err, errLeaseExpired) {
		return nil
	}
	return err
}
