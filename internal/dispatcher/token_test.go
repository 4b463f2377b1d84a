package dispatcher

import (
	"context"
	"log/slog"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// TestTokensOfDomains gives each node the token of its own domain's leader, and finds agents that have seen a later
// store, whichever domain their node was in.
func TestTokensOfDomains(t *testing.T) {
	p := store.Prefix(store.DefaultPrefix)
	records := map[string]any{
		p.Domain("ci"):                  &cluster.Domain{Name: "ci", Number: 1},
		p.Leader(cluster.DefaultDomain): &cluster.Leader{Epoch: 3, Incarnation: 100},
		p.Leader("ci"):                  &cluster.Leader{Epoch: 50, Incarnation: 200},
		p.Host("n4"):                    &cluster.Host{Name: "n4", Domain: "ci"},
	}
	for name, domain := range map[string]string{"n1": cluster.DefaultDomain, "n2": "ci", "n3": ""} {
		records[p.Node(name)] = &cluster.Node{Name: name, Domain: domain, Generation: 2}
	}
	token := func(generation, incarnation, epoch uint64) cluster.Token {
		return cluster.Token{Generation: generation, Incarnation: incarnation, Epoch: epoch}
	}
	snap := snapshotOf(t, records)
	for node, want := range map[string]cluster.Token{
		"n1": token(2, 100, 3), "n2": token(2, 200, 50), "n3": token(2, 200, 50), "n4": token(0, 200, 50),
		"n5": token(0, 100, 3),
	} {
		if got := tokenFor(snap, node); got != want {
			t.Errorf("the token of %s is %+v, want %+v", node, got, want)
		}
	}
	for _, test := range []struct {
		node string
		seen cluster.Token
		want bool
	}{
		{"n1", token(2, 100, 3), false},
		{"n1", token(2, 100, 4), true},
		{"n1", token(1, 200, 50), false}, // it was in ci, and has not heard of the hand-over
		{"n1", token(2, 200, 50), true},
		{"n2", token(1, 100, 9), false},
		{"n3", token(2, 200, 50), false},
		{"n3", token(2, 100, 3), false},
		{"n3", token(2, 100, 4), true},
		{"n5", token(7, 200, 50), false}, // a forgotten node that was in ci
		{"n5", token(7, 200, 51), true},
		{"n5", token(7, 100, 4), true},
		{"n5", token(7, 300, 1), true},
	} {
		if got := seenLater(snap, test.node, test.seen); got != test.want {
			t.Errorf("%s has seen %+v: a later store is %v, want %v", test.node, test.seen, got, test.want)
		}
	}
}

// snapshotOf returns a snapshot with the records.
func snapshotOf(t *testing.T, records map[string]any) *store.Snapshot {
	t.Helper()
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	var ops []store.Op
	for key, record := range records {
		value, err := store.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, store.Op{Key: key, Value: value})
	}
	result, err := engine.Commit(t.Context(), []store.Group{{Ops: ops}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tables.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	snap, err := tables.WaitFor(t.Context(), result.Revision)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}
