package eventlog

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// logOf returns a snapshot with batches "b1", "b2" and so on of the given sizes.
func logOf(f *testing.F, batches ...int) *store.Snapshot {
	f.Helper()
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	var ops []store.Op
	for i, n := range batches {
		b := cluster.EventBatch{ID: "b" + string(rune('1'+i))}
		for range n {
			b.Events = append(b.Events, cluster.Event{Type: "node.ready", Node: "n1"})
		}
		value, err := store.Encode(&b)
		if err != nil {
			f.Fatal(err)
		}
		ops = append(ops, store.Op{Key: store.Prefix(store.DefaultPrefix).Event(b.ID), Value: value})
	}
	if _, err := engine.Commit(f.Context(), []store.Group{{Ops: ops}}); err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = tables.Run(ctx) })
	f.Cleanup(func() { cancel(); ended.Wait(); _ = engine.Close() })
	<-tables.Synced()
	return tables.Snapshot()
}

// FuzzEventCursor checks the answer to any cursor: events after a kept one, 410 for one that is not kept, or 400.
func FuzzEventCursor(f *testing.F) {
	snap := logOf(f, 1, 3, 2)
	all := []string{"b1.0", "b2.0", "b2.1", "b2.2", "b3.0", "b3.1"}
	for _, id := range append(slices.Clone(all), "", "now", ".", "b1", "b1.", ".0", "b9.0", "b1.-1",
		"b1.99999999999999999999", "b1.+0", "b2.7") {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		from, err := find(snap, id)
		if err != nil {
			if status := respond.ProblemOf(err).Status; status != http.StatusBadRequest && status != http.StatusGone {
				t.Errorf("%q: status %d: %v", id, status, err)
			}
			if slices.Contains(all, id) {
				t.Errorf("%q is in the log: %v", id, err)
			}
			return
		}
		var rest []string
		for _, v := range eventsAfter(snap, from, &eventQuery{}) {
			rest = append(rest, v.ID)
		}
		if want := all[len(all)-len(rest):]; !slices.Equal(rest, want) {
			t.Errorf("after %q: %v, want an end of the log", id, rest)
		}
		if i := slices.Index(all, id); i >= 0 && len(rest) != len(all)-i-1 {
			t.Errorf("after %q: %v", id, rest)
		}
	})
}
