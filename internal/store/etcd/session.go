package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// session is an etcd lease. Its ttl is in whole seconds, rounded up.
type session struct {
	e  *Engine
	id clientv3.LeaseID
}

// OpenSession is part of store.Engine.
func (e *Engine) OpenSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("a session of %v: %w", ttl, store.ErrInvalid)
	}
	if err := e.checkOpen(ctx); err != nil {
		return nil, err
	}
	if err := e.checkSpace(ctx, true); err != nil {
		return nil, err
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	lease, err := retryWrite(ctx, e, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return e.client.Grant(ctx, seconds)
	})
	if err != nil {
		return nil, err
	}
	return &session{e: e, id: lease.ID}, nil
}

// ID is part of store.Session.
func (s *session) ID() store.SessionID {
	return store.SessionID(strconv.FormatInt(int64(s.id), 16))
}

// leaseID is the inverse of ID.
func leaseID(id store.SessionID) (clientv3.LeaseID, error) {
	n, err := strconv.ParseInt(string(id), 16, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("session %q is not of this engine: %w", id, store.ErrSessionExpired)
	}
	return clientv3.LeaseID(n), nil
}

// Renew is part of store.Session.
func (s *session) Renew(ctx context.Context) error {
	if err := s.e.checkOpen(ctx); err != nil {
		return err
	}
	_, err := retryRead(ctx, s.e, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		return s.e.client.KeepAliveOnce(ctx, s.id)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("session %s: %w", s.ID(), store.ErrSessionExpired)
	}
	return s.e.readError(ctx, err)
}

// End is part of store.Session.
func (s *session) End(ctx context.Context) error {
	if err := s.e.checkOpen(ctx); err != nil {
		return err
	}
	_, err := retryWrite(ctx, s.e, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return s.e.client.Revoke(ctx, s.id)
	})
	if errors.Is(err, store.ErrSessionExpired) {
		return nil
	}
	return err
}
