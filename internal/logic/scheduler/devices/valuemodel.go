package devices

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// ValueModel is what the devices of a node are worth to the tasks that are likely to come. It never changes and may be
// shared. Equal fleets with equal models lead to equal decisions.
type ValueModel struct{ types []TypeValue }

// TypeValue is the value of the devices of one type. Requests name models by their index in Models.
type TypeValue struct {
	deviceType string
	Models     []string
	Values     *packing.ValueModel
}

// otherModelNumber represents models that no request names, and for those beyond the first 63.
const otherModelNumber = 63

// Find returns the number of a device type, or -1.
func (w *ValueModel) Find(kind string) int32 {
	if w == nil {
		return -1
	}
	return int32(slices.IndexFunc(w.types, func(k TypeValue) bool { return k.deviceType == kind }))
}

// OfType returns the values of a type by its number.
func (w *ValueModel) OfType(number int32) *TypeValue { return &w.types[number] }

// SameNumbering reports whether types and models have equal numbers in both.
func (w *ValueModel) SameNumbering(o *ValueModel) bool {
	if w == nil || o == nil {
		return w == o
	}
	return slices.EqualFunc(w.types, o.types, func(a, b TypeValue) bool {
		return a.deviceType == b.deviceType && slices.Equal(a.Models, b.Models)
	})
}

// demandOf converts a request for package packing, with models numbered by their index.
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
	return otherModelNumber
}
