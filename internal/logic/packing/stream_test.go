package packing_test

import (
	"math/rand/v2"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// stream places tasks until more have arrived than the fleet can hold. It returns the mean used part of CPU, memory and
// devices (if any), in thousandths. With whole it ranks nodes by cost, else by fill.
func stream(fleet []packing.Node, demands []packing.Demand, whole bool, seed uint64) int64 {
	random := rand.New(rand.NewPCG(seed, 0))
	nodes := make([]packing.Node, len(fleet))
	var cpu, memory, room int64
	for i, n := range fleet {
		nodes[i] = n
		nodes[i].Devices = append([]packing.Device(nil), n.Devices...)
		cpu, memory, room = cpu+int64(n.CPU), memory+int64(n.Memory), room+int64(len(n.Devices)*cluster.WholeDevice)
	}
	var mix packing.Mix
	empty := mix.ValueModel()
	model := empty
	var usedCPU, usedMemory, usedRoom int64
	for arrived := int64(0); arrived < cpu*13/10; {
		d := demands[random.IntN(len(demands))]
		arrived += int64(d.CPU)
		mix.Learn(d, 1)
		if whole && mix.Stale(model) {
			model = mix.ValueModel()
		}
		best, lowest := -1, packing.Choice{}
		for i := range nodes {
			if c, ok := model.Score(&nodes[i], &d); ok && (best < 0 || c.Cost < lowest.Cost) {
				best, lowest = i, c
			}
		}
		if best < 0 {
			continue
		}
		n := &nodes[best]
		n.FreeCPU, n.FreeMemory = n.FreeCPU-d.CPU, n.FreeMemory-d.Memory
		usedCPU, usedMemory = usedCPU+int64(d.CPU), usedMemory+int64(d.Memory)
		taken := cluster.WholeDevice
		if d.Share > 0 {
			taken = d.Share
		}
		for i := range n.Devices {
			if lowest.Devices>>i&1 == 1 {
				n.Devices[i].Free -= taken
				usedRoom += int64(taken)
			}
		}
	}
	if room == 0 {
		return (usedCPU*1000/cpu + usedMemory*1000/memory) / 2
	}
	return (usedCPU*1000/cpu + usedMemory*1000/memory + usedRoom*1000/room) / 3
}

// TestFillsMore checks that the strategy fills more of a fleet than taking the fullest node does.
func TestFillsMore(t *testing.T) {
	shapes := func(nodes ...packing.Node) []packing.Node {
		var fleet []packing.Node
		for range 20 {
			fleet = append(fleet, nodes...)
		}
		return fleet
	}
	for _, c := range []struct {
		name    string
		fleet   []packing.Node
		demands []packing.Demand
	}{
		{
			"CPU and memory, nodes of two kinds", shapes(node(32, 64), node(16, 128)),
			[]packing.Demand{
				devices(4, 4, 0), devices(2, 16, 0), devices(1, 8, 0), devices(8, 16, 0),
				devices(1, 1, 0),
			},
		},
		{
			"CPU and memory, nodes of one kind", shapes(node(32, 128)),
			[]packing.Demand{
				devices(4, 4, 0), devices(2, 16, 0), devices(3, 24, 0), devices(8, 16, 0),
				devices(1, 1, 0),
			},
		},
		{
			"devices, nodes of two kinds",
			shapes(node(96, 512, 1000, 1000), node(64, 256, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000)),
			[]packing.Demand{
				devices(12, 32, 1), devices(4, 16, 1), devices(24, 64, 0), share(4, 16, 500),
				share(2, 8, 250), devices(4, 8, 1),
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var whole, fullest int64
			for seed := range uint64(5) {
				whole += stream(c.fleet, c.demands, true, seed)
				fullest += stream(c.fleet, c.demands, false, seed)
			}
			t.Logf("used: %d thousandths, by the fullest node %d", whole/5, fullest/5)
			if whole < fullest {
				t.Errorf("used: got %d thousandths, want at least %d as by the fullest node", whole/5, fullest/5)
			}
		})
	}
}
