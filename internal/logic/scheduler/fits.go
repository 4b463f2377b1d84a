package scheduler

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// deviceFit is the result of a task class's device requests on the nodes of a device class.
type deviceFit struct {
	known, fits bool
	shape       int32
	groupValues []groupValue // by device type that the value model knows; nil if the value model does not apply
}

type groupValue struct{ before, after packing.DeviceValue }

// deviceFits are the results for all task classes with equal requests, by device class.
type deviceFits struct {
	list       []deviceFit
	store      []groupValue // backs all groupValues
	deviceless []bool       // by node class: it lacks the devices even when unused
}

// fitCache holds the results of device requests in a cycle. Task classes with equal requests share them.
type fitCache struct{ byRequests map[string]*deviceFits }

// of returns the results for requests, which may be empty yet. It returns the buffer for reuse.
func (f *fitCache) of(requests []cluster.DeviceRequest, usesValueModel bool, buffer []byte) (*deviceFits, []byte) {
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
			f.byRequests = map[string]*deviceFits{}
		}
		p = &deviceFits{}
		f.byRequests[string(buffer)] = p
	}
	return p, buffer
}
