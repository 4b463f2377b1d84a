package cluster

import (
	"maps"
	"slices"
	"strconv"
)

// Quota limits what the tasks of a cluster hold together, from their placement until nothing of them is left. A limit
// of 0 is none. The leader keeps to it when it places a task; a lower limit ends no task.
type Quota struct {
	// CPU limits the CPU time that the tasks reserve together.
	CPU MilliCPU `json:"cpu,omitempty"`
	// Memory limits the memory that the tasks reserve together.
	Memory Bytes `json:"memory,omitempty"`
	// Disk limits the disk space that the tasks reserve together.
	Disk Bytes `json:"disk,omitempty"`
	// Devices limits whole devices, by type. 0 allows none of the type; types without an entry have no limit. Shares of
	// devices count with their part.
	Devices map[string]int `json:"devices,omitempty"`
	// Tasks limits how many tasks the cluster has on nodes at a time.
	Tasks int `json:"tasks,omitempty"`
	// Jobs limits the number of jobs that have tasks.
	Jobs int `json:"jobs,omitempty"`
	// Borrow is how far the tasks of jobs may exceed the limits while other clusters of the domain leave their own
	// unused. Without it they may not. Tasks of services and daemons stay within the limits.
	Borrow *QuotaBorrow `json:"borrow,omitempty"`
	// Lend says whether other clusters may borrow what the cluster leaves unused. Default true.
	Lend *bool `json:"lend,omitempty"`
}

// QuotaBorrow is how far the tasks of jobs of a cluster may exceed the limits of its quota, each an amount above the
// limit. 0 is none. Only a limit of the quota can be exceeded.
type QuotaBorrow struct {
	// CPU that tasks may reserve above the limit.
	CPU MilliCPU `json:"cpu,omitempty"`
	// Memory that tasks may reserve above the limit.
	Memory Bytes `json:"memory,omitempty"`
	// Disk that tasks may reserve above the limit.
	Disk Bytes `json:"disk,omitempty"`
	// Devices is a number of whole devices above the limit, by type.
	Devices map[string]int `json:"devices,omitempty"`
	// Tasks is a number of tasks above the limit.
	Tasks int `json:"tasks,omitempty"`
}

// Lends reports whether other clusters may borrow what the cluster of the quota leaves unused.
func (q *Quota) Lends() bool { return q.Lend == nil || *q.Lend }

// Clone returns an independent copy.
func (q *Quota) Clone() *Quota {
	c := *q
	c.Devices = maps.Clone(q.Devices)
	if q.Borrow != nil {
		b := *q.Borrow
		b.Devices = maps.Clone(b.Devices)
		c.Borrow = &b
	}
	if q.Lend != nil {
		lends := *q.Lend
		c.Lend = &lends
	}
	return &c
}

// Equal reports whether two quotas, either of which may be nil, have the same limits and terms of borrowing.
func (q *Quota) Equal(o *Quota) bool {
	if q == nil || o == nil {
		return q == o
	}
	return q.CPU == o.CPU && q.Memory == o.Memory && q.Disk == o.Disk && q.Tasks == o.Tasks && q.Jobs == o.Jobs &&
		maps.Equal(q.Devices, o.Devices) && q.Lends() == o.Lends() && q.Borrow.equal(o.Borrow)
}

func (b *QuotaBorrow) equal(o *QuotaBorrow) bool {
	if b == nil || o == nil {
		return b == o
	}
	return b.CPU == o.CPU && b.Memory == o.Memory && b.Disk == o.Disk && b.Tasks == o.Tasks &&
		maps.Equal(b.Devices, o.Devices)
}

// maxQuotaDevices limits the types of devices in a quota.
const maxQuotaDevices = 64

// validate checks a quota.
func (q *Quota) validate(k check) {
	if q == nil {
		return
	}
	k.must(q.CPU != 0 || q.Memory != 0 || q.Disk != 0 || len(q.Devices) > 0 || q.Tasks != 0 || q.Jobs != 0,
		"limits nothing: set cpu, memory, disk, devices, tasks or jobs, or remove it")
	k.at("cpu").must(q.CPU >= 0, "is %s, want 0 or more", q.CPU)
	k.at("memory").must(q.Memory >= 0, "is %s, want 0 or more", q.Memory)
	k.at("disk").must(q.Disk >= 0, "is %s, want 0 or more", q.Disk)
	k.at("tasks").must(q.Tasks >= 0, "is %d, want 0 or more", q.Tasks)
	k.at("jobs").must(q.Jobs >= 0, "is %d, want 0 or more", q.Jobs)
	devices := k.at("devices")
	devices.must(len(q.Devices) <= maxQuotaDevices, "has %d types, want at most %d", len(q.Devices), maxQuotaDevices)
	for _, kind := range slices.Sorted(maps.Keys(q.Devices)) {
		devices.at(kind).name(kind)
		devices.at(kind).must(kind != CoreType, "is not a device: limit cpu instead, of which pinned cores are a part")
		devices.at(kind).must(q.Devices[kind] >= 0, "is %d, want 0 or more", q.Devices[kind])
	}
	if q.Borrow != nil {
		q.Borrow.validate(k.at("borrow"), q)
	}
}

// validate checks what the tasks of a quota may borrow.
func (b *QuotaBorrow) validate(k check, q *Quota) {
	k.must(b.CPU != 0 || b.Memory != 0 || b.Disk != 0 || len(b.Devices) > 0 || b.Tasks != 0,
		"borrows nothing: set cpu, memory, disk, devices or tasks, or remove it")
	amount := func(name string, n, limit int64, text string) {
		k.at(name).must(n >= 0, "is %s, want 0 or more", text)
		k.at(name).must(n <= 0 || limit != 0,
			"has no effect, as the quota does not limit %s: set quota.%s, or remove it", name, name)
	}
	amount("cpu", int64(b.CPU), int64(q.CPU), b.CPU.String())
	amount("memory", int64(b.Memory), int64(q.Memory), b.Memory.String())
	amount("disk", int64(b.Disk), int64(q.Disk), b.Disk.String())
	amount("tasks", int64(b.Tasks), int64(q.Tasks), strconv.Itoa(b.Tasks))
	devices := k.at("devices")
	for _, kind := range slices.Sorted(maps.Keys(b.Devices)) {
		_, limited := q.Devices[kind]
		devices.at(kind).must(limited,
			"has no effect, as the quota does not limit this type: set quota.devices.%s, or remove it", kind)
		devices.at(kind).must(b.Devices[kind] >= 0, "is %d, want 0 or more", b.Devices[kind])
	}
}

// QuotaUse is what the tasks of a cluster hold together, in the terms of a Quota.
type QuotaUse struct {
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	Disk   Bytes    `json:"disk"`
	// Devices counts devices by type; a share of a device is a part of 1.
	Devices map[string]float64 `json:"devices,omitempty"`
	// Tasks is the number of tasks.
	Tasks int `json:"tasks"`
	// Jobs is the number of jobs that have tasks.
	Jobs int `json:"jobs"`
	// Borrowed, unless nil, is the part of the above that is borrowed: above limits that the tasks may exceed.
	Borrowed *Borrowed `json:"borrowed,omitempty"`
}

// Borrowed is what the tasks of a cluster hold above its quota, of each limit that they may exceed.
type Borrowed struct {
	CPU    MilliCPU `json:"cpu,omitempty"`
	Memory Bytes    `json:"memory,omitempty"`
	Disk   Bytes    `json:"disk,omitempty"`
	// Devices counts devices by type; a share of a device is a part of 1.
	Devices map[string]float64 `json:"devices,omitempty"`
	// Tasks is a number of tasks.
	Tasks int `json:"tasks,omitempty"`
}

// Concurrency makes the tasks of a step members of a group in their cluster, of which only some run at a time. All
// steps of the cluster that name the group belong to it, also those of other jobs. For a job, the members are whole
// jobs. Groups of jobs and groups of tasks are apart, whatever their names.
type Concurrency struct {
	// Group is a name that steps of the cluster share, to count against the same limit.
	Group string `json:"group"`
	// Limit keeps the tasks of this step waiting while so many tasks of the group, or more, are placed, or this job
	// while so many jobs have begun and not ended. Steps and jobs with different limits may share a group.
	Limit int `json:"limit"`
}

// validateOfJob checks the concurrency of a job.
func (c *Concurrency) validateOfJob(k check) {
	if c != nil {
		k.at("group").name(c.Group)
		k.at("limit").within(c.Limit, 1, MaxCount)
	}
}

// validate checks the concurrency of a step with a number of tasks.
func (c *Concurrency) validate(k check, gang bool, count int) {
	if c == nil {
		return
	}
	k.at("group").name(c.Group)
	k.at("limit").within(c.Limit, 1, MaxCount)
	k.at("limit").must(!gang || c.Limit >= count, "is %d, less than the %d tasks of the gang, which run together",
		c.Limit, count)
}
