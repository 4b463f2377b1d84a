package cluster

import (
	"cmp"
	"slices"
)

// DefaultDeviceType is the type of device that is meant where a request names none.
const DefaultDeviceType = "gpu"

// CoreType is the type of the devices that are whole CPUs of a node. Tasks hold them by Resources.Pinning and never
// request them as devices.
const CoreType = "core"

// Devices returns the devices that a task of this definition reserves: the sum over its long-running containers, or,
// for each kind, the request of an init container if that is more.
//
// Requests of one kind (type and models) are adjacent, in the order of the containers: whole devices first, the most
// memory first, then shares, the largest first. The result does not depend on defaults, and is nil for a definition
// without devices. It shares only the models with the definition.
func (d *TaskDefinition) Devices() []DeviceRequest {
	var kinds []deviceKind
	for i := range d.Containers {
		if c := &d.Containers[i]; !c.Init {
			kinds = addUnits(kinds, c.Resources.requests())
		}
	}
	for i := range d.Containers {
		if c := &d.Containers[i]; c.Init {
			kinds = maxOfEach(kinds, addUnits(nil, c.Resources.requests()))
		}
	}
	var out []DeviceRequest
	for _, k := range kinds {
		first := len(out)
		for _, u := range k.sorted() {
			if last := len(out) - 1; last >= first && u.Share == 0 && out[last].Share == 0 &&
				out[last].Memory == u.Memory {
				out[last].Count++
				continue
			}
			out = append(out, u)
		}
	}
	return out
}

// wholeDevices returns how many devices a task of the definition requests, shares not counted, or a number above
// MaxDevices if there are more.
func (d *TaskDefinition) wholeDevices() int {
	n := 0
	for i := range d.Containers {
		for _, r := range d.Containers[i].Resources.requests() {
			if r.Share == 0 {
				n += max(0, min(r.Count, MaxDevices+1))
			}
		}
	}
	return n
}

// requests returns the container's device requests: its own and one for its pinned CPUs.
func (r *Resources) requests() []DeviceRequest {
	cores := r.Cores()
	if cores == 0 {
		return r.Devices
	}
	all := append(make([]DeviceRequest, 0, len(r.Devices)+1), r.Devices...)
	all = append(all, DeviceRequest{Type: CoreType, Count: cores})
	for i := range all {
		all[i].OneNuma = r.CPUPinning == PinNuma
	}
	return all
}

// Cores returns how many CPUs the container has to itself.
func (r *Resources) Cores() int {
	if r.CPUPinning != PinCores && r.CPUPinning != PinNuma {
		return 0
	}
	return int(r.CPU / 1000)
}

// deviceKind collects the requested devices of one type and models, each as a request with count 1.
type deviceKind struct {
	kind    string
	models  []string
	oneNuma bool
	units   []DeviceRequest
}

// is reports whether units of another kind, or a request, belong to this kind.
func (k *deviceKind) is(kind string, models []string, oneNuma bool) bool {
	return k.kind == kind && k.oneNuma == oneNuma && slices.Equal(k.models, models)
}

// addUnits adds each requested device to its kind. It ignores devices past MaxDevices of one request, which is a fault.
func addUnits(kinds []deviceKind, requests []DeviceRequest) []deviceKind {
	for _, r := range requests {
		kind := cmp.Or(r.Type, DefaultDeviceType)
		at := slices.IndexFunc(kinds, func(k deviceKind) bool { return k.is(kind, r.Models, r.OneNuma) })
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, deviceKind{kind: kind, models: r.Models, oneNuma: r.OneNuma})
		}
		unit := DeviceRequest{
			Type: kind, Models: r.Models, Count: 1, Share: r.Share, Memory: r.Memory,
			OneNuma: r.OneNuma,
		}
		for range max(1, min(r.Count, MaxDevices)) {
			kinds[at].units = append(kinds[at].units, unit)
		}
	}
	return kinds
}

// sorted returns the units, the most demanding first.
func (k *deviceKind) sorted() []DeviceRequest {
	units := slices.Clone(k.units)
	slices.SortStableFunc(units, func(a, b DeviceRequest) int {
		return cmp.Or(cmp.Compare(requestedShare(b), requestedShare(a)), cmp.Compare(b.Memory, a.Memory))
	})
	return units
}

// requestedShare returns the share of the device that the unit requests.
func requestedShare(r DeviceRequest) int { return cmp.Or(r.Share, WholeDevice+1) }

// maxOfEach returns kinds that hold, device by device, at least what each of the two requests: they are not used at the
// same time.
func maxOfEach(kinds, others []deviceKind) []deviceKind {
	for _, o := range others {
		at := slices.IndexFunc(kinds, func(k deviceKind) bool { return k.is(o.kind, o.models, o.oneNuma) })
		if at < 0 {
			kinds = append(kinds, o)
			continue
		}
		a, b := kinds[at].sorted(), o.sorted()
		if len(a) < len(b) {
			a, b = b, a
		}
		for i, u := range b {
			if requestedShare(u) > requestedShare(a[i]) {
				a[i].Share = u.Share
			}
			a[i].Memory = max(a[i].Memory, u.Memory)
		}
		kinds[at].units = a
	}
	return kinds
}
