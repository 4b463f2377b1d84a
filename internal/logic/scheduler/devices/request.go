package devices

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
)

// WholeRequest fills in the defaults of a request.
func WholeRequest(r cluster.DeviceRequest) cluster.DeviceRequest {
	r.Type = cmp.Or(r.Type, cluster.DefaultDeviceType)
	r.Count = max(r.Count, 1)
	return r
}

// Requests returns a task's device requests in the order of service: the most selective first.
func Requests(list []cluster.DeviceRequest) []cluster.DeviceRequest {
	all := make([]cluster.DeviceRequest, len(list))
	for i := range list {
		all[i] = WholeRequest(list[i])
	}
	alternatives := func(r cluster.DeviceRequest) int {
		n := 0
		if r.Share > 0 {
			n += 2
		}
		if len(r.Models) == 0 {
			n++
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b cluster.DeviceRequest) int {
		return cmp.Compare(alternatives(a), alternatives(b))
	})
	return all
}

// Suits reports whether a device meets a request while nothing of it is used.
func Suits(r *cluster.DeviceRequest, d *cluster.Device) bool {
	return d.Type == r.Type && (len(r.Models) == 0 || slices.Contains(r.Models, d.Model)) && d.Memory >= r.Memory
}

// SameRequest reports whether two requests are equal.
func SameRequest(a, b cluster.DeviceRequest) bool {
	return a.Type == b.Type && a.Count == b.Count && a.Share == b.Share && a.Memory == b.Memory &&
		a.OneNuma == b.OneNuma && slices.Equal(a.Models, b.Models)
}

func isOneNuma(r cluster.DeviceRequest) bool { return r.OneNuma }

// ShareOneType reports whether two requests share devices of one type. Equal devices may then differ in the memory that
// is left, so the requests may get other devices on another node of a device class.
func ShareOneType(requests []cluster.DeviceRequest) bool {
	for i := range requests {
		if requests[i].Share > 0 && slices.ContainsFunc(requests[:i], func(r cluster.DeviceRequest) bool {
			return r.Share > 0 && r.Type == requests[i].Type
		}) {
			return true
		}
	}
	return false
}

// requestKey appends all fields of a request.
func requestKey(b []byte, r *cluster.DeviceRequest) []byte {
	numa := uint64(0)
	if r.OneNuma {
		numa = 1
	}
	b = encode.Text(b, r.Type)
	for _, n := range []uint64{uint64(r.Count), uint64(r.Share), uint64(r.Memory), numa, uint64(len(r.Models))} {
		b = encode.Number(b, n)
	}
	for _, model := range r.Models {
		b = encode.Text(b, model)
	}
	return b
}
