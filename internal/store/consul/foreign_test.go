package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/testkit"
)

// TestFollowForeign has a watch follow the records that another program writes, without the reading of all records now
// and then: new ones, changed ones, a deleted one, many at once, and one that an engine's commit followed before it was
// found. Records of Berth in the same place are not read again.
func TestFollowForeign(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{})[0]
	config := reaching(s)
	config.Recheck = time.Hour
	e, other := dialAs(t, config), dialAs(t, config)
	if err := write(t.Context(), e, "berth/state/n1/own", "sealed"); err != nil {
		t.Fatal(err)
	}
	watch := other.Watch(t.Context(), "berth/", 0)
	defer watch.Close()
	kv := s.Client().KV()
	put := func(key, value string) {
		t.Helper()
		if _, err := kv.Put(&api.KVPair{Key: "berth/state/n1/" + key, Value: []byte(value)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "early") // before anybody follows
	isForeign := func(r store.Record) bool { return string(r.Value) != "sealed" }
	follow := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.FollowForeign(ctx, "berth/state/", isForeign) }()
		return func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		}
	}
	const gone = "gone"
	state, last := map[string]string{}, uint64(0)
	await := func(key, want string) {
		t.Helper()
		key = "berth/state/n1/" + key
		for state[key] != want {
			batch, err := watch.Next(testkit.Context(t, 20*time.Second))
			if err != nil {
				t.Fatalf("%s is %q, want %q: %v", key, state[key], want, err)
			}
			if batch.Resync && last != 0 {
				t.Errorf("the watch read all records at revision %d", batch.Revision)
			}
			if batch.Revision < last {
				t.Errorf("revision %d came after %d", batch.Revision, last)
			}
			last = batch.Revision
			for _, c := range batch.Changes {
				if c.Key == "berth/state/n1/own" && state[c.Key] == string(c.Value) {
					t.Errorf("a record of Berth was read again at revision %d", batch.Revision)
				}
				if c.Modified > batch.Revision {
					t.Errorf("%s has the revision %d in a batch of revision %d", c.Key, c.Modified, batch.Revision)
				}
				if state[c.Key] = string(c.Value); c.Deleted {
					state[c.Key] = gone
				}
			}
		}
	}
	await("a", "early")
	stop := follow()
	// The follower reports what it finds at first. If a value changes before the watch has read it, the watch reads all
	// records.
	state["berth/state/n1/a"] = ""
	await("a", "early")
	put("a", "1")
	await("a", "1")
	put("a", "2")
	await("a", "2")
	if _, err := kv.Delete("berth/state/n1/own", nil); err != nil {
		t.Fatal(err)
	}
	await("own", gone)
	// On a slow machine each record has an entry of its own. A watch that is more than maxEntries entries behind reads
	// all records.
	const together, rounds = maxEntries / 2, 600 / (maxEntries / 2)
	for round := range rounds {
		for i := range together {
			put(fmt.Sprint("many-", round, "-", i), strings.Repeat("x", round*together+i))
		}
		for i := range together {
			await(fmt.Sprint("many-", round, "-", i), strings.Repeat("x", round*together+i))
		}
	}
	stop()
	put("a", "3")
	if err := write(t.Context(), e, "berth/other", "1"); err != nil { // a commit with a higher revision
		t.Fatal(err)
	}
	for state["berth/other"] == "" {
		batch, err := watch.Next(testkit.Context(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range batch.Changes {
			state[c.Key] = string(c.Value)
		}
		last = batch.Revision
	}
	defer follow()()
	await("a", "3")
}
