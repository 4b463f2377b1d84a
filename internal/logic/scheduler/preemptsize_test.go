package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestPreemptTakesTheBestNode compares the choice among dozens of nodes with a search of all sets of victims of each.
// The cheapest node must be taken, and of equals the one that ranks best. Priorities are drawn so that no two sets of a
// node cost the same.
func TestPreemptTakesTheBestNode(t *testing.T) {
	served, equal := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		in := scheduler.PreemptInput{Fleet: scheduler.NewFleet()}
		const nodes, each = 40, 4
		held := map[string][]scheduler.Reservation{}
		for n := range nodes {
			name := fmt.Sprintf("n%02d", n)
			in.Fleet.SetNode(scheduler.Node{
				Name: name, State: cluster.NodeReady, Executors: []string{"process"},
				Labels:   cluster.Labels{"rack": string(rune('a' + n%3))},
				Capacity: cluster.Demand{CPU: 8000, Memory: 32 * cluster.GiB},
			})
			for i := range each {
				r := scheduler.Reservation{
					UUID: fmt.Sprintf("%02d-%d", n, i), Task: cluster.ServiceTask("c", "old", 1, n*each+i), Node: name,
					Priority: 1 << (i + rnd.IntN(2)*each),
					Demand: cluster.Demand{
						CPU:    cluster.MilliCPU(500 * (1 + rnd.IntN(4))),
						Memory: cluster.Bytes(2*(1+rnd.IntN(4))) * cluster.GiB,
					},
				}
				in.Fleet.Reserve(r)
				held[name] = append(held[name], r)
				in.Victims = append(in.Victims,
					scheduler.Victim{UUID: r.UUID, Priority: r.Priority, Owner: cluster.OwnerRef{Name: "old"}})
			}
		}
		p := cluster.Pending{
			Task: "c.new.1.0", Priority: 1000, Attempt: 1,
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "new"}, Count: 3,
			Demand: cluster.Demand{
				CPU:    cluster.MilliCPU(3000 + 500*rnd.IntN(9)),
				Memory: cluster.Bytes(10+rnd.IntN(20)) * cluster.GiB,
			},
		}
		p.Placement.Strategy = []cluster.Strategy{
			"", cluster.StrategyBinpack, cluster.StrategySpread,
			cluster.StrategyWhole,
		}[rnd.IntN(4)]
		switch rnd.IntN(4) {
		case 0:
			p.Placement.Spread = []cluster.Spread{{Attribute: "label.rack", MaxSkew: 1}}
		case 1:
			p.Placement.Affinities = []cluster.Affinity{
				{Constraint: cluster.Constraint{Attribute: "label.rack", Value: "b"}},
			}
		case 2:
			p.Placement.Spread = []cluster.Spread{{Attribute: "node.name"}}
		}
		in.Waiting = []cluster.Pending{p}

		var best []cost // one for each node of equal cost
		victims := map[string][]string{}
		for _, name := range in.Fleet.Nodes() {
			c, uuids, ok := cheapestSet(in.Fleet, name, held[name], p.Demand)
			if !ok || len(best) > 0 && c.compare(best[0]) > 0 {
				continue
			}
			if len(best) > 0 && c.compare(best[0]) < 0 {
				best = nil
				clear(victims)
			}
			best, victims[name] = append(best, c), uuids
		}
		got := scheduler.Preempt(in, scheduler.Options{})
		if len(best) == 0 {
			if len(got) > 0 {
				t.Fatalf("%+v, and there is no room anywhere", got)
			}
			return
		}
		served++
		if len(best) > 1 {
			equal++
		}
		after, q := in.Fleet.Clone(), p
		var names []string
		for name, uuids := range victims {
			names = append(names, name)
			for _, uuid := range uuids {
				after.Release(uuid)
			}
		}
		slices.Sort(names)
		q.Placement.Constraints = []cluster.Constraint{{Attribute: "node.name", Op: cluster.OpIn, Values: names}}
		want := scheduler.Schedule(after, []cluster.Pending{q}, scheduler.Options{}).Placements[0].Node
		if len(got) != 1 || got[0].Node != want ||
			strings.Join(got[0].Victims, " ") != strings.Join(victims[want], " ") {
			t.Fatalf("got %+v, want %s with %v: one of %v at %v", got, want, victims[want], names, best[0])
		}
	})
	if served < 40 || equal < 10 {
		t.Errorf("%d tasks were served, %d of them on one of several nodes with the same price", served, equal)
	}
}

// cheapestSet tries every set of reservations on a node.
func cheapestSet(f *scheduler.Fleet, node string, held []scheduler.Reservation, need cluster.Demand) (least cost,
	uuids []string, ok bool,
) {
	n, used, _ := f.Node(node)
	for set := range 1 << len(held) {
		c, left, ends := cost{}, used.Add(need), []string(nil)
		for i := range held {
			if set&(1<<i) != 0 {
				c = cost{max(c[0], held[i].Priority), c[1] + held[i].Priority, c[2] + 1}
				left, ends = left.Sub(held[i].Demand), append(ends, held[i].UUID)
			}
		}
		if left.CPU <= n.Capacity.CPU && left.Memory <= n.Capacity.Memory && (!ok || c.compare(least) < 0) {
			least, uuids, ok = c, ends, true
		}
	}
	return least, uuids, ok
}
