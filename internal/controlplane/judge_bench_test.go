package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// BenchmarkJudge is one look at 5,000 nodes that are well, which a leader takes each second: 20 ms of it are the 2 % of a
// core that they may cost.
func BenchmarkJudge(b *testing.B) {
	const nodes = 5000
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	var groups []store.Group
	put := func(key string, record any) {
		value, err := store.Encode(record)
		if err != nil {
			b.Fatal(err)
		}
		groups = append(groups, store.Group{Ops: []store.Op{{Key: key, Value: value}}})
	}
	for i := range nodes {
		name := fmt.Sprintf("n%05d", i)
		put(tables.Prefix().Node(name), &cluster.Node{
			Name: name, State: cluster.NodeReady, Domain: cluster.DefaultDomain, Generation: 1, Session: 1,
		})
		put(tables.Prefix().NodeStatus(name), &cluster.NodeStatus{Name: name, Session: 1, Synced: true})
		tables.SetPulse(name, cluster.Pulse{Session: 1, Seq: 1, At: boottime.Now(), Next: time.Hour})
	}
	for len(groups) > 0 {
		n := min(len(groups), 500)
		if _, err := engine.Commit(b.Context(), groups[:n]); err != nil {
			b.Fatal(err)
		}
		groups = groups[n:]
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = tables.Run(ctx) })
	<-tables.Synced()
	config := Config{Tables: tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler), Clock: boottime.Now}
	w := newWatch(config, 1, func() bool { return false })
	snap := tables.Snapshot()
	for b.Loop() {
		if out, _ := w.judge(snap, store.Changes{Resync: true}, time.Now()); len(out.units) > 0 {
			b.Fatalf("%d verdicts changed", len(out.units))
		}
	}
	cancel()
	running.Wait()
}
