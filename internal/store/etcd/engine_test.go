package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
)

// TestListPages lists with pages far smaller than the prefix, of all sizes.
func TestListPages(t *testing.T) {
	t.Parallel()
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	for _, key := range []string{"p/", "p/a", "p/a\x00", "p/a/b", "p/b", "p0", "q/a", "o"} {
		if err := write(t.Context(), engine, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"", "p/", "p/a/", "none/"} {
		want, err := engine.List(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		for page := int64(1); page < 10; page++ {
			got, err := engine.list(t.Context(), prefix, page)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("prefix %q by pages of %d (-want +got):\n%s", prefix, page, diff)
			}
		}
	}
}

// TestRestoreJumps shows that revisions after a restore lie above all that were handed out
// before it, and that a directory with a store is not overwritten.
func TestRestoreJumps(t *testing.T) {
	t.Parallel()
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	if err := write(t.Context(), engine, "a"); err != nil {
		t.Fatal(err)
	}
	var snapshot bytes.Buffer
	if err := engine.Snapshot(t.Context(), "", &snapshot); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for range 10 {
		result, err := engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: "b"}}}})
		if err != nil {
			t.Fatal(err)
		}
		last = result.Revision
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if err := Restore(dir, bytes.NewReader(snapshot.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := Restore(dir, &snapshot); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("restore over a store: got error %v, want ErrInvalid", err)
	}
	restored := open(t, Config{Dir: dir, NoSync: true})
	result, err := restored.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: "c"}}}})
	if err != nil || result.Revision <= last {
		t.Errorf("the first commit after a restore: got revision %d and error %v, want above %d", result.Revision, err,
			last)
	}
	left, err := filepath.Glob(filepath.Join(dir, "restore-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// TestDamagedSnapshotLeavesNothing restores invalid data into a directory, and then a good snapshot.
func TestDamagedSnapshotLeavesNothing(t *testing.T) {
	t.Parallel()
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	if err := write(t.Context(), engine, "a"); err != nil {
		t.Fatal(err)
	}
	var snapshot bytes.Buffer
	if err := engine.Snapshot(t.Context(), "", &snapshot); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	flipped := bytes.Clone(snapshot.Bytes())
	flipped[len(flipped)/2] ^= 1
	if err := Restore(dir, bytes.NewReader(flipped)); err == nil {
		t.Error("a snapshot with a flipped bit was restored")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 { // the lock
		t.Errorf("left behind: %v, error %v", entries, err)
	}
	if err := Restore(dir, &snapshot); err != nil {
		t.Errorf("a good snapshot after a damaged one: %v", err)
	}
}

// TestBridge shows how etcd's messages come out.
func TestBridge(t *testing.T) {
	var said strings.Builder
	log := etcdlog.New(slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))).With(zap.String("member", "m"))
	log.Info("not said")
	log.Warn("slow", zap.Int("ms", 5))
	log.Warn("long", zap.String("request", strings.Repeat("x", 100_000)))
	log.Error("wrong", zap.Error(errors.New("why")))
	log.Warn("Failed to detect schema version")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Panic returned")
			}
		}()
		log.Panic("over", zap.Error(errors.New("no space left on device")))
	}()
	want := `level=WARN msg="etcd: slow" member=m ms=5
level=WARN msg="etcd: long" member=m request=` + strings.Repeat("x", 200) + `…
level=ERROR msg="etcd: wrong" error=why member=m
level=ERROR msg="etcd cannot continue, the process ends: over" error="no space left on device" member=m
`
	if diff := cmp.Diff(want, said.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestRefusal names what etcd says before it writes; all else is unknown.
func TestRefusal(t *testing.T) {
	if err := new(calls).writeError(fmt.Errorf("etcdserver: request timed out")); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a timeout: got %v, want ErrUnknown", err)
	}
}
