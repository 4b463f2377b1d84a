package packing

import (
	"math/bits"

	"github.com/berthd/berth/internal/cluster"
)

// Limits of a mix.
const (
	// MostTypical is the largest number of different demands in a mix.
	MostTypical = 96
	// maxRemembered is the number of tasks beyond which all weights are halved.
	maxRemembered = 1 << 14
	// taskWeight is the weight of one task; it keeps halves exact.
	taskWeight = 16
	// meanBits is the number of fractional bits in sums of means.
	meanBits = 10
)

// Mix is the demands of arriving tasks, with weights. Similar demands count as one. The zero value is an empty mix. It
// must be copied with Clone, and is not for concurrent use.
type Mix struct {
	typical []typical
	weight  int64 // sum of the weights
	learned int64 // number of tasks ever learned
}

type typical struct {
	key    Demand // rounded
	weight int64
	// Running means, with the rounding errors of their divisions.
	cpu, memory int64
}

// Clone returns an independent copy.
func (m *Mix) Clone() Mix {
	c := *m
	c.typical = append([]typical(nil), m.typical...)
	return c
}

// Learn adds that many tasks of a demand. Call it once when they arrive, and at a server's start for the tasks that
// exist. If the mix is full, the demand replaces the rarest one.
func (m *Mix) Learn(d Demand, tasks int) {
	if tasks <= 0 {
		return
	}
	more := int64(min(tasks, maxRemembered)) * taskWeight
	m.learned += int64(tasks)
	key := rounded(d)
	at, rarest := -1, 0
	for i := range m.typical {
		if m.typical[i].key == key {
			at = i
			break
		}
		if m.typical[i].weight < m.typical[rarest].weight {
			rarest = i
		}
	}
	switch {
	case at >= 0:
	case len(m.typical) < MostTypical:
		m.typical = append(m.typical, typical{key: key})
		at = len(m.typical) - 1
	default:
		at = rarest
		m.weight -= m.typical[at].weight
		m.typical[at] = typical{key: key}
	}
	t := &m.typical[at]
	t.weight += more
	m.weight += more
	t.cpu += scaled(int64(d.CPU)-t.cpu, more, t.weight)
	t.memory += scaled(int64(d.Memory)-t.memory, more, t.weight)
	if m.weight > maxRemembered*taskWeight {
		m.halveWeights()
	}
}

// halveWeights halves all weights, and forgets demands without weight.
func (m *Mix) halveWeights() {
	kept := m.typical[:0]
	m.weight = 0
	for _, t := range m.typical {
		if t.weight /= 2; t.weight > 0 {
			kept = append(kept, t)
			m.weight += t.weight
		}
	}
	m.typical = kept
}

// Stale reports whether so much was learned since w was made that a new value model should be made: at first after few
// tasks, then less and less often.
func (m *Mix) Stale(w *ValueModel) bool {
	return w == nil || (m.learned-w.learned)*taskWeight*2 > w.weight+32*taskWeight
}

// ValueModel makes the value model of the present mix. It takes some milliseconds for each set of models that demands
// distinguish.
func (m *Mix) ValueModel() *ValueModel {
	w := &ValueModel{learned: m.learned, weight: m.weight}
	if m.weight > 0 {
		var cpu, memory int64
		for i := range m.typical {
			t := &m.typical[i]
			cpu += scale(t.cpu, t.weight<<meanBits, m.weight)
			memory += scale(t.memory, t.weight<<meanBits, m.weight)
		}
		w.meanCPU, w.meanMemory = max(cpu>>meanBits, 1), max(memory>>meanBits, 1)
	}
	var sets [][MostTypical]bool
	for model := range w.table {
		var accepts [MostTypical]bool
		for i := range m.typical {
			k := &m.typical[i].key
			accepts[i] = k.Devices > 0 && k.Models.Has(uint8(model))
		}
		at := 0
		for at < len(sets) && sets[at] != accepts {
			at++
		}
		if at == len(sets) {
			sets = append(sets, accepts)
			demands := m.typicalDemands(&accepts)
			w.tables = append(w.tables, newValueTable(demands))
			for i := range demands {
				w.hasSeveral = w.hasSeveral || demands[i].devices > 1
			}
		}
		w.table[model] = uint8(at)
	}
	return w
}

// typicalDemands returns the accepted demands, with weights that sum to at most weightUnit.
func (m *Mix) typicalDemands(accepts *[MostTypical]bool) []typicalDemand {
	var all int64
	for i := range m.typical {
		if accepts[i] {
			all += m.typical[i].weight
		}
	}
	var demands []typicalDemand
	for i := range m.typical {
		t := &m.typical[i]
		weight := int64(0)
		if accepts[i] {
			weight = scale(t.weight, weightUnit, all)
		}
		if weight == 0 {
			continue
		}
		share := t.key.share()
		demands = append(demands, typicalDemand{
			weight: weight, cpu: t.cpu, memory: t.memory, share: share, devices: t.key.Devices,
			room: int64(share) * int64(t.key.Devices),
		})
	}
	return demands
}

// rounded returns the demand under which similar demands are counted: CPU and memory rounded to an eighth of their
// size, shares exact. No node has more than MostDevices devices.
func rounded(d Demand) Demand {
	r := Demand{CPU: cluster.MilliCPU(eighth(int64(d.CPU))), Memory: cluster.Bytes(eighth(int64(d.Memory)))}
	if d.Devices > 0 {
		r.Devices, r.Share, r.Models = min(d.Devices, MostDevices), min(d.share(), cluster.WholeDevice), d.Models
	}
	if r.Devices > 1 {
		r.Share = cluster.WholeDevice
	}
	return r
}

// eighth keeps the four highest bits.
func eighth(x int64) int64 {
	if x <= 0 {
		return 0
	}
	drop := max(bits.Len64(uint64(x))-4, 0)
	return x >> drop << drop
}

// scaled is scale for an x that may be negative.
func scaled(x, by, of int64) int64 {
	if x < 0 {
		return -scale(-x, by, of)
	}
	return scale(x, by, of)
}
