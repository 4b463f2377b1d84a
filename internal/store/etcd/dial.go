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
	// Endpoints are the addresses of etcd's client listeners, such as "https://10.0.0.1:2379" or "host:2379".
	Endpoints []string
	// TLS, unless nil, is presented to the endpoints and checks them.
	TLS *TLSFiles
	// Log gets warnings; nil discards them.
	Log *slog.Logger
}

const (
	// dialLimit bounds the first contact.
	dialLimit = 10 * time.Second
	// distantBytes is what one call may carry to an etcd with its usual limit of 1.5 MiB, with room for what frames each operation.
	distantBytes = 1 << 20
)

// Dial connects to an etcd that runs elsewhere, and returns when it answered. How much one call may carry is asked of it: etcd's
// own limit is 128 operations, unless it was started with a higher --max-txn-ops.
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
	if config.TLS != nil {
		secure, err := config.TLS.client(nil)
		if err != nil {
			return nil, err
		}
		c.TLS = secure
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	remote := clientv3.RetryKVClient(client)
	transact := func(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
		// As the client does: a server that is away for a moment is waited for.
		return remote.Txn(ctx, r, grpc.WaitForReady(true), grpc.MaxCallSendMsgSize(distantBytes+1<<20))
	}
	e := &Engine{client: client, transact: transact, watches: make(map[*watch]struct{}), config: Config{Log: config.Log}}
	e.life, e.end = context.WithCancelCause(context.Background())
	if err := e.probe(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to etcd: %w", err), e.Close())
	}
	return e, nil
}

// probe asks how many operations a transaction may have, by transactions that only compare.
func (e *Engine) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	for _, most := range []int{embeddedLimits().Operations, 4096, 1024, 512, 256, 128} {
		demands := slices.Repeat([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision("berth-probe"), "=", 0)}, most)
		_, err := e.client.Txn(ctx).If(demands...).Commit()
		if errors.Is(err, rpctypes.ErrTooManyOps) {
			continue
		}
		if err != nil {
			return err
		}
		// Groups and what is in one of them count together, so that a full call of one operation each has one too many.
		e.limits = store.Limits{Operations: most - 1, Bytes: distantBytes}
		return nil
	}
	return fmt.Errorf("it takes fewer than 128 operations at once: %w", store.ErrTooLarge)
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
