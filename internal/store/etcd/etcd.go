// Package etcd is the store engine on etcd, a store.ServerEngine. The etcd server runs inside this process: one member
// with its data directory, and a client that calls the server's functions. A member that is alone listens nowhere. A
// member with a peer address is one of several, which hold the same data and continue while more than half of them are
// up and connected.
//
// Open locks the directory, starts the server and returns once it serves; Close stops it. A directory belongs to one
// process at a time. Restore creates a directory from a snapshot before it is opened. ForceAlone creates a directory
// that needs no other member. Dial uses an etcd that runs elsewhere.
//
// A new member is a learner at first, which has no vote. It is added in three steps: AddLearner on any member, Open
// with Join on the new one, and Promote once it has the data. Remove removes a member, which then stops by itself.
//
// A group of a commit is a nested etcd transaction. As store.Engine requires, etcd evaluates the compares of the whole
// tree before it writes.
//
// In addition to etcd's own files the directory holds "lock", which excludes a second process, and "ballast", a file of
// unused bytes. An operator deletes the ballast to get room on a full disk.
//
// # An etcd that runs elsewhere
//
// etcd's client connects lazily, so a wrong authority, port or host all become "context deadline exceeded". Dial
// therefore tries each endpoint by itself: TCP, TLS, the first bytes of HTTP/2. One that answers is enough. It then
// requests the version, and sends a transaction that reads, puts and deletes under an impossible condition: etcd checks
// the permissions of both branches before it evaluates the condition. Each fault has a kind. Berth's own login replaces
// the client's, which logs in for each stream and keeps the first password: one login at a time, with the present
// password, and a call that is refused for its token is sent once more. TLS reads its files at each connection, the
// authority included; files that do not belong together, as for a moment in a rotation, leave the last good ones in
// use. The prefix belongs to the engine, below all key names, so no writer can forget it. `clientv3/namespace` does not
// cover transactions that are sent as they are. Versions before 3.5.13 and 3.4.31 are refused: a watch may lose events
// around a compaction, and a deposed leader may revoke leases.
//
// # Size
//
// The embedded server and the connection to an etcd elsewhere share the engine: calls, watches, leases and the space
// guard. A file holds one of these.
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
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
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

// memberName and peerURL are the defaults for a member's name and address. Nothing dials the address or listens on it
// while there is one member.
const (
	memberName = "berth"
	peerURL    = "http://127.0.0.1:1"
)

// Config configures Open. Only Dir is required.
type Config struct {
	// Dir is the data directory. Open creates it if it is missing.
	Dir string
	// Log gets etcd's warnings and errors, and one line with the cause if etcd ends the process; nil discards them.
	Log *slog.Logger
	// Quota limits the size of etcd's database in bytes. At the quota writes return store.ErrNoSpace. 0 means
	// DefaultQuota.
	Quota int64
	// Retain is the number of revisions of history kept for watches that lag; 0 means DefaultRetain. etcd compacts to
	// it every five minutes.
	Retain int
	// LowWater is the free space of the file system, in bytes, below which writes are refused. etcd ends the process
	// when it cannot write its log. 0 means DefaultLowWater, which covers a segment of etcd's log, a growth of its
	// database, and a reserve.
	LowWater int64
	// Ballast is the size of the ballast file in bytes; 0 means 64 MiB, or 1/64 of a file
	// system under 4 GiB; negative means none.
	Ballast int64
	// Name is this server's id, and the name of the member.
	Name string
	// PeerURL is the address for the other members, such as "https://10.0.0.1:7072". Empty means alone: nothing
	// listens. A member that began alone may be given an address later.
	PeerURL string
	// PeerListen is the address to listen on for other members, host:port; empty means the host and port of PeerURL.
	PeerListen string
	// PeerTLS, unless nil, is presented to the other members. They have to present a certificate of the same authority
	// whose organizational unit is "server". Without PeerTLS, PeerURL is plain http, which is for tests.
	PeerTLS *TLSFiles
	// Join, unless empty, holds the members that AddLearner returned: a new directory becomes the learner among them. A
	// directory that holds a store ignores it.
	Join []Member
	// Heartbeat is the interval of the leader's heartbeats to the other members. Election is the least silence after
	// which they elect another leader, which takes up to about twice as long. 0 means DefaultHeartbeat and
	// DefaultElection. All members have the same values; a member that is alone ignores them.
	Heartbeat, Election time.Duration
	// Slack limits the unused bytes of the database's file. Run returns them to the disk if they are more than Slack
	// and more than half of the file. 0 means DefaultSlack.
	Slack int64
	// NoSync leaves out the flush to disk, and durability with it. For tests only.
	NoSync bool
}

// Engine is an etcd server in this process, or one elsewhere, with its client. It is safe for concurrent use. Each of
// its parts does one thing; their exported methods are methods of the Engine.
type Engine struct {
	*calls
	*records      // reads, commits and watches
	*memberSet    // the members, and changes of them
	*leadership   // the engine's own leadership
	*healthCheck  // Health
	*defragmenter // Run

	forced   bool              // started by ForceAlone from a store of several members
	contacts *etcdlog.Contacts // the state of the other members, from etcd's messages

	// The following fields are nil where the server runs elsewhere.
	peers *peerServer // nil while the member is alone
	lock  *os.File

	closeOnce sync.Once
	closeErr  error
}

// newEngine returns an engine whose parts are connected. It has no client yet, and nothing runs.
func newEngine(config Config) *Engine {
	all := &calls{core: newCore(config), leader: new(leaderTerm), watches: newWatches()}
	e := &Engine{
		calls: all, records: &records{calls: all}, memberSet: &memberSet{calls: all},
		contacts: new(etcdlog.Contacts),
	}
	e.leadership = &leadership{calls: all, members: e.memberSet}
	e.healthCheck = &healthCheck{calls: all, contacts: e.contacts}
	e.defragmenter = &defragmenter{
		calls: all, records: e.records, members: e.memberSet, leadership: e.leadership,
	}
	return e
}

// Open starts the engine on a data directory and returns when it serves, alone mostly within 0.3 s. Among other members
// it waits for a quorum, for quorumLimit at most. After that it returns without one, and calls return
// store.ErrUnavailable until there is a quorum. Open fails if the directory cannot be written, is in use by another
// process, or has too little space (store.ErrNoSpace). It fails with store.ErrRemoved if the member was removed.
func Open(ctx context.Context, config Config) (*Engine, error) {
	return start(ctx, config.withDefaults(), func(*embed.Config) {})
}

// start is Open with a function that adjusts etcd's configuration.
func start(ctx context.Context, config Config, adjust func(*embed.Config)) (*Engine, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	// 1. Lock the directory.
	lock, err := lockDirectory(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", config.Dir, err)
	}
	e := newEngine(config)
	e.lock, e.space, e.limits = lock, newSpace(config), embeddedLimits()
	// 2. Check the free space, and listen on the address.
	if err := e.space.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", config.Dir, err), e.Close())
	}
	if e.peers, err = listenPeers(ctx, config); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	// 3. Start the server, and wait until it serves.
	c := embedded(config)
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdlog.NewForMember(config.Log, e.contacts))
	adjust(c)
	e.forced = c.ForceNewCluster
	if e.server, err = e.startServer(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), e.Close())
	}
	e.peers.serve(e.server)
	e.client = v3client.New(e.server.Server)
	e.transact = e.transactDirect
	e.space.client, e.space.member = e.client, uint64(e.server.Server.MemberID())
	e.space.database = func() database { return e.server.Server.Backend() }
	if err := e.waitUntilServing(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd: %w", err), e.Close())
	}
	// 4. Watch the server and its leadership.
	e.space.measure() // now there is a database to reserve room for
	e.running.Go(e.watchForEnd)
	e.running.Go(func() { e.leader.follow(e.core) })
	e.running.Go(e.publishAddress)
	return e, nil
}

// startServer starts the server. A joining member has to name all members as they are now, since others may have joined
// or left. It asks any member for the list; that member may not know the new one yet, so startServer retries for
// quorumLimit.
func (e *Engine) startServer(ctx context.Context, c *embed.Config) (*embed.Etcd, error) {
	ctx, cancel := context.WithTimeout(ctx, quorumLimit)
	defer cancel()
	_, err := os.Stat(filepath.Join(c.Dir, "member"))
	isNew := errors.Is(err, fs.ErrNotExist)
	for {
		if isNew && c.ClusterState == embed.ClusterStateFlagExisting {
			if present := currentMembers(ctx, e.config); present != nil {
				joining := e.config
				joining.Join = present
				c.InitialCluster = initialCluster(joining)
			}
		}
		server, err := embed.StartEtcd(c)
		if err == nil {
			return server, nil
		}
		if c.ClusterState != embed.ClusterStateFlagExisting {
			return nil, err
		}
		if pause.For(ctx, changePause) != nil {
			return nil, err
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

// check validates a configuration by itself.
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

// lockDirectory creates the directory, checks that it is writable, and locks it.
func lockDirectory(dir string) (*os.File, error) {
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

// embedded returns etcd's configuration. A member that is alone elects itself immediately.
func embedded(config Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = config.Name
	c.Dir = config.Dir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdlog.New(config.Log))
	own := cmp.Or(config.PeerURL, peerURL)
	peer, _ := url.Parse(own) // was validated
	// etcd itself listens nowhere: peerServer does.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{*peer}, nil
	c.InitialCluster = c.Name + "=" + own
	c.InitialClusterToken = uuid.NewString() // so that the members of two stores refuse each other
	if len(config.Join) > 0 {
		c.ClusterState = embed.ClusterStateFlagExisting
		c.InitialCluster = initialCluster(config)
	}
	// A member that is alone needs its ticks for one election, of five to nine ticks, when it starts. etcd allows no
	// fewer ticks, and each tick wakes the process.
	c.TickMs, c.ElectionMs = 20, 100
	// Log entries are large, up to half a megabyte under load. etcd keeps in memory the entries since its last snapshot
	// and those that a follower may need. A member that is alone has no follower; 0 would mean etcd's own default.
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
	c.AuthToken = "" // the embedded server has no users
	c.UnsafeNoFsync = config.NoSync
	return c
}

// initialCluster lists the members that a new one joins, in etcd's form. Each member has a name; only the name of the
// new one has to be right.
func initialCluster(config Config) string {
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

// Membership is part of store.ServerEngine. The members of an etcd that runs elsewhere are no concern of Berth.
func (e *Engine) Membership() store.Membership {
	if e.server == nil {
		return nil
	}
	return e
}

// Close is part of store.Engine. It stops the server. A member that leads the engine hands its leadership over first.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.handOver()
		e.end(store.ErrClosed)
		e.running.Wait()
		if e.client != nil {
			if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
				e.closeErr = fmt.Errorf("close client: %w", err)
			}
		}
		if e.server != nil {
			e.server.Server.HardStop() // Stop would hand over as well, and wait 6 s for members that are down
			e.server.Close()
		}
		e.peers.close()
		if e.lock != nil {
			e.lock.Close()
		}
	})
	return e.closeErr
}
