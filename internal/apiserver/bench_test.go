package apiserver

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// BenchmarkLooks measures what lists cost over 20 services of 500 tasks each, half of them running.
func BenchmarkLooks(b *testing.B) {
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
			d := desired(cluster.ServiceTask("default", name, 1, k), 1, cluster.KindService, ref)
			records["state/n1/"+string(d.Task)] = d
			records["status/n1/"+string(d.Task)] = observed(d, cluster.StateRunning, cluster.HealthHealthy)
		}
		commit(records)
	}
	s := New(Config{Engine: engine, Tables: tables})
	snap := tables.Snapshot()
	b.Run("tasks", func(b *testing.B) {
		for b.Loop() {
			if n := len(s.look(snap).tasks(taskFilter{})); n != 10_000 {
				b.Fatal(n)
			}
		}
	})
	b.Run("services", func(b *testing.B) {
		for b.Loop() {
			l := s.look(snap)
			for e := range snap.Services("") {
				l.serviceView(e)
			}
		}
	})
	b.Run("troubles", func(b *testing.B) {
		a := &troublesAPI{workloads{look: s.look}, s.nodeView}
		for b.Loop() {
			// Each service starts, and no task is held up.
			if n := len(a.find(snap, &troubleFilter{caller: &access.Caller{}})); n != 0 {
				b.Fatal(n)
			}
		}
	})
	b.Run("node", func(b *testing.B) {
		for b.Loop() {
			s.nodeView(snap, "n1")
		}
	})
}
