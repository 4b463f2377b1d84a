package devices

import (
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
	List       []Fit
	Store      []GroupValue // backs all GroupValues
	Deviceless []bool       // by node class: it lacks the devices even when unused
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
