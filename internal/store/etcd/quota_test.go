package etcd

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berthd/berth/internal/store"
)

// TestQuotaReportsWhatWasWritten has many clients reach the quota concurrently. etcd applies the write that reaches it,
// and refuses it all the same. So a write that is refused with a known result was not applied, and a read settles all
// others.
func TestQuotaReportsWhatWasWritten(t *testing.T) {
	t.Parallel()
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), Quota: 32 << 20, NoSync: true})
	value := make([]byte, 512<<10)
	var mu sync.Mutex
	refused, doubtful := []string{}, []string{}
	var running sync.WaitGroup
	for client := range 16 {
		running.Go(func() {
			for i := range 12 {
				key := fmt.Sprintf("k/%d-%d", client, i)
				_, err := engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
				mu.Lock()
				switch {
				case err == nil:
				case errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrNoSpace):
					t.Logf("write %s: %v", key, err) // a slow machine did not answer in time
				case !errors.Is(err, store.ErrNoSpace):
					t.Errorf("at the quota: got error %v, want ErrNoSpace", err)
				case errors.Is(err, store.ErrUnknown):
					doubtful = append(doubtful, key)
				default:
					refused = append(refused, key)
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	countStored := func(keys []string) (n int) {
		for _, key := range keys {
			_, err := engine.Read(t.Context(), key)
			switch {
			case err == nil:
				n++
			case !errors.Is(err, store.ErrNotFound):
				t.Fatal(err)
			}
		}
		return n
	}
	if len(refused) == 0 || len(doubtful) == 0 {
		t.Errorf("%d writes were refused for sure and %d in doubt: the quota was not reached as meant", len(refused),
			len(doubtful))
	}
	if n := countStored(refused); n > 0 {
		t.Errorf("%d of %d writes that were refused for sure are there", n, len(refused))
	}
	t.Logf("%d writes were in doubt; %d of them are there", len(doubtful), countStored(doubtful))
	if _, err := engine.grantLease(t.Context(), 1e9); !errors.Is(err, store.ErrNoSpace) ||
		errors.Is(err, store.ErrUnknown) {
		t.Errorf("a lease at the quota: got error %v, want ErrNoSpace without doubt", err)
	}
	// A write that frees space is accepted.
	if _, err := engine.Commit(t.Context(),
		[]store.Group{{Ops: []store.Op{{Key: "k/0-0", Delete: true}}}}); err != nil {
		t.Errorf("a deletion at the quota: %v", err)
	}
}
