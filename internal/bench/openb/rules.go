package main

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// strategies lists the compared strategies in the order of the table.
var strategies = []struct {
	name string
	make func(*trace, *rand.Rand) stage
}{
	{"random", func(t *trace, r *rand.Rand) stage { return newFleet(t, &randomly{t, r}) }},
	{"best fit", func(t *trace, _ *rand.Rand) stage { return newFleet(t, &bestFit{t}) }},
	{"FGD", func(t *trace, _ *rand.Rand) stage { return newFleet(t, newGradient(t)) }},
	{"Berth, by default", func(t *trace, _ *rand.Rand) stage { return newBerth(t, "") }},
	{"Berth, whole", func(t *trace, _ *rand.Rand) stage { return newBerth(t, cluster.StrategyWhole) }},
}

// randomly takes any node, and any device of it for a share.
type randomly struct {
	*trace
	random *rand.Rand
}

func (r *randomly) arrive(int) bool { return true }

func (r *randomly) score(n *packing.Node, demand int) (uint64, uint64, bool) {
	d := &r.demands[demand]
	devices, ok := tightest(n, d)
	if ok && d.Share > 0 {
		var fit []int
		for i, v := range n.Devices {
			if v.Free >= d.Share {
				fit = append(fit, i)
			}
		}
		devices = 1 << fit[r.random.IntN(len(fit))]
	}
	return r.random.Uint64() >> 1, devices, ok
}

// bestFit takes the node that has the least left, in parts of the largest node.
type bestFit struct{ *trace }

func (b *bestFit) arrive(int) bool { return false }

func (b *bestFit) score(n *packing.Node, demand int) (uint64, uint64, bool) {
	d := &b.demands[demand]
	devices, ok := tightest(n, d)
	if !ok {
		return 0, 0, false
	}
	var free int64
	for _, v := range n.Devices {
		free += int64(v.Free)
	}
	left := float64(n.FreeCPU-d.CPU)/128_000 + float64(n.FreeMemory-d.Memory)/(1<<40) + float64(free-sizeOf(d))/8000
	return uint64(left * 1e9), devices, true
}

// gradient is Fragmentation Gradient Descent as its authors run it (USENIX ATC 2023): the node where the expected share
// of devices that a typical pod cannot use grows least. The score is squashed to a whole number from 0 to 100, and the
// first of equals wins.
type gradient struct {
	*trace
	typical []typicalPod
}

type typicalPod struct {
	demand *packing.Demand
	weight float64
}

// newGradient takes the pods that make up 95 % of the list as typical. Unlike Berth it has the whole list beforehand.
func newGradient(t *trace) *gradient {
	counts := make([]int, len(t.demands))
	for _, k := range t.pods {
		counts[k]++
	}
	order := make([]int, len(counts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return counts[b] - counts[a] })
	g := &gradient{trace: t}
	sum := 0
	for _, k := range order {
		if sum*100 >= 95*len(t.pods) {
			break
		}
		sum += counts[k]
		g.typical = append(g.typical, typicalPod{&t.demands[k], float64(counts[k])})
	}
	for i := range g.typical {
		g.typical[i].weight /= float64(sum)
	}
	return g
}

func (g *gradient) arrive(int) bool { return false }

func (g *gradient) score(n *packing.Node, demand int) (uint64, uint64, bool) {
	d := &g.demands[demand]
	first, ok := tightest(n, d)
	if !ok {
		return 0, 0, false
	}
	devices := []uint64{first}
	if d.Share > 0 {
		devices = devices[:0]
		for i, v := range n.Devices {
			if v.Free >= d.Share {
				devices = append(devices, 1<<i)
			}
		}
	}
	before := g.unusable(n)
	best, use := math.Inf(1), uint64(0)
	after := *n
	for _, u := range devices {
		after.Devices = slices.Clone(n.Devices)
		after.FreeCPU, after.FreeMemory = n.FreeCPU, n.FreeMemory
		take(&after, d, u)
		if more := g.unusable(&after) - before; more < best {
			best, use = more, u
		}
	}
	return uint64(100 - int(100/(1+math.Exp(best/cluster.WholeDevice)))), use, true
}

// unusable returns the thousandths of free devices that a typical pod cannot use, on the mean.
func (g *gradient) unusable(n *packing.Node) float64 {
	var free int64
	for _, v := range n.Devices {
		free += int64(v.Free)
	}
	var sum float64
	for _, p := range g.typical {
		lost := free
		if _, ok := tightest(n, p.demand); ok && p.demand.Devices > 0 {
			lost = 0
			for _, v := range n.Devices {
				if v.Free < shareOf(p.demand) {
					lost += int64(v.Free)
				}
			}
		}
		sum += p.weight * float64(lost)
	}
	return sum
}

func shareOf(d *packing.Demand) int {
	if d.Share > 0 {
		return d.Share
	}
	return cluster.WholeDevice
}

// tightest returns the devices with the least left that have room for the demand; false if it does not fit.
func tightest(n *packing.Node, d *packing.Demand) (uint64, bool) {
	if d.CPU > n.FreeCPU || d.Memory > n.FreeMemory {
		return 0, false
	}
	var use uint64
	share := shareOf(d)
	for bits.OnesCount64(use) < d.Devices {
		best := -1
		for i, v := range n.Devices {
			if use>>i&1 == 0 && v.Free >= share && d.Models.Has(v.Model) &&
				(best < 0 || v.Free < n.Devices[best].Free) {
				best = i
			}
		}
		if best < 0 {
			return 0, false
		}
		use |= 1 << best
	}
	return use, true
}
