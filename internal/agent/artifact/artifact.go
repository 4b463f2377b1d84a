// Package artifact fetches files and archives for tasks and keeps them on the node, by their checksum, for all that ask
// for the same.
//
// What is kept stands below the store's folder under a name made of the checksum and of what was made of it: a file
// with a mode, or the folder of an unpacked archive. It gets that name once it is whole, compared and on disk, so
// whatever stands there is right, whoever died when:
//
//	kept/sha256-<digits>-0755   a file
//	kept/sha256-<digits>-tree   a folder
//	coming/<the same>           what has come of it so far, to go on from
//	coming/<the same>.unpacked  what is being unpacked
//
// The time of the last change of a kept name is when it was last asked for.
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

// Config bounds a Store. What is 0 has its default.
type Config struct {
	// Dir is the store's own folder. It is made when it is needed.
	Dir    string
	Logger *slog.Logger
	// Most is how many artifacts are fetched at a time, default 4.
	Most int
	// Tries is how often one is tried, default 6. A try that brought something more starts the count anew.
	Tries int
	// First is the wait after the first try; it doubles with each up to Longest, and half of it is chance. Default 1 s
	// and 1 minute.
	First, Longest time.Duration
	// Stall is for how long a server may send nothing in the middle of an answer, default 1 minute.
	Stall time.Duration
	// Tell is how often the progress is told at most, default 3 s.
	Tell time.Duration
	// MaxFetched and MaxUnpacked bound one artifact on the way and on disk, default 8 and 32 GiB, and MaxEntries what
	// an archive holds of files, folders and links, default 500,000.
	MaxFetched, MaxUnpacked cluster.Bytes
	MaxEntries              int
	// Egress says which addresses artifacts are fetched from.
	Egress egress.Policy
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
	positive(&c.Tell, 3*time.Second)
	positive(&c.MaxFetched, 8*cluster.GiB)
	positive(&c.MaxUnpacked, 32*cluster.GiB)
	positive(&c.MaxEntries, 500_000)
}

func positive[T ~int | ~int64](field *T, standard T) {
	if *field <= 0 {
		*field = standard
	}
}

// keepPartial is for how long is kept what has come of an artifact that nobody asks for any more.
const keepPartial = 24 * time.Hour

// Store is what a node keeps of artifacts. All methods may be called concurrently.
type Store struct {
	Config
	fetch fetcher
	slots chan struct{}

	mu   sync.Mutex
	busy map[string]*making
}

// making is an artifact that somebody brings in.
type making struct {
	done chan struct{} // closed when it is over, well or not
	mu   sync.Mutex
	text string // what goes on
}

func (m *making) tell(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = text
}

func (m *making) told() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text
}

// New returns a Store; it starts nothing and touches no file.
func New(c Config) *Store {
	c.defaults()
	return &Store{
		Config: c, fetch: newFetcher(c.Stall, c.Egress), slots: make(chan struct{}, c.Most),
		busy: map[string]*making{},
	}
}

// Key returns the name under which an artifact is kept.
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

// Get returns the file or folder of an artifact, which it fetches unless the node has it. Who has what in use says so
// to Prune. Progress, unless nil, is told in a few words what goes on, from this goroutine. Errors name the address
// without what may be secret in it, and what to do.
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
		// Where another has failed this one tries itself: it may know another source of the same.
	}
}

// have returns where an artifact is kept, and notes that it is wanted.
func (s *Store) have(key string) (string, bool) {
	path := s.kept(key)
	if _, err := os.Lstat(path); err != nil {
		return "", false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // only which goes first depends on it
	return path, true
}

// follow tells what goes on until it is over; who makes the artifact himself stays until that has let go of it.
func (s *Store) follow(ctx context.Context, m *making, mine bool, progress func(string)) {
	ticker := time.NewTicker(s.Tell)
	defer ticker.Stop()
	gone := ctx.Done()
	if mine {
		gone = nil // it ends with ctx, soon
	}
	told := ""
	for {
		if text := m.told(); text != told {
			told = text
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

// make brings an artifact to the node.
func (s *Store) make(ctx context.Context, a *cluster.Artifact, m *making) error {
	m.tell("waiting to fetch " + cluster.ShownSource(a.Source))
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
	if err := s.bring(ctx, a, part, m); err != nil {
		if sizeOf(part) == 0 {
			_ = os.Remove(part) // there is nothing to go on from
		}
		return err
	}
	ready := part
	if a.Unpack {
		m.tell("unpacking " + cluster.ShownSource(a.Source))
		ready = part + ".unpacked"
		if err := s.unpack(ctx, part, ready); err != nil {
			_ = removeTree(ready)
			if ctx.Err() == nil {
				_ = os.Remove(part) // it is what the checksum says, and no good
			}
			return fmt.Errorf("unpack: %w", err)
		}
	} else if err := os.Chmod(part, modeOf(a)); err != nil {
		return fmt.Errorf("set the mode: %w", err)
	}
	if err := settle(ready); err != nil {
		return err
	}
	if err := os.Rename(ready, s.kept(key)); err != nil {
		return fmt.Errorf("keep it: %w", err)
	}
	if ready != part {
		_ = os.Remove(part) // else the next sweep does
	}
	s.Logger.Info("an artifact was fetched", "source", cluster.ShownSource(a.Source), "checksum", a.Checksum)
	return nil
}

// settle has the disk hold what stands below a path, before a name says that it is whole.
func settle(path string) error {
	f, err := os.Open(path)
	if err == nil {
		err = unix.Syncfs(int(f.Fd()))
		_ = f.Close() // it was only read
	}
	if err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	return nil
}

// Removed is an artifact that was removed.
type Removed struct {
	Key  string
	Size cluster.Bytes
	Used time.Time // when it was last asked for
}

// Idle is an artifact that nobody uses.
type Idle = Removed

// Short returns the key of an artifact as people compare it: as much of its checksum as tells one from another.
func Short(key string) string {
	kind, digits, _ := strings.Cut(key, "-")
	return kind + ":" + digits[:min(len(digits), 12)]
}

// Any reports whether anything is kept.
func (s *Store) Any() bool {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "kept"))
	return err == nil && len(entries) > 0
}

// Tidy removes what is left of artifacts that nobody asks for any more.
func (s *Store) Tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
}

// Idle returns the artifacts that nobody uses, those first that were not asked for for the longest. Wanted is as in
// Prune.
func (s *Store) Idle(wanted func() map[string]bool) ([]Idle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle, err := s.idle(wanted)
	for i := range idle {
		idle[i].Size = sizeOf(s.kept(idle[i].Key))
	}
	return idle, err
}

// idle returns them without their sizes. The mutex is held.
func (s *Store) idle(wanted func() map[string]bool) (idle []Idle, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "kept"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for artifacts: %w", err)
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

// Prune removes artifacts that nobody uses, those first that were not asked for for the longest, until need bytes are
// free more than before, and what is left of some that nobody asks for any more. Wanted returns the keys of those in
// use; it is called while nobody can get one, must not wait, and must not call the store.
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
		gone := s.coming(o.Key + ".removed") // what a crash leaves half removed is not kept
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

// sweep removes what an earlier life left half made or half removed. The mutex is held.
func (s *Store) sweep() {
	entries, _ := os.ReadDir(filepath.Join(s.Dir, "coming")) // without it there is nothing
	for _, e := range entries {
		key, _, _ := strings.Cut(e.Name(), ".")
		info, err := e.Info()
		if err != nil || s.busy[key] != nil {
			continue
		}
		if key != e.Name() || time.Since(info.ModTime()) > keepPartial {
			_ = removeTree(s.coming(e.Name())) // or the next time
		}
	}
}

// Disk tells how full the disk of the store is.
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

// free is how much an unprivileged program could still write.
func (s *Store) free() cluster.Bytes {
	used, total, err := s.Disk()
	if err != nil {
		return 1 << 62
	}
	return total - used
}

// sizeOf returns what the files below a path hold.
func sizeOf(path string) (size cluster.Bytes) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += cluster.Bytes(info.Size())
			}
		}
		return nil // what cannot be read counts for nothing
	})
	return size
}

// removeTree is os.RemoveAll also where folders may not be written to.
func removeTree(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(name, 0o700) //nolint:gosec // it is removed
		}
		return nil
	})
	return os.RemoveAll(path)
}
