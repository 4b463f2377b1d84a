package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// mostTries bounds the search of HandOut: devices of which many containers ask for by overlapping lists of models.
const mostTries = 10_000

// HandOut says which of its devices each container of a task gets, by the index of the container: uses are what the
// task holds, devices those of its node. Containers that run side by side share nothing but what they ask for as
// shares; each init container has its pick of them all, as it runs alone. A container that asks for none gets none. The
// error names what the node lacks, or the container that goes without.
func (d *TaskDefinition) HandOut(uses []DeviceUse, devices []Device) ([][]DeviceUse, error) {
	known := make(map[string]*Device, len(devices))
	for i := range devices {
		known[devices[i].ID] = &devices[i]
	}
	h := handout{given: make([][]DeviceUse, len(d.Containers))}
	for _, u := range uses {
		if known[u.ID] == nil {
			return nil, fmt.Errorf("the node has no device %s any more", u.ID)
		}
		h.devices, h.left = append(h.devices, known[u.ID]), append(h.left, u)
	}
	var wanted []wanted
	for i := range d.Containers {
		if !d.Containers[i].Init {
			wanted = append(wanted, wantedBy(&d.Containers[i], i)...)
		}
	}
	if !h.serve(wanted) {
		return nil, fmt.Errorf("the devices of the task are not those that its containers ask for: %s", idsOf(uses))
	}
	for i := range d.Containers {
		alone := handout{devices: h.devices, left: uses, given: h.given}
		if d.Containers[i].Init && !alone.serve(wantedBy(&d.Containers[i], i)) {
			return nil, fmt.Errorf("the devices of the task are not those that container %s asks for: %s",
				d.Containers[i].Name, idsOf(uses))
		}
	}
	for _, given := range h.given {
		slices.SortFunc(given, func(a, b DeviceUse) int { return cmp.Compare(a.ID, b.ID) })
	}
	return h.given, nil
}

func idsOf(uses []DeviceUse) (ids []string) {
	for _, u := range uses {
		ids = append(ids, u.ID)
	}
	return ids
}

// wanted is one device that a container asks for.
type wanted struct {
	DeviceRequest
	container int
}

func wantedBy(c *Container, index int) (all []wanted) {
	for _, k := range addUnits(nil, c.Resources.requests()) {
		for _, u := range k.units {
			all = append(all, wanted{u, index})
		}
	}
	return all
}

// handout is a search for who gets what.
type handout struct {
	devices []*Device
	left    []DeviceUse // of each device, what nobody was given yet
	given   [][]DeviceUse
	tries   int
}

// serve gives each what it wants, the most particular first, and reports whether it could.
func (h *handout) serve(all []wanted) bool {
	h.left = slices.Clone(h.left)
	slices.SortStableFunc(all, func(a, b wanted) int {
		return cmp.Or(cmp.Compare(whole(b.DeviceRequest), whole(a.DeviceRequest)), cmp.Compare(b.Memory, a.Memory),
			cmp.Compare(choice(a), choice(b)))
	})
	return h.next(all)
}

// choice is how many models will do.
func choice(w wanted) int {
	if len(w.Models) == 0 {
		return math.MaxInt
	}
	return len(w.Models)
}

func (h *handout) next(all []wanted) bool {
	if len(all) == 0 {
		return true
	}
	w := &all[0]
	for i, d := range h.devices {
		u := DeviceUse{ID: d.ID, Share: WholeDevice}
		if w.Share > 0 {
			u.Share, u.Memory = w.Share, w.Memory
		}
		if h.left[i].Share < u.Share || h.left[i].Memory < u.Memory || d.Type != w.Type || len(w.Models) > 0 &&
			!slices.Contains(w.Models, d.Model) || d.Memory < w.Memory {
			continue
		}
		h.left[i].Share -= u.Share
		h.left[i].Memory -= u.Memory
		before := h.given[w.container]
		h.given[w.container] = with(before, u)
		if h.next(all[1:]) {
			return true
		}
		h.given[w.container] = before
		h.left[i].Share += u.Share
		h.left[i].Memory += u.Memory
		if h.tries++; h.tries > mostTries {
			return false
		}
	}
	return false
}

// with returns the uses with one more; two shares of a device are one.
func with(uses []DeviceUse, more DeviceUse) []DeviceUse {
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
