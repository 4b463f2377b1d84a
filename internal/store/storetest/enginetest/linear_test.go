package enginetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds the search of one history.
const limit = 2 * time.Second

// crashing returns a trial on the model engine. Its commits take a while, so that kills catch them at each stage.
func crashing(seed uint64) (enginetest.Trial, *memory.Engine) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 3))
	linger := func() {
		mu.Lock()
		d := time.Duration(random.IntN(3000)) * time.Microsecond
		mu.Unlock()
		time.Sleep(d) // in-bubble: see the tests
	}
	engine := memory.New(memory.Options{
		Random: rand.New(rand.NewPCG(seed, 4)),
		Hooks: memory.Hooks{
			Before: func(context.Context, []store.Group) error { linger(); return nil },
			After:  func(context.Context, []store.Group, store.Result) error { linger(); return nil },
		},
	})
	kill := func() {
		engine.Crash()
		linger()
		engine.Restart()
	}
	return enginetest.Trial{Engine: engine, Kill: kill, Clients: 8, Steps: 40, Kills: 2, Seed: seed}, engine
}

func TestModelIsLinearizable(t *testing.T) {
	var histories [][]porcupine.Operation
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			trial, _ := crashing(seed)
			history, err := trial.Run(t.Context())
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			histories = append(histories, history)
		})
	}
	enginetest.Linearizable(t, histories, limit)
}

// The engines below have planted bugs.

// lagging answers some reads from a copy of the data that is several commits old.
type lagging struct {
	*memory.Engine
	mu     sync.Mutex
	random *rand.Rand
	copies []store.Listing
}

func (l *lagging) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	result, err := l.Engine.Commit(ctx, groups)
	if listing, err := l.Engine.List(ctx, "line/"); err == nil {
		l.mu.Lock()
		l.copies = append(l.copies, listing)
		l.mu.Unlock()
	}
	return result, err
}

func (l *lagging) List(ctx context.Context, prefix string) (store.Listing, error) {
	l.mu.Lock()
	n := len(l.copies)
	if n > 3 && l.random.IntN(5) == 0 {
		defer l.mu.Unlock()
		return l.copies[n-3], nil
	}
	l.mu.Unlock()
	return l.Engine.List(ctx, prefix)
}

// torn reads a prefix key by key.
type torn struct{ *memory.Engine }

func (e torn) List(ctx context.Context, prefix string) (store.Listing, error) {
	var listing store.Listing
	for i := range 4 {
		record, err := e.Read(ctx, fmt.Sprintf("%s%d", prefix, i))
		if err == nil {
			listing.Records = append(listing.Records, record)
		}
		time.Sleep(time.Millisecond) // in-bubble: see the test
	}
	return listing, nil
}

// unlocked evaluates the compares before it takes the lock for the writes, so that updates get lost.
type unlocked struct{ *memory.Engine }

func (e unlocked) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	applied := make([]bool, len(groups))
	var writes []store.Group
	for i, g := range groups {
		applied[i] = true
		for _, c := range g.Compares {
			record, err := e.Read(ctx, c.Key)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return store.Result{}, err
			}
			applied[i] = applied[i] && record.Modified == c.Modified
		}
		if applied[i] {
			writes = append(writes, store.Group{Ops: g.Ops})
		}
	}
	result, err := e.Engine.Commit(ctx, writes)
	result.Applied = applied
	return result, err
}

// blindRetrier repeats a write of unknown result without its compares.
type blindRetrier struct{ *memory.Engine }

func (e blindRetrier) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	result, err := e.Engine.Commit(ctx, groups)
	if errors.Is(err, store.ErrUnknown) {
		for _, g := range groups {
			if again, err := e.Engine.Commit(ctx, []store.Group{{Ops: g.Ops}}); err == nil {
				result = again
			}
		}
		result.Applied = make([]bool, len(groups))
		for i := range groups {
			result.Applied[i] = true
		}
		return result, nil
	}
	return result, err
}

// killWithDataLoss returns a kill that loses the acknowledged writes of the last while: the engine did not flush them.
func killWithDataLoss(t *testing.T, engine *memory.Engine, kill func()) func() {
	var mu sync.Mutex
	return func() {
		mu.Lock()
		defer mu.Unlock()
		var flushed bytes.Buffer
		if err := engine.Snapshot(t.Context(), "", &flushed); err != nil {
			t.Errorf("snapshot: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // in-bubble: see the test
		kill()
		if err := engine.Restore(&flushed); err != nil {
			t.Errorf("restore: %v", err)
		}
	}
}

func TestPlantedBugsAreCaught(t *testing.T) {
	const seeds = 5
	for _, bug := range []struct {
		name  string
		plant func(*testing.T, *enginetest.Trial, *memory.Engine)
	}{
		{"a read from a lagging copy", func(_ *testing.T, trial *enginetest.Trial, engine *memory.Engine) {
			trial.Engine = &lagging{Engine: engine, random: rand.New(rand.NewPCG(trial.Seed, 5))}
		}},
		{"a torn listing", func(_ *testing.T, trial *enginetest.Trial, engine *memory.Engine) {
			trial.Engine = torn{engine}
		}},
		{"compares outside of the lock", func(_ *testing.T, trial *enginetest.Trial, engine *memory.Engine) {
			trial.Engine = unlocked{engine}
		}},
		{"an unknown write sent again", func(_ *testing.T, trial *enginetest.Trial, engine *memory.Engine) {
			trial.Engine = blindRetrier{engine}
		}},
		{"an acknowledged write lost in a kill", func(t *testing.T, trial *enginetest.Trial, engine *memory.Engine) {
			trial.Kill = killWithDataLoss(t, engine, trial.Kill)
		}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			caught := 0
			for seed := range uint64(seeds) {
				var history []porcupine.Operation
				var err error
				synctest.Test(t, func(t *testing.T) {
					trial, engine := crashing(seed)
					bug.plant(t, &trial, engine)
					history, err = trial.Run(t.Context())
				})
				if err != nil || enginetest.Explain(history, limit) == porcupine.Illegal {
					caught++
				}
			}
			t.Logf("caught with %d of %d seeds", caught, seeds)
			if caught == 0 {
				t.Errorf("not caught with any of %d seeds", seeds)
			}
		})
	}
}
