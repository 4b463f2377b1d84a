package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/berthd/berth/internal/store"
)

// How long calls wait for servers that cannot agree.
const (
	// readLimit bounds a read, or one page of it.
	readLimit = 5 * time.Second
	// leaderLimit is how long a write waits for a leader before it is sent.
	leaderLimit = 3 * time.Second
	// writeLimit bounds a write that was sent. etcd itself gives up after 5 s and two elections.
	writeLimit = 10 * time.Second
	// busy is the pause before a call is offered again that etcd did not take.
	busy = 5 * time.Millisecond
)

// reading makes one read, again while etcd changes its leader.
func reading[T any](ctx context.Context, e *Engine, call func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	for {
		answer, err := call(bounded)
		if !errors.Is(err, rpctypes.ErrLeaderChanged) && !errors.Is(err, rpctypes.ErrTooManyRequests) {
			return answer, err
		}
		if e.linger(bounded) != nil {
			return answer, err
		}
	}
}

// linger waits for a moment.
func (e *Engine) linger(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.life.Done():
		return context.Cause(e.life)
	case <-time.After(busy):
		return nil
	}
}

// writing makes one write, once there is a leader to take it, and again while etcd says that it was not taken. The
// error is the contract's.
func writing[T any](ctx context.Context, e *Engine, call func(context.Context) (T, error)) (T, error) {
	var none T
	if err := e.led(ctx); err != nil {
		return none, err
	}
	bounded, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	reign, done := e.reigning(bounded)
	defer done()
	for {
		answer, err := call(reign)
		if err == nil {
			return answer, nil
		}
		if !untaken(err) {
			return none, e.refusal(err)
		}
		if e.linger(bounded) != nil {
			if cause := e.enter(ctx); cause != nil {
				return none, cause
			}
			return none, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
	}
}

// untaken says that etcd has not accepted a write, and may do so later.
func untaken(err error) bool {
	// raft's own error has no name on this side; it comes while the leadership moves.
	return errors.Is(err, rpctypes.ErrTooManyRequests) || rpctypes.ErrorDesc(err) == "raft proposal dropped"
}

// led waits until there is a leader. What is sent without one is kept by etcd, and its result would be unknown.
func (e *Engine) led(ctx context.Context) error {
	if e.server == nil || e.server.Server.Leader() != 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, leaderLimit)
	defer cancel()
	for e.server.Server.Leader() == 0 {
		if e.linger(bounded) == nil {
			continue
		}
		if cause := e.enter(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("no leader for %v: %w", leaderLimit, store.ErrUnavailable)
	}
	return nil
}

// refusal turns an error of a write that was sent into the contract's: what etcd is known to say
// before it writes, and for all else that the result is unknown.
func (e *Engine) refusal(err error) error {
	for _, known := range []struct{ etcd, store error }{
		{rpctypes.ErrDuplicateKey, store.ErrInvalid},
		{rpctypes.ErrEmptyKey, store.ErrInvalid},
		{rpctypes.ErrTooManyOps, store.ErrTooLarge},
		{rpctypes.ErrRequestTooLarge, store.ErrTooLarge},
		{rpctypes.ErrLeaseNotFound, store.ErrSessionExpired},
		{rpctypes.ErrNoLeader, store.ErrUnavailable},
	} {
		if errors.Is(err, known.etcd) {
			return fmt.Errorf("%w: %w", known.store, err)
		}
	}
	if unwelcome := e.unwelcome(err); unwelcome != nil {
		return unwelcome
	}
	// either refused unsent, or applied: etcd says the same of the write that reaches the quota
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: %w: %w", store.ErrUnknown, store.ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, err)
}

// room returns store.ErrNoSpace if a write is not to be sent: the disk is full, or the store is at its quota and the
// write puts something, which etcd does not take while the alarm stands. Of an etcd that runs elsewhere it knows
// nothing.
func (e *Engine) room(ctx context.Context, puts bool) error {
	if err := e.space.check(ctx); err != nil || e.server == nil || !puts {
		return err
	}
	for _, a := range e.server.Server.Alarms() {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			e.space.filled()
			return fmt.Errorf("the database of member %x reached its quota: %w", a.MemberID, store.ErrNoSpace)
		}
	}
	return nil
}

// fault names what ended a read: the caller, the engine's end, or that etcd's members cannot agree. What else etcd
// answered is passed on.
func (e *Engine) fault(ctx context.Context, err error) error {
	if cause := e.enter(ctx); cause != nil {
		return cause
	}
	if unwelcome := e.unwelcome(err); unwelcome != nil {
		return unwelcome
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
