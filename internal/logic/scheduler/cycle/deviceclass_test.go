package cycle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// deviceWorld is a fleet of nodes with changing devices, drawn from few numbers.
type deviceWorld struct {
	*rand.Rand
	fleet *fleet.Fleet
}

func (w *deviceWorld) node(name string) fleet.Node {
	n := fleet.Node{
		Name: name, State: cluster.NodeReady, Executors: []string{"process"},
		Labels:   cluster.Labels{"zone": string(rune('a' + w.IntN(3)))},
		Capacity: cluster.Demand{CPU: cluster.MilliCPU(8000 << w.IntN(2)), Memory: 64 * cluster.GiB},
	}
	mixed := w.IntN(3) > 0
	ids := w.Perm(6)
	for i := range w.IntN(6) {
		d := cluster.Device{ID: fmt.Sprint("d", ids[i]), Type: "gpu", Model: "A", Memory: 8 * cluster.GiB, Numa: i % 2}
		if mixed {
			d.Type, d.Model, d.Memory = []string{"gpu", "gpu", "fpga"}[w.IntN(3)], string(rune('A'+w.IntN(2))),
				cluster.Bytes(4+4*w.IntN(2))*cluster.GiB
		}
		n.Devices = append(n.Devices, d)
	}
	return n
}

func (w *deviceWorld) requests() (list []cluster.DeviceRequest) {
	for range 1 + w.IntN(2) {
		r := cluster.DeviceRequest{Count: 1 + w.IntN(2), OneNuma: w.IntN(4) == 0}
		if w.IntN(2) == 0 {
			r = cluster.DeviceRequest{
				Share:  []int{100, 500, 1000}[w.IntN(3)],
				Memory: cluster.Bytes(w.IntN(3)) * cluster.GiB,
			}
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
	case w.IntN(12) == 0:
		w.fleet.SwitchFineLabels([]string{"zone"})
	case w.IntN(3) == 0:
		w.fleet.Release(uuid)
	default:
		u := cluster.DeviceUse{
			ID: fmt.Sprint("d", w.IntN(6)), Share: []int{100, 250, 1000}[w.IntN(3)],
			Memory: cluster.Bytes(w.IntN(2)) * cluster.GiB,
		}
		w.fleet.Reserve(fleet.Reservation{
			UUID: uuid, Task: "c.x.1.0", Node: name, Devices: []cluster.DeviceUse{u}[:w.IntN(2)],
			Demand: cluster.Demand{
				CPU:    cluster.MilliCPU(w.IntN(3000)),
				Memory: cluster.Bytes(w.IntN(16)) * cluster.GiB,
			},
		})
	}
}

// TestDeviceClasses changes a fleet step by step. Each node with devices is in one device class, and the fit and bounds
// of the class hold for all its nodes.
func TestDeviceClasses(t *testing.T) {
	shared := 0
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		w := &deviceWorld{rand.New(rand.NewPCG(seed, 3)), fleet.New()}
		var mix devices.Mix
		for range w.IntN(4) {
			mix.Learn(cluster.Demand{
				CPU:    cluster.MilliCPU(w.IntN(4000)),
				Memory: cluster.Bytes(w.IntN(16)) * cluster.GiB,
			}, w.requests(), 1)
		}
		if mix.Stale(nil) {
			w.fleet.SetDeviceValueModel(mix.ValueModel())
		}
		for i := range 60 {
			w.change(i)
		}
		f := w.fleet
		if w.IntN(2) == 0 {
			f = f.Clone()
		}
		p := cluster.Pending{
			Task: "c.t.1.0", Priority: 1, Demand: cluster.Demand{CPU: 500, Memory: cluster.GiB},
			Devices: w.requests(),
		}
		y := New(f, []cluster.Pending{p}, taskclass.Options{})
		y.Classes.Classify([]int32{0})
		c := y.Classes.At[0]
		y.Preparer.Prepare(c)
		seen := map[int32]bool{}
		for i := range f.Catalog.DeviceClasses.List {
			root := f.Catalog.DeviceClasses.List[i].Tree.Page
			root.Visit(func(slot int32) {
				if seen[slot] || y.Nodes.Load(slot).DeviceClass != int32(i) || f.ClassOf(slot) < 0 {
					t.Fatalf("%s is in a wrong device class", f.Name(slot))
				}
				seen[slot] = true
				if c.FitsByDeviceClass() {
					sameDeviceFit(t, y, c, int32(i), slot)
				}
			})
			if root != nil && root.Nodes() > 1 {
				shared++
			}
		}
		for slot := range f.Names.All {
			if want := len(y.Nodes.Node(slot).Devices) > 0; seen[slot] != want {
				t.Fatalf("%s is in a device class: %v, want %v", f.Name(slot), seen[slot], want)
			}
		}
	})
	if shared == 0 {
		t.Error("no two nodes were in one device class")
	}
}

func sameDeviceFit(t *rapid.T, y *Cycle, c *taskclass.Class, class, slot int32) {
	fit := y.Eval.DeviceFit(c, &y.Nodes.Fleet.Catalog.DeviceClasses, class)
	if fit.Fits == y.Eval.MissesDevices(c, slot) {
		t.Fatalf("%s has the devices: %v, by its device class %v", y.Nodes.Fleet.Name(slot), !fit.Fits, fit.Fits)
	}
	free := y.Nodes.Load(slot).Free()
	if !fit.Fits || len(fit.GroupValues) == 0 {
		return
	}
	s, r := &y.Nodes.Fleet.Catalog.DeviceClasses.List[class], rank.CandidateHeap{}
	on := &r.Costs[y.Search.heaps.deviceClassCost(&r, c, fit, &s.Tree, &s.Span)]
	if got, want := on.MinLoss(free, free), y.Eval.ValueLoss(c, slot); got != want {
		t.Fatalf("%s loses %d, by its device class %d", y.Nodes.Fleet.Name(slot), want, got)
	}
}

// TestManyNodesOfADeviceClass uses a fleet with many nodes in few device classes, which differ in CPU, memory and
// running tasks. Each task gets the node that a scan of all nodes finds. It does so alone in its class or not, and
// again after other placements.
func TestManyNodesOfADeviceClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		w := &deviceWorld{rand.New(rand.NewPCG(seed, 4)), fleet.New()}
		ample := w.IntN(3) // with few of it nodes lose value by missing CPU or memory
		for i := range 100 + w.IntN(300) {
			n := fleet.Node{
				Name: fmt.Sprint("n", w.IntN(10), i), State: cluster.NodeReady, Executors: []string{"process"},
				Labels: cluster.Labels{"zone": string(rune('a' + w.IntN(2)))},
				Capacity: cluster.Demand{
					CPU:    cluster.MilliCPU(16_000<<(3*ample) + w.IntN(3)),
					Memory: 64 << (3 * ample) * cluster.GiB,
				},
			}
			for d := range 2 + 2*w.IntN(2) {
				n.Devices = append(n.Devices, cluster.Device{ID: fmt.Sprint("d", d), Type: "gpu", Numa: d % 2})
			}
			w.fleet.SetNode(n)
			r := fleet.Reservation{UUID: n.Name, Task: "c.x.1.0", Node: n.Name}
			r.Demand = cluster.Demand{
				CPU:    cluster.MilliCPU(w.IntN(9) * 800),
				Memory: cluster.Bytes(w.IntN(20)) * cluster.GiB,
			}
			if w.IntN(4) > 0 {
				r.Devices = []cluster.DeviceUse{{ID: "d0", Share: []int{250, 500, 1000}[w.IntN(3)]}}
			}
			w.fleet.Reserve(r)
		}
		var mix devices.Mix
		for range w.IntN(30) {
			mix.Learn(w.demand(), w.request(), 1+w.IntN(5))
		}
		if mix.Stale(nil) {
			w.fleet.SetDeviceValueModel(mix.ValueModel())
		}
		var pending []cluster.Pending
		for i := range 12 {
			p := cluster.Pending{
				Task: cluster.TaskID(fmt.Sprintf("c.t%d.1.0", i)), Priority: 1, Demand: w.demand(),
				Devices: w.request(),
			}
			p.Placement.Strategy = []cluster.Strategy{
				"", cluster.StrategyWhole, cluster.StrategyWhole,
				cluster.StrategySpread, cluster.StrategyBinpack,
			}[w.IntN(5)]
			if w.IntN(4) == 0 {
				p.Placement.Affinities = []cluster.Affinity{
					{Constraint: cluster.Constraint{Attribute: "label.zone", Value: "a"}, Weight: 10},
				}
			}
			for j := range 1 + i%3 {
				p.Task = cluster.TaskID(fmt.Sprintf("c.t%d.1.%d", i, j))
				pending = append(pending, p)
			}
		}
		order, _ := Order(pending, time.Time{})
		y := New(w.fleet, pending, taskclass.Options{Search: taskclass.SearchByTrees})
		y.Start(order)
		for i, at := range order {
			c := y.Classes.At[i]
			got, want := y.Search.Best(c), rank.RankedNode{Slot: -1}
			for slot := range w.fleet.Names.All {
				want = y.Eval.Judge(c, slot, want)
			}
			if got != want.Slot {
				t.Fatalf("%s with %v and %v: got node %d, want %d of rank %v", pending[at].Task, c.Demand,
					c.Devices.Requests, got, want.Slot, want.Rank)
			}
			if got >= 0 {
				y.Place(c, got, int(at))
			}
			y.FinishTask(c, 1)
		}
	})
}

func (w *deviceWorld) demand() cluster.Demand {
	return cluster.Demand{CPU: cluster.MilliCPU(w.IntN(6) * 700), Memory: cluster.Bytes(w.IntN(12)) * cluster.GiB}
}

func (w *deviceWorld) request() []cluster.DeviceRequest {
	if w.IntN(5) == 0 {
		return nil
	}
	return []cluster.DeviceRequest{{Share: []int{0, 100, 250, 500, 800}[w.IntN(5)]}}
}
