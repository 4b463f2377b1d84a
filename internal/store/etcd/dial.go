package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/berthd/berth/internal/store"
)

// DialConfig is what Dial needs. Only Endpoints is demanded.
type DialConfig struct {
	// Endpoints are the addresses of etcd's client listeners, such as "https://10.0.0.1:2379" or "http://host:2379":
	// all secured or none.
	Endpoints []string
	// TLS is how endpoints of https are checked, and what is presented to them, which may be nothing. The files are
	// read anew for each connection. Nil is for endpoints of http.
	TLS *TLSFiles
	// User, unless empty, is who logs in, with what Password returns, which is called again whenever etcd asks.
	User     string
	Password func() (string, error)
	// Prefix is what all keys in etcd begin with, in front of their names here; it may be empty. Each store has its
	// own.
	Prefix string
	// Log gets warnings; nil discards them.
	Log *slog.Logger
}

const (
	// dialLimit bounds the first contact.
	dialLimit = 10 * time.Second
	// distantBytes is what one call may carry to an etcd with its usual limit of 1.5 MiB, with room for what frames
	// each operation.
	distantBytes = 1 << 20
)

// Dial connects to an etcd that runs elsewhere, and returns when it answered, within dialLimit. How much one call may
// carry is asked of it: etcd's own limit is 128 operations, unless it was started with a higher --max-txn-ops. The
// error is a *DialError where somebody can do something about it: it is found out here that the user may read and write
// all that a store does, and not in the middle of the night.
func Dial(ctx context.Context, config DialConfig) (*Engine, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	c := clientv3.Config{
		Endpoints:            config.Endpoints,
		DialTimeout:          dialLimit,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               bridge(config.Log),
	}
	var secure *secured
	if config.TLS != nil {
		secure = &secured{files: *config.TLS, log: config.Log}
		first, err := secure.config()
		if err != nil {
			return nil, fmt.Errorf("connect to etcd: %w", err)
		}
		c.TLS = first // what counts is the option
		c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(secure))
	}
	e := &Engine{
		prefix: config.Prefix, user: config.User, watches: make(map[*watch]struct{}),
		config: Config{Log: config.Log},
	}
	if config.User != "" {
		me := newIdentity(config.User, config.Password)
		c.DialOptions = append(c.DialOptions, grpc.WithPerRPCCredentials(me), grpc.WithChainUnaryInterceptor(me.unary))
	}
	present, err := examine(ctx, &config, secure)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	e.client = client
	remote := clientv3.RetryKVClient(client)
	e.transact = func(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
		// As the client does: a server that is away for a moment is waited for.
		return remote.Txn(ctx, r, grpc.WaitForReady(true), grpc.MaxCallSendMsgSize(distantBytes+1<<20))
	}
	e.life, e.end = context.WithCancelCause(context.Background())
	if err := e.probe(ctx, present); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to etcd: %w", err), e.Close())
	}
	return e, nil
}

// probe asks whether etcd is new enough, whether it lets this side do all that a store does, and how many operations a
// transaction may have, by transactions that write nothing.
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
		demands := slices.Repeat([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.prefix+"berth-probe"), "=", 0)},
			most)
		_, err := e.client.Txn(ctx).If(demands...).Commit()
		if errors.Is(err, rpctypes.ErrTooManyOps) {
			continue
		}
		if err != nil {
			return e.callFault("ask for its limits", err)
		}
		// Groups and what is in one of them count together, so that a full call of one operation each has one too many.
		e.limits = store.Limits{Operations: most - 1, Bytes: distantBytes}
		return nil
	}
	return fmt.Errorf("it takes fewer than 128 operations at once: %w", store.ErrTooLarge)
}

// probeVersions asks each of the endpoints that are present for its version.
func (e *Engine) probeVersions(ctx context.Context, present []string) error {
	var last error
	answers := 0
	for _, endpoint := range present {
		brief, cancel := context.WithTimeout(ctx, examineLimit)
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
		return e.callFault("ask for its version", last)
	}
	return nil
}

// probePermissions makes a transaction that would read all keys, and put and delete some, if an impossible thing held:
// etcd looks first whether it is permitted.
func (e *Engine) probePermissions(ctx context.Context) error {
	all := e.prefix + "berth"
	never := clientv3.Compare(clientv3.CreateRevision(all), "<", 0)
	ops := []clientv3.Op{
		clientv3.OpGet(all, clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpPut(all, ""), clientv3.OpPut(all+"/probe", ""), clientv3.OpDelete(all + "-beat/probe"),
	}
	_, err := e.client.Txn(ctx).If(never).Then(ops...).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) { // it is the Health that tells
		return nil
	}
	if err != nil {
		return e.callFault(fmt.Sprintf("read and write keys that begin with %q", all), err)
	}
	return nil
}

// distantMembers lists the members of an etcd that runs elsewhere. Those that answer are healthy.
func (e *Engine) distantMembers(ctx context.Context) ([]Member, error) {
	bounded, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	list, err := e.client.MemberList(bounded)
	if err != nil {
		return nil, e.fault(ctx, err)
	}
	members := make([]Member, 0, len(list.Members))
	for _, m := range list.Members {
		member := Member{ID: strconv.FormatUint(m.ID, 16), Name: m.Name, Learner: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			member.PeerURL = m.PeerURLs[0]
		}
		for _, u := range m.ClientURLs {
			brief, cancel := context.WithTimeout(ctx, reachLimit)
			status, err := e.client.Status(brief, u)
			cancel()
			if err == nil {
				member.Healthy, member.Leader = true, status.Leader == m.ID
				break
			}
		}
		members = append(members, member)
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return members, nil
}
