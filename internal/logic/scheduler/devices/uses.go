package devices

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Uses is what is used of a node's devices, ordered by ID. Unused devices are absent.
type Uses []cluster.DeviceUse

// Find returns the index of a device; if it is unused, where it belongs.
func (u Uses) Find(id string) (int, bool) {
	return slices.BinarySearchFunc(u, id, func(d cluster.DeviceUse, id string) int { return strings.Compare(d.ID, id) })
}

// of returns what is used of a device.
func (u Uses) of(id string) cluster.DeviceUse {
	if i, found := u.Find(id); found {
		return u[i]
	}
	return cluster.DeviceUse{ID: id}
}

// FreeShare returns the share of a device that is not used.
func (u Uses) FreeShare(id string) int { return cluster.WholeDevice - u.of(id).Share }

// Add returns the uses with one more, or with a sign of -1 with one less.
func (u Uses) Add(more cluster.DeviceUse, sign int) Uses {
	i, found := u.Find(more.ID)
	if !found {
		u = slices.Insert(u, i, cluster.DeviceUse{ID: more.ID})
	}
	u[i].Share += sign * more.Share
	u[i].Memory += cluster.Bytes(sign) * more.Memory
	if u[i].Share == 0 && u[i].Memory == 0 {
		return slices.Delete(u, i, i+1)
	}
	return u
}
