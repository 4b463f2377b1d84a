package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// rule is a strategy under test.
type rule interface {
	// arrive adds a pod, by its demand, before the pod is placed. It reports whether earlier scores are invalid.
	arrive(demand int) bool
	// score returns the cost of a placement, the lowest is the best, and the devices, as a bit each; false if it does
	// not fit.
	score(n *packing.Node, demand int) (uint64, uint64, bool)
}

// stage is a fleet on which pods are placed by some rule.
type stage interface {
	// arrive announces a pod, by its demand, before the pod is placed.
	arrive(demand int)
	// place places the pod; false if it fits nowhere.
	place(demand int) bool
	// nodes returns the free resources of the nodes at the end.
	nodes() []packing.Node
}

// outcome is what one replay came to.
type outcome struct {
	allocated float64 // devices, % of the fleet's
	dry       float64 // devices that are idle on nodes whose CPU is all but gone, % of the fleet's
	several   float64 // pods for several devices that were placed, % of those that arrived
	arrived   int     // pods
	placed    int
}

// Until the demand that has arrived is that many % of the fleet's devices, pods arrive.
const untilPercent = 130

// replay lets the pods arrive in a random order, then random pods, and places each. A pod that does not fit is dropped.
// At least one pod of the trace must request devices, or replay would not end.
func replay(t *trace, f stage, random *rand.Rand) outcome {
	order := slices.Clone(t.pods)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var out outcome
	var arrived, used int64
	var several, severalPlaced int
	capacity := t.capacity()
	for i := 0; arrived*100 < capacity*untilPercent; i++ {
		k := t.pods[random.IntN(len(t.pods))]
		if i < len(order) {
			k = order[i]
		}
		d := &t.demands[k]
		size := sizeOf(d)
		arrived += size
		out.arrived++
		f.arrive(k)
		if d.Devices > 1 {
			several++
		}
		if !f.place(k) {
			continue
		}
		used += size
		out.placed++
		if d.Devices > 1 {
			severalPlaced++
		}
	}
	out.allocated = percent(used, capacity)
	out.dry = percent(dry(f.nodes()), capacity)
	out.several = percent(int64(severalPlaced), int64(several))
	return out
}

func percent(x, all int64) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(x) / float64(all)
}

// sizeOf returns the requested devices of a demand, in thousandths.
func sizeOf(d *packing.Demand) int64 {
	if d.Share > 0 {
		return int64(d.Share)
	}
	return int64(d.Devices) * cluster.WholeDevice
}

// fleet holds nodes, and their scores for each demand. Only changed nodes are scored again.
type fleet struct {
	trace *trace
	rule  rule
	free  []packing.Node
	turns []int32 // how often a node changed
	known [][]known
}

type known struct {
	turn    int32 // 0: never scored
	fits    bool
	cost    uint64
	devices uint64
}

func newFleet(t *trace, r rule) *fleet {
	f := &fleet{
		trace: t, rule: r, free: slices.Clone(t.nodes), turns: make([]int32, len(t.nodes)),
		known: make([][]known, len(t.demands)),
	}
	for i := range f.free {
		f.free[i].Devices = slices.Clone(f.free[i].Devices)
		f.turns[i] = 1
	}
	return f
}

// arrive drops all scores if the rule invalidates them.
func (f *fleet) arrive(demand int) {
	if !f.rule.arrive(demand) {
		return
	}
	for _, k := range f.known {
		clear(k)
	}
}

func (f *fleet) nodes() []packing.Node { return f.free }

// place puts a pod on the node of the lowest cost, of equals the first.
func (f *fleet) place(demand int) bool {
	if f.known[demand] == nil {
		f.known[demand] = make([]known, len(f.free))
	}
	best, lowest := -1, uint64(math.MaxUint64)
	for i := range f.known[demand] {
		k := &f.known[demand][i]
		if k.turn != f.turns[i] {
			k.turn = f.turns[i]
			k.cost, k.devices, k.fits = f.rule.score(&f.free[i], demand)
		}
		if k.fits && k.cost < lowest {
			best, lowest = i, k.cost
		}
	}
	if best < 0 {
		return false
	}
	take(&f.free[best], &f.trace.demands[demand], f.known[demand][best].devices)
	f.turns[best]++
	return true
}

// take has the demand use the devices.
func take(n *packing.Node, d *packing.Demand, devices uint64) {
	n.FreeCPU -= d.CPU
	n.FreeMemory -= d.Memory
	share := cluster.WholeDevice
	if d.Share > 0 {
		share = d.Share
	}
	for i := range n.Devices {
		if devices>>i&1 == 1 {
			n.Devices[i].Free -= share
		}
	}
}

// dry returns the free devices, in thousandths, of nodes with less than a twentieth of their CPU free.
func dry(nodes []packing.Node) int64 {
	var sum int64
	for i := range nodes {
		n := &nodes[i]
		if n.FreeCPU*20 >= n.CPU {
			continue
		}
		for _, v := range n.Devices {
			sum += int64(v.Free)
		}
	}
	return sum
}
