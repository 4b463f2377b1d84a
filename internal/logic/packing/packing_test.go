package packing_test

import (
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

const gib = 1 << 30

// node has the given free CPU and memory, and a device for each free share.
func node(cpu, memory int64, free ...int) packing.Node {
	n := packing.Node{
		CPU: cluster.MilliCPU(cpu * 1000), FreeCPU: cluster.MilliCPU(cpu * 1000),
		Memory: cluster.Bytes(memory * gib), FreeMemory: cluster.Bytes(memory * gib),
	}
	for _, f := range free {
		n.Devices = append(n.Devices, packing.Device{Free: f})
	}
	return n
}

func devices(cpu, memory int64, count int) packing.Demand {
	return packing.Demand{CPU: cluster.MilliCPU(cpu * 1000), Memory: cluster.Bytes(memory * gib), Devices: count}
}

func share(cpu, memory int64, thousandths int) packing.Demand {
	d := devices(cpu, memory, 1)
	d.Share = thousandths
	return d
}

// mixed is a mix of tasks with and without devices, with much and with little CPU beside them.
func mixed() *packing.Mix {
	var m packing.Mix
	m.Learn(devices(10, 40, 1), 40)
	m.Learn(devices(4, 8, 1), 20)
	m.Learn(share(4, 8, 500), 30)
	m.Learn(share(2, 4, 200), 10)
	m.Learn(devices(80, 320, 8), 2)
	m.Learn(devices(16, 64, 0), 15)
	return &m
}

// TestPreferences checks which of two feasible nodes is better.
func TestPreferences(t *testing.T) {
	lean, rich := node(24, 400, 1000, 1000), node(96, 400, 1000, 1000)
	used := func(n packing.Node, cpu, memory int64) packing.Node {
		n.FreeCPU -= cluster.MilliCPU(cpu * 1000)
		n.FreeMemory -= cluster.Bytes(memory * gib)
		return n
	}
	for _, c := range []struct {
		name          string
		demand        packing.Demand
		better, worse packing.Node
	}{
		{"no device: where there are none", devices(8, 16, 0), node(32, 128), lean},
		{"no device: where CPU is left over beside devices", devices(8, 16, 0), rich, lean},
		{"no device: where the devices are used up", devices(8, 16, 0), node(24, 400, 0, 0), lean},
		{"much CPU beside a device: where there is much of it", devices(14, 40, 1), rich, lean},
		{"little CPU beside a device: where there is little of it", devices(4, 8, 1), lean, rich},
		{"a share: where one is left that fits exactly", share(4, 8, 500), node(96, 400, 500), node(96, 400, 1000)},
		{
			"one device: not from a set that could stay together", devices(4, 8, 1),
			node(96, 400, 1000, 0, 0, 0, 0, 0, 0, 0), node(96, 400, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000),
		},
		{"of equals the fullest", devices(2, 8, 0), used(node(32, 128), 16, 64), node(32, 128)},
		{"memory where CPU is gone anyway", devices(1, 32, 0), used(node(32, 128), 28, 32), node(32, 128)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := mixed().ValueModel()
			better, ok := w.Score(&c.better, &c.demand)
			if !ok {
				t.Fatal("the better node does not fit")
			}
			worse, ok := w.Score(&c.worse, &c.demand)
			if !ok {
				t.Fatal("the worse node does not fit")
			}
			if better.Cost >= worse.Cost {
				t.Errorf("cost of the better node: got %d, want less than %d", better.Cost, worse.Cost)
			}
		})
	}
}

// TestDevices checks which devices of a node are used.
func TestDevices(t *testing.T) {
	withMemory := node(32, 128, 1000, 1000, 1000)
	withMemory.Devices[0].Memory, withMemory.Devices[1].Memory, withMemory.Devices[2].Memory = 80*gib, 16*gib, 40*gib
	needsMemory := devices(1, 1, 1)
	needsMemory.DeviceMemory = 20 * gib
	models := node(32, 128, 1000, 1000)
	models.Devices[0].Model, models.Devices[1].Model = 3, 5
	onlyFive := devices(1, 1, 1)
	onlyFive.Models = 1 << 5
	for _, c := range []struct {
		name   string
		node   packing.Node
		demand packing.Demand
		want   uint64
	}{
		{"none", node(32, 128, 1000), devices(1, 1, 0), 0},
		{"a share where it fits exactly", node(32, 128, 1000, 700, 500), share(1, 1, 500), 1 << 2},
		{"whole ones past those in use", node(32, 128, 1000, 500, 1000, 1000), devices(1, 1, 2), 1 | 1<<2},
		{"the least sufficient memory", withMemory, needsMemory, 1 << 2},
		{"a suitable model", models, onlyFive, 1 << 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := mixed().ValueModel().Score(&c.node, &c.demand)
			if !ok || got.Devices != c.want {
				t.Errorf("devices: got %b, %t, want %b", got.Devices, ok, c.want)
			}
		})
	}
}

// TestDoesNotFit requests more than nodes have.
func TestDoesNotFit(t *testing.T) {
	n := node(8, 16, 1000, 400)
	big := share(1, 1, 300)
	big.DeviceMemory = gib
	other := devices(1, 1, 1)
	other.Models = 1 << 7
	for name, d := range map[string]packing.Demand{
		"CPU": devices(9, 1, 0), "memory": devices(1, 17, 0), "devices": devices(1, 1, 2),
		"device memory": big, "model": other,
	} {
		if _, ok := mixed().ValueModel().Score(&n, &d); ok {
			t.Errorf("%s: got a place, want none", name)
		}
	}
}

func anyDemand(t *rapid.T) packing.Demand {
	d := packing.Demand{
		CPU:     cluster.MilliCPU(rapid.Int64Range(0, 128_000).Draw(t, "cpu")),
		Memory:  cluster.Bytes(rapid.Int64Range(0, 1<<41).Draw(t, "memory")),
		Devices: rapid.IntRange(0, 8).Draw(t, "devices"),
		Models:  packing.Models(rapid.SampledFrom([]uint64{0, 0, 1, 2, 3}).Draw(t, "models")),
	}
	if d.Devices == 1 {
		d.Share = rapid.IntRange(0, cluster.WholeDevice).Draw(t, "share")
		d.DeviceMemory = cluster.Bytes(rapid.Int64Range(0, 2).Draw(t, "device memory"))
	}
	return d
}

func anyNode(t *rapid.T) packing.Node {
	n := packing.Node{
		CPU:    cluster.MilliCPU(rapid.Int64Range(0, 1<<20).Draw(t, "cpu")),
		Memory: cluster.Bytes(rapid.Int64Range(0, 1<<44).Draw(t, "memory")),
	}
	n.FreeCPU = cluster.MilliCPU(rapid.Int64Range(-5, int64(n.CPU)).Draw(t, "free cpu"))
	n.FreeMemory = cluster.Bytes(rapid.Int64Range(-5, int64(n.Memory)).Draw(t, "free memory"))
	for range rapid.IntRange(0, 20).Draw(t, "count") {
		n.Devices = append(n.Devices, packing.Device{
			Free:   rapid.SampledFrom([]int{1000, 0, rapid.IntRange(0, 1000).Draw(t, "free")}).Draw(t, "which"),
			Memory: cluster.Bytes(rapid.Int64Range(0, 4).Draw(t, "device memory")),
			Model:  rapid.Uint8Range(0, 2).Draw(t, "model"),
		})
	}
	return n
}

func anyMix(t *rapid.T) *packing.Mix {
	var m packing.Mix
	for range rapid.IntRange(0, 12).Draw(t, "learned") {
		m.Learn(anyDemand(t), rapid.IntRange(0, 100).Draw(t, "tasks"))
	}
	return &m
}

// TestChoice checks that chosen devices have room and satisfy the demand, and that no feasible node is refused. Costs
// stay in range, and results repeat.
func TestChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, n, d := anyMix(t).ValueModel(), anyNode(t), anyDemand(t)
		share := cluster.WholeDevice
		if d.Share > 0 {
			share = d.Share
		}
		room := 0
		for i, v := range n.Devices {
			ok := v.Free >= share && v.Memory >= d.DeviceMemory && d.Models.Has(v.Model)
			if ok {
				room++
			}
			if c, _ := w.Score(&n, &d); c.Devices>>i&1 == 1 && !ok {
				t.Fatalf("device %d %+v does not satisfy %+v", i, v, d)
			}
		}
		got, ok := w.Score(&n, &d)
		want := d.CPU <= max(n.FreeCPU, 0) && d.Memory <= max(n.FreeMemory, 0) && room >= d.Devices
		if ok != want {
			t.Fatalf("fits: got %t, want %t", ok, want)
		}
		if !ok {
			return
		}
		if count := bits.OnesCount64(got.Devices); count != d.Devices {
			t.Fatalf("devices: got %d, want %d", count, d.Devices)
		}
		if got.Cost >= 1<<packing.CostBits {
			t.Fatalf("cost %d is beyond its bound", got.Cost)
		}
		if again, _ := w.Score(&n, &d); again != got {
			t.Fatalf("again: got %+v, want %+v", again, got)
		}
	})
}

// TestSameForAll checks that a value model depends only on what was learned, and a cost not on the order of devices.
func TestSameForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n, d := anyMix(t), anyNode(t), anyDemand(t)
		first, ok := m.ValueModel().Score(&n, &d)
		other := m.Clone()
		m.Learn(anyDemand(t), 5)
		second, ok2 := other.ValueModel().Score(&n, &d)
		if first != second || ok != ok2 {
			t.Fatalf("a copy: got %+v, %t, want %+v, %t", second, ok2, first, ok)
		}
		for i := range n.Devices {
			n.Devices[i].Model = 0
		}
		straight, _ := other.ValueModel().Score(&n, &d)
		turned := n
		turned.Devices = rapid.Permutation(n.Devices).Draw(t, "turned")
		again, _ := other.ValueModel().Score(&turned, &d)
		if again.Cost != straight.Cost {
			t.Fatalf("devices in another order: got cost %d, want %d", again.Cost, straight.Cost)
		}
	})
}

// TestScoreAllocatesNothing checks that Score does not allocate.
func TestScoreAllocatesNothing(t *testing.T) {
	w, n, d := mixed().ValueModel(), node(96, 384, 1000, 1000, 500, 0), share(4, 8, 300)
	if got := testing.AllocsPerRun(100, func() { _, _ = w.Score(&n, &d) }); got != 0 {
		t.Errorf("allocations: got %v, want 0", got)
	}
}
