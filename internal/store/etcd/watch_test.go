package etcd

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

func TestNewest(t *testing.T) {
	t.Parallel()
	at := func(key string, revision uint64, deleted bool) store.Change {
		return store.Change{Record: store.Record{Key: key, Modified: revision}, Deleted: deleted}
	}
	for _, c := range []struct {
		name    string
		changes []store.Change
		resync  bool
		want    []store.Change
	}{
		{"nothing", nil, false, nil},
		{
			"in order",
			[]store.Change{at("a", 1, false), at("b", 2, false)},
			false,
			[]store.Change{at("a", 1, false), at("b", 2, false)},
		},
		{
			"overtaken",
			[]store.Change{
				at("b", 1, false), at("a", 2, false), at("b", 3, true), at("a", 4, false), at("b", 5, false),
				at("c", 6, true),
			},
			false,
			[]store.Change{at("a", 4, false), at("b", 5, false), at("c", 6, true)},
		},
		{
			"resync",
			[]store.Change{
				at("a", 1, false), at("b", 1, false), at("c", 1, false), at("b", 2, true), at("c", 3, true),
				at("c", 4, false),
			},
			true,
			[]store.Change{at("a", 1, false), at("c", 4, false)},
		},
	} {
		if diff := cmp.Diff(c.want, newest(c.changes, c.resync)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestWatchOfASlowReader writes few keys often, without a reader: the pending changes stay bounded, and the newest
// values come.
func TestWatchOfASlowReader(t *testing.T) {
	t.Parallel()
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	watch, ok := engine.Watch(t.Context(), "", 1).(*watch)
	if !ok {
		t.Fatal("the engine's watch has another type")
	}
	defer watch.Close()
	const keys, times = 1000, 3*minPendingLimit/1000 + 1
	var last uint64
	for i := range times {
		group := store.Group{}
		for key := range keys {
			group.Ops = append(group.Ops,
				store.Op{
					Key: fmt.Sprintf("k/%04d", (key*7)%keys), Value: []byte(fmt.Sprint(i)),
					Delete: i == times-1 && key == 0,
				})
		}
		result, err := engine.Commit(t.Context(), []store.Group{group})
		if err != nil {
			t.Fatal(err)
		}
		last = result.Revision
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if at := watch.position(); at < last {
			return fmt.Errorf("the watch is at %d, want %d", at, last)
		}
		return nil
	})
	watch.mu.Lock()
	pending := len(watch.pending)
	watch.mu.Unlock()
	if pending > minPendingLimit+keys {
		t.Errorf("%d changes are pending for %d keys", pending, keys)
	}
	batch, err := watch.Next(t.Context())
	if err != nil || batch.Revision != last || len(batch.Changes) != keys {
		t.Fatalf("got %d changes to revision %d and error %v, want %d to %d", len(batch.Changes), batch.Revision, err,
			keys, last)
	}
	for i, c := range batch.Changes {
		if want := fmt.Sprintf("k/%04d", i); c.Key != want || c.Modified != last || c.Deleted != (i == 0) {
			t.Errorf("change %d: got %+v, want %s at %d", i, c, want, last)
		}
	}
}
