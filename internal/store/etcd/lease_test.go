package etcd

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

// waitAbsent waits until an engine no longer has a record.
func waitAbsent(t *testing.T, engine *Engine, key string, limit time.Duration) {
	t.Helper()
	testkit.Eventually(t, limit, func() error {
		_, err := engine.Read(t.Context(), key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return errors.Join(errors.New(key+" still exists"), err)
	})
}

// createIn creates a record with a lease, and fails the test unless the result is as wanted.
func createIn(t *testing.T, l *recordLease, key string, want bool) {
	t.Helper()
	if created, err := l.create(t.Context(), key, []byte("1")); err != nil || created != want {
		t.Fatalf("create %s: got %v and error %v, want %v", key, created, err, want)
	}
}

// TestLeaseExpires lets a lease with a record expire on a fleet: the record disappears on all members, and the lease
// takes no other record.
func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	const ttl = 2 * time.Second
	granting := time.Now()
	l, err := f.engines[0].grantLease(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	createIn(t, l, "l/a", true)
	if err := write(t.Context(), f.engines[1], "l/free"); err != nil {
		t.Fatal(err)
	}
	used := time.Now()
	waitAbsent(t, f.engines[1], "l/a", 4*ttl+20*time.Second)
	if all := time.Since(granting); all < ttl {
		t.Errorf("the lease ended %v after it was granted, want %v or more", all, ttl)
	}
	// Each change of the store's leader begins the ttl again.
	testkit.Figure(t, "the end of a lease after its last use", time.Since(used), 2*ttl)
	if _, err := f.engines[2].Read(t.Context(), "l/free"); err != nil {
		t.Errorf("a record without a lease: %v", err)
	}
	if created, err := l.create(t.Context(), "l/b", nil); created || !errors.Is(err, errLeaseExpired) {
		t.Errorf("create with an expired lease: got %v and error %v, want errLeaseExpired", created, err)
	}
	if err := l.end(t.Context()); err != nil {
		t.Errorf("end of an expired lease: %v", err)
	}
}

// TestLeaseEnds ends a lease. Only its own records go, and a record that exists is not taken into it.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	engine := open(t, Config{Dir: dir, NoSync: true})
	l, err := engine.grantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	other, err := engine.grantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	createIn(t, l, "l/a", true)
	createIn(t, other, "l/a", false)
	createIn(t, other, "l/b", true)
	watch := engine.Watch(t.Context(), "l/", 0)
	defer watch.Close()
	if batch, err := watch.Next(t.Context()); err != nil || len(batch.Changes) != 2 {
		t.Fatalf("first batch: got %+v and error %v, want two records", batch, err)
	}
	if err := l.end(t.Context()); err != nil {
		t.Fatalf("end: %v", err)
	}
	batch, err := watch.Next(t.Context())
	if err != nil || len(batch.Changes) != 1 || batch.Changes[0].Key != "l/a" || !batch.Changes[0].Deleted {
		t.Errorf("after the end: got %+v and error %v, want the deletion of l/a", batch, err)
	}
	// Another lease may have the key now, and outlives a restart of the engine.
	createIn(t, other, "l/a", true)
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.grantLease(t.Context(), time.Minute); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a lease of a closed engine: got error %v, want ErrClosed", err)
	}
	again := open(t, Config{Dir: dir, NoSync: true})
	if _, err := again.Read(t.Context(), "l/a"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := again.grantLease(ended, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a lease for a caller that went: got error %v, want its context's", err)
	}
}
