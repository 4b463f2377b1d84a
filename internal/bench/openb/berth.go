package main

import (
	"fmt"
	"strconv"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// deviceType is the name of the traces' devices.
const deviceType = "gpu"

// berth is a fleet on which Berth's scheduler places one pod after the other. It has only the pods that have arrived.
type berth struct {
	fleet  *scheduler.Fleet
	mix    scheduler.Mix
	pods   []cluster.Pending // by demand
	names  []string          // of the nodes
	placed int
}

// newBerth makes the fleet. Strategy "" leaves it to the scheduler's default.
func newBerth(t *trace, strategy cluster.Strategy) *berth {
	b := &berth{fleet: scheduler.NewFleet()}
	models := map[uint8]string{}
	for name, n := range t.models {
		models[n] = name
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		node := scheduler.Node{
			Name: fmt.Sprintf("n%05d", i), State: cluster.NodeReady, Executors: []string{"containerd"},
			Capacity: cluster.Demand{CPU: n.CPU, Memory: n.Memory},
		}
		for j, v := range n.Devices {
			node.Devices = append(node.Devices,
				cluster.Device{ID: fmt.Sprintf("g%02d", j), Type: deviceType, Model: models[v.Model], Numa: -1})
		}
		b.fleet.SetNode(node)
		b.names = append(b.names, node.Name)
	}
	for i := range t.demands {
		p := cluster.Pending{
			Attempt: 1, Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j"}, Priority: 1,
			NeedsImage: true,
			Demand:     cluster.Demand{CPU: t.demands[i].CPU, Memory: t.demands[i].Memory},
			Placement:  cluster.Placement{Strategy: strategy},
		}
		if d := &t.demands[i]; d.Devices > 0 {
			r := cluster.DeviceRequest{Type: deviceType, Count: d.Devices, Share: d.Share}
			for model := range uint8(len(models)) {
				if d.Models != 0 && d.Models.Has(model) {
					r.Models = append(r.Models, models[model])
				}
			}
			p.Devices = []cluster.DeviceRequest{r}
		}
		b.pods = append(b.pods, p)
	}
	return b
}

// arrive adds the pod to the mix. The fleet periodically gets a new value model.
func (b *berth) arrive(demand int) {
	p := &b.pods[demand]
	b.mix.Learn(p.Demand, p.Devices, 1)
	if b.mix.Stale(b.fleet.DeviceValueModel()) {
		b.fleet.SetDeviceValueModel(b.mix.ValueModel())
	}
}

func (b *berth) place(demand int) bool {
	one := b.pods[demand : demand+1]
	one[0].Task = cluster.JobTask("c", "j", 1, "s", b.placed)
	r := scheduler.Schedule(b.fleet, one, scheduler.Options{})
	if len(r.Placements) == 0 {
		return false
	}
	b.placed++
	b.fleet.Reserve(r.Placements[0].Reservation(&one[0], strconv.Itoa(b.placed)))
	return true
}

// nodes returns the free resources of the nodes.
func (b *berth) nodes() []packing.Node {
	nodes := make([]packing.Node, 0, len(b.names))
	used := map[string]map[string]int{}
	for i := range b.placed {
		r, _ := b.fleet.Reserved(strconv.Itoa(i + 1))
		if used[r.Node] == nil {
			used[r.Node] = map[string]int{}
		}
		for _, u := range r.Devices {
			used[r.Node][u.ID] += u.Share
		}
	}
	for _, name := range b.names {
		n, taken, _ := b.fleet.Node(name)
		free := n.Capacity.Sub(taken)
		out := packing.Node{CPU: n.Capacity.CPU, Memory: n.Capacity.Memory, FreeCPU: free.CPU, FreeMemory: free.Memory}
		for _, d := range n.Devices {
			out.Devices = append(out.Devices, packing.Device{Free: cluster.WholeDevice - used[name][d.ID]})
		}
		nodes = append(nodes, out)
	}
	return nodes
}
