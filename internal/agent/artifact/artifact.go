// Package artifact fetches files and archives for tasks and keeps them on the node, by their checksum, for all tasks
// that use the same artifact. They come from an address, or from a file of the node that its operator shares.
//
// The name of a kept artifact consists of its checksum and its form: a file with a mode, or the folder of an unpacked
// archive. It gets the name once it is complete, verified and on disk. So every name below kept is valid after any
// crash.
//
//	kept/sha256-<digits>-0755   a file
//	kept/sha256-<digits>-tree   a folder
//	coming/<the same>           the fetched part, to resume from
//	coming/<the same>.unpacked  the unpacked part
//
// The modification time of a kept name is its last use.
//
// # Archives
//
// An absolute path of a container is a read-only mount of the kept artifact; a relative one is a copy in the working
// folder, which the program may change. Archives are rewritten entry by entry for package archive, which lets nothing
// out of a folder; sizes and counts are bounded. Only objects of the operator's object store are fetched with a key; an
// address that holds its own key is shown without its query.
package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
)

// Config configures a Store. Fields that are 0 have defaults.
type Config struct {
	// Dir is the store's own folder. It is created when it is needed.
	Dir    string
	Logger *slog.Logger
	// Most limits the concurrent fetches, default 4.
	Most int
	// Tries limits the attempts for one artifact, default 6. An attempt with progress restarts the count.
	Tries int
	// First is the wait after the first attempt. It doubles with each attempt up to Longest; half of it is random.
	// Default 1 s and 1 minute.
	First, Longest time.Duration
	// Stall is how long a server may send nothing in the middle of an answer, default 1 minute.
	Stall time.Duration
	// OnProgress is the shortest time between two progress messages, default 3 s.
	OnProgress time.Duration
	// MaxFetched and MaxUnpacked limit the size of one artifact as fetched and on disk, default 8 and 32 GiB.
	// MaxEntries limits the files, folders and links in an archive, default 500,000.
	MaxFetched, MaxUnpacked cluster.Bytes
	MaxEntries              int
	// Egress decides from which addresses artifacts may be fetched.
	Egress egress.Policy
	// ObjectStore is where the sources that begin with s3:// are.
	ObjectStore ObjectStore
	// Paths are the folders of the node below which an artifact may be a file: "/" allows every file, an empty list
	// allows none.
	Paths []string
}

func (c *Config) defaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	positive(&c.Most, 4)
	positive(&c.Tries, 6)
	positive(&c.First, time.Second)
	positive(&c.Longest, time.Minute)
	positive(&c.Stall, time.Minute)
	positive(&c.OnProgress, 3*time.Second)
	positive(&c.MaxFetched, 8*cluster.GiB)
	positive(&c.MaxUnpacked, 32*cluster.GiB)
	positive(&c.MaxEntries, 500_000)
}

func positive[T ~int | ~int64](field *T, standard T) {
	if *field <= 0 {
		*field = standard
	}
}

// keepPartial is how long the fetched part of an unwanted artifact is kept.
const keepPartial = 24 * time.Hour

// Store keeps the artifacts of a node. All methods may be called concurrently.
type Store struct {
	Config
	fetcher fetcher
	slots   chan struct{}

	mu   sync.Mutex
	busy map[string]*making
}

// making is an artifact that is being fetched.
type making struct {
	done chan struct{} // closed when it is over, with or without success
	mu   sync.Mutex
	text string // current progress
}

func (m *making) setText(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = text
}

func (m *making) getText() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text
}

// New returns a Store; it starts nothing and touches no file.
func New(c Config) *Store {
	c.defaults()
	return &Store{
		Config: c, fetcher: newFetcher(c.Stall, c.Egress), slots: make(chan struct{}, c.Most),
		busy: map[string]*making{},
	}
}

// Key returns the name of a kept artifact.
func Key(a *cluster.Artifact) string {
	kind := a.Mode
	if kind == "" {
		kind = cluster.DefaultFileMode
	}
	if a.Unpack {
		kind = "tree"
	}
	return strings.Replace(a.Checksum, ":", "-", 1) + "-" + kind
}

func (s *Store) kept(key string) string   { return filepath.Join(s.Dir, "kept", key) }
func (s *Store) coming(key string) string { return filepath.Join(s.Dir, "coming", key) }

// Get returns the file or folder of an artifact, and fetches it if the node does not have it. Users of artifacts are
// known to Prune by its argument. Progress, unless nil, receives short progress messages on this goroutine. Errors name
// the address without parts that may be secret, and a remedy.
func (s *Store) Get(ctx context.Context, a *cluster.Artifact, progress func(string)) (string, error) {
	if progress == nil {
		progress = func(string) {}
	}
	key := Key(a)
	for {
		s.mu.Lock()
		if path, ok := s.have(key); ok {
			s.mu.Unlock()
			return path, nil
		}
		m := s.busy[key]
		mine := m == nil
		if mine {
			m = &making{done: make(chan struct{})}
			s.busy[key] = m
		}
		s.mu.Unlock()
		var failed error
		if mine {
			go func() {
				failed = s.make(ctx, a, m)
				s.mu.Lock()
				delete(s.busy, key)
				s.mu.Unlock()
				close(m.done)
			}()
		}
		s.follow(ctx, m, mine, progress)
		switch {
		case mine && failed != nil:
			return "", fmt.Errorf("artifact %s: %w", cluster.ShownSource(a.Source), failed)
		case ctx.Err() != nil:
			return "", ctx.Err()
		}
		// After a failure of another caller this one tries itself: it may have another source for the same artifact.
	}
}

// have returns the path of a kept artifact, and updates its last use.
func (s *Store) have(key string) (string, bool) {
	path := s.kept(key)
	if _, err := os.Lstat(path); err != nil {
		return "", false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // it affects only the order of removal
	return path, true
}

// follow passes on progress until the fetch is over. The caller that makes the artifact itself also waits until the
// making goroutine has finished.
func (s *Store) follow(ctx context.Context, m *making, mine bool, progress func(string)) {
	ticker := time.NewTicker(s.OnProgress)
	defer ticker.Stop()
	gone := ctx.Done()
	if mine {
		gone = nil // it ends with ctx, soon
	}
	reported := ""
	for {
		if text := m.getText(); text != reported {
			reported = text
			progress(text)
		}
		select {
		case <-m.done:
			return
		case <-gone:
			return
		case <-ticker.C:
		}
	}
}

// make fetches an artifact.
func (s *Store) make(ctx context.Context, a *cluster.Artifact, m *making) error {
	m.setText("waiting to fetch " + cluster.ShownSource(a.Source))
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, dir := range []string{"kept", "coming"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, dir), 0o700); err != nil {
			return fmt.Errorf("make the folder for artifacts: %w", err)
		}
	}
	key := Key(a)
	part := s.coming(key)
	if err := s.fetch(ctx, a, part, m); err != nil {
		if sizeOf(part) == 0 {
			_ = os.Remove(part) // nothing to resume from
		}
		return err
	}
	ready := part
	if a.Unpack {
		m.setText("unpacking " + cluster.ShownSource(a.Source))
		ready = part + ".unpacked"
		if err := s.unpack(ctx, part, ready); err != nil {
			_ = removeTree(ready)
			if !errors.Is(err, ctx.Err()) {
				_ = os.Remove(part) // it matches the checksum and is unusable
			}
			return fmt.Errorf("unpack: %w", err)
		}
	} else if err := os.Chmod(part, modeOf(a)); err != nil {
		return fmt.Errorf("set the mode: %w", err)
	}
	if err := syncTree(ready); err != nil {
		return err
	}
	if err := os.Rename(ready, s.kept(key)); err != nil {
		return fmt.Errorf("keep it: %w", err)
	}
	if ready != part {
		_ = os.Remove(part) // otherwise the next sweep removes it
	}
	s.Logger.Info("an artifact was fetched", "source", cluster.ShownSource(a.Source), "checksum", a.Checksum)
	return nil
}

// syncTree makes the files below a path durable, before a name marks them as complete.
func syncTree(path string) error {
	f, err := os.Open(path)
	if err == nil {
		err = unix.Syncfs(int(f.Fd()))
		_ = f.Close() // opened for reading only
	}
	if err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	return nil
}

// Removed is a removed artifact.
type Removed struct {
	Key  string
	Size cluster.Bytes
	Used time.Time // the last request
}

// Idle is an unused artifact.
type Idle = Removed

// Short returns a short form of a key for people: enough of the checksum to distinguish artifacts.
func Short(key string) string {
	kind, digits, _ := strings.Cut(key, "-")
	return kind + ":" + digits[:min(len(digits), 12)]
}

// Any reports whether the store keeps anything.
func (s *Store) Any() bool {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "kept"))
	return err == nil && len(entries) > 0
}

// Tidy removes fetched parts of unwanted artifacts.
func (s *Store) Tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
}

// Idle returns the unused artifacts, the least recently used first. Wanted is as in Prune.
func (s *Store) Idle(wanted func() map[string]bool) ([]Idle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle, err := s.idle(wanted)
	for i := range idle {
		idle[i].Size = sizeOf(s.kept(idle[i].Key))
	}
	return idle, err
}

// idle returns the unused artifacts without their sizes. The mutex is held.
func (s *Store) idle(wanted func() map[string]bool) (idle []Idle, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "kept"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the artifacts: %w", err)
	}
	used := wanted()
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !used[e.Name()] && s.busy[e.Name()] == nil {
			idle = append(idle, Idle{Key: e.Name(), Used: info.ModTime()})
		}
	}
	slices.SortStableFunc(idle, func(a, b Idle) int { return a.Used.Compare(b.Used) })
	return idle, nil
}

// Prune removes unused artifacts, the least recently used first, until need more bytes are free. It also removes
// fetched parts of unwanted artifacts. Wanted returns the keys of the artifacts in use. No Get runs during the call of
// wanted, which must not wait and must not call the store.
func (s *Store) Prune(wanted func() map[string]bool, need cluster.Bytes) (all []Removed, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	idle, err := s.idle(wanted)
	if err != nil {
		return nil, err
	}
	for _, o := range idle {
		if need <= 0 {
			break
		}
		o.Size = sizeOf(s.kept(o.Key))
		gone := s.coming(o.Key + ".removed") // after a crash this name marks it as half removed
		err := errors.Join(removeTree(gone), os.MkdirAll(filepath.Dir(gone), 0o700))
		if err == nil {
			err = os.Rename(s.kept(o.Key), gone)
		}
		if err == nil {
			err = removeTree(gone)
		}
		if err != nil {
			return all, fmt.Errorf("remove artifact %s: %w", o.Key, err)
		}
		need -= o.Size
		all = append(all, o)
	}
	return all, nil
}

// sweep removes unfinished parts and half removed artifacts of earlier runs. The mutex is held.
func (s *Store) sweep() {
	entries, _ := os.ReadDir(filepath.Join(s.Dir, "coming")) // a missing folder is empty
	for _, e := range entries {
		key, _, _ := strings.Cut(e.Name(), ".")
		info, err := e.Info()
		if err != nil || s.busy[key] != nil {
			continue
		}
		if key != e.Name() || time.Since(info.ModTime()) > keepPartial {
			_ = removeTree(s.coming(e.Name())) // or the next sweep does
		}
	}
}

// Disk returns the used and the total space of the store's disk.
func (s *Store) Disk() (used, total cluster.Bytes, err error) {
	var st unix.Statfs_t
	dir := s.Dir
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return 0, 0, fmt.Errorf("measure the disk of %s: %w", s.Dir, err)
		}
		dir = filepath.Dir(dir)
	}
	block := st.Bsize
	usedBlocks := int64(st.Blocks - st.Bfree)
	return cluster.Bytes(usedBlocks * block), cluster.Bytes((usedBlocks + int64(st.Bavail)) * block), nil
}

// free returns the space that an unprivileged program can still use.
func (s *Store) free() cluster.Bytes {
	used, total, err := s.Disk()
	if err != nil {
		return 1 << 62
	}
	return total - used
}

// sizeOf returns the size of the files below a path.
func sizeOf(path string) (size cluster.Bytes) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += cluster.Bytes(info.Size())
			}
		}
		return nil // unreadable files do not count
	})
	return size
}

// removeTree is os.RemoveAll that also removes read-only folders.
func removeTree(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(name, 0o700) //nolint:gosec // it is removed below
		}
		return nil
	})
	return os.RemoveAll(path)
}
