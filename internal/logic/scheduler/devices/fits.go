package devices

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Fit is the result of a task class's device requests on the nodes of a device class.
type Fit struct {
	Known, Fits bool
	Shape       int32
	GroupValues []GroupValue // by device type that the value model knows; nil if the value model does not apply
}

// GroupValue is the value of a node's devices of one type before a task and after it.
type GroupValue struct{ Before, After packing.DeviceValue }

// Fits are the results for all task classes with equal requests, by device class.
type Fits struct {
	list  []Fit
	store []GroupValue // backs all GroupValues
	// Lacking says, by node class, that it lacks the devices even when unused; nil until the first user fills it in.
	Lacking []bool
}

// At returns the result for one of that many device classes. It is unknown until the caller fills it in. A later call
// with more device classes may move it.
func (f *Fits) At(i int32, classes int) *Fit {
	if len(f.list) < classes {
		f.list = append(f.list, make([]Fit, classes-len(f.list))...)
	}
	return &f.list[i]
}

// SetValues notes in a result what the devices of a node are worth before a task and after it.
func (f *Fits) SetValues(p *Fit, model *ValueModel, before, after []Group) {
	from := len(f.store)
	for i := range before {
		if before[i].TypeNumber >= 0 {
			w := model.OfType(before[i].TypeNumber).Values
			f.store = append(f.store, GroupValue{w.DeviceValue(before[i].Devices), w.DeviceValue(after[i].Devices)})
		}
	}
	p.GroupValues = slices.Clip(f.store[from:])
}

// FitCache holds the results of device requests in a cycle. Task classes with equal requests share them.
type FitCache struct{ byRequests map[string]*Fits }

// Of returns the results for requests, which may be empty yet. It returns the buffer for reuse.
func (f *FitCache) Of(requests []cluster.DeviceRequest, usesValueModel bool, buffer []byte) (*Fits, []byte) {
	buffer = append(buffer[:0], 0)
	if usesValueModel {
		buffer[0] = 1
	}
	for i := range requests {
		buffer = requestKey(buffer, &requests[i])
	}
	p := f.byRequests[string(buffer)]
	if p == nil {
		if f.byRequests == nil {
			f.byRequests = map[string]*Fits{}
		}
		p = &Fits{}
		f.byRequests[string(buffer)] = p
	}
	return p, buffer
}
