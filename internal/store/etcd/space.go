package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

const (
	// fresh is how long a look at the disk counts.
	fresh = 500 * time.Millisecond
	// segment is what etcd allocates for its log at once.
	segment = 64 << 20
	// ahead is how much of the disk is reserved for the database beyond its present size.
	ahead = 16 << 20
	// relief is the least pause between two attempts to get the database below its quota.
	relief = 10 * time.Second
	// shrinkLimit bounds what shrinking asks of the other members.
	shrinkLimit = 30 * time.Second
)

// space guards the disk under the data directory and the quota of the database. etcd ends the
// process when it cannot write, so that writes are refused before that.
//
// The ballast is let go when the disk is so full that etcd's own writes are in
// danger, or the engine could not start; it comes back once there is ample room.
type space struct {
	dir      string
	log      *slog.Logger
	lowWater int64
	ballast  int64
	quota    int64
	client   *clientv3.Client
	database func() database // the server has another one after it took in another member's snapshot
	member   uint64
	free     func(dir string) (free, total int64, err error)

	mu      sync.Mutex
	looked  time.Time
	low     error // what the last look found
	relieve time.Time
	kept    int64       // bytes of the database's file that the disk has promised
	inode   uint64      // of that file
	full    atomic.Bool // etcd's alarm was seen
}

// database is the file of etcd's server. The in-process client cannot reach it: its
// maintenance calls lack what they need.
type database interface {
	Defrag() error
	Size() int64
	SizeInUse() int64
}

func newSpace(config Config) *space {
	return &space{
		dir: config.Dir, log: config.Log, lowWater: config.LowWater,
		ballast: config.Ballast, quota: config.Quota, free: statfs,
	}
}

// statfs returns the bytes that are free for this user, and all bytes, of the file system.
func statfs(dir string) (free, total int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("look for free space: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

// prepare makes room for a start, and fails if there is too little even so.
func (s *space) prepare() error {
	free, total, err := s.free(s.dir)
	if err != nil {
		return err
	}
	if s.ballast == 0 {
		s.ballast = min(64<<20, total/64)
	}
	if free < s.lowWater {
		s.drop(free)
		if free, _, err = s.free(s.dir); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "member", "wal")); errors.Is(err, fs.ErrNotExist) && free < 2*segment {
		return fmt.Errorf("%d MiB are free, a new store needs %d MiB: %w", free>>20, 2*segment>>20, store.ErrNoSpace)
	}
	if free < segment {
		s.log.Warn("etcd starts with too little room for the next segment of its log: start it again once "+
			"there is room",
			"free_bytes", free, "segment_bytes", segment)
	}
	s.look()
	return s.hinder(free < segment)
}

// hinder keeps etcd from reserving room for the next segment of its log while it opens the last one, or no longer does
// so. Etcd cuts the last segment to what was written and reserves the rest anew; without room for two, both want the
// room that this frees, and the process ended where the last segment came second. The next segment is reserved in the
// file 0.tmp, which etcd cannot make where a folder has its name.
func (s *space) hinder(yes bool) error {
	name := filepath.Join(s.dir, "member", "wal", "0.tmp")
	info, err := os.Lstat(name)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look for the next segment of the log: %w", err)
	case err == nil && (yes != info.IsDir()): // a file that etcd left, or a folder that is not needed any more
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove the next segment of the log: %w", err)
		}
	}
	if !yes || err == nil && info.IsDir() {
		return nil
	}
	// a store that is new has no log yet
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the next segment of the log from being made: %w", err)
	}
	return nil
}

// filled notes that etcd refused a write for the quota.
func (s *space) filled() {
	if s != nil {
		s.full.Store(true)
	}
}

// check returns store.ErrNoSpace if a write is not to be tried now. A nil space, of an etcd elsewhere, has nothing to
// say.
func (s *space) check(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) > fresh {
		s.look()
		s.disarm(ctx)
	}
	return s.low
}

// refuses returns what check would, by a new look at the disk.
func (s *space) refuses() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.low
}

// look measures the disk and moves the ballast. The lock is held, or nobody else is there.
func (s *space) look() {
	s.looked, s.low = time.Now(), nil
	free, _, err := s.free(s.dir)
	if err != nil {
		s.low = err
		return
	}
	switch {
	case free < s.lowWater/4:
		s.drop(free)
	case free > 2*s.lowWater+s.ballast:
		s.keep()
	}
	if err := s.reserve(); err != nil && free >= s.lowWater {
		s.log.Warn("no room could be reserved for the database", "error", err)
	}
	if free < s.lowWater {
		s.low = fmt.Errorf("%d MiB are free under %s, writes need %d MiB: %w", free>>20, s.dir, s.lowWater>>20,
			store.ErrNoSpace)
	}
}

// reserve has the disk promise the blocks of the database's file, and some beyond its end. The file
// has holes; without that, a disk that something else fills in a moment makes etcd's
// next write of what it accepted before fail. The lock is held.
func (s *space) reserve() error {
	file, err := os.OpenFile(filepath.Join(s.dir, "member", "snap", "db"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // before the first start
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if system, ok := info.Sys().(*syscall.Stat_t); ok && system.Ino != s.inode {
		s.inode, s.kept = system.Ino, 0 // it is a new file
	}
	want := info.Size() + ahead
	if want <= s.kept {
		return nil
	}
	want += ahead // so that it is not asked for each time
	const keepSize = 1
	err = syscall.Fallocate(int(file.Fd()), keepSize, s.kept, want-s.kept)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		s.kept = math.MaxInt64 // this file system promises nothing
		return nil
	}
	if err != nil {
		return fmt.Errorf("reserve %d bytes: %w", want-s.kept, err)
	}
	s.kept = want
	return nil
}

func (s *space) path() string { return filepath.Join(s.dir, "ballast") }

// keep makes the ballast file, if it is not there.
func (s *space) keep() {
	if s.ballast <= 0 {
		return
	}
	file, err := os.OpenFile(s.path(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return
	}
	if err == nil {
		err = errors.Join(syscall.Fallocate(int(file.Fd()), 0, 0, s.ballast), file.Close())
	}
	if err != nil {
		s.log.Warn("no ballast could be laid down", "path", s.path(), "error", err)
		_ = os.Remove(s.path())
		if errors.Is(err, syscall.EOPNOTSUPP) {
			s.ballast = -1 // nor will it ever be, on this file system
		}
	}
}

// drop removes the ballast file, if it is there.
func (s *space) drop(free int64) {
	err := os.Remove(s.path())
	if err == nil {
		s.log.Warn("the disk is nearly full: the ballast was dropped", "path", s.path(), "free_bytes", free)
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("the ballast could not be dropped", "path", s.path(), "error", err)
	}
}

// disarm ends etcd's alarm once the database of this member fits the quota again: it compacts the
// history and gives the room of deleted records back. The lock is held.
func (s *space) disarm(ctx context.Context) {
	if !s.full.Load() || time.Since(s.relieve) < relief {
		return
	}
	s.relieve = time.Now()
	if err := s.shrink(ctx); err != nil {
		s.log.Warn("the store is at its quota", "quota_bytes", s.quota, "error", err)
		return
	}
	s.full.Store(false)
	s.log.Info("the store is below its quota again", "quota_bytes", s.quota)
}

func (s *space) shrink(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shrinkLimit)
	defer cancel()
	present, err := s.client.Get(ctx, "berth", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read revision: %w", err)
	}
	if _, err := s.client.Compact(ctx, present.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		s.log.Debug("compact", "error", err) // it may have been compacted there already
	}
	if err := s.database().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	if s.database().Size() > s.quota*9/10 {
		return fmt.Errorf("%d MiB are in use", s.database().SizeInUse()>>20)
	}
	return s.quiet(ctx)
}

// quiet ends the alarms of this member, and those of members that are no more. Each of the others has a database of its
// own to shrink.
func (s *space) quiet(ctx context.Context) error {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("list alarms: %w", err)
	}
	members, err := s.client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	for _, alarm := range alarms.Alarms {
		others := slices.ContainsFunc(members.Members, func(m *etcdserverpb.Member) bool {
			return m.ID == alarm.MemberID && m.ID != s.member
		})
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE || others {
			continue
		}
		if _, err := s.client.AlarmDisarm(ctx,
			&clientv3.AlarmMember{MemberID: alarm.MemberID, Alarm: alarm.Alarm}); err != nil {
			return fmt.Errorf("disarm: %w", err)
		}
	}
	return nil
}
