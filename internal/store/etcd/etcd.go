// Package etcd is the store engine on etcd, whose server runs inside this process:
// one member with its data directory, no listener, and a client that calls the
// server's functions. It is a store.Engine.
//
// Open takes the directory, starts the server and returns once it serves; Close
// stops it. A directory belongs to one process at a time. Restore makes a directory
// from a snapshot, before it is opened.
//
// A group of a commit is a nested etcd transaction: etcd evaluates the compares of the whole
// tree before it writes, which is what store.Engine asks for.
//
// Beside etcd's own files the directory holds "lock", which keeps a second process
// out, and "ballast", bytes that stand for nothing: to delete it is how an operator gets
// room on a full disk.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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
)

// The sole member and its address, which nobody dials or listens on as long as
// there is one member.
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
	// NoSync leaves out the flush to disk, and durability with it. For tests only.
	NoSync bool
}

// Engine is an etcd server in this process, with the client that talks to it. It
// is safe for concurrent use.
type Engine struct {
	client *clientv3.Client
	server *embed.Etcd
	lock   *os.File
	space  *space

	life      context.Context //nolint:containedctx // ends all that the engine started
	end       context.CancelFunc
	closeOnce sync.Once
	closeErr  error
	running   sync.WaitGroup // the pumps of watches

	observed atomic.Uint64 // the highest revision that a call returned
	mu       sync.Mutex    // guards watches, and the end against a watch's begin
	watches  map[*watch]struct{}
}

// Open starts the engine on a data directory and returns when it serves, mostly within
// 0.3 s. It fails where the directory cannot be written, is in use by another
// process, or has too little space to begin at all (store.ErrNoSpace).
func Open(ctx context.Context, config Config) (*Engine, error) {
	config = config.withDefaults()
	// 1. Take the directory.
	lock, err := take(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", config.Dir, err)
	}
	// 2. See that there is room.
	room := newSpace(config)
	if err := room.prepare(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("data directory %s: %w", config.Dir, err)
	}
	// 3. Start the server, and wait until it serves.
	server, err := embed.StartEtcd(embedded(config))
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
	case err = <-server.Err():
	case <-server.Server.StopNotify():
		err = errors.New("the server stopped")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		server.Close()
		lock.Close()
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	// 4. Connect.
	e := &Engine{
		client:  v3client.New(server.Server),
		server:  server,
		lock:    lock,
		space:   room,
		watches: make(map[*watch]struct{}),
	}
	e.life, e.end = context.WithCancel(context.Background())
	room.client, room.database = e.client, server.Server.Backend()
	room.look() // now there is a database to reserve room for
	return e, nil
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
	return c
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
			return nil, errors.New("in use by another process")
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	return lock, nil
}

// embedded is etcd's configuration: one member that elects itself at once.
func embedded(config Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = config.Dir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(bridge(config.Log))
	peer, _ := url.Parse(peerURL) // a constant
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{*peer}, nil
	c.InitialCluster = c.InitialClusterFromName(memberName)
	c.TickMs, c.ElectionMs = 10, 100
	c.MaxTxnOps = uint(4 * limits().Operations) // groups and their content count together
	c.MaxRequestBytes = uint(2 * limits().Bytes)
	c.QuotaBackendBytes = config.Quota
	c.AutoCompactionMode = embed.CompactorModeRevision
	c.AutoCompactionRetention = strconv.Itoa(config.Retain)
	c.WarningApplyDuration = time.Second // a large commit takes more than etcd's 100 ms
	// Entries are large, and there is no follower to catch up: keep few of them.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 5000, 100
	c.MaxSnapFiles, c.MaxWalFiles = 2, 2
	c.AuthToken = "" // there are no users
	c.UnsafeNoFsync = config.NoSync
	return c
}

func limits() store.Limits { return store.Limits{Operations: 16384, Bytes: 4 << 20} }

// Limits is part of store.Engine.
func (e *Engine) Limits() store.Limits { return limits() }

// Close is part of store.Engine. It stops the server.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.mu.Lock()
		e.end()
		e.mu.Unlock()
		e.running.Wait()
		if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			e.closeErr = fmt.Errorf("close client: %w", err)
		}
		e.server.Close()
		e.lock.Close()
	})
	return e.closeErr
}

// enter returns why a call cannot begin, if so.
func (e *Engine) enter(ctx context.Context) error {
	if e.life.Err() != nil {
		return store.ErrClosed
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
