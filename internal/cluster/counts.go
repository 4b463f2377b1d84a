package cluster

import (
	"math"
	"time"
)

// Counts holds the kernel's counters of one container since its start, apart from CPU and memory. Counters only grow. A
// counter that the machine does not offer is nil.
type Counts struct {
	Throttle *ThrottleCounts
	Stall    *StallCounts
	Network  *NetworkCounts
	// HostNetwork says that the container is on the node's own network, where traffic has no owner. Network is nil
	// then.
	HostNetwork bool
	Disk        *DiskCounts
}

// ThrottleCounts counts how the CPU limit held a container back. A container without a limit has no periods.
type ThrottleCounts struct {
	// Periods counts the periods of the limit in which the container had work, Throttled those in which the limit
	// stopped it. Time is the stopped time, summed over all threads.
	Periods, Throttled int64
	Time               time.Duration
}

// StallCounts is the time in which some program of a container waited for a resource, from the kernel's pressure stall
// information (PSI).
type StallCounts struct {
	CPU, Memory, IO time.Duration
}

// NetworkCounts is the traffic on the interfaces of a container's network namespace, without the loopback interface.
type NetworkCounts struct {
	// Namespace is the kernel's number of the namespace. Containers of one namespace share these counts.
	Namespace         uint64
	Received, Sent    Bytes
	PacketsIn         int64
	PacketsOut        int64
	Dropped, Failures int64 // packets, both ways
}

// DiskCounts is the disk traffic of a container's programs. A stacked device counts on each of its layers. With control
// groups of version 1, delayed writes from the page cache are not attributed to any container.
type DiskCounts struct {
	Read, Written Bytes
	Reads, Writes int64 // operations
}

// Rates is the recent activity of a container or of a whole task, apart from CPU and memory. Rates without a counter
// are nil.
type Rates struct {
	// Throttled is the percentage of busy periods in which the CPU limit held the container back; for a task, the
	// highest of its containers.
	Throttled float64 `json:"throttled,omitempty"`
	// Stall is the percentage of time in which some program waited for a resource; for a task, the highest of its
	// containers.
	Stall   *StallRates   `json:"stall,omitempty"`
	Network *NetworkRates `json:"network,omitempty"`
	// HostNetwork says that the container is on the node's own network and has no traffic counts.
	HostNetwork bool       `json:"host_network,omitempty"`
	Disk        *DiskRates `json:"disk,omitempty"`
}

// StallRates are percentages.
type StallRates struct {
	CPU    float64 `json:"cpu,omitempty"`
	Memory float64 `json:"memory,omitempty"`
	IO     float64 `json:"io,omitempty"`
}

// NetworkRates are bytes in a second.
type NetworkRates struct {
	Received Bytes `json:"received,omitempty"`
	Sent     Bytes `json:"sent,omitempty"`
}

// DiskRates are bytes and operations in a second.
type DiskRates struct {
	Read    Bytes   `json:"read,omitempty"`
	Written Bytes   `json:"written,omitempty"`
	Reads   float64 `json:"reads,omitempty"`
	Writes  float64 `json:"writes,omitempty"`
}

// UseDetail is the activity of an attempt beyond TaskStats. It is soft state and immutable once made.
type UseDetail struct {
	Rates
	// Containers is set for tasks with several containers, in the order of the definition.
	Containers []ContainerUse `json:"containers,omitempty"`
}

// ContainerUse is the resource usage of one container of a task.
type ContainerUse struct {
	Name   string   `json:"name"`
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	Rates
}

// Since returns the rates between two samples of one container's counts. A counter that shrank belongs to another run
// and counts as 0. A rate needs its counter in both samples.
func (c Counts) Since(before Counts, past time.Duration) (r Rates) {
	r.HostNetwork = c.HostNetwork
	if past <= 0 {
		return r
	}
	perSecond := func(now, before int64) float64 {
		return math.Round(float64(max(now-before, 0))/past.Seconds()*10) / 10
	}
	if now, was := c.Throttle, before.Throttle; now != nil && was != nil && now.Periods > was.Periods {
		r.Throttled = percent(max(now.Throttled-was.Throttled, 0), now.Periods-was.Periods)
	}
	if now, was := c.Stall, before.Stall; now != nil && was != nil {
		r.Stall = &StallRates{
			CPU:    percent(max(now.CPU-was.CPU, 0), past),
			Memory: percent(max(now.Memory-was.Memory, 0), past),
			IO:     percent(max(now.IO-was.IO, 0), past),
		}
	}
	if now, was := c.Network, before.Network; now != nil && was != nil && now.Namespace == was.Namespace {
		r.Network = &NetworkRates{
			Received: Bytes(perSecond(int64(now.Received), int64(was.Received))),
			Sent:     Bytes(perSecond(int64(now.Sent), int64(was.Sent))),
		}
	}
	if now, was := c.Disk, before.Disk; now != nil && was != nil {
		r.Disk = &DiskRates{
			Read:    Bytes(perSecond(int64(now.Read), int64(was.Read))),
			Written: Bytes(perSecond(int64(now.Written), int64(was.Written))),
			Reads:   perSecond(now.Reads, was.Reads), Writes: perSecond(now.Writes, was.Writes),
		}
	}
	return r
}

// percent returns the share of a whole in whole percent, at most 100.
func percent[T ~int64](part, whole T) float64 {
	return math.Round(min(float64(part)/float64(whole), 1) * 100)
}

// With combines the rates of two containers of one task. shared says that both have the same network namespace; the
// result then has the network rates of the first.
func (r Rates) With(s Rates, shared bool) Rates {
	r.Throttled = max(r.Throttled, s.Throttled)
	r.HostNetwork = r.HostNetwork || s.HostNetwork
	if a, b := r.Stall, s.Stall; a != nil && b != nil {
		r.Stall = &StallRates{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), IO: max(a.IO, b.IO)}
	} else if b != nil {
		r.Stall = b
	}
	if a, b := r.Network, s.Network; a == nil {
		r.Network = b
	} else if b != nil && !shared {
		r.Network = &NetworkRates{Received: a.Received + b.Received, Sent: a.Sent + b.Sent}
	}
	if a, b := r.Disk, s.Disk; a != nil && b != nil {
		r.Disk = &DiskRates{
			Read: a.Read + b.Read, Written: a.Written + b.Written, Reads: a.Reads + b.Reads,
			Writes: a.Writes + b.Writes,
		}
	} else if b != nil {
		r.Disk = b
	}
	return r
}

// Notable reports whether the rates differ enough from the reported ones to send them again: by half, and by more than
// a negligible amount.
func (r Rates) Notable(reported Rates) bool {
	const (
		share = 5         // percentage points
		bytes = 64 * 1024 // a second
		ops   = 20        // a second
	)
	far := func(now, reported, least float64) bool {
		change := math.Abs(now - reported)
		return change >= least && change >= math.Abs(reported)/2
	}
	if (r.Stall == nil) != (reported.Stall == nil) || (r.Network == nil) != (reported.Network == nil) ||
		(r.Disk == nil) != (reported.Disk == nil) {
		return true
	}
	if far(r.Throttled, reported.Throttled, share) {
		return true
	}
	if a, b := r.Stall, reported.Stall; a != nil &&
		(far(a.CPU, b.CPU, 2*share) || far(a.Memory, b.Memory, share) || far(a.IO, b.IO, share)) {
		return true
	}
	if a, b := r.Network, reported.Network; a != nil &&
		(far(float64(a.Received), float64(b.Received), bytes) || far(float64(a.Sent), float64(b.Sent), bytes)) {
		return true
	}
	if a, b := r.Disk, reported.Disk; a != nil {
		return far(float64(a.Read), float64(b.Read), bytes) || far(float64(a.Written), float64(b.Written), bytes) ||
			far(a.Reads, b.Reads, ops) || far(a.Writes, b.Writes, ops)
	}
	return false
}
