package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Worth is a value model: what the devices of a node are worth to the tasks that are likely to come. It never changes
// and may be shared. Equal fleets with equal Worths lead to equal decisions.
type ValueModel struct{ types []typeValue }

type typeValue struct {
	deviceType string
	models     []string
	values     *packing.ValueModel
}

// otherModelNumber stands for models that no request names, and for those beyond the first 63.
const otherModelNumber = 63

// find returns the number of a device type, or -1.
func (w *ValueModel) find(kind string) int32 {
	if w == nil {
		return -1
	}
	return int32(slices.IndexFunc(w.types, func(k typeValue) bool { return k.deviceType == kind }))
}

// ofType returns the values of a type by its number.
func (w *ValueModel) ofType(number int32) *typeValue { return &w.types[number] }

// sameNumbering reports whether types and models have equal numbers in both.
func (w *ValueModel) sameNumbering(o *ValueModel) bool {
	if w == nil || o == nil {
		return w == o
	}
	return slices.EqualFunc(w.types, o.types, func(a, b typeValue) bool {
		return a.deviceType == b.deviceType && slices.Equal(a.models, b.models)
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
