package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// maxSearchSteps limits the search of AssignDevices, which is long if many containers request devices by overlapping
// lists of models.
const maxSearchSteps = 10_000

// AssignDevices returns the devices of each container of a task, by the index of the container: uses are the devices of
// the task, devices those of its node. Concurrent containers share only devices that they request as shares. Each init
// container may use all devices, as it runs alone. A container without requests gets none. The error names the device
// that the node lacks, or the container that gets none.
func (d *TaskDefinition) AssignDevices(uses []DeviceUse, devices []Device) ([][]DeviceUse, error) {
	known := make(map[string]*Device, len(devices))
	for i := range devices {
		known[devices[i].ID] = &devices[i]
	}
	h := deviceSearch{assigned: make([][]DeviceUse, len(d.Containers))}
	for _, u := range uses {
		if known[u.ID] == nil {
			return nil, fmt.Errorf("the node has no device %s any more", u.ID)
		}
		h.devices, h.free = append(h.devices, known[u.ID]), append(h.free, u)
	}
	var wanted []wantedUnit
	for i := range d.Containers {
		if !d.Containers[i].Init {
			wanted = append(wanted, unitsWantedBy(&d.Containers[i], i)...)
		}
	}
	if !h.assignAll(wanted) {
		return nil, fmt.Errorf("the devices of the task are not those that its containers request: %s", deviceIDs(uses))
	}
	for i := range d.Containers {
		alone := deviceSearch{devices: h.devices, free: uses, assigned: h.assigned}
		if d.Containers[i].Init && !alone.assignAll(unitsWantedBy(&d.Containers[i], i)) {
			return nil, fmt.Errorf("the devices of the task are not those that container %s requests: %s",
				d.Containers[i].Name, deviceIDs(uses))
		}
	}
	for _, given := range h.assigned {
		slices.SortFunc(given, func(a, b DeviceUse) int { return cmp.Compare(a.ID, b.ID) })
	}
	return h.assigned, nil
}

func deviceIDs(uses []DeviceUse) (ids []string) {
	for _, u := range uses {
		ids = append(ids, u.ID)
	}
	return ids
}

// wantedUnit is one device that a container requests.
type wantedUnit struct {
	DeviceRequest
	container int
}

func unitsWantedBy(c *Container, index int) (all []wantedUnit) {
	for _, k := range addUnits(nil, c.Resources.requests()) {
		for _, u := range k.units {
			all = append(all, wantedUnit{u, index})
		}
	}
	return all
}

// deviceSearch is a search for an assignment of devices to containers.
type deviceSearch struct {
	devices  []*Device
	free     []DeviceUse // of each device, the part that is not assigned yet
	assigned [][]DeviceUse
	steps    int
}

// assignAll assigns a device to each request, the most restrictive request first, and reports whether it succeeded.
func (h *deviceSearch) assignAll(all []wantedUnit) bool {
	h.free = slices.Clone(h.free)
	slices.SortStableFunc(all, func(a, b wantedUnit) int {
		return cmp.Or(cmp.Compare(requestedShare(b.DeviceRequest), requestedShare(a.DeviceRequest)),
			cmp.Compare(b.Memory, a.Memory), cmp.Compare(countModels(a), countModels(b)))
	})
	return h.assignNext(all)
}

// countModels counts the models that satisfy the request.
func countModels(w wantedUnit) int {
	if len(w.Models) == 0 {
		return math.MaxInt
	}
	return len(w.Models)
}

func (h *deviceSearch) assignNext(all []wantedUnit) bool {
	if len(all) == 0 {
		return true
	}
	w := &all[0]
	for i, d := range h.devices {
		u := DeviceUse{ID: d.ID, Share: WholeDevice}
		if w.Share > 0 {
			u.Share, u.Memory = w.Share, w.Memory
		}
		if h.free[i].Share < u.Share || h.free[i].Memory < u.Memory || d.Type != w.Type || len(w.Models) > 0 &&
			!slices.Contains(w.Models, d.Model) || d.Memory < w.Memory {
			continue
		}
		h.free[i].Share -= u.Share
		h.free[i].Memory -= u.Memory
		before := h.assigned[w.container]
		h.assigned[w.container] = addUse(before, u)
		if h.assignNext(all[1:]) {
			return true
		}
		h.assigned[w.container] = before
		h.free[i].Share += u.Share
		h.free[i].Memory += u.Memory
		if h.steps++; h.steps > maxSearchSteps {
			return false
		}
	}
	return false
}

// addUse returns the uses with one more; two shares of a device are one.
func addUse(uses []DeviceUse, more DeviceUse) []DeviceUse {
	out := slices.Clone(uses)
	for i := range out {
		if out[i].ID == more.ID {
			out[i].Share += more.Share
			out[i].Memory += more.Memory
			return out
		}
	}
	return append(out, more)
}
