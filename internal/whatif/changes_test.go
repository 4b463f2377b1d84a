package whatif_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/whatif"
)

// TestEveryFaultIsReported: Check returns all faults together, each with its path.
func TestEveryFaultIsReported(t *testing.T) {
	faults := whatif.Check(api.SimulateRequest{Changes: []api.SimulateChange{
		{},
		{DrainNode: "n1", CordonNode: "n1"},
		{AddNodes: &api.SimulateNodes{
			Count: -1, Name: "a b", CPU: "much", Memory: "8 apples", Taints: []string{"=x"},
			Devices: []api.SimulateGPUs{{}},
		}},
		{RemoveNode: "a/b"},
		{Taint: &api.SimulateTaints{Node: "n1"}},
		{Scale: &api.SimulateScale{Service: "", Count: -1}},
		{Restart: &api.SimulateObject{Kind: cluster.KindJob, Name: "x"}},
		{Delete: &api.SimulateObject{Kind: cluster.KindCluster, Cluster: "_", Name: "x"}},
	}})
	var got []string
	for _, f := range faults {
		got = append(got, f.Path)
	}
	want := []string{
		"changes[0]", "changes[1]",
		"changes[2].add_nodes.count", "changes[2].add_nodes.name", "changes[2].add_nodes.cpu",
		"changes[2].add_nodes.memory", "changes[2].add_nodes.taints[0]",
		"changes[2].add_nodes.devices[0].count",
		"changes[3].remove_node", "changes[4].taint.taints", "changes[5].scale.service", "changes[5].scale.count",
		"changes[6].restart.kind",
		"changes[7].delete.cluster", "changes[7].delete.kind",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths of faults (-want +got):\n%s\n%v", diff, faults)
	}
	for name, ask := range map[string]api.SimulateRequest{
		"nothing":        {},
		"too many":       {Changes: make([]api.SimulateChange, api.MaxSimulateChanges+1)},
		"too many nodes": {Changes: []api.SimulateChange{nodes(api.MaxSimulateNodes), nodes(1)}},
	} {
		if faults := whatif.Check(ask); len(faults) != 1 || faults[0].Path != "changes" {
			t.Errorf("%s: got %v, want one fault with the changes", name, faults)
		}
	}
}

// TestRefusalsOfTheDomain: a fault that depends on the domain carries its path in the request.
func TestRefusalsOfTheDomain(t *testing.T) {
	w := domain(t, nodes(2), run(t, web))
	for name, c := range map[string]struct {
		change api.SimulateChange
		want   string
	}{
		"a service that is not there": {scale("wet", 2), "changes[1]: there is no service default/wet"},
		"a node that is not there":    {api.SimulateChange{DrainNode: "n9"}, "changes[1]: there is no node n9"},
		"a model that is not there": {
			api.SimulateChange{AddNodes: &api.SimulateNodes{Like: "n9"}},
			"changes[1].add_nodes.like: there is no node n9",
		},
		"a node that is there": {
			api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n-1"}},
			"changes[1].add_nodes.name: there is a node n-1 already: name another",
		},
		"a definition that is not there": {
			run(t, "kind: Service\nname: x\ndefinition: x@1\ncount: 1\n"), "changes[1].run[0]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := whatif.Run(t.Context(), whatif.Config{Branch: branch(w), Now: w.Now()},
				api.SimulateRequest{Changes: []api.SimulateChange{scale("web", 5), c.change}})
			faults, ok := errors.AsType[cluster.Faults](err)
			if !ok || len(faults) != 1 || !strings.HasPrefix(faults[0].String(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestUnspecifiedNodeProperties expects that a new node has the unspecified properties of its model, or else the most
// frequent ones.
func TestUnspecifiedNodeProperties(t *testing.T) {
	big := api.SimulateChange{AddNodes: &api.SimulateNodes{
		Name: "big", CPU: "64", Memory: "512GiB", Labels: cluster.Labels{"zone": "b"}, Pool: "gpu",
		Taints:  []string{"dedicated=gpu:no-schedule"},
		Devices: []api.SimulateGPUs{{Count: 2, Model: "A100", Memory: "80GiB"}},
	}}
	w := domain(t, nodes(2), big)
	sim := simulate(t, w, api.SimulateChange{AddNodes: &api.SimulateNodes{Count: 2}},
		api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "more", Like: "big", CPU: "32"}})
	got := map[string]string{}
	for _, n := range sim.Nodes {
		got[n.Name] = strings.Join([]string{n.Total.CPU.String(), n.Total.Memory.String(), string(n.Change)}, " ")
		if want := map[string]int{"big": 2, "more": 2}[n.Name]; n.Devices != want {
			t.Errorf("%s has %d devices, want %d", n.Name, n.Devices, want)
		}
	}
	want := map[string]string{
		"n-1": "4 8 GiB ", "n-2": "4 8 GiB ", "new-1": "4 8 GiB added", "new-2": "4 8 GiB added", "big": "64 512 GiB ",
		"more": "32 512 GiB added",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// TestRolloutWithoutRoomFails lets the clock advance until a blocked rollout has failed and goes back.
func TestRolloutWithoutRoomFails(t *testing.T) {
	w := domain(t, nodes(1), run(t, web))
	next := strings.NewReplacer("version: 1", "version: 2", "image: web:1", "image: web:2", "web@1", "web@2", "cpu: 1",
		"cpu: 3").Replace(web)
	sim := simulate(t, w, run(t, next))
	if sim.Fits || len(sim.Notes) != 1 || !strings.Contains(sim.Notes[0], "the rollout of default/web to web@2 fails") {
		t.Fatalf("got %+v, want a note of the rollout that fails", sim)
	}
	if sim.Lasted == 0 {
		t.Error("it took no time")
	}
}

// TestRecoveryIsRefused: a domain whose store went back is not simulated.
func TestRecoveryIsRefused(t *testing.T) {
	value, err := store.Encode(&cluster.Recovery{State: cluster.RecoveryNeeded, Cause: "a test", Since: midnight})
	if err != nil {
		t.Fatal(err)
	}
	key := store.Prefix(store.DefaultPrefix).Recovery(cluster.DefaultDomain)
	b, err := store.LoadBranch([]store.Record{{Key: key, Value: value, Created: 1, Modified: 1}}, 1,
		store.DefaultPrefix, logger())
	if err != nil {
		t.Fatal(err)
	}
	_, err = whatif.Run(t.Context(), whatif.Config{Branch: b, Now: midnight},
		api.SimulateRequest{Changes: []api.SimulateChange{nodes(1)}})
	if !errors.Is(err, whatif.ErrHeld) || !errors.Is(err, planning.ErrSimulation) {
		t.Errorf("got %v, want ErrHeld", err)
	}
}
