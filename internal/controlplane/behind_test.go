package controlplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// deaf is an engine whose watches tell nothing while it is deaf.
type deaf struct {
	store.Engine
	on atomic.Bool
}

type deafWatch struct {
	store.Watch
	engine *deaf
}

func (d *deaf) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return &deafWatch{d.Engine.Watch(ctx, prefix, after), d}
}

func (w *deafWatch) Next(ctx context.Context) (store.Batch, error) {
	batch, err := w.Watch.Next(ctx)
	for w.engine.on.Load() && ctx.Err() == nil {
		sleep(ctx, 10*time.Millisecond)
	}
	return batch, err
}

// A leader whose tables stand still resigns, though its beats go on: nobody else could take over. It stands again.
func TestLeaderWithStuckTablesResigns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.stop()
		d := &deaf{Engine: w.engine}
		w.faulty = d
		w.start()
		w.node("n1")
		w.definition(1, 100)
		w.service(1, 1, 1)
		w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		beat := func() uint64 {
			r, err := w.engine.Read(t.Context(), p.Beat(cluster.DefaultDomain))
			if err != nil {
				t.Fatal(err)
			}
			return r.Modified
		}
		d.on.Store(true)
		w.service(2, 1, 1) // nobody sees that
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
		d.on.Store(false)
		w.until(30*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
	})
}
