package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/remote"
)

// Timeouts of calls while the servers have no quorum.
const (
	// readLimit bounds a read, or one page of it.
	readLimit = 5 * time.Second
	// leaderLimit bounds the time that a write waits for a leader before it is sent.
	leaderLimit = 3 * time.Second
	// writeLimit bounds a write that was sent. etcd itself gives up after 5 s and two elections.
	writeLimit = 10 * time.Second
	// retryPause is the pause before a call is repeated that etcd did not accept.
	retryPause = 5 * time.Millisecond
)

// calls makes calls to etcd within limits of time, repeats those that etcd did not accept, and turns etcd's errors into
// those of store.Engine's contract.
type calls struct {
	*core
	leader  *leaderTerm
	watches *watches
	space   *space // nil where the server runs elsewhere
	// transact sends a transaction without a copy of its parts, which the client would make.
	transact func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
}

// observe notes a revision that is about to be returned to a caller, so that watches deliver progress up to it.
func (c *calls) observe(revision uint64) { c.watches.observe(revision) }

// retryRead makes one read, and repeats it while etcd changes its leader.
func retryRead[T any](ctx context.Context, c *calls, call func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	for {
		answer, err := call(bounded)
		if !errors.Is(err, rpctypes.ErrLeaderChanged) && !errors.Is(err, rpctypes.ErrTooManyRequests) {
			return answer, err
		}
		if c.pauseBeforeRetry(bounded) != nil {
			return answer, err
		}
	}
}

// readRevision reads the store's revision by a linearizable read of one key under the engine's prefix.
func (c *calls) readRevision(ctx context.Context) (uint64, error) {
	response, err := retryRead(ctx, c, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return c.client.Get(ctx, c.prefix+"berth", clientv3.WithCountOnly())
	})
	if err != nil {
		return 0, err
	}
	return uint64(response.Header.Revision), nil
}

// pauseBeforeRetry waits for retryPause.
func (c *calls) pauseBeforeRetry(ctx context.Context) error {
	ended, err := pause.Until(ctx, c.lifetime.Done(), retryPause)
	if ended {
		return context.Cause(c.lifetime)
	}
	return err
}

// retryWrite makes one write once there is a leader, and repeats it while etcd says that it was not accepted. The error
// is one of store.Engine's contract.
func retryWrite[T any](ctx context.Context, c *calls, call func(context.Context) (T, error)) (T, error) {
	var none T
	if err := c.waitForLeader(ctx); err != nil {
		return none, err
	}
	bounded, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	leaderTerm, done := c.leader.bind(bounded)
	defer done()
	for {
		answer, err := call(leaderTerm)
		if err == nil {
			return answer, nil
		}
		if !isRetryable(err) {
			return none, c.writeError(err)
		}
		if c.pauseBeforeRetry(bounded) != nil {
			if cause := c.checkOpen(ctx); cause != nil {
				return none, cause
			}
			return none, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
	}
}

// isRetryable reports whether etcd did not accept a write, and may accept it later.
func isRetryable(err error) bool {
	// The client has no name for raft's own error, which occurs while the leadership moves.
	return errors.Is(err, rpctypes.ErrTooManyRequests) || rpctypes.ErrorDesc(err) == "raft proposal dropped"
}

// waitForLeader waits until there is a leader. etcd would keep a call that is sent without a leader, and its result
// would be unknown.
func (c *calls) waitForLeader(ctx context.Context) error {
	if c.server == nil || c.server.Server.Leader() != 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, leaderLimit)
	defer cancel()
	for c.server.Server.Leader() == 0 {
		if c.pauseBeforeRetry(bounded) == nil {
			continue
		}
		if cause := c.checkOpen(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("no leader for %v: %w", leaderLimit, store.ErrUnavailable)
	}
	return nil
}

// writeError turns an error of a write that was sent into an error of the contract. etcd returns some errors only
// before it writes. After any other error the result is unknown.
func (c *calls) writeError(err error) error {
	for _, known := range []struct{ etcd, store error }{
		{rpctypes.ErrDuplicateKey, store.ErrInvalid},
		{rpctypes.ErrEmptyKey, store.ErrInvalid},
		{rpctypes.ErrTooManyOps, store.ErrTooLarge},
		{rpctypes.ErrRequestTooLarge, store.ErrTooLarge},
		{rpctypes.ErrLeaseNotFound, errLeaseExpired},
		{rpctypes.ErrNoLeader, store.ErrUnavailable},
	} {
		if errors.Is(err, known.etcd) {
			return fmt.Errorf("%w: %w", known.store, err)
		}
	}
	if authErr := c.authError(err); authErr != nil {
		return authErr
	}
	// The write was refused before it was sent, or it was applied: etcd returns the same error for the write that
	// reaches the quota.
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: %w: %w", store.ErrUnknown, store.ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, err)
}

// checkSpace returns store.ErrNoSpace if a write must not be sent, since the disk is full or the store is at its quota.
// At the quota etcd refuses puts while the alarm is set, but accepts deletions. For an etcd that runs elsewhere
// checkSpace returns nil.
func (c *calls) checkSpace(ctx context.Context, puts bool) error {
	if err := c.space.check(ctx); err != nil || c.server == nil || !puts {
		return err
	}
	for _, a := range c.server.Server.Alarms() {
		if a.Alarm == pb.AlarmType_NOSPACE {
			c.space.noteQuotaReached()
			return fmt.Errorf("the database of member %x reached its quota: %w", a.MemberID, store.ErrNoSpace)
		}
	}
	return nil
}

// readError names the cause of a failed read: the caller's context, the end of the engine, or a missing quorum. It
// passes on any other answer of etcd.
func (c *calls) readError(ctx context.Context, err error) error {
	if cause := c.checkOpen(ctx); cause != nil {
		return cause
	}
	if authErr := c.authError(err); authErr != nil {
		return authErr
	}
	if _, answered := errors.AsType[rpctypes.EtcdError](err); answered {
		for _, known := range []error{
			rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail,
			rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex, rpctypes.ErrStopped,
			rpctypes.ErrUnhealthy,
		} {
			if errors.Is(err, known) {
				return fmt.Errorf("read from etcd: %w: %w", store.ErrUnavailable, err)
			}
		}
		return fmt.Errorf("read from etcd: %w", err)
	}
	return fmt.Errorf("read from etcd: %w: %w", store.ErrUnavailable, err)
}

// authError returns a *store.DeniedError if etcd denied a call for its user or permissions, else nil.
func (c *calls) authError(err error) error {
	if err == nil {
		return nil
	}
	denied, fault := &store.DeniedError{Err: err}, remote.FaultPermission
	switch etcdErr := rpctypes.Error(err); {
	case errors.Is(etcdErr, rpctypes.ErrPermissionDenied):
		denied.What = "etcd does not permit the keys of the store to " + describeUser(c.user)
	case errors.Is(etcdErr, rpctypes.ErrUserNotFound):
		denied.What, fault = "etcd does not know "+describeUser(c.user), remote.FaultPassword
	case errors.Is(etcdErr, rpctypes.ErrAuthFailed):
		denied.What, fault = "etcd does not accept the password of "+describeUser(c.user), remote.FaultPassword
	case isStaleToken(err):
		denied.What, fault = "etcd requires a user", remote.FaultUser
	default:
		return nil
	}
	if c.remedy != nil {
		denied.Remedy = c.remedy(fault)
	}
	return denied
}

// txn sends a transaction. A transaction without writes has no unknown result. A transaction without puts is sent even
// at the quota.
func (c *calls) txn(ctx context.Context, all *pb.TxnRequest, writes, puts bool) (*pb.TxnResponse, error) {
	send := func(ctx context.Context) (*pb.TxnResponse, error) {
		response, err := c.transact(ctx, all)
		return response, clientv3.ContextError(ctx, err)
	}
	if !writes {
		response, err := retryRead(ctx, c, send)
		if err == nil {
			return response, nil
		}
		if refused := c.writeError(err); !errors.Is(refused, store.ErrUnknown) {
			return nil, refused
		}
		return nil, c.readError(ctx, err)
	}
	if err := c.checkSpace(ctx, puts); err != nil {
		return nil, err
	}
	response, err := retryWrite(ctx, c, send)
	if errors.Is(err, store.ErrNoSpace) {
		c.space.noteQuotaReached()
	}
	return response, err
}
