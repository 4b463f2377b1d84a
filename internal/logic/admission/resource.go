package admission

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// kind is a kind of limits of a quota.
type kind int

const (
	cpu kind = iota
	memory
	disk
	device
	tasks
	jobs
)

// lendable are the resources that may be borrowed, besides devices.
var lendable = [...]kind{cpu, memory, disk, tasks}

// resource is what one limit of a quota is about. Amounts are thousandths of CPUs, bytes, thousandths of devices, and
// numbers of tasks and jobs.
type resource struct {
	kind kind
	of   string // the type of devices
}

// name returns the name of the limit.
func (r resource) name() string {
	if r.kind == device {
		return r.of
	}
	return [...]string{cpu: "cpu", memory: "memory", disk: "disk", tasks: "tasks", jobs: "jobs"}[r.kind]
}

// format writes an amount for people. A number of devices is "2" or "0.5".
func (r resource) format(n int64) string {
	switch r.kind {
	case cpu:
		return cluster.MilliCPU(n).String()
	case memory, disk:
		return cluster.Bytes(n).String()
	case device:
		return fmt.Sprint(float64(n) / cluster.WholeDevice)
	default:
		return fmt.Sprint(n)
	}
}

// raise sets the limit to an amount, which is rounded up to whole devices.
func (r resource) raise(q *cluster.Quota, to int64) {
	switch r.kind {
	case cpu:
		q.CPU = cluster.MilliCPU(to)
	case memory:
		q.Memory = cluster.Bytes(to)
	case disk:
		q.Disk = cluster.Bytes(to)
	case device:
		q.Devices[r.of] = int((to + cluster.WholeDevice - 1) / cluster.WholeDevice)
	case tasks:
		q.Tasks = int(to)
	case jobs:
		q.Jobs = int(to)
	}
}

// limitOf returns the limit in a quota; ok is false if there is none. Limits of jobs are not asked for.
func (r resource) limitOf(q *cluster.Quota) (limit int64, ok bool) {
	switch r.kind {
	case cpu:
		limit = int64(q.CPU)
	case memory:
		limit = int64(q.Memory)
	case disk:
		limit = int64(q.Disk)
	case device:
		n, ok := q.Devices[r.of]
		return int64(n) * cluster.WholeDevice, ok
	case tasks:
		limit = int64(q.Tasks)
	case jobs:
	}
	return limit, limit > 0
}

// borrowOf returns how far the limit of a quota may be exceeded.
func (r resource) borrowOf(q *cluster.Quota) int64 {
	b := q.Borrow
	if b == nil {
		return 0
	}
	switch r.kind {
	case cpu:
		return int64(b.CPU)
	case memory:
		return int64(b.Memory)
	case disk:
		return int64(b.Disk)
	case device:
		return int64(b.Devices[r.of]) * cluster.WholeDevice
	case tasks:
		return int64(b.Tasks)
	default:
		return 0
	}
}

// heldBy returns how much of the resource is in use.
func (r resource) heldBy(u *use) int64 {
	switch r.kind {
	case device:
		return int64(u.devices[r.of])
	case tasks:
		return int64(len(u.tasks))
	default:
		return r.ofDemand(u.demand)
	}
}

// in returns how much of the resource one attempt holds that has a demand and requests devices.
func (r resource) in(d cluster.Demand, devices []cluster.DeviceRequest) int64 {
	switch r.kind {
	case device:
		return devicesOf(devices, r.of)
	case tasks:
		return 1
	default:
		return r.ofDemand(d)
	}
}

// ofDemand returns the part of a demand that is about the resource, 0 for devices, tasks and jobs.
func (r resource) ofDemand(d cluster.Demand) int64 {
	switch r.kind {
	case cpu:
		return int64(d.CPU)
	case memory:
		return int64(d.Memory)
	case disk:
		return int64(d.Disk)
	default:
		return 0
	}
}

// eachLimit yields the limits of a quota that may be borrowed, in no order.
func eachLimit(q *cluster.Quota, yield func(r resource, limit int64)) {
	for _, kind := range lendable {
		r := resource{kind: kind}
		if limit, ok := r.limitOf(q); ok {
			yield(r, limit)
		}
	}
	for kind, n := range q.Devices { // order-free: the caller sums up
		yield(resource{device, kind}, int64(n)*cluster.WholeDevice)
	}
}
