package whatif_test

import (
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/whatif"
)

func nodes(count int) api.SimulateChange {
	return api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n", Count: count, CPU: "4", Memory: "8GiB"}}
}

func run(t *testing.T, text string) api.SimulateChange {
	return api.SimulateChange{Run: objects(t, text)}
}

func scale(service string, count int) api.SimulateChange {
	return api.SimulateChange{Scale: &api.SimulateScale{Service: service, Count: count}}
}

func TestNewWorkloadIsPlaced(t *testing.T) {
	w := domain(t, nodes(3))
	sim := simulate(t, w, run(t, web))
	if !sim.Fits || !sim.Settled || len(sim.Tasks) != 4 || len(sim.Waiting) != 0 {
		t.Fatalf("got %+v, want four tasks placed and none that waits", sim)
	}
	for _, x := range sim.Tasks {
		if x.What != api.SimulatePlaced || x.To == "" || x.From != "" || x.Owner.Name != "web" ||
			x.Definition != (cluster.Ref{Name: "web", Version: 1}) {
			t.Errorf("got %+v, want a task of web that is placed", x)
		}
	}
	tasks := 0
	for _, n := range sim.Nodes {
		tasks += n.After.Tasks
		if n.Before.Tasks != 0 || n.Total.CPU != 4000 || n.After.Reserved.CPU != cluster.MilliCPU(1000*n.After.Tasks) {
			t.Errorf("got node %+v, want none before and a CPU for each task after", n)
		}
	}
	if tasks != 4 {
		t.Errorf("got %d tasks on the nodes, want 4", tasks)
	}
	if w.Snapshot().AttemptCount() != 0 {
		t.Error("the simulation wrote into what it began from")
	}
}

func TestReportNamesWaitingTasks(t *testing.T) {
	w := domain(t, nodes(1), run(t, web))
	sim := simulate(t, w, scale("web", 6))
	if sim.Fits || len(sim.Waiting) != 1 || len(sim.Waiting[0].Tasks) != 2 || sim.Waiting[0].New != 2 ||
		sim.Waited != 0 {
		t.Fatalf("got %+v, want two tasks that wait", sim)
	}
	if !strings.Contains(sim.Waiting[0].Sentence, "CPU") {
		t.Errorf("got the sentence %q, want what is short", sim.Waiting[0].Sentence)
	}
	sim = simulate(t, w, scale("web", 6), api.SimulateChange{AddNodes: &api.SimulateNodes{Like: "n", Name: "m"}})
	if !sim.Fits || len(sim.Tasks) != 2 || sim.Tasks[0].To != "m" {
		t.Fatalf("got %+v, want two tasks that go to the new node", sim)
	}
	if len(sim.Steps) != 2 || sim.Steps[0].Waiting != 2 || sim.Steps[1].Placed != 2 || sim.Steps[1].Waiting != 0 {
		t.Errorf("got steps %+v, want the tasks to wait after the first and to be placed by the second", sim.Steps)
	}
	if got, want := sim.Steps[1].Change, "add node m (like=n)"; got != want {
		t.Errorf("got the change %q, want %q", got, want)
	}
}

func TestTasksOfRemovedNodesMove(t *testing.T) {
	for name, c := range map[string]api.SimulateChange{
		"removed": {RemoveNode: "n-1"}, "drained": {DrainNode: "n-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := domain(t, nodes(2), run(t, web))
			there := 0
			sim := simulate(t, w, c)
			for _, n := range sim.Nodes {
				if n.Name == "n-1" {
					there = n.Before.Tasks
					if n.After.Tasks != 0 {
						t.Errorf("got %d tasks left on n-1, want none", n.After.Tasks)
					}
				}
			}
			if there == 0 || !sim.Fits || len(sim.Tasks) != there {
				t.Fatalf("got %d tasks on the node and %+v, want all of them moved", there, sim)
			}
			for _, x := range sim.Tasks {
				if x.What != api.SimulateMoved || x.From != "n-1" || x.To != "n-2" {
					t.Errorf("got %+v, want it moved from n-1 to n-2", x)
				}
			}
		})
	}
}

// TestPredictionOfAnExternalDomain simulates a domain that an external scheduler places, with the built-in one, as
// Berth knows no other.
func TestPredictionOfAnExternalDomain(t *testing.T) {
	w := domain(t, nodes(3), run(t, `
kind: Domain
name: default
scheduler: {type: external, name: tray}
`))
	if e, _ := w.Snapshot().Domain(cluster.DefaultDomain); e.Value.External() == nil {
		t.Fatal("the domain has no external scheduler")
	}
	if sim := simulate(t, w, run(t, web)); !sim.Fits || len(sim.Tasks) != 4 || len(sim.Waiting) != 0 {
		t.Errorf("got %+v, want four tasks placed and none that waits", sim)
	}
}

// TestPredictionOfAnotherDomain simulates a domain beside the default one. Changes of the other one are refused.
func TestPredictionOfAnotherDomain(t *testing.T) {
	inCI := strings.Replace(web, "kind: Service\n", "kind: Service\ncluster: build\n", 1)
	w := domain(t, nodes(3), run(t, web), run(t, `
kind: Domain
name: ci
---
kind: Cluster
name: build
domain: ci
`))
	ask := func(domain string, changes ...api.SimulateChange) (*api.Simulation, error) {
		return whatif.Run(t.Context(), whatif.Config{Branch: branch(w), Now: w.Now(), Log: logger()},
			api.SimulateRequest{Domain: domain, Changes: changes})
	}
	more := api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "c", Count: 2, CPU: "4", Memory: "8GiB"}}
	sim, err := ask("ci", more, run(t, inCI))
	if err != nil {
		t.Fatal(err)
	}
	if !sim.Fits || len(sim.Tasks) != 4 || len(sim.Nodes) != 2 {
		t.Errorf("got %+v, want four tasks on the two nodes of the domain", sim)
	}
	for _, x := range sim.Tasks {
		if !strings.HasPrefix(x.To, "c-") {
			t.Errorf("got %+v, want it on a node of the domain", x)
		}
	}
	if sim, err = ask("ci", run(t, inCI)); err != nil || sim.Fits || len(sim.Waiting) != 1 {
		t.Errorf("without nodes of the domain: got %+v and %v, want tasks that wait", sim, err)
	}
	for _, test := range []struct {
		domain, path string
		change       api.SimulateChange
	}{
		{"ci", "changes[0].drain_node", api.SimulateChange{DrainNode: "n-1"}},
		{"ci", "changes[0].remove_node", api.SimulateChange{RemoveNode: "n-1"}},
		{"ci", "changes[0].scale", scale("web", 5)},
		{"ci", "changes[0].run[1]", run(t, web)},
		{"", "changes[0].run[1]", run(t, inCI)},
		{"north", "domain", more},
	} {
		_, err := ask(test.domain, test.change)
		faults := cluster.FaultsOf(err)
		if len(faults) != 1 || faults[0].Path != test.path || !strings.Contains(faults[0].Message, "domain") {
			t.Errorf("%s in the domain %q: got %v, want a fault of %s", whatif.Describe(&test.change), test.domain, err,
				test.path)
		}
	}
}
