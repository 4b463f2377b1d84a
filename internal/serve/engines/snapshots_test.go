package engines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/etcd/etcdtest"
	"github.com/berthd/berth/internal/store/restore"
	"github.com/berthd/berth/internal/store/snapshotfile"
	"github.com/berthd/berth/internal/testkit"
)

const prefix = store.Prefix(store.DefaultPrefix)

// discard is the log of an engine whose warnings nobody reads.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// stores are an empty store of each kind for each call. The external ones share an etcd with users and a Consul with
// ACLs, below prefixes of their own.
type stores struct {
	t      *testing.T
	etcd   *etcdtest.Server
	consul *consultest.Server
	count  int
}

// open returns an empty store of a kind, and a function that fills it with a snapshot as a restore does.
func (s *stores) open(kind string) (engine store.ServerEngine, fill func(snapshot []byte) store.ServerEngine) {
	s.t.Helper()
	s.count++
	if kind == "own" {
		return s.own(filepath.Join(s.t.TempDir(), "store")), func(snapshot []byte) store.ServerEngine {
			dir := filepath.Join(s.t.TempDir(), "restored")
			if err := Restore(dir, bytes.NewReader(snapshot)); err != nil {
				s.t.Fatal(err)
			}
			return s.own(dir)
		}
	}
	at := s.location(kind)
	engine, err := at.Dial(s.t.Context(), discard())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { engine.Close() })
	return engine, func(snapshot []byte) store.ServerEngine {
		_, err := restore.Into(s.t.Context(), engine, restore.Config{
			Prefix: prefix, Name: "saved",
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(snapshot)), nil },
		})
		if err != nil {
			s.t.Fatal(err)
		}
		return engine
	}
}

// own opens the store of a server.
func (s *stores) own(dir string) store.ServerEngine {
	s.t.Helper()
	engine, err := Own{Dir: dir, Name: "s1", Log: discard()}.Open(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { engine.Close() })
	return engine
}

// location is an external store below an unused prefix.
func (s *stores) location(kind string) Location {
	below := fmt.Sprintf("store%d/", s.count)
	secret := filepath.Join(s.t.TempDir(), "secret")
	at := Location{Scheme: kind, Prefix: below}
	content := etcdtest.Password
	if kind == SchemeConsul {
		content = s.consul.Permit(strings.Replace(consultest.Rules, `"berth"`, `"`+below+`berth"`, 1))
		at.Endpoints, at.TokenFile = []string{s.consul.URL()}, secret
	} else {
		s.etcd.Permit(below)
		at.Endpoints, at.User, at.PasswordFile = []string{"https://" + s.etcd.Address}, etcdtest.Berth, secret
		at.CA, at.Cert, at.Key = s.etcd.Authority.CA(), s.etcd.Cert, s.etcd.Key
	}
	if err := os.WriteFile(secret, []byte(content+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return at
}

// contentOf returns the records of a store by key.
func contentOf(ctx context.Context, engine store.Engine) (map[string]string, error) {
	listing, err := engine.List(ctx, store.DefaultPrefix)
	return byKey(listing.Records), err
}

// byKey returns the values of records by their keys.
func byKey(records []store.Record) map[string]string {
	values := map[string]string{}
	for _, r := range records {
		values[r.Key] = string(r.Value)
	}
	return values
}

// write writes a record that stands alone.
func write(t *testing.T, engine store.Engine, key, value string) {
	t.Helper()
	op := store.Op{Key: key, Value: []byte(value)}
	if _, err := engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{op}}}); err != nil {
		t.Fatalf("write %s: %v", key, err)
	}
}

// TestSnapshotsRestoreInAllDirections saves a snapshot of each kind of store and restores it into an empty store of
// each kind. The restored store has the same records, no later ones and none beside the prefix, and it takes writes. A
// snapshot of it has the same content again.
func TestSnapshotsRestoreInAllDirections(t *testing.T) {
	t.Parallel()
	s := &stores{etcd: etcdtest.Start(t, nil), consul: consultest.Start(t, 1, consultest.Options{ACLs: true})[0]}
	kinds := []string{"own", SchemeEtcd, SchemeConsul}
	for _, from := range kinds {
		for _, to := range kinds {
			t.Run(from+" to "+to, func(t *testing.T) {
				s.t = t
				checkDirection(t, s, from, to)
			})
		}
	}
}

func checkDirection(t *testing.T, s *stores, from, to string) {
	source, _ := s.open(from)
	// More records than a transaction of Consul takes, one of about half its size, and values of all bytes.
	for i := range 3 {
		var g store.Group
		for j := range 100 {
			g.Ops = append(g.Ops, store.Op{Key: fmt.Sprintf("berth/node/n%d-%d", i, j), Value: []byte("{}")})
		}
		if _, err := source.Commit(t.Context(), []store.Group{g}); err != nil {
			t.Fatal(err)
		}
	}
	var odd []byte
	for b := range 256 {
		odd = append(odd, byte(b))
	}
	write(t, source, "berth/odd", string(odd))
	write(t, source, "berth/empty", "")
	write(t, source, "berth/large", strings.Repeat("x", 180<<10))
	write(t, source, "berth/gone", "deleted before the snapshot")
	if _, err := source.Commit(t.Context(), []store.Group{{
		Ops: []store.Op{{Key: "berth/gone", Delete: true}},
	}}); err != nil {
		t.Fatal(err)
	}
	write(t, source, "berth-beat/default", "beside the prefix")
	want, err := contentOf(t.Context(), source)
	if err != nil || len(want) != 303 {
		t.Fatalf("the source has %d records, error %v, want 303", len(want), err)
	}
	var saved bytes.Buffer
	if err := source.Snapshot(t.Context(), store.DefaultPrefix, &saved); err != nil {
		t.Fatal(err)
	}
	write(t, source, "berth/later", "1")

	_, fill := s.open(to)
	target := fill(saved.Bytes())
	got, err := contentOf(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-saved +restored):\n%s", diff)
	}
	for _, key := range []string{"berth-beat/default", "berth-restore/marker"} {
		if _, err := target.Read(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: got error %v, want that the restored store has no such record", key, err)
		}
	}
	checkWrites(t, target)
	var again bytes.Buffer
	if err := target.Snapshot(t.Context(), store.DefaultPrefix, &again); err != nil {
		t.Fatal(err)
	}
	want["berth/empty"] = "changed" // by checkWrites
	records, _, err := snapshotfile.ReadAll(&again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, byKey(records)); diff != "" {
		t.Errorf("a snapshot of the restored store (-want +got):\n%s", diff)
	}
}

// checkWrites checks that the store takes a write that compares a restored record, and that a watch delivers it.
func checkWrites(t *testing.T, engine store.Engine) {
	t.Helper()
	ctx := testkit.Context(t, 20*time.Second)
	record, err := engine.Read(ctx, "berth/empty")
	if err != nil {
		t.Fatal(err)
	}
	watch := engine.Watch(ctx, store.DefaultPrefix, record.Modified)
	defer watch.Close()
	result, err := engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: record.Key, Modified: record.Modified}},
		Ops:      []store.Op{{Key: record.Key, Value: []byte("changed")}},
	}})
	if err != nil || !result.Applied[0] {
		t.Fatalf("a write of a restored record: got %+v, error %v, want that it is applied", result, err)
	}
	for at := uint64(0); at < result.Revision; {
		batch, err := watch.Next(ctx)
		if err != nil {
			t.Fatalf("the watch at revision %d of %d: %v", at, result.Revision, err)
		}
		at = batch.Revision
	}
}
