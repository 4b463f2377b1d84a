package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/telemetry"
)

func TestEventsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		tables := store.NewTables(store.TablesConfig{Engine: engine})
		writer := store.NewWriter(engine, tables.Prefix(), nil, func() uint64 { return 1 })
		publish := func(events ...cluster.Event) {
			if _, _, err := writer.Commit(t.Context(), []store.Unit{{Events: events}}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		publish(cluster.Event{Type: "old.news"})
		var leads atomic.Bool
		leads.Store(true)
		var log bytes.Buffer
		handler := slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = tables.Run(ctx) })
		all.Go(func() { _ = telemetry.NewEvents(tables, leads.Load, slog.New(handler)).Run(ctx) })
		synctest.Wait()
		web := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}
		publish(
			cluster.Event{
				Type: "task.failed", Owner: &web, Task: "c.web.1.0", Attempt: 2, Node: "n1",
				Reason: cluster.ReasonOOM, Message: "out of memory",
			},
			cluster.Event{Type: "task.running", Task: "c.web.1.0", Node: "n1"},
		)
		publish(cluster.Event{Type: "node.down", Node: "n2"})
		leads.Store(false)
		publish(cluster.Event{Type: "node.down", Node: "n3"}) // another server publishes it
		leads.Store(true)
		publish(cluster.Event{Type: "node.down", Node: "n4"})
		cancel()
		all.Wait()
		_ = engine.Close()
		want := `level=INFO msg=event type=task.failed message="out of memory" owner=c/service/web task=c.web.1.0 attempt=2 node=n1 reason=oom
level=INFO msg=event type=node.down node=n2
level=INFO msg=event type=node.down node=n4
`
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Error(diff)
		}
		if strings.Contains(log.String(), "old.news") {
			t.Error("former events are published again")
		}
	})
}
