package batching_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/batching"
	"github.com/berthd/berth/internal/store/memory"
)

// slowEngine counts commits and blocks the first one until the others have arrived.
type slowEngine struct {
	store.Engine
	calls atomic.Int64
	first chan struct{}
}

func (e *slowEngine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	if e.calls.Add(1) == 1 {
		<-e.first
	}
	return e.Engine.Commit(ctx, groups)
}

// TestGathered has concurrent writers share few commits, each with its own result. One of the writers that create the
// same key succeeds.
func TestGathered(t *testing.T) {
	engine := &slowEngine{Engine: memory.New(memory.Options{}), first: make(chan struct{})}
	g := batching.New(engine)
	var won, lost atomic.Int64
	var writers, begun sync.WaitGroup
	const n = 64
	write := func(key string, value int) {
		defer writers.Done()
		begun.Done()
		res, err := g.Commit(t.Context(), []store.Group{{
			Compares: []store.Compare{{Key: key}}, Ops: []store.Op{{Key: key, Value: fmt.Append(nil, value)}},
		}})
		switch {
		case err != nil:
			t.Error(err)
		case res.Applied[0]:
			won.Add(1)
		default:
			lost.Add(1)
		}
	}
	writers.Add(n + 4)
	begun.Add(n + 4)
	for i := range n {
		go write(fmt.Sprint("k/", i), i)
	}
	for i := range 4 {
		go write("k/same", i)
	}
	begun.Wait()
	close(engine.first)
	writers.Wait()
	if won.Load() != n+1 || lost.Load() != 3 {
		t.Errorf("%d writes were applied and %d refused, want %d and 3", won.Load(), lost.Load(), n+1)
	}
	if calls := engine.calls.Load(); calls > n/2 {
		t.Errorf("%d commits for %d writers", calls, n+4)
	}
}

// countingEngine counts commits.
type countingEngine struct {
	store.Engine
	calls atomic.Int64
}

func (e *countingEngine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	e.calls.Add(1)
	return e.Engine.Commit(ctx, groups)
}

// TestConcurrentWritersShareACommit has writers that start at the same moment share one commit, although the first of
// them could go alone.
func TestConcurrentWritersShareACommit(t *testing.T) {
	engine := &countingEngine{Engine: memory.New(memory.Options{})}
	g := batching.New(engine)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // with more processors other writers may be late by themselves
	start := make(chan struct{})
	var writers sync.WaitGroup
	const n = 32
	for i := range n {
		writers.Go(func() {
			<-start
			if _, err := g.Commit(t.Context(),
				[]store.Group{{Ops: []store.Op{{Key: fmt.Sprint("k/", i), Value: []byte("{}")}}}}); err != nil {
				t.Error(err)
			}
		})
	}
	runtime.Gosched() // until all wait
	close(start)
	writers.Wait()
	if calls := engine.calls.Load(); calls > n/8 {
		t.Errorf("%d commits for %d writers, want about one", calls, n)
	}
}
