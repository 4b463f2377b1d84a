package workload

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// BenchmarkLists measures the cost of lists over 20 services of 500 tasks each; half of them run.
func BenchmarkLists(b *testing.B) {
	engine := memory.New(memory.Options{})
	defer engine.Close()
	tables := store.NewTables(store.TablesConfig{Engine: engine})
	go func() { _ = tables.Run(b.Context()) }()
	commit := func(records map[string]any) {
		var g store.Group
		for key, record := range records {
			value, err := store.Encode(record)
			if err != nil {
				b.Fatal(err)
			}
			g.Ops = append(g.Ops, store.Op{Key: store.DefaultPrefix + key, Value: value})
		}
		result, err := engine.Commit(b.Context(), []store.Group{g})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := tables.WaitFor(b.Context(), result.Revision); err != nil {
			b.Fatal(err)
		}
	}
	ref := cluster.Ref{Name: "web", Version: 1}
	def := cluster.TaskDefinition{
		Name: "web", Version: 1,
		Containers: []cluster.Container{{Name: "main", Image: "a/web:1"}},
	}
	commit(map[string]any{"task/web/1": def, "task/web": store.Newest{Name: "web", Version: 1}})
	for i := range 20 {
		name := fmt.Sprintf("s%d", i)
		records := map[string]any{"service/default/" + name: cluster.Service{
			Cluster: "default", Name: name, Definition: ref, Count: 500, Lifespan: cluster.Lifespan{Generation: 1},
		}}
		for k := range 250 {
			id := cluster.ServiceTask("default", name, 1, k)
			uuid := fmt.Sprintf("%s-1", id)
			records["state/n1/"+string(id)] = cluster.Desired{
				Task: id, Attempt: 1, UUID: uuid, Node: "n1", Definition: ref,
				Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: name},
			}
			records["status/n1/"+string(id)] = cluster.Observed{
				Task: id, Attempt: 1, UUID: uuid, Node: "n1", Session: 1, State: cluster.StateRunning,
				Health: cluster.HealthHealthy,
			}
		}
		commit(records)
	}
	source := &views.Source{Tables: tables, Now: time.Now, Clock: boottime.Now}
	snap := tables.Snapshot()
	b.Run("tasks", func(b *testing.B) {
		for b.Loop() {
			if n := len(taskList{Builder: source.At(snap)}.page(lists.Window{})); n != 10_000 {
				b.Fatal(n)
			}
		}
	})
	b.Run("services", func(b *testing.B) {
		for b.Loop() {
			l := source.At(snap)
			for e := range snap.Services("") {
				l.Service(e)
			}
		}
	})
	b.Run("troubles", func(b *testing.B) {
		a := &TroublesAPI{Common{Views: source}}
		for b.Loop() {
			// Each service starts, and no task is blocked.
			if n := len(a.find(snap, &troubleFilter{caller: &access.Caller{}})); n != 0 {
				b.Fatal(n)
			}
		}
	})
	b.Run("node", func(b *testing.B) {
		for b.Loop() {
			source.Node(snap, "n1")
		}
	})
}
