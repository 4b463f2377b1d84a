package whatif_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/whatif"
)

// BenchmarkSimulate simulates the loss of one node in a domain of 2,000 nodes and 40,000 tasks of 40 services, from its
// branch to the answer.
func BenchmarkSimulate(b *testing.B) {
	const services, tasks, machines = 40, 1000, 2000
	branch, err := store.LoadBranch(nil, 1, store.DefaultPrefix, logger())
	if err != nil {
		b.Fatal(err)
	}
	w, err := whatif.New(b.Context(), whatif.Config{Branch: branch, Now: midnight})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	do := func(c api.SimulateChange) {
		if err := w.Apply(b.Context(), &c); err != nil {
			b.Fatal(err)
		}
		if _, _, err := w.Settle(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	do(api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n", Count: machines, CPU: "64", Memory: "256GiB"}})
	for i := range services {
		name := fmt.Sprintf("web%d", i)
		text := strings.NewReplacer("name: web\n", "name: "+name+"\n", "web@1", name+"@1", "count: 4",
			fmt.Sprintf("count: %d", tasks)).Replace(web)
		do(api.SimulateChange{Run: objects(b, text)})
	}
	if n := w.Snapshot().AttemptCount(); n != services*tasks {
		b.Fatalf("%d attempts, want %d", n, services*tasks)
	}
	b.ReportAllocs()
	for b.Loop() {
		sim, err := whatif.Run(b.Context(), whatif.Config{
			Branch: store.NewBranch(w.Snapshot(), store.DefaultPrefix, logger()), Now: w.Now(),
		}, api.SimulateRequest{Changes: []api.SimulateChange{{RemoveNode: "n-0001"}}})
		if err != nil {
			b.Fatal(err)
		}
		if len(sim.Tasks) == 0 || !sim.Fits {
			b.Fatalf("got %d tasks, and fits %v: want some that move", len(sim.Tasks), sim.Fits)
		}
	}
}
