package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/consulclient"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/remote"
)

// Limits of time.
const (
	// readTimeout bounds a read, without the wait of a blocking query.
	readTimeout = 5 * time.Second
	// writeTimeout bounds a write that was sent, and settleTimeout the time until its result is known.
	writeTimeout  = 10 * time.Second
	settleTimeout = 10 * time.Second
	// commitTimeout bounds the time in which a commit is tried again, while it has not written anything.
	commitTimeout = 10 * time.Second
	// firstPause and longestPause bound the pause before a call is repeated, which doubles each time.
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// refusal says how Consul refused a call, and whether the call may have had an effect.
type refusal int

const (
	isUnclear    refusal = iota // the call may have had an effect
	isUnsent                    // the endpoint was not reached
	isLimited                   // Consul limits the rate of requests; the call had no effect
	isLeaderless                // Consul has no leader; the call had no effect
	isDenied                    // the token is unknown, or may not do this
	isTooLarge                  // the request is over Consul's limits
)

// classify reads an error of Consul's client. The client returns Consul's texts, and for transactions no status.
func classify(err error) refusal {
	text := err.Error()
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case consulclient.IsDenied(err):
		return isDenied
	case consulclient.IsUnsent(err):
		return isUnsent
	case has("rate limit", "try again later"):
		return isLimited
	case has("No cluster leader", "No known Consul servers"):
		return isLeaderless
	case has("too large", "too many operations"):
		return isTooLarge
	}
	return isUnclear
}

// connection calls the endpoints of Consul. It names the causes of errors in the terms of store.Engine. Safe for
// concurrent use.
type connection struct {
	keyspace
	config    DialConfig
	clients   []*api.Client
	transport *http.Transport
	// current is the index of the client that answered last.
	current atomic.Int32
	limits  limitNotices

	lifetime context.Context //nolint:containedctx // it ends with Close
	end      context.CancelCauseFunc
}

// checkOpen returns store.ErrClosed after Close, or the error of an ended context.
func (c *connection) checkOpen(ctx context.Context) error {
	if c.lifetime.Err() != nil {
		return store.ErrClosed
	}
	return ctx.Err()
}

// client returns the client of the endpoint that answered last, and its number.
func (c *connection) client() (*api.Client, int32) {
	number := c.current.Load()
	return c.clients[int(number)%len(c.clients)], number
}

// failed has the next call go to another endpoint than that of a number, on which a call failed, and notes a limit on
// the rate of requests.
func (c *connection) failed(number int32, err error) {
	c.current.CompareAndSwap(number, (number+1)%int32(len(c.clients)))
	if classify(err) == isLimited {
		c.limits.note(c.config.Log, time.Now())
	}
}

// query returns the options of a read. Reads are linearizable, but for a blocking query.
func (c *connection) query(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true, Datacenter: c.config.Datacenter}).WithContext(ctx)
}

// bound returns a context that ends with ctx, with the engine, or after a time.
func (c *connection) bound(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(c.lifetime, cancel)
	return bounded, func() { stop(); cancel() }
}

// read makes a read, and repeats it at another endpoint or after a pause while Consul does not answer. The error is one
// of the contract of store.Engine.
func (c *connection) read(ctx context.Context, call func(*api.Client, *api.QueryOptions) error) error {
	if err := c.checkOpen(ctx); err != nil {
		return err
	}
	bounded, cancel := c.bound(ctx, readTimeout)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		client, number := c.client()
		once, done := context.WithTimeout(bounded, c.attemptTimeout())
		err := call(client, c.query(once))
		done()
		if err == nil {
			return nil
		}
		if open := c.checkOpen(ctx); open != nil {
			return open
		}
		known := errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrTooLarge)
		if known || classify(err) == isDenied {
			return c.readError(err)
		}
		c.failed(number, err)
		if pause.For(bounded, wait) != nil {
			if open := c.checkOpen(ctx); open != nil {
				return open
			}
			return c.readError(err)
		}
	}
}

// attemptTimeout bounds one attempt of a read, so that there is time for another endpoint.
func (c *connection) attemptTimeout() time.Duration {
	if len(c.clients) > 1 {
		return readTimeout / 2
	}
	return readTimeout
}

// readError names the cause of a failed read.
func (c *connection) readError(err error) error {
	switch {
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrUnavailable):
		return err
	case classify(err) == isDenied:
		return c.denied(err)
	case classify(err) == isLimited:
		return fmt.Errorf("read from consul: %w: %w", store.ErrLimited, err)
	case classify(err) == isTooLarge:
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	}
	return fmt.Errorf("read from consul: %w: %w", store.ErrUnavailable, err)
}

// writeError names the cause of a write that had no effect.
func (c *connection) writeError(err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	case errors.Is(err, store.ErrUnavailable):
		return err
	case classify(err) == isDenied:
		return c.denied(err)
	case classify(err) == isLimited:
		return fmt.Errorf("write to consul: %w: %w", store.ErrLimited, err)
	}
	return fmt.Errorf("write to consul: %w: %w", store.ErrUnavailable, err)
}

// denied returns the error of a call that Consul refused for the token, with advice for the operator.
func (c *connection) denied(err error) error {
	what, fault := "consul does not permit the keys of the store to the token", remote.FaultPermission
	switch {
	case consulclient.IsTokenFile(err):
		what, fault = "the token for consul cannot be read", remote.FaultPassword
	case consulclient.IsUnknownToken(err):
		what, fault = "consul does not know the token", remote.FaultPassword
	}
	denied := &store.DeniedError{What: what, Err: err}
	if c.config.Remedy != nil {
		denied.Remedy = c.config.Remedy(fault)
	}
	return denied
}

// errFiltered says that the token may not read what it asked for. Consul leaves such records out, as if they did not
// exist.
var errFiltered = errors.New("consul left records out that this token may not read (Permission denied)")

// readTogether runs a transaction of reads. It returns the results, or the errors by operation.
func (c *connection) readTogether(ctx context.Context, ops api.TxnOps) (results api.TxnResults, errs api.TxnErrors,
	err error,
) {
	err = c.read(ctx, func(client *api.Client, q *api.QueryOptions) error {
		ok, response, _, err := client.Txn().Txn(ops, q)
		if err != nil {
			return err
		}
		if results, errs = response.Results, nil; !ok {
			errs = response.Errors
		}
		return deniedError(errs)
	})
	return results, errs, err
}

// deniedError returns an error if an operation was refused for the token's permissions.
func deniedError(errs api.TxnErrors) error {
	for _, e := range errs {
		if strings.HasPrefix(e.What, "Permission denied") || strings.HasPrefix(e.What, "ACL not found") {
			return errors.New(e.What)
		}
	}
	return nil
}

func kvOp(verb api.KVOp, key string) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: verb, Key: key}}
}
