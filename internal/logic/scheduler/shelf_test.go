package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// deviceWorld is nodes with devices that change, drawn from a few numbers.
type deviceWorld struct {
	*rand.Rand
	fleet *Fleet
}

func (w *deviceWorld) node(name string) Node {
	n := Node{
		Name: name, State: cluster.NodeReady, Executors: []string{"process"}, Labels: cluster.Labels{"zone": string(rune('a' + w.IntN(3)))},
		Capacity: cluster.Demand{CPU: cluster.MilliCPU(8000 << w.IntN(2)), Memory: 64 * cluster.GiB},
	}
	mixed := w.IntN(3) > 0
	ids := w.Perm(6)
	for i := range w.IntN(6) {
		d := cluster.Device{ID: fmt.Sprint("d", ids[i]), Type: "gpu", Model: "A", Memory: 8 * cluster.GiB, Numa: i % 2}
		if mixed {
			d.Type, d.Model, d.Memory = []string{"gpu", "gpu", "fpga"}[w.IntN(3)], string(rune('A'+w.IntN(2))), cluster.Bytes(4+4*w.IntN(2))*cluster.GiB
		}
		n.Devices = append(n.Devices, d)
	}
	return n
}

func (w *deviceWorld) requests() (list []cluster.DeviceRequest) {
	for range 1 + w.IntN(2) {
		r := cluster.DeviceRequest{Count: 1 + w.IntN(2), OneNuma: w.IntN(4) == 0}
		if w.IntN(2) == 0 {
			r = cluster.DeviceRequest{Share: []int{100, 500, 1000}[w.IntN(3)], Memory: cluster.Bytes(w.IntN(3)) * cluster.GiB}
		}
		if w.IntN(4) == 0 {
			r.Models = []string{"A"}
		}
		if w.IntN(6) == 0 {
			r.Type = "fpga"
		}
		list = append(list, r)
	}
	return list
}

// change sets, removes, fills or empties a node.
func (w *deviceWorld) change(i int) {
	name, uuid := fmt.Sprint("n", w.IntN(12)), fmt.Sprint("u", w.IntN(30))
	switch {
	case i < 12:
		w.fleet.SetNode(w.node(fmt.Sprint("n", i)))
	case w.IntN(8) == 0:
		w.fleet.SetNode(w.node(name))
	case w.IntN(12) == 0:
		w.fleet.RemoveNode(name)
	case w.IntN(12) == 0 && w.fleet.catalog.labels["zone"] != nil:
		w.fleet.turnOver([]string{"zone"})
	case w.IntN(3) == 0:
		w.fleet.Release(uuid)
	default:
		u := cluster.DeviceUse{ID: fmt.Sprint("d", w.IntN(6)), Share: []int{100, 250, 1000}[w.IntN(3)], Memory: cluster.Bytes(w.IntN(2)) * cluster.GiB}
		w.fleet.Reserve(Reservation{
			UUID: uuid, Task: "c.x.1.0", Node: name, Devices: []cluster.DeviceUse{u}[:w.IntN(2)],
			Demand: cluster.Demand{CPU: cluster.MilliCPU(w.IntN(3000)), Memory: cluster.Bytes(w.IntN(16)) * cluster.GiB},
		})
	}
}

// TestShelves changes a fleet step by step: each node with devices is on one shelf, and what is said of a shelf holds for all nodes on it.
func TestShelves(t *testing.T) {
	shared := 0
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		w := &deviceWorld{rand.New(rand.NewPCG(seed, 3)), NewFleet()}
		var mix Mix
		for range w.IntN(4) {
			mix.Learn(cluster.Demand{CPU: cluster.MilliCPU(w.IntN(4000)), Memory: cluster.Bytes(w.IntN(16)) * cluster.GiB}, w.requests(), 1)
		}
		if mix.Stale(nil) {
			w.fleet.SetWorth(mix.Worth())
		}
		for i := range 60 {
			w.change(i)
		}
		f := w.fleet
		if w.IntN(2) == 0 {
			f = f.Clone()
		}
		p := cluster.Pending{Task: "c.t.1.0", Priority: 1, Demand: cluster.Demand{CPU: 500, Memory: cluster.GiB}, Devices: w.requests()}
		y := newCycle(f, []cluster.Pending{p}, Options{})
		y.classify([]int32{0})
		c := y.classOf[0]
		y.ready(c)
		seen := map[int32]bool{}
		for i := range f.catalog.shelves.list {
			root := f.catalog.shelves.list[i].tree.page
			y.visit(root, func(slot int32) {
				if seen[slot] || f.loads[slot].shelf != int32(i) || !f.slots[slot].set {
					t.Fatalf("%s is on a shelf where it does not belong", f.name(slot))
				}
				seen[slot] = true
				if c.shelvable() {
					samePrice(t, y, c, int32(i), slot)
				}
			})
			if root != nil && root.nodes() > 1 {
				shared++
			}
		}
		for slot := range f.names.all {
			if want := len(f.slots[slot].node.Devices) > 0; seen[slot] != want {
				t.Fatalf("%s is on a shelf: %v, want %v", f.name(slot), seen[slot], want)
			}
		}
	})
	if shared == 0 {
		t.Error("no two nodes were on one shelf")
	}
}

func samePrice(t *rapid.T, y *cycle, c *class, shelf, slot int32) {
	price := y.pricing(c, &y.fleet.catalog.shelves, shelf)
	if price.fits == y.lacksDevices(c, slot) {
		t.Fatalf("%s has the devices: %v, and its shelf %v", y.fleet.name(slot), !price.fits, price.fits)
	}
	free := y.load(slot).free()
	if !price.fits || len(price.bays) == 0 {
		return
	}
	s, r := &y.fleet.catalog.shelves.list[shelf], roster{}
	on := &r.bins[y.bin(&r, c, price, &s.tree, &s.span)]
	if got, want := on.loss(free, free), y.lossOf(c, slot); got != want {
		t.Fatalf("%s loses %d, by its shelf %d", y.fleet.name(slot), want, got)
	}
}
