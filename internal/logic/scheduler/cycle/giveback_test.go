package cycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

// drawFleet draws a fleet of few nodes in two zones.
func drawFleet(t *rapid.T) *fleet.Fleet {
	f := fleet.New()
	for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
		n := fleet.Node{
			Name: fmt.Sprint("n", i), State: cluster.NodeReady, Executors: []string{"process"},
			Labels:   cluster.Labels{"zone": pick(t, "zone", "a", "b"), "rack": fmt.Sprint(i % 3)},
			Capacity: cluster.Demand{CPU: 4000, Memory: 8 * cluster.GiB},
			Images:   pick(t, "images", nil, nil, []string{"i"}),
		}
		for d := range rapid.IntRange(0, 2).Draw(t, "devices") {
			n.Devices = append(n.Devices, cluster.Device{ID: fmt.Sprint("d", d), Type: "gpu", Numa: -1})
		}
		f.SetNode(n)
	}
	f.SwitchFineLabels(pick(t, "fine", nil, nil, []string{"rack"}))
	return f
}

// drawOwner draws equal tasks of one owner, with demands of each kind.
func drawOwner(t *rapid.T, number int) (tasks []cluster.Pending) {
	name := fmt.Sprint("s", number)
	p := cluster.Pending{
		Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name},
		Definition: cluster.Ref{Name: name, Version: 1}, Attempt: 1, Priority: 500,
		Labels: cluster.Labels{"app": name}, Images: pick(t, "wanted images", nil, []string{"i"}),
		Demand: cluster.Demand{
			CPU:    cluster.MilliCPU(pick(t, "cpu", 0, 500, 1500)),
			Memory: pick(t, "memory", 0, cluster.GiB, 3*cluster.GiB),
		},
		Placement: cluster.Placement{
			Strategy: pick(t, "strategy", "", cluster.StrategySpread, cluster.StrategyBinpack, cluster.StrategyWhole),
			AntiAffinity: pick(t, "apart", "", cluster.AntiAffinityNone, cluster.AntiAffinityPrefer,
				cluster.AntiAffinityDemand),
		},
	}
	switch pick(t, "demand", "", "", "port", "device", "share", "penalized", "affinity") {
	case "port":
		p.Ports = []cluster.Port{{Name: "http", Port: 8080}, {Name: "any"}}
	case "device":
		p.Devices = []cluster.DeviceRequest{{Type: "gpu", Count: 1}}
	case "share":
		p.Devices = []cluster.DeviceRequest{{Type: "gpu", Share: 400}}
	case "penalized":
		p.PenalizedNodes = []string{"n0"}
	case "affinity":
		p.Placement.Affinities = []cluster.Affinity{
			{Constraint: cluster.Constraint{Attribute: "label.zone", Value: "a"}, Weight: 40},
		}
	}
	attribute := pick(t, "attribute", "label.zone", "label.rack", "node.name")
	switch pick(t, "term", "", "spread", "skew", "distinct", "near", "away", "needs", "excludes") {
	case "spread":
		p.Placement.Spread = []cluster.Spread{{Attribute: attribute}}
	case "skew":
		p.Placement.Spread = []cluster.Spread{{Attribute: attribute, MaxSkew: 1}}
	case "distinct":
		p.Placement.Distinct = []cluster.Distinct{{Attribute: attribute, Most: 1}}
	case "near", "away", "needs", "excludes":
		p.Placement.Relations = []cluster.Relation{{
			Labels: cluster.Labels{"app": "s0"}, Attribute: attribute,
			Away: pick(t, "is away", false, true), Required: pick(t, "required", false, true),
		}}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "count") {
		p.Task = cluster.ServiceTask("c", name, 1, i)
		tasks = append(tasks, p)
	}
	return tasks
}

// TestGiveBackLeavesNothing places tasks of a cycle and gives some placements back, in any order. Each class must then
// get the node that it gets in a new cycle, on a fleet in which the remaining placements are reservations: nothing is
// left of what was given back. Both ways to search must agree.
func TestGiveBackLeavesNothing(t *testing.T) {
	given, waiting := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		var pending []cluster.Pending
		for i := range rapid.IntRange(1, 4).Draw(t, "owners") {
			pending = append(pending, drawOwner(t, i)...)
		}
		order, _ := Order(pending, time.Time{})
		way := pick(t, "way", taskclass.SearchByCost, taskclass.SearchByRanking, taskclass.SearchByTrees)
		y := New(f, pending, taskclass.Options{Search: way})
		y.Start(order)
		placed := map[int32]Placement{} // by position
		at := map[int32]int32{}
		for range rapid.IntRange(1, 14).Draw(t, "steps") {
			position := rapid.Int32Range(0, int32(len(order)-1)).Draw(t, "task")
			if pl, found := placed[position]; found {
				y.GiveBack(&pl, PlacedTask{position, at[position]})
				delete(placed, position)
				given++
				continue
			}
			c := y.Classes.At[position]
			slot := y.Search.Best(c)
			if want := bestAnew(f, pending, order, placed, position); nameOf(f, slot) != want {
				t.Fatalf("%+v goes to %q, want %q, beside %+v", pending[order[position]], nameOf(f, slot), want, placed)
			}
			if slot < 0 {
				waiting++
				continue
			}
			placed[position], at[position] = y.Place(c, slot, int(order[position])), slot
		}
	})
	if given < 50 || waiting < 20 {
		t.Errorf("%d placements were given back, and %d tasks found no node", given, waiting)
	}
}

func nameOf(f *fleet.Fleet, slot int32) string {
	if slot < 0 {
		return ""
	}
	return f.Name(slot)
}

// bestAnew returns the node for a task in a new cycle, on a fleet that has reservations for what is placed.
func bestAnew(f *fleet.Fleet, pending []cluster.Pending, order []int32, placed map[int32]Placement,
	position int32,
) string {
	g := f.Clone()
	for other, pl := range placed { // order-free: each by itself
		g.Reserve(pl.Reservation(&pending[order[other]], fmt.Sprint(other)))
	}
	one := slices.Clone(pending[order[position] : order[position]+1])
	y := New(g, one, taskclass.Options{Search: taskclass.SearchByTrees})
	y.Start([]int32{0})
	return nameOf(g, y.Search.Best(y.Classes.At[0]))
}
