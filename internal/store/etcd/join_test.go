package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

// TestTwoJoinBeforeOneStarts adds two servers before the first of them has started, and removes a third meanwhile. Each
// starts with the list of members that it received, which is out of date.
func TestTwoJoinBeforeOneStarts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, nil)
	join := func(i int) {
		t.Helper()
		f.add(i, nil)
		members, err := f.any().AddLearner(t.Context(), f.configs[i].Name, f.configs[i].PeerURL)
		if err != nil {
			t.Fatal(err)
		}
		f.configs[i].Join = members
	}
	join(1)
	join(2)
	join(3)
	for _, m := range f.configs[3].Join {
		if m.PeerURL == f.configs[3].PeerURL {
			if err := f.any().Remove(t.Context(), m.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := write(t.Context(), f.engines[0], "before"); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		e, err := start(t.Context(), f.configs[i].withDefaults(), func(c *embed.Config) {
			c.StrictReconfigCheck = false
		})
		if err != nil {
			t.Fatalf("start member %d: %v", i, err)
		}
		f.engines[i] = e
		seesEventually(t, e, "before")
	}
}

// TestChangeInDoubt checks that a cancelled change of the members has an unknown result.
func TestChangeInDoubt(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Dir: t.TempDir() + "/store", NoSync: true})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		err  error
		want error
	}{
		{"timeout", t.Context(), etcderrors.ErrTimeout, store.ErrUnknown},
		{"timeout since the leader was lost", t.Context(), etcderrors.ErrTimeoutDueToLeaderFail, store.ErrUnknown},
		{"the caller has gone", ended, etcderrors.ErrCanceled, store.ErrUnknown},
		{"the caller has gone, as it says", ended, context.Canceled, context.Canceled},
		{"too young", t.Context(), errNoClusterVersion, store.ErrUnavailable},
		{"dropped", t.Context(), errors.New("raft proposal dropped"), store.ErrUnavailable},
		{"refused", t.Context(), etcderrors.ErrUnhealthy, store.ErrLosesQuorum},
		{"refused, and the caller has gone", ended, etcderrors.ErrLearnerNotReady, store.ErrNotInSync},
	} {
		if err := e.changeError(test.ctx, test.err); !errors.Is(err, test.want) {
			t.Errorf("%s: got error %v, want %v", test.name, err, test.want)
		}
	}
	if err := e.changeError(t.Context(), etcderrors.ErrTimeout); errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a change in doubt: got error %v, which says that nothing was written", err)
	}
}

// TestChangeWithoutQuorum requests a change when the other voter is gone: nothing is sent while no server leads.
func TestChangeWithoutQuorum(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	f.stop(1)
	e := f.engines[0]
	deadline := time.Now().Add(20 * time.Second)
	for {
		if leader, _, _ := e.EngineLeader(); leader == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the member still believes in a leader")
		}
		_ = write(shortly(t, time.Second), e, "x")
	}
	_, err := e.AddLearner(t.Context(), "server-2", "http://"+testkit.FreeAddress(t))
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("got error %v, want ErrUnavailable alone", err)
	}
}
