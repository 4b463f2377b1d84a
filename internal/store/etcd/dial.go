package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
	"github.com/berthd/berth/internal/store/remote"
)

// DialConfig configures Dial. Only Endpoints is required.
type DialConfig struct {
	// Endpoints are the addresses of etcd's client listeners, such as "https://10.0.0.1:2379" or "http://host:2379":
	// all secured or none.
	Endpoints []string
	// TLS holds the authority that signs the endpoints' certificates, and the client certificate, which may be missing.
	// The files are read again for each connection. It is nil for endpoints of http.
	TLS *remote.TLSFiles
	// User, unless empty, is the user for the login. Password returns the password, and is called for every login.
	User     string
	Password func() (string, error)
	// Prefix is put in front of all keys in etcd; it may be empty. Each store has its own.
	Prefix string
	// Remedy, unless nil, returns the advice for an operator after a fault that concerns the user. Errors carry it.
	Remedy func(remote.Fault) string
	// Log gets warnings; nil discards them.
	Log *slog.Logger
}

const (
	// dialLimit bounds the first contact.
	dialLimit = 10 * time.Second
	// remoteMaxBytes limits the keys and values of one call. etcd's usual limit is 1.5 MiB; the difference is for the
	// encoding of each operation.
	remoteMaxBytes = 1 << 20
)

// Dial connects to an etcd that runs elsewhere, and returns when it answered, within dialLimit. It finds out how much
// one call may carry: etcd's own limit is 128 operations, unless it was started with a higher --max-txn-ops. It also
// checks that the user may read and write all keys of a store, so that a missing permission is found at the start. The
// error is a *remote.DialError if an operator can do something about it.
func Dial(ctx context.Context, config DialConfig) (*Engine, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	c := clientv3.Config{
		Endpoints:            config.Endpoints,
		DialTimeout:          dialLimit,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               etcdlog.New(config.Log),
	}
	var secure *remote.ReloadingTLS
	if config.TLS != nil {
		secure = remote.NewReloadingTLS(*config.TLS, config.Log)
		first, err := secure.Config()
		if err != nil {
			return nil, fmt.Errorf("connect to etcd: %w", err)
		}
		c.TLS = first // the client requires it; the dial option takes precedence
		c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(grpcTLS{secure}))
	}
	if config.User != "" {
		me := newTokenSource(config.User, config.Password)
		c.DialOptions = append(c.DialOptions, grpc.WithPerRPCCredentials(me), grpc.WithChainUnaryInterceptor(me.unary))
	}
	present, err := checkEndpoints(ctx, &config, secure)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	e := newEngine(Config{Log: config.Log})
	e.prefix, e.user, e.client, e.remedy = config.Prefix, config.User, client, config.Remedy
	remote := clientv3.RetryKVClient(client)
	e.transact = func(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
		// Like the client, the call waits for a server that is away for a moment.
		return remote.Txn(ctx, r, grpc.WaitForReady(true), grpc.MaxCallSendMsgSize(remoteMaxBytes+1<<20))
	}
	if err := e.probe(ctx, present); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to etcd: %w", err), e.Close())
	}
	return e, nil
}

// probe checks the version and the permissions of etcd, and finds how many operations a transaction may have. Its
// transactions write nothing.
func (e *Engine) probe(ctx context.Context, present []string) error {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if err := e.probeVersions(ctx, present); err != nil {
		return err
	}
	if err := e.probePermissions(ctx); err != nil {
		return err
	}
	for _, most := range []int{embeddedLimits().Operations, 4096, 1024, 512, 256, 128} {
		absent := clientv3.Compare(clientv3.ModRevision(e.prefix+"berth-probe"), "=", 0)
		_, err := e.client.Txn(ctx).If(slices.Repeat([]clientv3.Cmp{absent}, most)...).Commit()
		if errors.Is(err, rpctypes.ErrTooManyOps) {
			continue
		}
		if err != nil {
			return e.callFault("read its limits", err)
		}
		// etcd counts groups and the content of one of them together, so a full call of one operation each has one too
		// many.
		e.limits = store.Limits{Operations: most - 1, Bytes: remoteMaxBytes}
		return nil
	}
	return fmt.Errorf("it takes fewer than 128 operations in one transaction: %w", store.ErrTooLarge)
}

// probeVersions asks each present endpoint for its version.
func (e *Engine) probeVersions(ctx context.Context, present []string) error {
	var last error
	answers := 0
	for _, endpoint := range present {
		brief, cancel := context.WithTimeout(ctx, endpointTimeout)
		status, err := e.client.Status(brief, endpoint)
		cancel()
		if err != nil {
			last = err
			continue
		}
		answers++
		if err := checkVersion(endpoint, status.Version); err != nil {
			return err
		}
	}
	if answers == 0 {
		return e.callFault("read its version", last)
	}
	return nil
}

// probePermissions sends a transaction that reads all keys, and writes and deletes some, under a condition that never
// holds. etcd checks the permissions before the condition.
func (e *Engine) probePermissions(ctx context.Context) error {
	all := e.prefix + "berth"
	never := clientv3.Compare(clientv3.CreateRevision(all), "<", 0)
	ops := []clientv3.Op{
		clientv3.OpGet(all, clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpPut(all, ""), clientv3.OpPut(all+"/probe", ""), clientv3.OpDelete(all + "-beat/probe"),
	}
	_, err := e.client.Txn(ctx).If(never).Then(ops...).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) { // Health reports it
		return nil
	}
	if err != nil {
		return e.callFault(fmt.Sprintf("read and write keys that begin with %q", all), err)
	}
	return nil
}
