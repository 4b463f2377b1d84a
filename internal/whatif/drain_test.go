package whatif_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/whatif"
)

// TestDrainStopsOnlyMovableTasks drains a node with three tasks. One of them fits elsewhere. In a real domain this task
// moves. The two others keep their attempts.
func TestDrainStopsOnlyMovableTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFleet(t, ctx, func() time.Duration { return 300 * time.Millisecond })
		defer f.running.Wait()
		defer cancel()
		f.applyChange(api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n1"}})
		f.applyChange(api.SimulateChange{
			Run: objects(t, "kind: TaskDefinition\nname: big\nversion: 1\ncontainers:\n  - name: main\n    "+
				"image: big:1\n    resources: {cpu: 2}\n---\n"+
				"kind: Service\nname: big\ndefinition: big@1\ncount: 3\n"),
		})
		f.settle()
		f.applyChange(api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n2"}})
		f.applyChange(api.SimulateChange{
			Run: objects(t, "kind: TaskDefinition\nname: fill\nversion: 1\ncontainers:\n  - name: main\n    "+
				"image: fill:1\n    resources: {cpu: 5}\n---\n"+
				"kind: Service\nname: fill\ndefinition: fill@1\ncount: 1\n"),
		})
		f.settle()
		f.applyChange(api.SimulateChange{DrainNode: "n1"})
		f.settle()
		where := map[string]int{}
		for id, p := range whatif.Places(f.tables.Snapshot(), cluster.DefaultDomain) {
			if parts, _ := id.Parts(); parts.Owner == "big" {
				where[p.Node]++
			}
		}
		if where["n1"] != 2 || where["n2"] != 1 {
			t.Errorf("got %v, want one task on n2 and the two others where they were", where)
		}
	})
}
