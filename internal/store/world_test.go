package store_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// world holds tables over a memory engine, and the leader's writer.
type world struct {
	t      *testing.T
	engine *memory.Engine
	tables *store.Tables
	writer *store.Writer
	fence  *store.Fence
	jobs   int64 // the number of written jobs
}

const p = store.Prefix(store.DefaultPrefix)

// inWorld runs a test in a bubble, on a plain engine and on one with Consul's limits.
func inWorld(t *testing.T, do func(t *testing.T, w *world)) {
	t.Helper()
	for name, options := range map[string]memory.Options{"plain": {}, "consul": {Consul: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := memory.New(options)
				w := &world{t: t, engine: e}
				w.tables = store.NewTables(store.TablesConfig{Engine: e, Logger: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.tables.Run(ctx) }()
				defer func() {
					cancel()
					<-ended
				}()
				w.lead(1)
				do(t, w)
			})
		})
	}
}

// lead writes a leader record of the epoch and returns the leader's writer.
func (w *world) lead(epoch uint64) *store.Writer {
	w.t.Helper()
	key := p.Leader(cluster.DefaultDomain)
	value, err := store.Encode(&cluster.Leader{Epoch: epoch, Holder: "s", Incarnation: 7})
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := w.engine.Commit(w.t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.fence = &store.Fence{Key: key, Modified: res.Revision, Incarnation: 7, Epoch: epoch}
	w.writer = store.NewWriter(w.engine, p, w.fence, nil)
	w.at(res.Revision)
	return w.writer
}

// at returns the snapshot that contains a revision.
func (w *world) at(revision uint64) *store.Snapshot {
	w.t.Helper()
	s, err := w.tables.WaitFor(w.t.Context(), revision)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// now returns the snapshot that contains everything written before.
func (w *world) now() *store.Snapshot {
	w.t.Helper()
	s, err := w.tables.Settled(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// commit writes units and fails the test if the result differs from the wanted one.
func (w *world) commit(want []bool, units ...store.Unit) *store.Snapshot {
	w.t.Helper()
	got, rev, err := w.writer.Commit(w.t.Context(), units)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			w.t.Fatalf("unit %d applied: got %v, want %v", i, got[i], want[i])
		}
	}
	return w.at(rev)
}

// put writes one record without a precondition.
func (w *world) put(key string, record any) *store.Snapshot {
	w.t.Helper()
	var u store.Unit
	if err := u.Put(key, record); err != nil {
		w.t.Fatal(err)
	}
	return w.commit([]bool{true}, u)
}

// job writes a job with one step and returns its revision. Each write differs: an engine may skip an equal one.
func (w *world) job(name string) (*cluster.Job, uint64) {
	w.t.Helper()
	w.jobs++
	j := &cluster.Job{
		Cluster: "c", Name: name,
		Lifespan: cluster.Lifespan{Generation: 1, Updated: time.Unix(w.jobs, 0).UTC()},
		Steps:    []cluster.Step{{Name: "s", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 3}},
	}
	snap := w.put(p.Job("c", name), j)
	e, ok := snap.Job("c", name)
	if !ok {
		w.t.Fatal("the job is not in the tables")
	}
	return j, e.Modified
}

// placed is a plan owner with tasks of the job on the nodes, each in the given attempt.
func placed(j *cluster.Job, rev uint64, attempt int, nodes ...string) cluster.PlanOwner {
	o := cluster.PlanOwner{
		Owner: j.Owner(), Rev: rev, Generation: 1, Step: "s", Definition: j.Steps[0].Definition, Count: 3,
		Priority: 500,
	}
	for i, n := range nodes {
		o.Tasks = append(o.Tasks, cluster.Placed{Index: i, Attempt: attempt, UUID: uuid.NewString(), Node: n})
	}
	return o
}
