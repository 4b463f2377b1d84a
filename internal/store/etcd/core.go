package etcd

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/remote"
)

// core is what all parts of an engine share: the client, the server if it is in this process, and the engine's life.
type core struct {
	config Config
	// prefix is the prefix of all keys in etcd, and user the name for the login. Both are empty if the server is in
	// this process.
	prefix, user string
	client       *clientv3.Client
	server       *embed.Etcd // nil where the server runs elsewhere
	// remedy returns the advice for an operator after a fault of the login; nil where the server is in this process.
	remedy func(remote.Fault) string

	lifetime       context.Context //nolint:containedctx // ends all goroutines of the engine
	cancelLifetime context.CancelCauseFunc
	running        sync.WaitGroup // the goroutines of the engine
	ending         sync.Mutex     // orders the engine's end and the start of watches
}

// newCore returns the core of an engine that is about to get its client.
func newCore(config Config) *core {
	c := &core{config: config}
	c.lifetime, c.cancelLifetime = context.WithCancelCause(context.Background())
	return c
}

// checkOpen returns an error if a call cannot begin, since the engine or the context ended.
func (c *core) checkOpen(ctx context.Context) error {
	if c.lifetime.Err() != nil {
		return context.Cause(c.lifetime)
	}
	return ctx.Err()
}

// end ends the engine for a cause. No watch starts afterwards.
func (c *core) end(cause error) {
	c.ending.Lock()
	defer c.ending.Unlock()
	c.cancelLifetime(cause)
}

// record converts a record of etcd, without the prefix of its key.
func (c *core) record(kv *mvccpb.KeyValue) store.Record {
	return store.Record{
		Key:      string(kv.Key[len(c.prefix):]),
		Value:    kv.Value,
		Created:  uint64(kv.CreateRevision),
		Modified: uint64(kv.ModRevision),
	}
}
