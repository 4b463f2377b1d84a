package consul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/remote"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
	"github.com/berthd/berth/internal/testkit"
)

// TestKilledServersAreLinearizable kills one of three servers of Consul after the other, with SIGKILL, under the
// clients of three engines, each at another server. Watches follow meanwhile, and agree in the end.
func TestKilledServersAreLinearizable(t *testing.T) {
	t.Parallel()
	servers := consultest.Start(t, 3, consultest.Options{})
	var histories [][]porcupine.Operation
	for seed := range uint64(max(testkit.Setting(t, "BERTH_STORE_ROUNDS", 2), 1)) {
		engines, all := make([]*Engine, len(servers)), make([]store.Engine, len(servers))
		for i := range engines {
			config := reaching(servers[i])
			config.Prefix = fmt.Sprintf("round-%d/", seed)
			config.Endpoints = append(config.Endpoints, "http://"+servers[(i+1)%len(servers)].Address)
			engines[i] = dialAs(t, config)
			all[i] = engines[i]
		}
		watches := make([]store.Watch, len(engines))
		for i, e := range engines {
			watches[i] = e.Watch(t.Context(), "line/", 0)
			defer watches[i].Close()
		}
		random := rand.New(rand.NewPCG(seed, 7))
		var one sync.Mutex // is down at a time
		trial := enginetest.Trial{
			Engine: &enginetest.Several{Engines: all},
			Kill: func() {
				one.Lock()
				defer one.Unlock()
				s := servers[random.IntN(len(servers))]
				s.Kill()
				testkit.Pause(t.Context(), time.Second)
				s.Start()
				s.AwaitLeader()
			},
			Clients: 6, Steps: 40, Kills: 2, Seed: seed,
		}
		history, err := trial.Run(t.Context())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		histories = append(histories, history)
		checkWatches(t, engines[0], watches)
	}
	enginetest.Linearizable(t, histories, 2*time.Second)
}

// checkWatches compares the state by each watch with a listing, after a last write.
func checkWatches(t *testing.T, e *Engine, watches []store.Watch) {
	t.Helper()
	var last store.Result
	testkit.Eventually(t, 30*time.Second, func() (err error) {
		last, err = e.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: "line/end", Value: []byte("1")}}}})
		return err
	})
	listing, err := e.List(t.Context(), "line/")
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range watches {
		state := map[string]store.Record{}
		for at := uint64(0); at < last.Revision; {
			batch, err := w.Next(testkit.Context(t, 30*time.Second))
			if err != nil {
				t.Fatalf("watch %d at revision %d of %d: %v", i, at, last.Revision, err)
			}
			at = batch.Revision
			if batch.WentBack {
				t.Errorf("watch %d says at revision %d that Consul went back, and nobody restored it", i, at)
			}
			if batch.Resync {
				clear(state)
			}
			for _, c := range batch.Changes {
				if delete(state, c.Key); !c.Deleted {
					state[c.Key] = c.Record
				}
			}
		}
		if len(state) != len(listing.Records) {
			t.Errorf("watch %d has %d records, and the store %d", i, len(state), len(listing.Records))
		}
		for _, r := range listing.Records {
			if got := state[r.Key]; got.Modified != r.Modified || string(got.Value) != string(r.Value) {
				t.Errorf("watch %d has %+v, want %+v", i, got, r)
			}
		}
	}
}

// TestWritesOfOtherPrograms writes, changes and deletes records as `consul kv` does. A watch finds each of them, soon
// and without a write by an engine.
func TestWritesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{})[0]
	config := reaching(s)
	config.Recheck = 200 * time.Millisecond
	e := dialAs(t, config)
	if err := write(t.Context(), e, "berth/a", "1"); err != nil {
		t.Fatal(err)
	}
	watch := e.Watch(t.Context(), "berth/", 0)
	defer watch.Close()
	kv := s.Client().KV()
	state := map[string]string{}
	for _, step := range []struct {
		name string
		do   func() error
		want map[string]string
	}{
		{"nothing", func() error { return nil }, map[string]string{"berth/a": "1"}},
		{"a new record", func() error {
			_, err := kv.Put(&api.KVPair{Key: "berth/b", Value: []byte("1")}, nil)
			return err
		}, map[string]string{"berth/a": "1", "berth/b": "1"}},
		{"a change", func() error {
			_, err := kv.Put(&api.KVPair{Key: "berth/a", Value: []byte("2")}, nil)
			return err
		}, map[string]string{"berth/a": "2", "berth/b": "1"}},
		{"a change of a record that an engine writes next", func() error {
			if _, err := kv.Put(&api.KVPair{Key: "berth/a", Value: []byte("3")}, nil); err != nil {
				return err
			}
			return write(t.Context(), e, "berth/a", "4")
		}, map[string]string{"berth/a": "4", "berth/b": "1"}},
		{"a deletion", func() error {
			_, err := kv.Delete("berth/b", nil)
			return err
		}, map[string]string{"berth/a": "4"}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for at := uint64(0); fmt.Sprint(state) != fmt.Sprint(step.want); {
			batch, err := watch.Next(testkit.Context(t, 20*time.Second))
			if err != nil {
				t.Fatalf("%s: the watch has %v, want %v: %v", step.name, state, step.want, err)
			}
			if batch.Revision < at {
				t.Errorf("%s: revision %d came after %d", step.name, batch.Revision, at)
			}
			at = batch.Revision
			if batch.Resync {
				clear(state)
			}
			for _, c := range batch.Changes {
				if delete(state, c.Key); !c.Deleted {
					state[c.Key] = string(c.Value)
				}
			}
		}
	}
}

// TestConsulIsRestored takes Consul back to a snapshot of its own under an open engine. A watch gets a resync, and
// calls continue.
func TestConsulIsRestored(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{})[0]
	e := dialAs(t, reaching(s))
	if err := write(t.Context(), e, "berth/kept", "1"); err != nil {
		t.Fatal(err)
	}
	saved, _, err := s.Client().Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	for i := range 100 {
		if err := write(t.Context(), e, "berth/lost", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	watch := e.Watch(t.Context(), "berth/", 0)
	defer watch.Close()
	if b, err := watch.Next(t.Context()); err != nil || len(b.Changes) != 2 {
		t.Fatalf("first batch: got %+v, error %v", b, err)
	}
	if err := s.Client().Snapshot().Restore(nil, saved); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() error { return write(t.Context(), e, "berth/new", "1") })
	state, back := map[string]bool{"berth/lost": true}, false
	for resyncs := 0; resyncs == 0 || state["berth/lost"] || !state["berth/new"]; {
		batch, err := watch.Next(testkit.Context(t, 20*time.Second))
		if err != nil {
			t.Fatalf("after %d resyncs the watch has %v: %v", resyncs, state, err)
		}
		if batch.Resync {
			resyncs++
			clear(state)
		}
		back = back || batch.WentBack
		for _, c := range batch.Changes {
			state[c.Key] = !c.Deleted
		}
	}
	if !state["berth/kept"] {
		t.Errorf("after the restore the watch has %v", state)
	}
	if !back {
		t.Error("no batch after the restore says that the store went back")
	}
}

// TestConsulIsRestoredByOthers takes Consul back to a snapshot that is older than the writers of all engines, which is
// the usual case: servers restarted since. A watch notes that the store went back. It does not note that where only the
// log of changes is deleted, which loses nothing.
func TestConsulIsRestoredByOthers(t *testing.T) {
	t.Parallel()
	for name, isRestored := range map[string]bool{"a restore": true, "a lost log": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := consultest.Start(t, 1, consultest.Options{})[0]
			former := dialAs(t, reaching(s))
			if err := write(t.Context(), former, "berth/kept", "1"); err != nil {
				t.Fatal(err)
			}
			saved, _, err := s.Client().Snapshot().Save(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer saved.Close()
			// As the upkeep does after an hour without a commit.
			e := dialAs(t, reaching(s))
			present, err := e.readHeads(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			gone := []string{former.lanes.idle[maxLanes-1].writer}
			if err := e.removeWriters(t.Context(), present, gone); err != nil {
				t.Fatal(err)
			}
			if err := former.Close(); err != nil {
				t.Fatal(err)
			}
			if err := write(t.Context(), e, "berth/later", "1"); err != nil {
				t.Fatal(err)
			}
			watch := e.Watch(t.Context(), "berth/", 0)
			defer watch.Close()
			if b, err := watch.Next(t.Context()); err != nil || len(b.Changes) != 2 || b.WentBack {
				t.Fatalf("first batch: got %+v, error %v", b, err)
			}
			if isRestored {
				err = s.Client().Snapshot().Restore(nil, saved)
			} else {
				_, err = s.Client().KV().DeleteTree(logPrefix, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, 20*time.Second, func() error { return write(t.Context(), e, "berth/new", "1") })
			back := false
			for seen := false; !seen; {
				batch, err := watch.Next(testkit.Context(t, 20*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				back = back || batch.WentBack
				for _, c := range batch.Changes {
					seen = seen || c.Key == "berth/new"
				}
			}
			if back != isRestored {
				t.Errorf("a batch says that the store went back: got %v, want %v", back, isRestored)
			}
		})
	}
}

// TestTokenIsRevoked deletes the token of an open engine and gives it another one. Meanwhile calls fail, nothing looks
// deleted, and afterwards all goes on.
func TestTokenIsRevoked(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{ACLs: true})[0]
	var token atomic.Value
	token.Store(s.Permit(consultest.Rules))
	config := reaching(s)
	config.Recheck = 100 * time.Millisecond
	config.Token = func() (string, error) { return token.Load().(string), nil }
	config.Remedy = func(fault remote.Fault) string { return "advice: " + string(fault) }
	e := dialAs(t, config)
	if err := write(t.Context(), e, "berth/a", "1"); err != nil {
		t.Fatal(err)
	}
	watch := e.Watch(t.Context(), "berth/", 0)
	defer watch.Close()
	if b, err := watch.Next(t.Context()); err != nil || len(b.Changes) != 1 {
		t.Fatalf("first batch: got %+v, error %v", b, err)
	}
	first := token.Load().(string)
	for name, other := range map[string]struct {
		token string
		fault remote.Fault
	}{
		"an unknown token":         {"00000000-0000-0000-0000-000000000000", remote.FaultPassword},
		"a token that reads only":  {s.Permit(`key_prefix "berth" { policy = "read" }`), remote.FaultPermission},
		"a token for nothing":      {s.Permit(`agent_prefix "" { policy = "read" }`), remote.FaultPermission},
		"a token for the log only": {s.Permit(`key_prefix "berth.log/" { policy = "write" }`), remote.FaultPermission},
		"no token":                 {"", remote.FaultPermission},
	} {
		token.Store(other.token)
		err := write(t.Context(), e, "berth/b", name)
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown) {
			t.Errorf("%s writes: got error %v, want that nothing was written", name, err)
		}
		checkDenied(t, name+" writes", err, other.token, other.fault)
		if name == "a token that reads only" {
			continue
		}
		if listing, err := e.List(t.Context(), "berth/"); err == nil {
			t.Errorf("%s: a listing has %d records, want an error", name, len(listing.Records))
		}
		_, err = e.Read(t.Context(), "berth/a")
		checkDenied(t, name+" reads", err, other.token, other.fault)
		if revision, err := e.Revision(t.Context(), "berth/"); err == nil {
			t.Errorf("%s: the revision is %d, want an error", name, revision)
		}
		if h, err := e.Health(t.Context()); err != nil || h.Writes || h.Quorum ||
			!strings.Contains(h.Reason, "advice: "+string(other.fault)) {
			t.Errorf("%s: the health is %+v, error %v", name, h, err)
		}
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if b, err := watch.Next(short); err == nil && len(b.Changes) != 1 {
			t.Errorf("%s: the watch got %+v", name, b)
		}
		cancel()
	}
	token.Store(first)
	testkit.Eventually(t, 20*time.Second, func() error { return write(t.Context(), e, "berth/b", "1") })
	for seen := false; !seen; {
		batch, err := watch.Next(testkit.Context(t, 20*time.Second))
		if err != nil {
			t.Fatalf("the watch waits for the write: %v", err)
		}
		for _, c := range batch.Changes {
			seen = seen || c.Key == "berth/b"
		}
	}
}

// checkDenied checks that an error says that the store denies the token, with the advice for a fault. It names neither
// the token nor a missing quorum.
func checkDenied(t *testing.T, what string, err error, token string, fault remote.Fault) {
	t.Helper()
	denied, ok := errors.AsType[*store.DeniedError](err)
	switch {
	case !ok || !errors.Is(err, store.ErrUnavailable):
		t.Errorf("%s: got error %v, want that the store denies it", what, err)
	case denied.Remedy != "advice: "+string(fault):
		t.Errorf("%s: got the advice %q, want that for %s", what, denied.Remedy, fault)
	case token != "" && strings.Contains(err.Error(), token), strings.Contains(err.Error(), "quorum"):
		t.Errorf("%s: the error is %q", what, err)
	}
}
