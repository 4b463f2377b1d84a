package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/bbolt"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// opened opens a store and runs its writer until the returned function is called.
func opened(t testing.TB, path string) (*Store, func()) {
	t.Helper()
	s, err := Open(path, quiet())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return s, func() { cancel(); run.Wait() }
}

func record(uuid string) *attempt.Record {
	return attempt.New(cluster.Desired{Task: "c.s.1.0", UUID: uuid, Attempt: 1}, 7, "boot")
}

func TestQueuedWritesAreDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "agent.db")
	s, stop := opened(t, path)
	mark := Mark{Token: cluster.Token{Epoch: 3}, Session: 9}
	def := &cluster.TaskDefinition{Name: "web", Version: 2}
	s.QueueMark(mark)
	s.QueueDefinition(def)
	s.QueueDefinition(&cluster.TaskDefinition{Name: "old", Version: 1})
	s.ForgetDefinition(cluster.Ref{Name: "old", Version: 1})
	r := record("a")
	s.QueueAttempt(r)
	r.Revision = 8
	if err := <-s.CommitAttempt(r); err != nil {
		t.Fatal(err)
	}
	s.QueueAttempt(record("b"))
	s.ForgetAttempt("b")
	stop()

	s, stop = opened(t, path)
	defer stop()
	got, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	want := Saved{Mark: mark, Attempts: []*attempt.Record{r}, Definitions: []*cluster.TaskDefinition{def}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("saved (-want +got):\n%s", diff)
	}
}

func TestBadFiles(t *testing.T) {
	good := filepath.Join(t.TempDir(), "agent.db")
	s, stop := opened(t, good)
	for i := range 200 {
		s.QueueAttempt(record(fmt.Sprint("u", i)))
	}
	stop()
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	scribbled := bytes.Clone(content)
	for i := 2 * os.Getpagesize(); i < len(scribbled); i++ {
		scribbled[i] = 0xff
	}
	for name, test := range map[string]struct {
		content []byte
		want    error
	}{
		"nonsense":        {bytes.Repeat([]byte("nonsense"), 10_000), ErrCorrupt},
		"half of it":      {content[:len(content)/2], ErrCorrupt},
		"two pages":       {content[:2*os.Getpagesize()], ErrCorrupt},
		"bytes":           {content[:100], ErrCorrupt},
		"scribbled pages": {scribbled, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.db")
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(path, quiet())
			if err == nil {
				_, err = s.Load()
				_ = guard(s.Close)
			}
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestBadRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	s, stop := opened(t, path)
	s.QueueAttempt(record("a"))
	stop()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketAttempts)).Put([]byte("a"), []byte(`{"rev":"many"`))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s, stop = opened(t, path)
	defer stop()
	if _, err := s.Load(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

func TestLockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	_, stop := opened(t, path)
	defer stop()
	if _, err := Open(path, quiet()); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v, want ErrLocked", err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	testkit.NeedRoot(t) // to mount
	dir := t.TempDir()
	mount(t, dir, "tmpfs", syscall.MS_RDONLY, "")
	if _, err := Open(filepath.Join(dir, "agent.db"), quiet()); !errors.Is(err, ErrNoWrite) {
		t.Errorf("got %v, want ErrNoWrite", err)
	}
}

// mount mounts a small file system over dir until the test has ended.
func mount(t *testing.T, dir, kind string, flags uintptr, data string) {
	t.Helper()
	if err := syscall.Mount("berth-test", dir, kind, flags, data); err != nil {
		testkit.Skip(t, "cannot mount: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// A full disk fails commits with a clear error, and queued changes are written once there is space again.
func TestFullDisk(t *testing.T) {
	testkit.NeedRoot(t) // to mount
	dir := t.TempDir()
	mount(t, dir, "tmpfs", 0, "size=256k")
	path := filepath.Join(dir, "agent.db")
	s, stop := opened(t, path)
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)

	var failed error
	n := 0
	for ; failed == nil && n < 2000; n++ {
		failed = <-s.CommitAttempt(record(fmt.Sprint("u", n)))
	}
	if !errors.Is(failed, ErrNoWrite) || !errors.Is(failed, syscall.ENOSPC) {
		t.Fatalf("after %d commits: %v, want ErrNoWrite", n, failed)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := <-s.CommitAttempt(record("last")); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	stop()
	s, stop = opened(t, path)
	defer stop()
	got, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Attempts) != n+1 {
		t.Errorf("%d attempts are there, want all %d", len(got.Attempts), n+1)
	}
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func BenchmarkQueue(b *testing.B) {
	s, stop := opened(b, filepath.Join(b.TempDir(), "agent.db"))
	r := record("a")
	for i := 0; b.Loop(); i++ {
		r.Desired.UUID = fmt.Sprint("u", i%1000)
		s.QueueAttempt(r)
	}
	stop()
}

// BenchmarkCommit commits the launch intents of many tasks at the same time.
func BenchmarkCommit(b *testing.B) {
	s, stop := opened(b, filepath.Join(b.TempDir(), "agent.db"))
	defer stop()
	b.SetParallelism(128)
	var n int
	var mu sync.Mutex
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		n++
		r := record(fmt.Sprint("u", n))
		mu.Unlock()
		for pb.Next() {
			if err := <-s.CommitAttempt(r); err != nil {
				b.Error(err)
			}
		}
	})
}

// FuzzDecode: a record of any content is rejected as corrupt or encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	r, err := json.Marshal(record("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r)
	for _, s := range []string{
		"", "null", "{}", "[]", `{"desired": {"ports": {"http": 99999999999}}}`, `{"containers": [{}, null]}`,
		`{"ending": {"cause": "?", "container": -7}}`,
		`{"phase": "none", "restarts": {"at": ["2026-13-01T00:00:00Z"]}}`, `{"desired": {"time_limit": "-1s"}}`,
		`{"finished": "0000-01-01T00:00:00Z"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode[attempt.Record](b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		once, err := json.Marshal(r)
		if err != nil {
			return // a time without a form in JSON: it cannot have been written
		}
		again, err := decode[attempt.Record](once)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v", once, err)
		}
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-written +read):\n%s", once, diff)
		}
	})
}
