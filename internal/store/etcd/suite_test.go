package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
	"github.com/berthd/berth/internal/testkit"
)

// rotating makes each call on the next member, as clients of a fleet of servers do.
type rotating struct {
	f    *fleet
	next atomic.Uint64
}

func (r *rotating) member() *Engine {
	return r.f.engines[int(r.next.Add(1))%len(r.f.engines)]
}

func (r *rotating) Read(ctx context.Context, key string) (store.Record, error) {
	return r.member().Read(ctx, key)
}

func (r *rotating) List(ctx context.Context, prefix string) (store.Listing, error) {
	listing, err := r.member().List(ctx, prefix)
	r.observe(listing.Revision)
	return listing, err
}

func (r *rotating) Revision(ctx context.Context, prefix string) (uint64, error) {
	revision, err := r.member().Revision(ctx, prefix)
	r.observe(revision)
	return revision, err
}

func (r *rotating) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	result, err := r.member().Commit(ctx, groups)
	r.observe(result.Revision)
	return result, err
}

// observe makes the watches of all members report their progress to a revision. A watch promises it for the calls of
// its own engine.
func (r *rotating) observe(revision uint64) {
	for _, e := range r.f.engines {
		e.observe(revision)
	}
}

func (r *rotating) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return r.member().Watch(ctx, prefix, after)
}

func (r *rotating) Snapshot(ctx context.Context, prefix string, to io.Writer) error {
	return r.member().Snapshot(ctx, prefix, to)
}

func (r *rotating) Limits() store.Limits { return r.member().Limits() }

func (r *rotating) Close() error {
	var errs []error
	for _, e := range r.f.engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// TestThreeMembers runs the suite on three members, each call on another one. The tests share the members, and find
// them empty.
func TestThreeMembers(t *testing.T) {
	t.Parallel()
	// the suite wants each write's result, so that no election may come between
	f := newFleet(t, 3, func(_ int, c *Config) {
		// etcd takes less than 50 s
		c.Heartbeat, c.Election = 100*time.Millisecond, min(testkit.Scaled(1300*time.Millisecond), 45*time.Second)
	})
	enginetest.Test(t, enginetest.Suite{
		Without: []string{"commit/quota"}, // TestQuotaOfThree reaches it
		Open: func(t *testing.T) storetest.Subject {
			f.restartMembers()
			engine := &rotating{f: f}
			wipe(t, engine)
			return storetest.Subject{
				Engine: engine,
				Restart: func() store.Engine {
					for i := range f.engines { // one after the other
						f.stop(i)
						f.start(i)
					}
					return engine
				},
				Compact: func() { compact(t, f.engines[1]) },
				Other:   func() store.Engine { return f.engines[1] },
				Restore: func(from io.Reader) (store.Engine, error) { // what Restore makes is alone
					restored := filepath.Join(t.TempDir(), "store")
					if err := Restore(restored, from); err != nil {
						return nil, err
					}
					return open(t, Config{Dir: restored, NoSync: true}), nil
				},
				Fill: func(full bool) {
					for _, e := range f.engines {
						fill(e, full)
					}
				},
			}
		},
	})
}

// restartMembers starts the members that a test has closed.
func (f *fleet) restartMembers() {
	closed := false
	for i, e := range f.engines {
		if e.lifetime.Err() != nil {
			closed = true
			f.stop(i)
		}
	}
	if !closed {
		return
	}
	for i, e := range f.engines {
		if e == nil {
			f.start(i)
		}
	}
}

// wipe deletes all records.
func wipe(t *testing.T, engine store.Engine) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		for range 3 { // what a former test gave up may yet arrive, but not after a write on the same member
			if err := write(t.Context(), engine, "wipe"); err != nil {
				return err
			}
		}
		return deleteAll(t.Context(), engine)
	})
}

// deleteAll deletes all records, which a store can do that is at its quota too.
func deleteAll(ctx context.Context, engine store.Engine) error {
	listing, err := engine.List(ctx, "")
	if err != nil {
		return err
	}
	for from := 0; from < len(listing.Records); from += 100 {
		var g store.Group
		for _, r := range listing.Records[from:min(from+100, len(listing.Records))] {
			g.Ops = append(g.Ops, store.Op{Key: r.Key, Delete: true})
		}
		if _, err := engine.Commit(ctx, []store.Group{g}); err != nil {
			return err
		}
	}
	return nil
}

func compact(t *testing.T, engine *Engine) {
	t.Helper()
	revision, err := engine.Revision(t.Context(), "")
	if err != nil {
		t.Fatalf("read the revision: %v", err)
	}
	if _, err := engine.client.Compact(t.Context(), int64(revision),
		clientv3.WithCompactPhysical()); err != nil {
		t.Fatalf("compact: %v", err)
	}
}

// fill sets whether an engine sees a full disk.
func fill(engine *Engine, full bool) {
	engine.space.mu.Lock()
	defer engine.space.mu.Unlock()
	engine.space.measuredAt = time.Time{}
	engine.space.free = statfs
	if full {
		engine.space.free = func(string) (int64, int64, error) { return 1 << 20, 1 << 30, nil }
	}
}

// elsewhere is an etcd that listens for clients on loopback, with etcd's usual limits.
type elsewhere struct {
	t       *testing.T
	config  Config
	address string
	server  *Engine
}

func newElsewhere(t *testing.T) *elsewhere {
	s := &elsewhere{
		t: t, config: Config{Dir: filepath.Join(t.TempDir(), "store"), Ballast: -1, NoSync: true},
		address: "http://" + testkit.FreeAddress(t),
	}
	s.start()
	t.Cleanup(func() { s.server.Close() })
	return s
}

func (s *elsewhere) start() {
	s.t.Helper()
	server, err := start(s.t.Context(), s.config.withDefaults(), func(c *embed.Config) {
		c.ListenClientUrls, c.AdvertiseClientUrls = urls(s.address), urls(s.address)
		c.MaxTxnOps, c.MaxRequestBytes = embed.DefaultMaxTxnOps, embed.DefaultMaxRequestBytes
	})
	if err != nil {
		s.t.Fatalf("start: %v", err)
	}
	s.server = server
}

// TestDial runs the suite on an etcd that is reached over its own protocol.
func TestDial(t *testing.T) {
	t.Parallel()
	// the disk is another's
	enginetest.Test(t, enginetest.Suite{
		Without: []string{"commit/quota", "commit/space"},
		Open: func(t *testing.T) storetest.Subject {
			t.Parallel()
			s := newElsewhere(t)
			engine := dial(t, s.address)
			return storetest.Subject{
				Engine: engine,
				Restart: func() store.Engine { // of the etcd; this side stays
					if err := s.server.Close(); err != nil {
						t.Fatalf("close: %v", err)
					}
					s.start()
					return engine
				},
				Compact: func() { compact(t, engine) },
				Other:   func() store.Engine { return dial(t, s.address) },
				Restore: func(from io.Reader) (store.Engine, error) {
					if err := s.server.Close(); err != nil {
						return nil, err
					}
					former := s.config.Dir
					s.config.Dir = filepath.Join(t.TempDir(), "restored")
					if err := Restore(s.config.Dir, from); err != nil {
						s.config.Dir = former
						s.start()
						return nil, err
					}
					s.start()
					return engine, nil
				},
			}
		},
	})
}

func dial(t *testing.T, endpoints ...string) *Engine {
	t.Helper()
	var engine *Engine
	testkit.Eventually(t, time.Minute, func() (err error) { // an etcd that has just started may be late
		if engine, err = Dial(t.Context(), DialConfig{Endpoints: endpoints}); err != nil {
			t.Logf("dial: %v", err)
		}
		return err
	})
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return engine
}

// TestDialReports checks what a client of an external etcd reports about it, and what it leaves out.
func TestDialReports(t *testing.T) {
	t.Parallel()
	s := newElsewhere(t)
	e := dial(t, s.address)
	if got := e.Limits(); got.Operations != int(embed.DefaultMaxTxnOps)-1 || got.Bytes != remoteMaxBytes {
		t.Errorf("limits: got %+v", got)
	}
	wantHealth(t, e, func(h Health) bool {
		return h.Writes && h.Size > 0 && h.Quota == DefaultQuota && h.Leader != ""
	})
	testkit.Eventually(t, 20*time.Second, func() error { // Members leaves out what is not answered within a second
		members, err := e.Members(t.Context())
		if err != nil || len(members) != 1 || !members[0].Healthy || !members[0].Leader || members[0].Self {
			return fmt.Errorf("members: got %+v, error %w", members, err)
		}
		return nil
	})
	if _, self, _ := e.EngineLeader(); self != "" || e.MemberID() != "" {
		t.Errorf("a client is member %q", self)
	}
	for name, err := range map[string]error{
		"add":     func() error { _, err := e.AddLearner(t.Context(), "x", "https://x:1"); return err }(),
		"promote": e.Promote(t.Context(), "1"), "remove": e.Remove(t.Context(), "1"), "move": e.MoveLeader(t.Context()),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got error %v, want ErrInvalid", name, err)
		}
	}
	if _, err := Dial(shortly(t, 2*time.Second),
		DialConfig{Endpoints: []string{"http://" + testkit.FreeAddress(t)}}); err == nil {
		t.Error("no server was dialed, and there is no error")
	}
}

// wantHealth waits until the health of the engine is as wanted: Health leaves out what etcd does not answer within a
// second.
func wantHealth(t *testing.T, e *Engine, wanted func(Health) bool) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		h, err := e.Health(t.Context())
		if err != nil || !wanted(h) {
			return fmt.Errorf("health: got %+v, error %w", h, err)
		}
		return nil
	})
}
