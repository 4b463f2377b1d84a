package controlplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
)

// stallingEngine is an engine whose watches return nothing while it is stalled.
type stallingEngine struct {
	store.Engine
	stalled atomic.Bool
}

type stallingWatch struct {
	store.Watch
	engine *stallingEngine
}

func (d *stallingEngine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return &stallingWatch{d.Engine.Watch(ctx, prefix, after), d}
}

func (w *stallingWatch) Next(ctx context.Context) (store.Batch, error) {
	batch, err := w.Watch.Next(ctx)
	for w.engine.stalled.Load() && ctx.Err() == nil {
		sleep(ctx, 10*time.Millisecond)
	}
	return batch, err
}

// A leader with stuck tables resigns, although its beats continue. Otherwise no other server could take over. Later it
// campaigns again.
func TestLeaderWithStuckTablesResigns(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.stop()
			stallTables(t, w)
		})
	})
	t.Run("consul", func(t *testing.T) { onConsul(t, stallTables) })
}

// stallTables starts a server and stalls its tables until the server resigns. Then they go on.
func stallTables(t *testing.T, w *world) {
	t.Helper()
	d := &stallingEngine{Engine: w.engine}
	w.faulty = d
	w.start()
	w.node("n1")
	w.definition(1, 100)
	w.service(1, 1, 1)
	w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
	beat := func() uint64 {
		r, err := w.engine.Read(t.Context(), election.BeatKey(p, cluster.DefaultDomain))
		if err != nil {
			t.Fatal(err)
		}
		return r.Modified
	}
	d.stalled.Store(true)
	w.service(2, 1, 1) // no server sees it
	quiet := time.Time{}
	for began := time.Now(); time.Since(began) < 30*time.Second && quiet.IsZero(); {
		was := beat()
		time.Sleep(time.Second) // in-bubble: inWorld makes one
		if beat() == was {
			quiet = time.Now()
		}
	}
	if quiet.IsZero() {
		t.Fatal("it leads on, and decides nothing")
	}
	d.stalled.Store(false)
	w.until(30*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
}
