package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// crowded is 10,000 full nodes with 100,000 victims of five priorities and three sizes.
func crowded(b *testing.B) scheduler.PreemptInput {
	b.Helper()
	in := scheduler.PreemptInput{Fleet: scheduler.NewFleet(), Spare: map[cluster.OwnerRef]int{}}
	in.Fleet.Grow(100_000)
	for n := range 10_000 {
		node := scheduler.Node{
			Name: fmt.Sprintf("n%05d", n), State: cluster.NodeReady, Executors: []string{"process"},
			Labels:   cluster.Labels{"rack": fmt.Sprint(n % 25)},
			Capacity: cluster.Demand{CPU: 10_000, Memory: 64 * cluster.GiB, Disk: cluster.TiB},
		}
		in.Fleet.SetNode(node)
		for i := range 10 {
			k := n*10 + i
			owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: fmt.Sprint("s", k%1000)}
			in.Spare[owner] = 40
			priority := 100 + 10*(k*7919%5)
			uuid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", k*2654435761%4294967291)
			in.Fleet.Reserve(scheduler.Reservation{
				UUID: uuid, Task: cluster.ServiceTask("c", owner.Name, 1, k),
				Definition: cluster.Ref{Name: "w", Version: 1}, Node: node.Name,
				Priority: priority, Demand: cluster.Demand{
					CPU:    []cluster.MilliCPU{500, 1000, 1500}[(k+n)%3],
					Memory: cluster.Bytes(1+k%4) * cluster.GiB,
				},
			})
			in.Victims = append(in.Victims, scheduler.Victim{UUID: uuid, Priority: priority, Owner: owner})
		}
	}
	return in
}

// BenchmarkPreempt measures one call for 100 waiting tasks, with 10,000 nodes and 100,000 possible victims.
func BenchmarkPreempt(b *testing.B) {
	for _, bench := range []struct {
		name    string
		kinds   int
		demand  cluster.Demand
		spread  bool
		nowhere bool
	}{
		{name: "identical", kinds: 1, demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB}},
		{name: "identical, of half a node", kinds: 1, demand: cluster.Demand{CPU: 5000, Memory: 20 * cluster.GiB}},
		{
			name: "identical, spread over racks", kinds: 1, demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB},
			spread: true,
		},
		{name: "all different", kinds: 100, demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB}},
		{name: "too large for any node", kinds: 1, demand: cluster.Demand{CPU: 20_000}, nowhere: true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			in := crowded(b)
			for i := range 100 {
				p := cluster.Pending{
					Task: cluster.ServiceTask("c", fmt.Sprint("urgent", i%bench.kinds), 1, i), Priority: 500,
					Attempt: 1, Count: 100,
					Definition: cluster.Ref{Name: "u", Version: 1},
					Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c"}, Demand: bench.demand,
				}
				p.Demand.CPU += cluster.MilliCPU(i % bench.kinds)
				if bench.spread {
					p.Placement.Spread = []cluster.Spread{{Attribute: "label.rack", MaxSkew: 2}}
				}
				in.Waiting = append(in.Waiting, p)
			}
			for b.Loop() {
				if got := scheduler.Preempt(in, scheduler.Options{}); len(got) != 100 && !bench.nowhere {
					b.Fatalf("%d of 100 find room", len(got))
				}
			}
		})
	}
}
