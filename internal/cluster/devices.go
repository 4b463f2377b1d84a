package cluster

import (
	"cmp"
	"slices"
)

// DefaultDeviceType is the type of device that is meant where a request names none.
const DefaultDeviceType = "gpu"

// Devices returns what a task of this definition reserves of its node's devices: the sum over its long-running containers, or, of each
// kind, what an init container asks for where that is more. Requests of one kind (type and models) stand together, in the order in which
// the containers name them: whole devices first, the most memory first, then shares, the largest first. It does not depend on whether
// defaults were filled in, and is nil for a definition without devices. Nothing of it is shared with the definition but the models.
func (d *TaskDefinition) Devices() []DeviceRequest {
	var kinds []deviceKind
	for i := range d.Containers {
		if c := &d.Containers[i]; !c.Init {
			kinds = addUnits(kinds, c.Resources.Devices)
		}
	}
	for i := range d.Containers {
		if c := &d.Containers[i]; c.Init && len(c.Resources.Devices) > 0 {
			kinds = cover(kinds, addUnits(nil, c.Resources.Devices))
		}
	}
	var out []DeviceRequest
	for _, k := range kinds {
		first := len(out)
		for _, u := range k.sorted() {
			if last := len(out) - 1; last >= first && u.Share == 0 && out[last].Share == 0 && out[last].Memory == u.Memory {
				out[last].Count++
				continue
			}
			out = append(out, u)
		}
	}
	return out
}

// wholeDevices returns how many devices a task of the definition asks for, shares not counted, or a number above MaxDevices if there
// are more.
func (d *TaskDefinition) wholeDevices() int {
	n := 0
	for i := range d.Containers {
		for _, r := range d.Containers[i].Resources.Devices {
			if r.Share == 0 {
				n += max(0, min(r.Count, MaxDevices+1))
			}
		}
	}
	return n
}

// deviceKind is the devices of one type and models, each a request of its own with count 1.
type deviceKind struct {
	kind   string
	models []string
	units  []DeviceRequest
}

// addUnits adds each device that the requests ask for to its kind. More than MaxDevices of a request, which is a fault, are not counted.
func addUnits(kinds []deviceKind, requests []DeviceRequest) []deviceKind {
	for _, r := range requests {
		kind := cmp.Or(r.Type, DefaultDeviceType)
		at := slices.IndexFunc(kinds, func(k deviceKind) bool { return k.kind == kind && slices.Equal(k.models, r.Models) })
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, deviceKind{kind: kind, models: r.Models})
		}
		unit := DeviceRequest{Type: kind, Models: r.Models, Count: 1, Share: r.Share, Memory: r.Memory}
		for range max(1, min(r.Count, MaxDevices)) {
			kinds[at].units = append(kinds[at].units, unit)
		}
	}
	return kinds
}

// sorted returns the units with the most demanding first.
func (k *deviceKind) sorted() []DeviceRequest {
	units := slices.Clone(k.units)
	slices.SortStableFunc(units, func(a, b DeviceRequest) int {
		return cmp.Or(cmp.Compare(whole(b), whole(a)), cmp.Compare(b.Memory, a.Memory))
	})
	return units
}

// whole returns the share of the device that the unit asks for.
func whole(r DeviceRequest) int { return cmp.Or(r.Share, WholeDevice+1) }

// cover returns kinds that hold, device by device, at least what each of the two asks for: they are not used at the same time.
func cover(kinds, others []deviceKind) []deviceKind {
	for _, o := range others {
		at := slices.IndexFunc(kinds, func(k deviceKind) bool { return k.kind == o.kind && slices.Equal(k.models, o.models) })
		if at < 0 {
			kinds = append(kinds, o)
			continue
		}
		a, b := kinds[at].sorted(), o.sorted()
		if len(a) < len(b) {
			a, b = b, a
		}
		for i, u := range b {
			if whole(u) > whole(a[i]) {
				a[i].Share = u.Share
			}
			a[i].Memory = max(a[i].Memory, u.Memory)
		}
		kinds[at].units = a
	}
	return kinds
}
