package serving

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cli/operator"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/server"
	"github.com/berthd/berth/internal/store"
)

// firstServer makes a data directory like `berth server init`. The returned function opens its store like a start.
func firstServer(t *testing.T) (dataDir string, open func() (store.ServerEngine, error)) {
	t.Helper()
	dataDir = t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := datadir.Settings{Name: "s1", API: "https://127.0.0.1:1", Peer: "https://" + l.Addr().String()}
	if err := initServer(session.New(nil, io.Discard, io.Discard), dataDir, want); err != nil {
		t.Fatal(err)
	}
	return dataDir, func() (store.ServerEngine, error) {
		s := &server.Home{Config: server.Config{DataDir: dataDir, Log: slog.New(slog.DiscardHandler)}}
		if s.ID, err = datadir.ServerID(filepath.Join(dataDir, datadir.IDFile)); err != nil {
			return nil, err
		}
		if _, err := s.OpenIdentity(); err != nil {
			return nil, err
		}
		return s.OpenOwnStore(t.Context())
	}
}

// TestLostStoreIsNotCreatedAgain starts a server without its store. The server makes no empty store and says what to
// do.
func TestLostStoreIsNotCreatedAgain(t *testing.T) {
	dataDir, open := firstServer(t)
	engine, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Commit(t.Context(),
		[]store.Group{{Ops: []store.Op{{Key: "a", Value: []byte("1")}}}}); err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(dataDir, datadir.StoreDir)
	if err := os.Rename(dir, dir+".before-1"); err != nil {
		t.Fatal(err)
	}
	engine, err = open()
	if err == nil {
		engine.Close()
		t.Fatal("a server without its store began an empty one")
	}
	hinted, ok := errors.AsType[*hinted.Error](err)
	if !ok || !strings.Contains(err.Error(), "missing") || !strings.Contains(hinted.Hint, "server join") ||
		!strings.Contains(hinted.Hint, "snapshot restore") || !strings.Contains(hinted.Hint, ".before-1") {
		t.Errorf("got error %v, want what is missing and the ways out", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the refusal left a store directory behind: %v", err)
	}
	// The store is back, so the server starts.
	if err := os.Rename(dir+".before-1", dir); err != nil {
		t.Fatal(err)
	}
	if engine, err = open(); err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if _, err := engine.Read(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestRecoverQuorumIsMarked recovers a server's store twice. An interrupted recovery leaves the old store, a complete
// one leaves a marked store.
func TestRecoverQuorumIsMarked(t *testing.T) {
	dataDir, open := firstServer(t)
	engine, err := open()
	if err != nil {
		t.Fatal(err)
	}
	leader, err := store.Encode(cluster.Leader{Epoch: 3, Holder: "s2", Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	key := store.Prefix(store.DefaultPrefix).Leader(cluster.DefaultDomain)
	if _, err := engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: leader}}}}); err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	recovery := func() *cluster.Recovery {
		t.Helper()
		engine, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		record, err := engine.Read(t.Context(), store.Prefix(store.DefaultPrefix).Recovery(cluster.DefaultDomain))
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.Decode[cluster.Recovery](record.Value)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	settings, err := datadir.ReadSettings(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	a := session.New(nil, io.Discard, io.Discard)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := operator.RecoverQuorum(ended, a, dataDir, settings); err == nil {
		t.Error("a recovery that was given up came to an end")
	}
	if r := recovery(); r != nil {
		t.Errorf("a recovery that was given up left its mark: %+v", r)
	}
	if err := operator.RecoverQuorum(t.Context(), a, dataDir, settings); err != nil {
		t.Fatal(err)
	}
	if r := recovery(); r == nil || r.State != cluster.RecoveryNeeded {
		t.Errorf("recovery after the end: got %+v, want that one is needed", r)
	}
	if left, err := filepath.Glob(filepath.Join(dataDir, datadir.StoreDir+".*")); err != nil || len(left) != 1 ||
		!strings.Contains(left[0], ".before-") {
		t.Errorf("beside the store: got %v, error %v, want the one from before alone", left, err)
	}
}

// TestReplaceStore exchanges two stores, and moves a store to a free path.
func TestReplaceStore(t *testing.T) {
	base := t.TempDir()
	folder := func(name, content string) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "f"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	holds := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(path, "f")); err != nil || string(got) != want {
			t.Errorf("%s contains %q, error %v, want %q", path, got, err, want)
		}
	}
	dir, now := filepath.Join(base, "store"), time.Unix(0, 0)
	aside, err := operator.ReplaceStore(folder("made", "one"), dir, now)
	if err != nil || aside != "" {
		t.Fatalf("in an empty place: got %q, error %v", aside, err)
	}
	holds(dir, "one")
	aside, err = operator.ReplaceStore(folder("made", "two"), dir, now)
	if err != nil {
		t.Fatal(err)
	}
	holds(dir, "two")
	holds(aside, "one")
	// If the path for the old store is taken, nothing changes.
	made := folder("made", "three")
	if _, err := operator.ReplaceStore(made, dir, now); err == nil {
		t.Error("two stores were put aside under one name")
	}
	holds(dir, "two")
	holds(made, "three")
}

// TestServerID makes an id once, and refuses a file without one.
func TestServerID(t *testing.T) {
	path := filepath.Join(t.TempDir(), datadir.IDFile)
	id, err := datadir.ServerID(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := datadir.ServerID(path); err != nil || again != id {
		t.Errorf("the second time: got %q, error %v, want %q", again, err, id)
	}
	for _, text := range []string{"", "\n", id[:20], "\x00\x00\x00\x00"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := datadir.ServerID(path); err == nil {
			t.Errorf("%q was taken for the id %q", text, got)
		}
	}
	if _, ok := errors.AsType[*hinted.Error](func() error { _, err := datadir.ServerID(path); return err }()); !ok {
		t.Error("the refusal says no way out")
	}
}
