package advice_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestStories checks the texts of suggestions for single cases.
func TestStories(t *testing.T) {
	b := cluster.Constraint{Attribute: "label.zone", Value: "b"}
	fleet := func(change func(i int, n *scheduler.Node)) *scheduler.Fleet {
		f := scheduler.NewFleet()
		for i := range 3 {
			n := ready(fmt.Sprint("n", i), 4000, 4*cluster.GiB)
			n.Labels["zone"] = string("abb"[i])
			change(i, &n)
			f.SetNode(n)
			f.Reserve(scheduler.Reservation{
				UUID: fmt.Sprint("u", i), Task: cluster.TaskID(fmt.Sprint("default.db.1.", i)), Node: n.Name,
				Demand: cluster.Demand{CPU: 1000, Memory: 3*cluster.GiB + cluster.Bytes(i)*100*cluster.MiB},
				Ports:  []int{5432},
			})
		}
		return f
	}
	same := func(int, *scheduler.Node) {}
	for name, c := range map[string]struct {
		fleet *scheduler.Fleet
		task  cluster.Pending
		want  []string
	}{
		"memory is short": {
			fleet(same),
			cluster.Pending{Priority: 1, Demand: cluster.Demand{CPU: 500, Memory: 1200 * cluster.MiB}},
			[]string{
				"free 176 MiB memory on n0, such as by ending default.db.1.0 (or on one of 2 other nodes)",
				"lower its request to 1 GiB memory (it asks for 1.2 GiB)",
				"add a node with 500m CPU and 1.2 GiB memory free",
			},
		},
		"a constraint, or memory": {fleet(same), cluster.Pending{
			Priority: 1, Demand: cluster.Demand{Memory: cluster.GiB},
			Placement: cluster.Placement{Constraints: []cluster.Constraint{b}},
		}, []string{
			"free 100 MiB memory on n1, such as by ending default.db.1.1 (or on 1 other node)",
			"lower its request to 924 MiB memory (it asks for 1 GiB)",
			"loosen the constraint label.zone = b to label.zone in (b, a)",
			"add a node with 1 GiB memory free and label.zone = b",
		}},
		"a port": {
			fleet(same),
			cluster.Pending{Priority: 1, Ports: []cluster.Port{{Name: "sql", Port: 5432}}},
			[]string{
				"let Berth assign a port instead of 5432",
				"move or end default.db.1.0 on n0 (or on one of 2 other nodes)",
				"add a node",
			},
		},
		"two things": {
			fleet(func(_ int, n *scheduler.Node) { n.Taints = []cluster.Taint{{Key: "dedicated", Value: "gpu"}} }),
			cluster.Pending{Priority: 1, Demand: cluster.Demand{Memory: 5 * cluster.GiB}},
			[]string{
				"lower its request to 1 GiB memory (it asks for 5 GiB), and tolerate the taint dedicated=gpu:no-schedule",
				"lower its request to 1 GiB memory (it asks for 5 GiB), and remove the taint " +
					"dedicated=gpu:no-schedule from n0 (or on one of 2 other nodes)",
				"add a node with 5 GiB memory free",
			},
		},
		"on hold": {fleet(same), cluster.Pending{}, []string{"raise its priority from 0"}},
		"no nodes": {
			scheduler.NewFleet(),
			cluster.Pending{
				Priority: 1, Demand: cluster.Demand{CPU: 2000},
				Devices: []cluster.DeviceRequest{{Count: 2, Models: []string{"A100"}}},
			},
			[]string{
				"add a node with 2 CPU free and 2 gpu A100",
			},
		},
		"no node runs images": {
			fleet(func(_ int, n *scheduler.Node) { n.Executors = []string{"process"} }),
			cluster.Pending{
				Priority: 1, Demand: cluster.Demand{CPU: 10}, NeedsImage: true, Network: cluster.NetworkBridge,
			},
			[]string{
				"give n0 the executor containerd, and give n0 the network bridge (its agent offers no such network; " +
					"the agent's log gives the reason) (or on one of 2 other nodes)",
				"add a node with 10m CPU free, executor containerd and network bridge",
			},
		},
		"nodes that do not take part": {
			fleet(func(i int, n *scheduler.Node) {
				switch i {
				case 0:
					n.State = cluster.NodeDown
				case 1:
					n.Cordon = true
				case 2:
					n.Cordon, n.Drain, n.State = true, true, cluster.NodeDraining
				}
			}),
			cluster.Pending{Priority: 1, Demand: cluster.Demand{Memory: 100 * cluster.MiB}},
			[]string{
				"uncordon n1 (or on 1 other node)", "bring back n0 (down)",
				"add a node with 100 MiB memory free",
			},
		},
		"its volume is on a node that is full": {
			fleet(func(i int, n *scheduler.Node) {
				if n.Capacity.Memory = 8 * cluster.GiB; i == 1 {
					n.Capacity.Memory, n.Volumes = 4*cluster.GiB, []string{"default/web/data"}
				}
			}),
			cluster.Pending{
				Priority: 1, Demand: cluster.Demand{Memory: cluster.GiB},
				Volumes: []string{"default/web/data"},
			},
			[]string{
				"free 100 MiB memory on n1, such as by ending default.db.1.1",
				"lower its request to 924 MiB memory (it asks for 1 GiB)",
			},
		},
		"its volume is on a node that is cordoned": {
			fleet(func(i int, n *scheduler.Node) {
				if i == 1 {
					n.Cordon, n.Volumes = true, []string{"default/web/data"}
				}
			}),
			cluster.Pending{
				Priority: 1, Demand: cluster.Demand{Memory: 100 * cluster.MiB},
				Volumes: []string{"default/web/data"},
			},
			[]string{"uncordon n1"},
		},
		"its volume is on nodes that are down and full": {
			fleet(func(i int, n *scheduler.Node) {
				if i < 2 {
					n.Volumes = []string{"default/web/data"}
				}
				if i == 0 {
					n.State = cluster.NodeDown
				}
			}),
			cluster.Pending{
				Priority: 1, Demand: cluster.Demand{Memory: cluster.GiB},
				Volumes: []string{"default/web/data"},
			},
			[]string{
				"bring back n0 (down)",
				"free 100 MiB memory on n1, such as by ending default.db.1.1",
				"lower its request to 924 MiB memory (it asks for 1 GiB)",
			},
		},
		"its volumes are on two nodes": {
			fleet(func(i int, n *scheduler.Node) {
				n.Volumes = []string{[]string{"default/web/data", "default/web/logs", ""}[i]}
			}),
			cluster.Pending{
				Priority: 1, Demand: cluster.Demand{Memory: 100 * cluster.MiB},
				Volumes: []string{"default/web/data", "default/web/logs"},
			},
			nil,
		},
	} {
		c.task.Task = "default.web.1.0"
		r := advice.Find(advice.Input{Options: options(), Fleet: c.fleet, Task: c.task})
		if diff := cmp.Diff(c.want, texts(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// BenchmarkFind measures Find on a large fleet with tasks in the way.
func BenchmarkFind(b *testing.B) {
	for _, nodes := range []int{1000, 10_000} {
		f := scheduler.NewFleet()
		for i := range nodes {
			n := ready(fmt.Sprintf("n%05d", i), 8000, 32*cluster.GiB)
			n.Labels = cluster.Labels{"zone": string("abcd"[i%4]), "rack": fmt.Sprint(i % 25)}
			f.SetNode(n)
			for j := range 10 {
				f.Reserve(scheduler.Reservation{
					UUID: fmt.Sprint(i, "-", j), Task: cluster.TaskID(fmt.Sprintf("c.s%d.1.%d", i%100, j)),
					Node:       n.Name,
					Demand:     cluster.Demand{CPU: 700, Memory: 3*cluster.GiB + cluster.Bytes(i%77)*cluster.MiB},
					Definition: cluster.Ref{Name: "w", Version: 1},
				})
			}
		}
		for name, p := range map[string]cluster.Pending{
			"memory": {Priority: 1, Task: "c.x.1.0", Demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB}},
			"pair": {
				Priority: 1, Task: "c.x.1.0", Demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB},
				Placement: cluster.Placement{
					Constraints: []cluster.Constraint{{Attribute: "label.zone", Value: "e"}},
					Spread:      []cluster.Spread{{Attribute: "label.rack", MaxSkew: 1}},
				},
			},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				for range b.N {
					if r := advice.Find(advice.Input{Options: options(), Fleet: f, Task: p}); len(r.Suggestions) < 2 {
						b.Fatal(r)
					}
				}
			})
		}
	}
}
