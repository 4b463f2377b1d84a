package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

// TestAloneBecomesThree begins with a directory without an address, as `berth dev` creates it. It sets an address, and
// two other members join over TLS. Then members restart, one is removed, and the certificates are replaced.
func TestAloneBecomesThree(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	f := &fleet{t: t, lax: true}
	secure := func(i int, c *Config) {
		c.PeerURL = "https://" + testkit.FreeAddress(t)
		c.PeerTLS = ca.issue(c.Name, serverUnit)
	}
	f.add(0, func(_ int, c *Config) { c.PeerURL = "" })
	f.start(0)
	if err := write(t.Context(), f.engines[0], "alone"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.engines[0].AddLearner(t.Context(), "server-1", "https://127.0.0.1:1234"); !errors.Is(err,
		store.ErrInvalid) {
		t.Errorf("a member without an address adds another: got error %v, want ErrInvalid", err)
	}
	alone := f.engines[0].MemberID()
	f.stop(0)
	// 1. It gets an address.
	secure(0, &f.configs[0])
	f.start(0)
	want := []Member{{
		ID: alone, Name: "server-0", PeerURL: f.configs[0].PeerURL, Leader: true, Self: true,
		Healthy: true,
	}}
	members, err := f.engines[0].Members(t.Context())
	if diff := cmp.Diff(want, members); diff != "" || err != nil {
		t.Fatalf("members of one (-want +got), error %v:\n%s", err, diff)
	}
	// 2. Others join, as learners at first.
	for i := 1; i < 3; i++ {
		f.add(i, secure)
		f.start(i)
		seesEventually(t, f.engines[i], "alone")
		members, err := f.engines[i].Members(t.Context())
		at := slices.IndexFunc(members, func(m Member) bool { return m.Self })
		if err != nil || len(members) != i+1 || at < 0 || !members[at].Learner ||
			members[at].Name != f.configs[i].Name {
			t.Fatalf("members as learner %d sees them: %+v, error %v", i, members, err)
		}
		if err := f.engines[i].MoveLeader(shortly(t, time.Second)); err == nil {
			t.Error("a learner leads the engine")
		}
		f.promote(i)
		f.promote(i) // no harm
	}
	if got, err := f.engines[2].Members(t.Context()); err != nil || len(got) != 3 ||
		slices.ContainsFunc(got, func(m Member) bool { return m.Learner || !m.Healthy }) {
		t.Fatalf("three members: got %+v, error %v", got, err)
	}
	// 3. One member stops, and two continue. It comes back and catches up. All certificates are new then.
	f.stop(1)
	if err := write(t.Context(), f.engines[2], "missed"); err != nil {
		t.Fatalf("write with two of three: %v", err)
	}
	for i := range 3 {
		ca.issue(f.configs[i].Name, serverUnit)
	}
	f.start(1)
	seesEventually(t, f.engines[1], "missed")
	// 4. The address of one changes.
	f.stop(2)
	secure(2, &f.configs[2])
	f.start(2)
	testkit.Eventually(t, 20*time.Second, func() error {
		members, err := f.engines[0].Members(t.Context())
		if err != nil || !slices.ContainsFunc(members, func(m Member) bool {
			return m.PeerURL == f.configs[2].PeerURL && m.Healthy
		}) {
			return errors.Join(err, errors.New("the new address is not known"))
		}
		return write(t.Context(), f.engines[2], "moved")
	})
}

// TestRemovedMemberStops removes a member that is up, and one that is down and comes back.
func TestRemovedMemberStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	ended := make(chan error, 1)
	go func() { ended <- f.engines[2].Run(t.Context()) }()
	watch := f.engines[2].Watch(t.Context(), "a/", 0)
	defer watch.Close()
	if err := f.engines[0].Remove(t.Context(), f.engines[2].MemberID()); err != nil {
		t.Fatalf("remove: %v", err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, store.ErrRemoved) {
			t.Errorf("Run of a removed member: got %v, want ErrRemoved", err)
		}
	case <-testkit.Context(t, 20*time.Second).Done():
		t.Fatal("a removed member continues")
	}
	for {
		_, err := watch.Next(shortly(t, 10*time.Second))
		if err == nil {
			continue
		}
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("watch of a removed member: got %v, want ErrClosed", err)
		}
		break
	}
	if _, err := f.engines[2].Read(t.Context(), "a/b"); !errors.Is(err, store.ErrClosed) ||
		!errors.Is(err, store.ErrRemoved) {
		t.Errorf("read by a removed member: got %v, want ErrClosed for ErrRemoved", err)
	}
	if err := f.engines[0].Remove(t.Context(), f.engines[2].MemberID()); err != nil {
		t.Errorf("remove again: %v", err)
	}
	// It comes back: the answer is immediate.
	f.stop(2)
	engine, err := Open(t.Context(), f.configs[2])
	if err == nil {
		defer engine.Close()
		err = engine.Run(shortly(t, 20*time.Second))
	}
	if !errors.Is(err, store.ErrRemoved) {
		t.Errorf("a removed member that comes back: got %v, want ErrRemoved", err)
	}
	// With an empty directory it joins again, under the same name and address.
	f.configs[2].Dir += "-anew"
	f.start(2)
	f.promote(2)
	// One that is down when it is removed.
	id := f.engines[1].MemberID()
	f.stop(1)
	if err := f.engines[0].Remove(t.Context(), id); err != nil {
		t.Fatalf("remove one that is down: %v", err)
	}
	engine, err = Open(t.Context(), f.configs[1])
	if err == nil {
		defer engine.Close()
		err = engine.Run(shortly(t, 20*time.Second))
	}
	if !errors.Is(err, store.ErrRemoved) {
		t.Errorf("one that was down when it was removed: got %v, want ErrRemoved", err)
	}
	if err := write(t.Context(), f.engines[2], "after"); err != nil {
		t.Errorf("the others: %v", err)
	}
}

// TestChangesRefused requests impossible changes, and expects the reason. The members are as strict as in a program.
func TestChangesRefused(t *testing.T) {
	t.Parallel()
	f := &fleet{t: t}
	f.add(0, nil)
	f.start(0)
	e := f.engines[0]
	ctx := t.Context()
	other := "http://" + testkit.FreeAddress(t)
	joined, err := e.AddLearner(ctx, "server-1", other)
	if err != nil || len(joined) != 2 {
		t.Fatalf("add a learner: got %+v, error %v", joined, err)
	}
	again, err := e.AddLearner(ctx, "server-1", other)
	if diff := cmp.Diff(joined, again); diff != "" || err != nil {
		t.Errorf("add it again (-first +second), error %v:\n%s", err, diff)
	}
	learner := joined[slices.IndexFunc(joined, func(m Member) bool { return m.Learner })].ID
	for _, test := range []struct {
		name string
		err  error
		want error
	}{
		{"the address of another", func() error {
			_, err := e.AddLearner(ctx, "x", f.configs[0].PeerURL)
			return err
		}(), store.ErrInvalid},
		{"the name of another", func() error {
			_, err := e.AddLearner(ctx, "server-0", "http://127.0.0.1:9")
			return err
		}(), store.ErrInvalid},
		{"no address", func() error {
			_, err := e.AddLearner(ctx, "x", "127.0.0.1:7072")
			return err
		}(), store.ErrInvalid},
		{"promotion of one that is not up", e.Promote(ctx, learner), store.ErrNotInSync},
		{"promotion of an unknown member", e.Promote(ctx, "abc"), store.ErrMember},
		{"promotion of rubbish", e.Promote(ctx, "me"), store.ErrMember},
		{"removal of the last one", e.Remove(ctx, e.MemberID()), store.ErrLosesQuorum},
		{"removal of an unknown member", e.Remove(ctx, "abc"), nil},
		{"removal of the learner", e.Remove(ctx, learner), nil},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: got error %v, want %v", test.name, test.err, test.want)
		}
	}
	for name, c := range map[string]Config{
		"an address without a certificate": {PeerURL: "https://127.0.0.1:7072"},
		"others without an address":        {Join: joined},
		"an impatient election": {
			PeerURL: "http://127.0.0.1:7072", Heartbeat: time.Second,
			Election: 2 * time.Second,
		},
	} {
		c.Dir = t.TempDir()
		if engine, err := Open(ctx, c); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got error %v, want ErrInvalid", name, err)
			if err == nil {
				engine.Close()
			}
		}
	}
}

// TestUnknownClientsAreRefused connects to the members with a node's certificate, with one of another authority, and
// with none.
func TestUnknownClientsAreRefused(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	f := newFleet(t, 1, func(_ int, c *Config) {
		c.PeerURL = "https://" + testkit.FreeAddress(t)
		c.PeerTLS = ca.issue(c.Name, serverUnit)
	})
	stranger := newAuthority(t).issue("s", serverUnit)
	stranger.CA = f.configs[0].PeerTLS.CA
	for name, files := range map[string]*TLSFiles{
		"a server": ca.issue("other", serverUnit), "a node": ca.issue("node", "node"), "a stranger": stranger,
		"no server": nil,
	} {
		config := Config{PeerTLS: files}
		if got, want := reachable(t.Context(), config, f.configs[0].PeerURL), name == "a server"; got != want {
			t.Errorf("%s: let in: %v, want %v", name, got, want)
		}
	}
}

// TestAddressIsNeeded opens a directory of several members without an address.
func TestAddressIsNeeded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	f.stop(1)
	f.configs[1].PeerURL = ""
	engine, err := Open(t.Context(), f.configs[1])
	if err == nil {
		engine.Close()
	}
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "2 members") {
		t.Errorf("got error %v, want that two members need an address", err)
	}
}

// TestWithoutQuorum stops two of three: every call on the third ends in time with the right error, and works again when
// one comes back.
func TestWithoutQuorum(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	e := f.engines[0]
	if err := write(t.Context(), e, "a"); err != nil {
		t.Fatal(err)
	}
	watch := e.Watch(t.Context(), "", 0)
	defer watch.Close()
	f.stop(1)
	f.stop(2)
	var calls sync.WaitGroup
	for _, test := range []struct {
		name string
		call func(context.Context) error
		want error
	}{
		{"write, at first", func(ctx context.Context) error {
			err := write(ctx, e, "b")
			if errors.Is(err, store.ErrUnavailable) { // the leader was known to be gone
				return store.ErrUnknown
			}
			return err
		}, store.ErrUnknown},
		{"read", func(ctx context.Context) error { _, err := e.Read(ctx, "a"); return err }, store.ErrUnavailable},
		{"list", func(ctx context.Context) error { _, err := e.List(ctx, ""); return err }, store.ErrUnavailable},
		{"write", func(ctx context.Context) error { return write(ctx, e, "b") }, store.ErrUnavailable},
		{"grant a lease", func(ctx context.Context) error {
			_, err := e.grantLease(ctx, time.Minute)
			return err
		}, store.ErrUnavailable},
		{"ask the revision", func(ctx context.Context) error {
			_, err := e.Commit(ctx, nil)
			return err
		}, store.ErrUnavailable},
		{"compare", func(ctx context.Context) error {
			_, err := e.Commit(ctx, []store.Group{{Compares: []store.Compare{{Key: "a", Modified: store.AnyModified}}}})
			return err
		}, store.ErrUnavailable},
	} {
		call := func() {
			watch := testkit.NewStopwatch()
			if err := test.call(t.Context()); !errors.Is(err, test.want) {
				t.Errorf("%s: got error %v, want %v", test.name, err, test.want)
			}
			if took := watch.Elapsed(); took > 12*time.Second {
				t.Errorf("%s: took %v", test.name, took)
			}
		}
		if errors.Is(test.want, store.ErrUnknown) { // it finds the leader that does not know yet
			call()
			continue
		}
		calls.Go(call)
	}
	calls.Wait()
	h, err := e.Health(t.Context())
	if err != nil || h.Quorum || h.Writes || h.Reason == "" || h.Leader != "" {
		t.Errorf("health: got %+v, error %v", h, err)
	}
	if members, err := e.Members(t.Context()); err != nil || len(members) != 3 {
		t.Errorf("members: got %+v, error %v", members, err)
	}
	f.start(2)
	testkit.Eventually(t, 20*time.Second, func() error { return write(t.Context(), e, "c") })
	wantHealth(t, e, func(h Health) bool { return h.Quorum && h.Writes && h.Revision > 0 })
	testkit.Eventually(t, 20*time.Second, func() error {
		batch, err := watch.Next(shortly(t, 10*time.Second))
		if err != nil || !slices.ContainsFunc(batch.Changes, func(c store.Change) bool { return c.Key == "c" }) {
			return errors.Join(err, errors.New("c was not seen"))
		}
		return nil
	})
}

// TestRestartWithoutQuorum opens one of three members: it says that it waits, and continues when another comes.
func TestRestartWithoutQuorum(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	if err := write(t.Context(), f.engines[0], "a"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f.stop(i)
	}
	e := f.start(1)
	if _, err := e.Read(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("read: got error %v, want ErrUnavailable", err)
	}
	f.start(0)
	seesEventually(t, e, "a")
}
