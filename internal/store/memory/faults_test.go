package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func write(ctx context.Context, engine store.Engine, key string) error {
	_, err := engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: []byte("1")}}}})
	return err
}

func count(t *testing.T, engine store.Engine) int {
	t.Helper()
	listing, err := engine.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return len(listing.Records)
}

// TestCrash catches many calls before and after they are applied. All results are unknown. Some of the calls caught
// before are applied immediately, some later, some never.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 60
		pass := make(chan struct{})
		wait := func() { <-pass }
		engine := memory.New(memory.Options{Hooks: memory.Hooks{
			Before: func(_ context.Context, groups []store.Group) error {
				if strings.HasPrefix(groups[0].Ops[0].Key, "before") {
					wait()
				}
				return nil
			},
			After: func(_ context.Context, groups []store.Group, _ store.Result) error {
				if strings.HasPrefix(groups[0].Ops[0].Key, "after") {
					wait()
				}
				return nil
			},
		}})
		results := make(chan error, 2*calls)
		for i := range calls {
			for _, stage := range []string{"before", "after"} {
				go func() { results <- write(t.Context(), engine, fmt.Sprint(stage, i)) }()
			}
		}
		synctest.Wait()
		engine.Crash()
		blocked := make(chan error, 1)
		go func() { blocked <- write(t.Context(), engine, "during") }()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := write(ended, engine, "in vain"); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, store.ErrUnknown) {
			t.Errorf("a call to a dead engine: got %v, want the context's error alone", err)
		}
		engine.Restart()
		close(pass)
		for range 2 * calls {
			if err := <-results; !errors.Is(err, store.ErrUnknown) {
				t.Fatalf("a call in flight: got error %v, want ErrUnknown", err)
			}
		}
		if err := <-blocked; err != nil {
			t.Errorf("a call that waited for the restart: %v", err)
		}
		atOnce := count(t, engine) - calls - 1
		time.Sleep(time.Second)
		inAll := count(t, engine) - calls - 1
		if atOnce == 0 || inAll == atOnce || inAll == calls {
			t.Errorf("of %d calls %d happened immediately and %d in all, want all three fates", calls, atOnce, inAll)
		}
	})
}

func TestHooks(t *testing.T) {
	engine := memory.New(memory.Options{})
	refusing := engine.Open(memory.Hooks{Before: memory.Refuse(store.ErrNoSpace)})
	if err := write(t.Context(), refusing, "a"); !errors.Is(err, store.ErrNoSpace) || count(t, engine) != 0 {
		t.Errorf("refused: got error %v and %d records, want ErrNoSpace and none", err, count(t, engine))
	}
	deaf := engine.Open(memory.Hooks{After: memory.Unacknowledged})
	if err := write(t.Context(), deaf, "a"); !errors.Is(err, store.ErrUnknown) || count(t, engine) != 1 {
		t.Errorf("unacknowledged: got error %v and %d records, want ErrUnknown and one", err, count(t, engine))
	}
	if err := deaf.Close(); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), engine, "b"); err != nil {
		t.Errorf("another handle was closed: %v", err)
	}
}

// TestHistoryIsBounded lags behind a short history.
func TestHistoryIsBounded(t *testing.T) {
	engine := memory.New(memory.Options{History: 100})
	if err := write(t.Context(), engine, "k"); err != nil {
		t.Fatal(err)
	}
	first, err := engine.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	lagging := engine.Watch(t.Context(), "", first.Revision)
	defer lagging.Close()
	for range 1000 {
		if err := write(t.Context(), engine, "k"); err != nil {
			t.Fatal(err)
		}
	}
	if batch, err := lagging.Next(t.Context()); err != nil || !batch.Resync {
		t.Errorf("got %+v and error %v, want a resync", batch, err)
	}
}

// TestConsulRevisionsGoBack drops the history of a deletion, as Consul does after a while. The revision of the prefix
// goes back for other handles, but not for one that returned a later revision. A restore takes it back for every
// handle.
func TestConsulRevisionsGoBack(t *testing.T) {
	engine := memory.New(memory.Options{Consul: true})
	reader := engine.Open(memory.Hooks{})
	revision := func(e *memory.Engine) uint64 {
		t.Helper()
		revision, err := e.Revision(t.Context(), "w/")
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	if err := errors.Join(write(t.Context(), engine, "w/a"), write(t.Context(), engine, "w/b")); err != nil {
		t.Fatal(err)
	}
	var snapshot bytes.Buffer
	if err := engine.Snapshot(t.Context(), "", &snapshot); err != nil {
		t.Fatal(err)
	}
	written := revision(reader)
	if _, err := engine.Commit(t.Context(), []store.Group{{
		Ops: []store.Op{{Key: "w/b", Delete: true}, {Key: "w/c", Delete: true}},
	}}); err != nil {
		t.Fatal(err)
	}
	deleted := revision(reader)
	engine.Compact()
	late := engine.Open(memory.Hooks{})
	if got := revision(reader); deleted <= written || got != deleted {
		t.Errorf("a handle returned revision %d, then %d, and after the compaction %d", written, deleted, got)
	}
	if got := revision(late); got >= deleted {
		t.Errorf("another handle got revision %d after the compaction, want less than %d", got, deleted)
	}
	if err := engine.Restore(&snapshot); err != nil {
		t.Fatal(err)
	}
	if got := revision(reader); got != written {
		t.Errorf("after a restore: got revision %d, want %d", got, written)
	}
}

// TestConsulLimits fills a commit to its limits and measures the request that Consul would get.
func TestConsulLimits(t *testing.T) {
	limits := memory.ConsulLimits()
	request := 0
	share := limits.Bytes / limits.Operations
	for range limits.Operations {
		request += 224 + (share+2)/3*4
	}
	if limits.Operations != 126 || request > 512<<10 || request < 500<<10 {
		t.Errorf("%+v makes a request of %d bytes, want just under %d", limits, request, 512<<10)
	}
}

// TestObserverSeesEveryRevision writes through two handles, and restores.
func TestObserverSeesEveryRevision(t *testing.T) {
	var revisions []uint64
	var whole int
	engine := memory.New(memory.Options{Observe: func(changes []store.Change, revision uint64, all bool) {
		revisions = append(revisions, revision)
		if all {
			whole = len(changes)
		}
	}})
	other := engine.Open(memory.Hooks{})
	for i := range 4 {
		if err := write(t.Context(), []store.Engine{engine, other}[i%2], fmt.Sprint(i%3)); err != nil {
			t.Fatal(err)
		}
	}
	var snapshot bytes.Buffer
	if err := engine.Snapshot(t.Context(), "", &snapshot); err != nil {
		t.Fatal(err)
	}
	if err := engine.Restore(&snapshot); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(revisions), "[2 3 4 5 5]"; got != want || whole != 3 {
		t.Errorf("revisions %s and %d records in the restore, want %s and 3", got, whole, want)
	}
}
