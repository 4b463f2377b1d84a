// Package backup keeps the newest copies of the whole store in a folder. It makes one copy in each interval.
//
// A copy is written under a temporary name, made durable, read back and compared by its hash, and only then renamed.
// Older copies are removed only after that. Every copy with a final name is therefore complete. At least one such copy
// remains at every time. Only the leader makes copies. A new leader reads its own folder and computes the time of the
// next copy.
//
// # Copies
//
// A copy starts only if twice the size of the last copy is free. It is aborted when it exceeds half of the free space.
// Names contain the time, and a revision that is not above that of the copy. The SHA-256 is in a file beside the copy,
// in the format of `sha256sum -c`. Files have mode 0600, because a copy contains the whole store. A failure removes
// nothing. It is retried after 30 s, then at growing intervals up to an hour or the time between two copies, whichever
// is less, and shows in the status and the metrics. The package never removes the oldest copy to make room: a full disk
// would then end with no copy at all. A new leader begins with a copy of its own.
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

	"github.com/berthd/berth/internal/pause"
)

// Bounds of a Config.
const (
	// LeastEvery is the shortest time between two copies.
	LeastEvery = time.Minute
	// checkInterval is the time between two checks whether a copy is due: the wall clock may be set, and leadership
	// moves.
	checkInterval = 10 * time.Second
	// firstRetryPause and maxRetryPause bound the pause after a failure, which doubles. It is never longer than the
	// time between two copies.
	firstRetryPause = 30 * time.Second
	maxRetryPause   = time.Hour
)

// ErrNoRoom says that the disk has no room for a copy.
var ErrNoRoom = errors.New("the disk has no room for a copy of the store")

// Config is what New needs.
type Config struct {
	// Snapshot writes a consistent copy of the store; it is the engine's method.
	Snapshot func(ctx context.Context, to io.Writer) error
	// Revision returns the least revision that a copy begun now holds; it is part of the file's name. nil means 0.
	Revision func() uint64
	// Inspect, unless nil, reads a copy and returns an error if it is not a copy of a store. It comes after the
	// comparison by hash.
	Inspect func(from io.Reader) error
	// Dir holds the copies and is made with mode 0700. No other program may write files with names of copies there.
	Dir string
	// Every is the time between two copies, at least LeastEvery. Keep is how many of them stay, at least 1.
	Every time.Duration
	Keep  int
	// Now is the wall clock; default time.Now.
	Now func() time.Time
	// Free returns the free bytes for this user on the disk of a folder; default the file system's answer.
	Free    func(dir string) (uint64, error)
	Metrics Metrics // may be nil
	Log     *slog.Logger
}

// Metrics receives the result of each copy. The calls must return immediately.
type Metrics interface {
	// Saved reports a good copy: its start, its size in bytes, and its duration.
	Saved(began time.Time, size int64, took time.Duration)
	// Failed reports that a copy could not be made.
	Failed()
}

// Status is the state of the copies.
type Status struct {
	// Newest is the newest good copy in the folder, nil for none; Count is the number of copies.
	Newest *File
	Count  int
	// Leads says that this server makes the copies. Due is the time of its next copy.
	Leads bool
	Due   time.Time
	// Problem is why the last try failed, empty if it did not; Failures counts failed tries in a row.
	Problem  string
	Failures int
}

// Late reports whether copies fall behind: the time is more than one interval after Due.
func (s *Status) Late(now time.Time, every time.Duration) bool {
	return s.Leads && !s.Due.IsZero() && now.Sub(s.Due) > every
}

// Backups makes copies on schedule while this server leads. Status may be called concurrently with Run and Lead.
type Backups struct {
	config Config

	mu     sync.Mutex
	status Status

	// The following fields are used by Lead alone.
	failures int
	tryAfter time.Time // after a failure
}

// New returns a Backups for Run, or an error if the config is wrong. It touches no file.
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
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Free == nil {
		c.Free = freeBytes
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Backups{config: c}, nil
}

func freeBytes(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// Status returns the state of the copies, as of the last check.
func (b *Backups) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// Health returns an error if the last copy failed or the next one is late. It is nil if this server makes no copies.
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

// Run keeps the status up to date while Lead does not run, until the context ends. It returns the context's error.
func (b *Backups) Run(ctx context.Context) error {
	return everyInterval(ctx, func() {
		now := b.config.Now()
		files, err := listCopies(b.config.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // a problem of the folder is one of the leader alone
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.status.Leads {
			b.status.setFiles(files, b.nextDue(now, files))
		}
	})
}

// Lead makes copies for one leadership term, until the context ends, and returns the context's error. A copy that is
// not complete by then is given up. A failed copy is tried again after growing pauses. Only one call runs at a time.
func (b *Backups) Lead(ctx context.Context) error {
	b.setLeads(true)
	defer b.setLeads(false) // another server makes the copies then
	b.failures, b.tryAfter = 0, time.Time{}
	return everyInterval(ctx, func() { b.step(ctx) })
}

// everyInterval does something now and once in each checkInterval, until the context ends.
func everyInterval(ctx context.Context, do func()) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// setLeads notes whether this server makes the copies.
func (b *Backups) setLeads(leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Leads, b.status.Problem, b.status.Failures = leads, "", 0
}

// step makes a copy if one is due.
func (b *Backups) step(ctx context.Context) {
	now := b.config.Now()
	files, err := listCopies(b.config.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.noteFailure(now, fmt.Errorf("read the folder of copies: %w", err))
		return
	}
	due := b.nextDue(now, files)
	b.setStatus(files, due)
	if now.Before(due) || now.Before(b.tryAfter) && b.tryAfter.Sub(now) <= maxRetryPause {
		return
	}
	file, err := b.saveCopy(ctx, now, files)
	if err != nil {
		if ctx.Err() == nil {
			b.noteFailure(now, err)
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
	if files, err := listCopies(b.config.Dir); err == nil {
		b.setStatus(files, b.nextDue(now, files))
	}
}

// nextDue returns when the next copy is due: now if there is none. Copies from a time too far ahead do not count: the
// clock was set back after them.
func (b *Backups) nextDue(now time.Time, files []File) time.Time {
	for _, f := range slices.Backward(files) {
		if !f.Time.After(now.Add(b.config.Every)) {
			return f.Time.Add(b.config.Every)
		}
	}
	return now
}

// setStatus publishes the status of a server that makes copies.
func (b *Backups) setStatus(files []File, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.setFiles(files, due)
	if b.failures == 0 {
		b.status.Problem, b.status.Failures = "", 0
	}
}

// setFiles sets which copies are in the folder, and when the next one is due.
func (s *Status) setFiles(files []File, due time.Time) {
	s.Newest, s.Count, s.Due = nil, len(files), due
	if len(files) > 0 {
		newest := files[len(files)-1]
		s.Newest = &newest
	}
}

// noteFailure notes that no copy could be made, and when to try again.
func (b *Backups) noteFailure(now time.Time, err error) {
	rest := pause.Doubled(firstRetryPause, min(maxRetryPause, b.config.Every), b.failures)
	b.failures++
	b.tryAfter = now.Add(rest)
	b.mu.Lock()
	b.status.Problem, b.status.Failures = err.Error(), b.failures
	b.mu.Unlock()
	b.config.Log.Error("the store was not copied", "dir", b.config.Dir, "failures", b.failures, "again_in", rest,
		"error", err)
	if b.config.Metrics != nil {
		b.config.Metrics.Failed()
	}
}

// prune removes all but the newest copies, by name, after a new one was made. The new copy stays even if the clock was
// set back and others seem newer.
func (b *Backups) prune(saved File) {
	files, err := listCopies(b.config.Dir)
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
		if err := removeCopy(b.config.Dir, f.Name); err != nil {
			b.config.Log.Warn("an old copy of the store was not removed", "file", f.Name, "error", err)
		}
	}
}

// removeCopy removes a copy and then its checksum file. A checksum file without a copy is harmless.
func removeCopy(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name))
	if sum := os.Remove(filepath.Join(dir, name+sumSuffix)); sum != nil && !errors.Is(sum, fs.ErrNotExist) {
		err = errors.Join(err, sum)
	}
	return err
}
