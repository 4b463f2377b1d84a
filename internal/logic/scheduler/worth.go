package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Mix is what tasks ask of devices, by their type, learned from those that arrive: see package packing. The zero value
// is an empty mix. It belongs to the owner of a fleet, who learns and makes a Worth of it anew when the one that the
// fleet has is stale. Not for concurrent use.
type Mix struct{ kinds []mixKind }

// mixKind is the mix of one type of devices.
type mixKind struct {
	kind   string
	models []string // that demands name, by their number
	mix    packing.Mix
}

// otherModel is the number of the models that no demand names, and of those that are too many to be told apart.
const otherModel = 63

// Learn adds so many tasks that ask for the same. Tasks that ask for no devices say nothing. Call it once when tasks
// arrive, and for those that stand when an owner begins.
func (m *Mix) Learn(demand cluster.Demand, devices []cluster.DeviceRequest, tasks int) {
	demand = clamp(demand)
	for i := range devices {
		r := wholeRequest(devices[i])
		all := int64(0) // of this type, in thousandths
		for j := range devices {
			if o := wholeRequest(devices[j]); o.Type == r.Type {
				all += sizeOf(&o)
			}
		}
		// a task with several requests counts as so many, each with its part of the rest
		own := func(amount int64) int64 {
			return amount / max(all/max(sizeOf(&r), 1), 1)
		}
		k := m.of(r.Type)
		d := k.demand(&r)
		d.CPU, d.Memory = cluster.MilliCPU(own(int64(demand.CPU))), cluster.Bytes(own(int64(demand.Memory)))
		k.mix.Learn(d, tasks)
	}
}

// sizeOf is how much a request is, in thousandths of a device.
func sizeOf(r *cluster.DeviceRequest) int64 {
	if r.Share > 0 {
		return int64(r.Share)
	}
	return int64(r.Count) * cluster.WholeDevice
}

func (m *Mix) of(kind string) *mixKind {
	i := slices.IndexFunc(m.kinds, func(k mixKind) bool { return k.kind == kind })
	if i < 0 {
		i = len(m.kinds)
		m.kinds = append(m.kinds, mixKind{kind: kind})
	}
	return &m.kinds[i]
}

// demand is what a request asks of devices, as packing knows it. New models get numbers.
func (k *mixKind) demand(r *cluster.DeviceRequest) packing.Demand {
	for _, model := range r.Models {
		if len(k.models) < otherModel && !slices.Contains(k.models, model) {
			k.models = append(k.models, model)
		}
	}
	return demandOf(r, k.models)
}

// demandOf is what a request asks of devices, where models are numbered so.
func demandOf(r *cluster.DeviceRequest, models []string) packing.Demand {
	d := packing.Demand{Devices: r.Count, DeviceMemory: r.Memory}
	if r.Share > 0 {
		d.Devices, d.Share = 1, r.Share
	}
	for _, model := range r.Models {
		d.Models |= 1 << modelNumber(models, model)
	}
	return d
}

func modelNumber(models []string, model string) uint8 {
	if i := slices.Index(models, model); i >= 0 {
		return uint8(i)
	}
	return otherModel
}

// Stale reports whether so much was learned since the worth was made that another should be made.
func (m *Mix) Stale(w *Worth) bool {
	if w == nil {
		return len(m.kinds) > 0
	}
	return len(m.kinds) != len(w.kinds) || slices.ContainsFunc(m.kinds, func(k mixKind) bool {
		i := w.find(k.kind)
		return i < 0 || k.mix.Stale(w.kinds[i].worth)
	})
}

// Worth returns what devices are worth to the mix as it is now. It takes some milliseconds.
func (m *Mix) Worth() *Worth {
	w := &Worth{}
	for i := range m.kinds {
		k := &m.kinds[i]
		w.kinds = append(w.kinds, worthKind{k.kind, slices.Clone(k.models), k.mix.Worth()})
	}
	return w
}

// Worth is what the devices of a node are worth to the tasks that are likely to come, for Fleet.SetWorth. It never
// changes and may be shared. Fleets that are equal and have the same worth are decided on alike, whoever decides.
type Worth struct{ kinds []worthKind }

type worthKind struct {
	kind   string
	models []string
	worth  *packing.Worth
}

// find returns the number of a type of devices, or -1.
func (w *Worth) find(kind string) int32 {
	if w == nil {
		return -1
	}
	return int32(slices.IndexFunc(w.kinds, func(k worthKind) bool { return k.kind == kind }))
}

// numbersAlike reports whether types and models have the same numbers in both.
func (w *Worth) numbersAlike(o *Worth) bool {
	if w == nil || o == nil {
		return w == o
	}
	return slices.EqualFunc(w.kinds, o.kinds, func(a, b worthKind) bool {
		return a.kind == b.kind && slices.Equal(a.models, b.models)
	})
}

// SetWorth says what devices are worth from now on; nil, as at first: nothing. It decides between nodes for tasks of
// the strategy whole and for those whose owner names no strategy, and which devices they get.
func (f *Fleet) SetWorth(w *Worth) {
	alike := f.worth.numbersAlike(w)
	f.worth = w
	if alike {
		return
	}
	for i := range f.slots {
		if s := &f.slots[i]; s.set && len(s.node.Devices) > 0 {
			s.bays = baysOf(&s.node, s.devices, w)
		}
	}
}

// Worth returns what SetWorth was last called with.
func (f *Fleet) Worth() *Worth { return f.worth }
