// Package backup keeps copies of the whole store in a folder: one every so often, the newest few of them.
//
// A copy is written beside its name, made durable, read back and compared by its hash, and only then given its name;
// older ones are removed only after that. So what carries a name is whole, and there is always at least as good a copy
// as before. Only the server that leads makes copies; a new leader looks at its own folder to see when the next is due.
// A copy is made only where there is room for it twice, and never takes more than half of what is free.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Bounds of a Config.
const (
	// LeastEvery is the shortest time between two copies.
	LeastEvery = time.Minute
	// look is how often it is looked whether one is due: the wall clock may be set, and leadership moves.
	look = 10 * time.Second
	// firstRetry and mostRetry bound the pause after a failure, which doubles.
	firstRetry = 30 * time.Second
	mostRetry  = time.Hour
)

// ErrNoRoom says that the disk has no room for a copy.
var ErrNoRoom = errors.New("the disk has no room for a copy of the store")

// Config is what New needs.
type Config struct {
	// Snapshot writes a consistent copy of the store; the engine's.
	Snapshot func(ctx context.Context, to io.Writer) error
	// Revision returns a revision that a copy begun now holds at the least; it is part of the file's name. nil means 0.
	Revision func() uint64
	// Inspect, unless nil, reads a copy and says whether it is one; in addition to the comparison by hash.
	Inspect func(from io.Reader) error
	// Dir holds the copies and is made with mode 0700. Nobody else writes files there that are named as the copies are.
	Dir string
	// Every is the time between two copies, LeastEvery or more; Keep, 1 or more, how many of them stay.
	Every time.Duration
	Keep  int
	// Leads reports whether this server is to make the copies now; nil means always.
	Leads func() bool
	// Now is the wall clock; default time.Now.
	Now func() time.Time
	// Free returns how many bytes are free for this user on the disk of a folder; default the file system's answer.
	Free    func(dir string) (uint64, error)
	Metrics Metrics // may be nil
	Log     *slog.Logger
}

// Metrics is told of each copy. The calls must return at once.
type Metrics interface {
	// Saved tells of a good copy: when it was begun, its size in bytes, and how long it took.
	Saved(began time.Time, size int64, took time.Duration)
	// Failed tells that one could not be made.
	Failed()
}

// Status is how the copies stand.
type Status struct {
	// Newest is the newest good copy in the folder, nil for none; Count is how many there are.
	Newest *File
	Count  int
	// Leads says that this server makes the copies; Due is when the next one is, where it does.
	Leads bool
	Due   time.Time
	// Problem is why the last try failed, empty where it did not; Failures counts those in a row.
	Problem  string
	Failures int
}

// Late reports whether copies fall behind at a time: this server should have made one more than Every ago.
func (s *Status) Late(now time.Time, every time.Duration) bool {
	return s.Leads && !s.Due.IsZero() && now.Sub(s.Due) > every
}

// Backups makes copies on schedule. Status may be called concurrently with Run.
type Backups struct {
	config Config

	mu     sync.Mutex
	status Status

	// Run's alone.
	failures int
	tryAfter time.Time // after a failure
}

// New returns what Run then does, or what is wrong with the config. It touches no file.
func New(c Config) (*Backups, error) {
	switch {
	case c.Snapshot == nil:
		return nil, errors.New("there is nothing to make copies of")
	case c.Dir == "":
		return nil, errors.New("the folder for copies of the store is not named")
	case c.Every < LeastEvery:
		return nil, fmt.Errorf("copies of the store every %s: want %s or more", c.Every, LeastEvery)
	case c.Keep < 1:
		return nil, fmt.Errorf("keep %d copies of the store: want 1 or more", c.Keep)
	}
	if c.Revision == nil {
		c.Revision = func() uint64 { return 0 }
	}
	if c.Leads == nil {
		c.Leads = func() bool { return true }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Free == nil {
		c.Free = free
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Backups{config: c}, nil
}

func free(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// Status returns how the copies stand, as of the last look.
func (b *Backups) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// Health returns what is wrong with the copies that this server is to make: the last try failed, or they are late. It
// is nil for a server that is to make none.
func (b *Backups) Health() error {
	st, now := b.Status(), b.config.Now()
	switch {
	case !st.Leads:
		return nil
	case st.Problem != "" && st.Failures > 1:
		return fmt.Errorf("the store could not be copied %d times in a row: %s", st.Failures, st.Problem)
	case st.Problem != "":
		return fmt.Errorf("the store could not be copied: %s", st.Problem)
	case st.Late(now, b.config.Every):
		return fmt.Errorf("the copy of the store that was due at %s is not there", st.Due.UTC().Format(time.RFC3339))
	}
	return nil
}

// Run makes copies until the context ends, and returns its error. A copy that fails is tried again, later and later.
func (b *Backups) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		b.step(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// step makes a copy if one is due here.
func (b *Backups) step(ctx context.Context) {
	now, leads := b.config.Now(), b.config.Leads()
	files, err := list(b.config.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.failed(now, fmt.Errorf("read the folder of copies: %w", err))
		return
	}
	due := b.due(now, files)
	b.tell(files, leads, due)
	if !leads {
		b.failures, b.tryAfter = 0, time.Time{} // it is another server's now
		return
	}
	if now.Before(due) || now.Before(b.tryAfter) && b.tryAfter.Sub(now) <= mostRetry {
		return
	}
	file, err := b.save(ctx, now, files)
	if err != nil {
		if ctx.Err() == nil {
			b.failed(now, err)
		}
		return
	}
	b.failures, b.tryAfter = 0, time.Time{}
	took := b.config.Now().Sub(now)
	b.config.Log.Info("the store was copied", "file", filepath.Join(b.config.Dir, file.Name), "size", file.Size, "took",
		took)
	if b.config.Metrics != nil {
		b.config.Metrics.Saved(now, file.Size, took)
	}
	b.prune(file)
	if files, err := list(b.config.Dir); err == nil {
		b.tell(files, leads, b.due(now, files))
	}
}

// due returns when the next copy is due: at once where there is none. Copies that seem to be of a far future, because
// the clock was set back since, do not count.
func (b *Backups) due(now time.Time, files []File) time.Time {
	for _, f := range slices.Backward(files) {
		if !f.Time.After(now.Add(b.config.Every)) {
			return f.Time.Add(b.config.Every)
		}
	}
	return now
}

// tell publishes the status.
func (b *Backups) tell(files []File, leads bool, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Newest, b.status.Count, b.status.Leads, b.status.Due = nil, len(files), leads, due
	if len(files) > 0 {
		newest := files[len(files)-1]
		b.status.Newest = &newest
	}
	if b.failures == 0 || !leads {
		b.status.Problem, b.status.Failures = "", 0
	}
}

// failed notes that no copy could be made, and when to try again.
func (b *Backups) failed(now time.Time, err error) {
	pause := mostRetry
	if b.failures < 8 {
		pause = min(firstRetry<<b.failures, b.config.Every, mostRetry)
	}
	b.failures++
	b.tryAfter = now.Add(pause)
	b.mu.Lock()
	b.status.Problem, b.status.Failures = err.Error(), b.failures
	b.mu.Unlock()
	b.config.Log.Error("the store was not copied", "dir", b.config.Dir, "failures", b.failures, "again_in", pause,
		"error", err)
	if b.config.Metrics != nil {
		b.config.Metrics.Failed()
	}
}

// prune removes all but the newest copies, now that there is a good new one. Which one that is, its name says; the new
// one stays even where the clock went back and it seems older than others.
func (b *Backups) prune(saved File) {
	files, err := list(b.config.Dir)
	if err != nil {
		b.config.Log.Warn("old copies of the store were not removed", "dir", b.config.Dir, "error", err)
		return
	}
	extra := len(files) - b.config.Keep
	for _, f := range files {
		if extra <= 0 {
			return
		}
		if f.Name == saved.Name {
			continue
		}
		extra--
		if err := remove(b.config.Dir, f.Name); err != nil {
			b.config.Log.Warn("an old copy of the store was not removed", "file", f.Name, "error", err)
		}
	}
}

// remove removes a copy and its sum; the copy goes first: a sum alone is nothing.
func remove(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name))
	if sum := os.Remove(filepath.Join(dir, name+sumSuffix)); sum != nil && !errors.Is(sum, fs.ErrNotExist) {
		err = errors.Join(err, sum)
	}
	return err
}
