package nodewatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// BenchmarkJudge measures one pass over 5,000 ready nodes. A leader makes one each second, while a hundred of them
// report. 20 ms are the 2 % of a core that the passes may cost.
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
	now := time.Hour
	config := Config{
		Tables: tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return now },
	}
	w := New(config, 1, func() bool { return false })
	snap, seq, next := tables.Snapshot(), uint64(0), 0
	beat := func() {
		if next%nodes == 0 {
			seq++
		}
		tables.SetPulse(fmt.Sprintf("n%05d", next%nodes),
			cluster.Pulse{Session: 1, Seq: seq, At: now, Next: time.Minute})
		next++
	}
	for range nodes {
		beat()
	}
	changes := store.Changes{Resync: true}
	for b.Loop() {
		if out, _ := w.Judge(snap, changes, time.Now()); len(out.Units) > 0 {
			b.Fatalf("%d verdicts changed", len(out.Units))
		}
		changes = store.Changes{}
		now += time.Second
		for range 100 {
			beat()
		}
	}
	cancel()
	running.Wait()
}
