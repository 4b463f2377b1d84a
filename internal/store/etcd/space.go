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
	// diskCheckMaxAge is how long a measurement of the disk is valid.
	diskCheckMaxAge = 500 * time.Millisecond
	// walSegmentBytes is the size of the segments that etcd allocates for its log.
	walSegmentBytes = 64 << 20
	// reserveAheadBytes is the disk space reserved for the database beyond its present size.
	reserveAheadBytes = 16 << 20
	// shrinkInterval is the least pause between two attempts to shrink the database below its quota.
	shrinkInterval = 10 * time.Second
	// shrinkLimit bounds the calls to the store while the database shrinks.
	shrinkLimit = 30 * time.Second
)

// space guards the disk under the data directory and the quota of the database. etcd ends the process when it cannot
// write, so space refuses writes before that.
//
// The ballast is removed when the disk is so full that etcd's own writes are in danger, or the engine could not start.
// It is created again once there is ample room.
type space struct {
	dir      string
	log      *slog.Logger
	lowWater int64
	ballast  int64
	quota    int64
	client   *clientv3.Client
	database func() database // the server has another one after it received another member's snapshot
	member   uint64
	free     func(dir string) (free, total int64, err error)

	mu            sync.Mutex
	measuredAt    time.Time
	lowErr        error // the result of the last measurement
	shrunkAt      time.Time
	reservedBytes int64       // bytes of the database's file that are reserved on the disk
	inode         uint64      // the inode of the database's file
	full          atomic.Bool // etcd's alarm was seen
}

// database is the file of etcd's server. The in-process client cannot reach it, since its maintenance calls lack parts
// that they need.
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
		return 0, 0, fmt.Errorf("find the free space: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

// prepare makes room for a start, and fails if there still is too little.
func (s *space) prepare() error {
	free, total, err := s.free(s.dir)
	if err != nil {
		return err
	}
	if s.ballast == 0 {
		s.ballast = min(64<<20, total/64)
	}
	if free < s.lowWater {
		s.removeBallast(free)
		if free, _, err = s.free(s.dir); err != nil {
			return err
		}
	}
	_, err = os.Stat(filepath.Join(s.dir, "member", "wal"))
	if errors.Is(err, fs.ErrNotExist) && free < 2*walSegmentBytes {
		return fmt.Errorf("%d MiB are free, a new store needs %d MiB: %w", free>>20, 2*walSegmentBytes>>20,
			store.ErrNoSpace)
	}
	if free < walSegmentBytes {
		s.log.Warn("etcd starts with too little room for the next segment of its log: start it again once "+
			"there is room",
			"free_bytes", free, "segment_bytes", walSegmentBytes)
	}
	s.measure()
	return s.blockNextSegment(free < walSegmentBytes)
}

// blockNextSegment keeps etcd from reserving its next log segment while it opens the last one, or ends that. On
// opening, etcd cuts the last segment to its content and reserves the rest again. Without room for two segments, both
// compete for the freed space, and the process ended if the last segment came second. The next segment is reserved in
// the file 0.tmp, which etcd cannot create while a folder has that name.
func (s *space) blockNextSegment(yes bool) error {
	name := filepath.Join(s.dir, "member", "wal", "0.tmp")
	info, err := os.Lstat(name)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("find the next segment of the log: %w", err)
	case err == nil && (yes != info.IsDir()): // a file that etcd left, or a folder that is no longer needed
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove the next segment of the log: %w", err)
		}
	}
	if !yes || err == nil && info.IsDir() {
		return nil
	}
	// A new store has no log yet.
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the next segment of the log from being made: %w", err)
	}
	return nil
}

// noteQuotaReached notes that etcd refused a write for the quota.
func (s *space) noteQuotaReached() {
	if s != nil {
		s.full.Store(true)
	}
}

// check returns store.ErrNoSpace if a write must not be tried now. A nil space, of an etcd elsewhere, returns nil.
func (s *space) check(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.measuredAt) > diskCheckMaxAge {
		s.measure()
		s.disarm(ctx)
	}
	return s.lowErr
}

// measureAndCheck is check with a new measurement of the disk.
func (s *space) measureAndCheck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	return s.lowErr
}

// measure measures the disk, and creates or removes the ballast. The lock is held, except during the start.
func (s *space) measure() {
	s.measuredAt, s.lowErr = time.Now(), nil
	free, _, err := s.free(s.dir)
	if err != nil {
		s.lowErr = err
		return
	}
	switch {
	case free < s.lowWater/4:
		s.removeBallast(free)
	case free > 2*s.lowWater+s.ballast:
		s.createBallast()
	}
	if err := s.reserve(); err != nil && free >= s.lowWater {
		s.log.Warn("no room could be reserved for the database", "error", err)
	}
	if free < s.lowWater {
		s.lowErr = fmt.Errorf("%d MiB are free under %s, writes need %d MiB: %w", free>>20, s.dir, s.lowWater>>20,
			store.ErrNoSpace)
	}
}

// reserve reserves the disk blocks of the database's file, and some beyond its end. The file has holes. Without the
// reservation, another program could fill the disk, and etcd's write of accepted data would fail. The lock is held.
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
		s.inode, s.reservedBytes = system.Ino, 0 // the file is new
	}
	want := info.Size() + reserveAheadBytes
	if want <= s.reservedBytes {
		return nil
	}
	want += reserveAheadBytes // so that few calls reserve
	const keepSize = 1
	err = syscall.Fallocate(int(file.Fd()), keepSize, s.reservedBytes, want-s.reservedBytes)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		s.reservedBytes = math.MaxInt64 // this file system cannot reserve
		return nil
	}
	if err != nil {
		return fmt.Errorf("reserve %d bytes: %w", want-s.reservedBytes, err)
	}
	s.reservedBytes = want
	return nil
}

func (s *space) path() string { return filepath.Join(s.dir, "ballast") }

// createBallast creates the ballast file, if it does not exist.
func (s *space) createBallast() {
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
			s.ballast = -1 // this file system cannot reserve
		}
	}
}

// removeBallast removes the ballast file, if it exists.
func (s *space) removeBallast(free int64) {
	err := os.Remove(s.path())
	if err == nil {
		s.log.Warn("the disk is nearly full: the ballast was dropped", "path", s.path(), "free_bytes", free)
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("the ballast could not be dropped", "path", s.path(), "error", err)
	}
}

// disarm ends etcd's alarm once the database of this member fits the quota again. It compacts the history and returns
// the space of deleted records. The lock is held.
func (s *space) disarm(ctx context.Context) {
	if !s.full.Load() || time.Since(s.shrunkAt) < shrinkInterval {
		return
	}
	s.shrunkAt = time.Now()
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
		s.log.Debug("compact", "error", err) // another member may have compacted there
	}
	if err := s.database().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	if s.database().Size() > s.quota*9/10 {
		return fmt.Errorf("%d MiB are in use", s.database().SizeInUse()>>20)
	}
	return s.clearAlarms(ctx)
}

// clearAlarms ends the alarms of this member, and those of removed members. Each other member has to shrink its own
// database.
func (s *space) clearAlarms(ctx context.Context) error {
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
