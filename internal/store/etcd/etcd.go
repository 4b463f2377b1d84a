// Package etcd is the store engine on etcd, whose server runs inside this process:
// one member with its data directory, and a client that calls the server's
// functions. It is a store.Engine. Alone it listens nowhere; with a peer address it is one of several
// members, which hold the same data and go on while more than half of them are up and reach each other.
//
// Open takes the directory, starts the server and returns once it serves; Close
// stops it. A directory belongs to one process at a time. Restore makes a directory
// from a snapshot, before it is opened, and ForceAlone one that needs no other member. Dial
// uses an etcd that runs elsewhere.
//
// A member comes in as a learner, which has no vote: AddLearner on any member, Open with Join on the new
// one, Promote once it has the data. Remove takes it out again; it then stops by itself.
//
// A group of a commit is a nested etcd transaction: etcd evaluates the compares of the whole
// tree before it writes, which is what store.Engine asks for.
//
// Beside etcd's own files the directory holds "lock", which keeps a second process
// out, and "ballast", bytes that stand for nothing: to delete it is how an operator gets
// room on a full disk.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/berthd/berth/internal/store"
)

// Defaults of a Config.
const (
	DefaultQuota    = 8 << 30
	DefaultRetain   = 20_000
	DefaultLowWater = 96 << 20

	DefaultHeartbeat = 100 * time.Millisecond
	DefaultElection  = 600 * time.Millisecond
	DefaultSlack     = 128 << 20
)

// What a member is called, and its address, where nobody said: nobody dials it or listens on it as long as there is
// one member.
const (
	memberName = "berth"
	peerURL    = "http://127.0.0.1:1"
)

// Config is what Open needs. Only Dir is demanded.
type Config struct {
	// Dir is the data directory. It is made if it is missing.
	Dir string
	// Log gets etcd's warnings and errors, and in one line the cause if etcd ends
	// the process; nil discards them.
	Log *slog.Logger
	// Quota is the most bytes that etcd's database may take; at the quota writes return
	// store.ErrNoSpace. 0 means DefaultQuota.
	Quota int64
	// Retain is how many revisions of history are kept for watches that lag; 0
	// means DefaultRetain. etcd trims to it every five minutes.
	Retain int
	// LowWater is how many bytes the file system must have free for a write to be
	// accepted; 0 means DefaultLowWater, which is what etcd may take at once: a segment of its log,
	// a growth of its database, and something on top. etcd ends the process when it
	// cannot write its log.
	LowWater int64
	// Ballast is the size of the ballast file in bytes; 0 means 64 MiB, or 1/64 of a file
	// system under 4 GiB; negative means none.
	Ballast int64
	// Name is this server's id, which the member is listed under.
	Name string
	// PeerURL is where the other members reach this one, such as "https://10.0.0.1:7072". Empty means alone: nothing
	// listens. A member that began alone may be given one later.
	PeerURL string
	// PeerListen is the address to listen on for them, host:port; empty means the host and port of PeerURL.
	PeerListen string
	// PeerTLS, unless nil, is presented to the other members. They have to show a certificate of the same authority
	// whose organizational unit is "server". Without it PeerURL is plain http, which is for tests.
	PeerTLS *TLSFiles
	// Join, unless empty, are the members that AddLearner returned: a new directory becomes the learner among them. It
	// is ignored by a directory that holds a store already.
	Join []Member
	// Heartbeat is how often a leader tells the other members that it lives, and Election how long they bear its
	// silence, at the least; the next leader is found within about twice as long. 0 means DefaultHeartbeat and
	// DefaultElection. Alone neither counts. All members have the same.
	Heartbeat, Election time.Duration
	// Slack is how many bytes of the database's file may stand empty before Run gives them back to the disk, if they
	// are also more than half of it. 0 means DefaultSlack.
	Slack int64
	// NoSync leaves out the flush to disk, and durability with it. For tests only.
	NoSync bool
}

// Engine is an etcd server in this process, or one elsewhere, with the client that talks to it. It
// is safe for concurrent use.
type Engine struct {
	client *clientv3.Client
	// transact sends a transaction as it is: the client would copy each of its parts.
	transact func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
	limits   store.Limits
	// prefix is what all keys in etcd begin with, and user who logs in there; both are empty where the server is this
	// process's own.
	prefix, user string
	config       Config

	forced bool // out of a store of several

	contacts contacts // with the other members, as etcd tells of them

	// What follows is nil where the server runs elsewhere.
	server *embed.Etcd
	peers  *peerServer // nil while the member is alone
	lock   *os.File
	space  *space

	life      context.Context //nolint:containedctx // ends all that the engine started
	end       context.CancelCauseFunc
	closeOnce sync.Once
	closeErr  error
	running   sync.WaitGroup // what the engine started

	observed atomic.Uint64 // the highest revision that a call returned
	mu       sync.Mutex    // guards what follows, and the end against a watch's begin
	watches  map[*watch]struct{}
	leader   string          // the last of the engine's leaders that was seen
	terms    uint64          // how many there were
	reign    context.Context //nolint:containedctx // ends a while after the engine's leader changed

	tendSince time.Time // since when Run waits for its turn, as the leader
}

// Open starts the engine on a data directory and returns when it serves, alone mostly within 0.3 s. Among others it
// waits for a quorum, but for quorumLimit at most: then it returns all the same, and calls return store.ErrUnavailable
// until there is one. It fails where the directory cannot be written, is in use by another process, or has too little
// space to begin at all (store.ErrNoSpace), and with store.ErrRemoved where the member was removed.
func Open(ctx context.Context, config Config) (*Engine, error) {
	return start(ctx, config.withDefaults(), func(*embed.Config) {})
}

// start is Open, with a last word on etcd's configuration.
func start(ctx context.Context, config Config, adjust func(*embed.Config)) (*Engine, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	// 1. Take the directory.
	lock, err := take(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", config.Dir, err)
	}
	e := &Engine{
		config: config, limits: embeddedLimits(), lock: lock, space: newSpace(config),
		watches: make(map[*watch]struct{}),
	}
	e.life, e.end = context.WithCancelCause(context.Background())
	// 2. See that there is room, and that nobody else has the address.
	if err := e.space.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", config.Dir, err), e.Close())
	}
	if e.peers, err = listenPeers(ctx, config); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	// 3. Start the server, and wait until it serves.
	c := embedded(config)
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(memberBridge(config.Log, &e.contacts))
	adjust(c)
	e.forced = c.ForceNewCluster
	if e.server, err = e.begin(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), e.Close())
	}
	e.peers.serve(e.server)
	e.client = v3client.New(e.server.Server)
	e.transact = e.direct
	e.space.client, e.space.member = e.client, uint64(e.server.Server.MemberID())
	e.space.database = func() database { return e.server.Server.Backend() }
	if err := e.await(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), e.Close())
	}
	// 4. Follow what becomes of it.
	e.space.look() // now there is a database to reserve room for
	e.running.Go(e.guard)
	e.running.Go(e.followLeader)
	e.running.Go(e.keepAddress)
	return e, nil
}

// begin starts the server. One that joins asks any member who the members are, and that one may not have heard of the
// new one yet: so it tries for a while. It has to name all of them itself, as they are now: others may have joined, or
// gone, since this one did.
func (e *Engine) begin(ctx context.Context, c *embed.Config) (*embed.Etcd, error) {
	ctx, cancel := context.WithTimeout(ctx, quorumLimit)
	defer cancel()
	_, err := os.Stat(filepath.Join(c.Dir, "member"))
	anew := errors.Is(err, fs.ErrNotExist)
	for {
		if anew && c.ClusterState == embed.ClusterStateFlagExisting {
			if present := e.present(ctx); present != nil {
				joining := e.config
				joining.Join = present
				c.InitialCluster = roll(joining)
			}
		}
		server, err := embed.StartEtcd(c)
		if err == nil {
			return server, nil
		}
		if c.ClusterState != embed.ClusterStateFlagExisting {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(changePause):
		}
	}
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Quota == 0 {
		c.Quota = DefaultQuota
	}
	if c.Retain == 0 {
		c.Retain = DefaultRetain
	}
	if c.LowWater == 0 {
		c.LowWater = DefaultLowWater
	}
	if c.Name == "" {
		c.Name = memberName
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.Election == 0 {
		c.Election = DefaultElection
	}
	if c.Slack == 0 {
		c.Slack = DefaultSlack
	}
	return c
}

// check returns what is wrong with a configuration by itself.
func (c Config) check() error {
	for _, u := range append([]string{c.PeerURL}, peerURLs(c.Join)...) {
		if parsed, err := url.Parse(u); u != "" &&
			(err != nil || parsed.Port() == "" || parsed.Scheme != "http" && parsed.Scheme != "https") {
			return fmt.Errorf("peer address %q is not like https://10.0.0.1:7072: %w", u, store.ErrInvalid)
		}
	}
	switch {
	case c.PeerURL == "" && len(c.Join) > 0:
		return fmt.Errorf("to join others takes a peer address: %w", store.ErrInvalid)
	case strings.HasPrefix(c.PeerURL, "https:") && c.PeerTLS == nil:
		return fmt.Errorf("peer address %s takes a certificate: %w", c.PeerURL, store.ErrInvalid)
	case c.Election < 5*c.Heartbeat:
		return fmt.Errorf("an election after %v takes a heartbeat each %v at least: %w", c.Election, c.Election/5,
			store.ErrInvalid)
	}
	return nil
}

// take makes the directory, proves that it can be written, and locks it.
func take(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("not writable: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.New("it is in use by another process: end that server or berth dev, or name " +
				"another folder with --data-dir")
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	return lock, nil
}

// embedded is etcd's configuration. A member that is alone elects itself at once.
func embedded(config Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = config.Name
	c.Dir = config.Dir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(bridge(config.Log))
	own := cmp.Or(config.PeerURL, peerURL)
	peer, _ := url.Parse(own) // was checked
	// etcd itself listens nowhere: peerServer does.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{*peer}, nil
	c.InitialCluster = c.Name + "=" + own
	c.InitialClusterToken = uuid.NewString() // no two stores take each other's members for their own
	if len(config.Join) > 0 {
		c.ClusterState = embed.ClusterStateFlagExisting
		c.InitialCluster = roll(config)
	}
	c.TickMs, c.ElectionMs = 10, 100
	// Entries are large, up to half a megabyte under load, and etcd keeps in memory those since its last snapshot and
	// those that a follower may need. Alone there is no follower; 0 would mean etcd's own default.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 250, 10
	if config.PeerURL != "" {
		c.TickMs, c.ElectionMs = uint(config.Heartbeat.Milliseconds()), uint(config.Election.Milliseconds())
		c.SnapshotCount, c.SnapshotCatchUpEntries = 1000, 1000
	}
	if tls := config.PeerTLS; tls != nil { // for dialing; peerServer has its own
		c.PeerTLSInfo.CertFile, c.PeerTLSInfo.KeyFile, c.PeerTLSInfo.TrustedCAFile = tls.Cert, tls.Key, tls.CA
	}
	c.MaxLearners = maxLearners
	c.MaxTxnOps = uint(4 * embeddedLimits().Operations) // groups and their content count together
	c.MaxRequestBytes = uint(2 * embeddedLimits().Bytes)
	c.QuotaBackendBytes = config.Quota
	c.AutoCompactionMode = embed.CompactorModeRevision
	c.AutoCompactionRetention = strconv.Itoa(config.Retain)
	c.WarningApplyDuration = time.Second // a large commit takes more than etcd's 100 ms
	c.MaxSnapFiles, c.MaxWalFiles = 2, 2
	c.AuthToken = "" // there are no users
	c.UnsafeNoFsync = config.NoSync
	return c
}

// roll lists the members that a new one joins as etcd wants to have them: each with a name, its own by the right one.
func roll(config Config) string {
	list := make([]string, 0, len(config.Join))
	for i, m := range config.Join {
		name := "member-" + strconv.Itoa(i)
		if m.PeerURL == config.PeerURL {
			name = config.Name
		}
		list = append(list, name+"="+m.PeerURL)
	}
	return strings.Join(list, ",")
}

func embeddedLimits() store.Limits { return store.Limits{Operations: 16384, Bytes: 4 << 20} }

// Limits is part of store.Engine.
func (e *Engine) Limits() store.Limits { return e.limits }

// Close is part of store.Engine. It stops the server, which hands the engine's leadership over first if it has it.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.handOver()
		e.mu.Lock()
		e.end(store.ErrClosed)
		e.mu.Unlock()
		e.running.Wait()
		if e.client != nil {
			if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
				e.closeErr = fmt.Errorf("close client: %w", err)
			}
		}
		if e.server != nil {
			e.server.Server.HardStop() // Stop would hand over too, and wait for 6 s for members that are down
			e.server.Close()
		}
		e.peers.close()
		if e.lock != nil {
			e.lock.Close()
		}
	})
	return e.closeErr
}

// enter returns why a call cannot begin, if so.
func (e *Engine) enter(ctx context.Context) error {
	if e.life.Err() != nil {
		return context.Cause(e.life)
	}
	return ctx.Err()
}

// observe notes a revision that a caller is about to hear of, so that watches tell when
// they have reached it.
func (e *Engine) observe(revision uint64) {
	for {
		known := e.observed.Load()
		if revision <= known {
			return
		}
		if e.observed.CompareAndSwap(known, revision) {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watches {
		select {
		case w.nudge <- struct{}{}:
		default:
		}
	}
}
