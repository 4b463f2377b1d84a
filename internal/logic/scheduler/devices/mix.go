package devices

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// Mix learns what arriving tasks ask of devices, by device type: see package packing. The zero value is an empty mix.
// The owner of a fleet keeps it, and makes a new ValueModel when the fleet's is stale. A Mix is not for concurrent
// use.
type Mix struct{ types []typeMix }

// typeMix is the mix of one device type.
type typeMix struct {
	deviceType string
	models     []string // that requests name, by their number
	mix        packing.Mix
}

// Learn adds that many tasks with equal demands. Tasks without device requests add nothing. Call Learn once when tasks
// arrive, and at a new owner's start for the tasks that exist.
func (m *Mix) Learn(demand cluster.Demand, devices []cluster.DeviceRequest, tasks int) {
	demand = index.Clamp(demand)
	for i := range devices {
		r := WholeRequest(devices[i])
		all := int64(0) // thousandths of devices of this type
		for j := range devices {
			if o := WholeRequest(devices[j]); o.Type == r.Type {
				all += sizeOf(&o)
			}
		}
		// A task with several requests counts as several tasks, each with its part of the CPU and memory.
		own := func(amount int64) int64 {
			return amount / max(all/max(sizeOf(&r), 1), 1)
		}
		k := m.ofType(r.Type)
		d := k.demand(&r)
		d.CPU, d.Memory = cluster.MilliCPU(own(int64(demand.CPU))), cluster.Bytes(own(int64(demand.Memory)))
		k.mix.Learn(d, tasks)
	}
}

// sizeOf returns the size of a request in thousandths of a device.
func sizeOf(r *cluster.DeviceRequest) int64 {
	if r.Share > 0 {
		return int64(r.Share)
	}
	return int64(r.Count) * cluster.WholeDevice
}

func (m *Mix) ofType(kind string) *typeMix {
	i := slices.IndexFunc(m.types, func(k typeMix) bool { return k.deviceType == kind })
	if i < 0 {
		i = len(m.types)
		m.types = append(m.types, typeMix{deviceType: kind})
	}
	return &m.types[i]
}

// demand converts a request for package packing. New models get numbers.
func (k *typeMix) demand(r *cluster.DeviceRequest) packing.Demand {
	for _, model := range r.Models {
		if len(k.models) < otherModelNumber && !slices.Contains(k.models, model) {
			k.models = append(k.models, model)
		}
	}
	return demandOf(r, k.models)
}

// Stale reports whether the mix has learned so much since w was made that a new one should be made.
func (m *Mix) Stale(w *ValueModel) bool {
	if w == nil {
		return len(m.types) > 0
	}
	return len(m.types) != len(w.types) || slices.ContainsFunc(m.types, func(k typeMix) bool {
		i := w.Find(k.deviceType)
		return i < 0 || k.mix.Stale(w.types[i].Values)
	})
}

// ValueModel returns the value model of the present mix. It takes some milliseconds.
func (m *Mix) ValueModel() *ValueModel {
	w := &ValueModel{}
	for i := range m.types {
		k := &m.types[i]
		w.types = append(w.types, TypeValue{k.deviceType, slices.Clone(k.models), k.mix.ValueModel()})
	}
	return w
}
