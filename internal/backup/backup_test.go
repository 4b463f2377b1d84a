package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBackups is a store with copies, in a bubble.
type testBackups struct {
	*Backups
	t    *testing.T
	dir  string
	stop func()
	// depose ends the leadership term; it does nothing outside of one.
	depose func()

	mu     sync.Mutex // guards the fields below
	free   uint64
	data   string // content of a copy
	fault  error  // error of the store after half of the data
	slow   bool   // a copy hangs after half of the data
	copies int    // copies that were begun
	ahead  time.Duration
	saved  int
	failed int
	// inspect, unless nil, reads each copy.
	inspect func(io.Reader) error
}

func (s *testBackups) Saved(time.Time, int64, time.Duration) { s.set(func() { s.saved++ }) }
func (s *testBackups) Failed()                               { s.set(func() { s.failed++ }) }

// set changes fields under the lock.
func (s *testBackups) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func locked[T any](s *testBackups, field *T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *field
}

func newTestBackups(t *testing.T, keep int) *testBackups {
	s := &testBackups{
		t: t, dir: filepath.Join(t.TempDir(), "backups"), free: 1 << 40, data: "the whole store",
	}
	s.start(keep)
	return s
}

func (s *testBackups) start(keep int) {
	s.t.Helper()
	s.startEvery(time.Hour, keep)
}

func (s *testBackups) startEvery(every time.Duration, keep int) {
	s.t.Helper()
	b, err := New(Config{
		Snapshot: func(ctx context.Context, to io.Writer) error {
			s.set(func() { s.copies++ })
			data, fault := locked(s, &s.data), locked(s, &s.fault)
			if _, err := io.WriteString(to, data[:len(data)/2]); err != nil {
				return err
			}
			if fault != nil {
				return fault
			}
			if locked(s, &s.slow) {
				<-ctx.Done()
				return ctx.Err()
			}
			_, err := io.WriteString(to, data[len(data)/2:])
			return err
		},
		Revision: func() uint64 { return uint64(locked(s, &s.copies)) + 100 },
		Dir:      s.dir, Every: every, Keep: keep,
		Now:     func() time.Time { return time.Now().Add(locked(s, &s.ahead)) },
		Free:    func(string) (uint64, error) { return locked(s, &s.free), nil },
		Metrics: s,
		Inspect: func(from io.Reader) error {
			if inspect := locked(s, &s.inspect); inspect != nil {
				return inspect(from)
			}
			return nil
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Backups = b
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = b.Run(ctx) })
	s.lead()
	s.stop = func() { s.depose(); cancel(); all.Wait() }
	s.t.Cleanup(s.stop)
}

// lead begins a leadership term.
func (s *testBackups) lead() {
	ctx, cancel := context.WithCancel(s.t.Context())
	var term sync.WaitGroup
	term.Go(func() { _ = s.Lead(ctx) })
	s.depose = func() { cancel(); term.Wait() }
}

// advance lets time pass in the bubble.
func advance(d time.Duration) {
	time.Sleep(d) // in-bubble: nothing waits in truth
	synctest.Wait()
}

func (s *testBackups) names() (all []string) {
	s.t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// wantCopies fails the test unless the folder holds the copies, oldest first, each with its correct checksum, and
// nothing else.
func (s *testBackups) wantCopies(want ...string) {
	s.t.Helper()
	var files []string
	for _, w := range want {
		files = append(files, w, w+sumSuffix)
	}
	if diff := cmp.Diff(files, s.names()); diff != "" {
		s.t.Errorf("the folder (-want +got):\n%s", diff)
	}
	for _, w := range want {
		b, err := os.ReadFile(filepath.Join(s.dir, w))
		if err != nil {
			continue
		}
		sum := sha256.Sum256(b)
		line, _ := os.ReadFile(filepath.Join(s.dir, w+sumSuffix))
		if string(line) != hex.EncodeToString(sum[:])+"  "+w+"\n" {
			s.t.Errorf("%s: its sum is %q", w, line)
		}
		for _, name := range []string{w, w + sumSuffix} {
			if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
				s.t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
			}
		}
	}
}

func copyName(hour, revision int) string {
	return fmt.Sprintf("berth-20000101T%02d0000Z-r%d.snapshot", hour, revision)
}

func TestCopiesOnSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 3)
		advance(time.Minute)
		s.wantCopies(copyName(0, 100))
		if info, _ := os.Stat(s.dir); info.Mode().Perm() != 0o700 {
			t.Errorf("the folder has mode %v", info.Mode())
		}
		advance(time.Hour)
		s.wantCopies(copyName(0, 100), copyName(1, 101))
		advance(3 * time.Hour)
		s.wantCopies(copyName(2, 102), copyName(3, 103), copyName(4, 104))
		st := s.Status()
		want := Status{
			Newest: &File{Name: copyName(4, 104), Time: date(4), Revision: 104, Size: int64(len("the whole store"))},
			Count:  3, Leads: true, Due: date(5),
		}
		if diff := cmp.Diff(want, st); diff != "" || locked(s, &s.saved) != 5 || locked(s, &s.failed) != 0 {
			t.Errorf("%d saved, %d failed; status (-want +got):\n%s", locked(s, &s.saved), locked(s, &s.failed), diff)
		}
	})
}

func date(hour int) time.Time { return time.Date(2000, 1, 1, hour, 0, 0, 0, time.UTC) }

func TestRestartKeepsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 2)
		advance(30 * time.Minute)
		s.stop()
		// A crash left these.
		for _, left := range []string{partPrefix + "123", copyName(7, 1) + sumSuffix} {
			if err := os.WriteFile(filepath.Join(s.dir, left), []byte("torn"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.start(2)
		advance(29 * time.Minute)
		if locked(s, &s.copies) != 1 {
			t.Errorf("%d copies, want none before it is due", locked(s, &s.copies))
		}
		advance(2 * time.Minute)
		s.wantCopies(copyName(0, 100), copyName(1, 101))
	})
}

func TestOnlyTheLeaderCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 2)
		s.depose()
		advance(5 * time.Hour)
		if st := s.Status(); st.Leads || st.Late(time.Now(), time.Hour) || s.Health() != nil {
			t.Errorf("status: %+v, health: %v", st, s.Health())
		}
		n := locked(s, &s.copies)
		s.lead()
		advance(time.Minute)
		if locked(s, &s.copies) != n+1 {
			t.Errorf("%d copies after it took over, want one", locked(s, &s.copies)-n)
		}
		if st := s.Status(); !st.Leads || st.Problem != "" || s.Health() != nil {
			t.Errorf("status: %+v, health: %v", st, s.Health())
		}
	})
}

// A copy that is in progress when the leadership ends is cancelled, and leaves no file with the name of a copy.
func TestCopyEndsWithTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 2)
		advance(time.Minute)
		s.wantCopies(copyName(0, 100))
		s.set(func() { s.slow = true })
		advance(time.Hour)
		if n := locked(s, &s.copies); n != 2 {
			t.Fatalf("%d copies were begun, want 2", n)
		}
		s.depose()
		s.wantCopies(copyName(0, 100))
		if st := s.Status(); st.Leads || st.Problem != "" || locked(s, &s.failed) != 0 {
			t.Errorf("status: %+v, %d failed, want neither a leader nor a failure", st, locked(s, &s.failed))
		}
	})
}

func TestFailedCopyRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 1)
		advance(time.Minute)
		s.wantCopies(copyName(0, 100))
		s.set(func() { s.fault = errors.New("the store has no quorum") })
		advance(3 * time.Hour)
		s.wantCopies(copyName(0, 100))
		st := s.Status()
		if !strings.Contains(st.Problem, "no quorum") || st.Failures < 4 || st.Failures > 20 ||
			locked(s, &s.failed) != st.Failures {
			t.Errorf("status: %+v, want the problem and a few tries", st)
		}
		if !st.Late(time.Now(), time.Hour) {
			t.Error("it is not late")
		}
		if err := s.Health(); err == nil || !strings.Contains(err.Error(), "times in a row: ") ||
			!strings.Contains(err.Error(), "no quorum") {
			t.Errorf("health: %v, want how often it failed and why", err)
		}
		s.set(func() { s.fault = nil })
		advance(time.Hour + time.Minute)
		if st := s.Status(); st.Count != 1 || st.Newest.Name == copyName(0, 100) || st.Problem != "" ||
			st.Late(time.Now(), time.Hour) || s.Health() != nil {
			t.Errorf("status: %+v, want a new copy in place of the old one", st)
		}
	})
}

// A folder of frequent copies is never left alone for longer than between two copies, however often a copy failed.
func TestRetriesAreNotRarerThanCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 1)
		s.stop()
		s.startEvery(5*time.Minute, 1)
		s.set(func() { s.fault = errors.New("the store has no quorum") })
		advance(5 * time.Hour)
		s.set(func() { s.fault = nil })
		advance(6 * time.Minute)
		if st := s.Status(); st.Problem != "" || s.Health() != nil {
			t.Errorf("status: %+v, want a new copy", st)
		}
	})
}

func TestDiskIsNeverFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 1)
		s.set(func() { s.data = strings.Repeat("x", 1000) })
		advance(time.Minute)
		s.wantCopies(copyName(0, 100))
		s.set(func() { s.free = 1999 }) // less than twice the last one
		began := locked(s, &s.copies)
		advance(2 * time.Hour)
		s.wantCopies(copyName(0, 100))
		if st := s.Status(); locked(s, &s.copies) != began || !strings.Contains(st.Problem, ErrNoRoom.Error()) {
			t.Errorf("%d were begun; status %+v", locked(s, &s.copies)-began, st)
		}
		s.set(func() { s.free, s.data = 2400, strings.Repeat("x", 1201) }) // it grew beyond half of the free space
		advance(time.Hour)
		s.wantCopies(copyName(0, 100))
		if st := s.Status(); locked(s, &s.copies) == began || !strings.Contains(st.Problem, "larger than half") {
			t.Errorf("status %+v", st)
		}
		s.set(func() { s.data = s.data[1:] })
		advance(time.Hour)
		if st := s.Status(); st.Problem != "" || st.Newest.Size != 1200 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestFirstCopyNeedsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 1)
		s.set(func() { s.free = firstCopyRoom })
		advance(time.Minute)
		if st := s.Status(); locked(s, &s.copies) > 1 || len(s.names()) > 2 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestCopyIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 2)
		advance(time.Minute)
		s.set(func() {
			s.inspect = func(from io.Reader) error {
				b, err := io.ReadAll(from)
				if err != nil || string(b) != "the whole store" {
					t.Errorf("got %q %v to inspect", b, err)
				}
				return errors.New("its pages are torn")
			}
		})
		advance(time.Hour)
		s.wantCopies(copyName(0, 100))
		if st := s.Status(); !strings.Contains(st.Problem, "torn") {
			t.Errorf("status %+v", st)
		}
		s.set(func() { s.inspect = nil })
		advance(time.Hour)
		if st := s.Status(); st.Count != 2 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestDamagedFileIsFound(t *testing.T) {
	b := &Backups{config: Config{}}
	path := filepath.Join(t.TempDir(), "x")
	sum := sha256.Sum256([]byte("berth"))
	for name, content := range map[string]string{"changed": "bertH", "short": "bert", "long": "berthh", "empty": ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.verify(path, 5, sum[:]); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
	if err := os.WriteFile(path, []byte("berth"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.verify(path, 5, sum[:]); err != nil {
		t.Error(err)
	}
}

func TestOtherFilesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 1)
		s.stop()
		others := []string{"berth-20000101T000000Z-rx.snapshot", "notes.txt", "berth-20001399T000000Z-r1.snapshot"}
		if err := os.MkdirAll(filepath.Join(s.dir, copyName(0, 1)), 0o700); err != nil { // a folder of that name
			t.Fatal(err)
		}
		for _, o := range others {
			if err := os.WriteFile(filepath.Join(s.dir, o), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.start(1)
		advance(5 * time.Hour)
		for _, o := range append(others, copyName(0, 1)) {
			if _, err := os.Stat(filepath.Join(s.dir, o)); err != nil {
				t.Error(err)
			}
		}
		if st := s.Status(); st.Count != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 3)
		s.stop()
		s.set(func() { s.ahead = 1000 * time.Hour })
		s.start(3)
		advance(3*time.Hour + time.Minute)
		s.set(func() { s.ahead = 0 })
		n := locked(s, &s.copies)
		advance(3 * time.Hour)
		if got := locked(s, &s.copies) - n; got < 3 || got > 4 {
			t.Errorf("%d copies in 3 h after the clock went back, want one an hour", got)
		}
		if st := s.Status(); st.Count != 3 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestFolderThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestBackups(t, 1)
		s.stop()
		s.dir = filepath.Join(s.t.TempDir(), "file")
		if err := os.WriteFile(s.dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.start(1)
		advance(time.Hour)
		if st := s.Status(); !strings.Contains(st.Problem, syscall.ENOTDIR.Error()) || st.Failures < 2 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Snapshot: func(context.Context, io.Writer) error { return nil }, Dir: "x", Every: time.Hour, Keep: 1}
	for name, change := range map[string]func(*Config){
		"nothing to copy": func(c *Config) { c.Snapshot = nil },
		"no folder":       func(c *Config) { c.Dir = "" },
		"too often":       func(c *Config) { c.Every = LeastEvery - 1 },
		"keeps none":      func(c *Config) { c.Keep = 0 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	b, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.config.Free(t.TempDir()); err != nil || n == 0 {
		t.Errorf("free: %d %v", n, err)
	}
}

func TestCopyOfARealStoreCanBeRestored(t *testing.T) {
	engine := memory.New(memory.Options{})
	defer engine.Close()
	if _, err := engine.Commit(t.Context(),
		[]store.Group{{Ops: []store.Op{{Key: "berth/k", Value: []byte("v")}}}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b, err := New(Config{
		Snapshot: func(ctx context.Context, to io.Writer) error {
			return engine.Snapshot(ctx, store.DefaultPrefix, to)
		},
		Inspect: func(from io.Reader) error {
			_, err := snapshotfile.Inspect(from)
			return err
		},
		Dir: dir, Every: time.Hour, Keep: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.step(t.Context())
	copied, err := os.ReadFile(filepath.Join(dir, b.Status().Newest.Name))
	if err != nil {
		t.Fatal(err)
	}
	other := memory.New(memory.Options{})
	defer other.Close()
	if err := other.Restore(bytes.NewReader(copied)); err != nil {
		t.Fatal(err)
	}
	if r, err := other.Read(t.Context(), "berth/k"); err != nil || string(r.Value) != "v" {
		t.Errorf("got %q %v", r.Value, err)
	}
}
