package packing

import (
	"math/bits"

	"github.com/berthd/berth/internal/cluster"
)

// Bounds of a mix.
const (
	// MostTypical is how many different demands a mix tells apart.
	MostTypical = 96
	// memoryOf is how many tasks a mix remembers: beyond, what was is worth half.
	memoryOf = 1 << 14
	// grain is what one task weighs, so that halves are seen.
	grain = 16
	// meanBits are kept of each part of a mean beyond its unit.
	meanBits = 10
)

// Mix is what tasks ask for, learned from those that arrive. Demands that are nearly the same count as one. The zero
// value is an empty mix. It is a plain value: a copy is independent but for what Clone says. Not for concurrent use.
type Mix struct {
	typical []typical
	weight  int64 // of all
	learned int64 // tasks, ever
}

type typical struct {
	key    Demand // rounded
	weight int64
	// Means, exact to the rounding of a division.
	cpu, memory int64
}

// Clone returns an independent copy.
func (m *Mix) Clone() Mix {
	c := *m
	c.typical = append([]typical(nil), m.typical...)
	return c
}

// Learn adds so many tasks of a demand. Call it once when they arrive, and when a server begins, for those that are
// there. If the mix is full, the rarest demand makes place.
func (m *Mix) Learn(d Demand, tasks int) {
	if tasks <= 0 {
		return
	}
	more := int64(min(tasks, memoryOf)) * grain
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
	if m.weight > memoryOf*grain {
		m.fade()
	}
}

// fade halves all weights; what has none left is forgotten.
func (m *Mix) fade() {
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

// Stale reports whether so much was learned since the worth was made that another should be: at first after a few
// tasks, then more and more seldom.
func (m *Mix) Stale(w *Worth) bool {
	return w == nil || (m.learned-w.learned)*grain*2 > w.weight+32*grain
}

// Worth makes the tables for the mix as it is now. That takes some milliseconds for each set of models that demands
// tell apart.
func (m *Mix) Worth() *Worth {
	w := &Worth{learned: m.learned, weight: m.weight}
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
			wants := m.wants(&accepts)
			w.tables = append(w.tables, newTable(wants))
			for i := range wants {
				w.several = w.several || wants[i].devices > 1
			}
		}
		w.table[model] = uint8(at)
	}
	return w
}

// wants returns the demands that are accepted, their weights adding up to unit at most.
func (m *Mix) wants(accepts *[MostTypical]bool) []want {
	var all int64
	for i := range m.typical {
		if accepts[i] {
			all += m.typical[i].weight
		}
	}
	var wants []want
	for i := range m.typical {
		t := &m.typical[i]
		weight := int64(0)
		if accepts[i] {
			weight = scale(t.weight, unit, all)
		}
		if weight == 0 {
			continue
		}
		share := t.key.share()
		wants = append(wants, want{
			weight: weight, cpu: t.cpu, memory: t.memory, share: share, devices: t.key.Devices,
			room: int64(share) * int64(t.key.Devices),
		})
	}
	return wants
}

// rounded returns the demand by which similar ones are counted together: CPU and memory to an eighth of their size, a
// share as it is. Devices beyond MostDevices no node has.
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

// eighth keeps the three highest bits after the first.
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
