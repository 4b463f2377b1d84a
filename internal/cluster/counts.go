package cluster

import (
	"math"
	"time"
)

// Counts is what the kernel has counted of one container since it began, beside its CPU and its memory. They only grow.
// What the machine does not count is nil.
type Counts struct {
	Throttle *ThrottleCounts
	Stall    *StallCounts
	Network  *NetworkCounts
	// HostNetwork says that the container is on the node's own network, where nobody counts what is whose; Network is
	// nil then.
	HostNetwork bool
	Disk        *DiskCounts
}

// ThrottleCounts is how the limit of its CPU held a container back. A container without a limit has no periods.
type ThrottleCounts struct {
	// Periods is in how many periods of the limit it wanted to work, Throttled in how many of them it was held back,
	// and Time for how long, of all its threads together.
	Periods, Throttled int64
	Time               time.Duration
}

// StallCounts is for how long some program of a container waited for a resource, by the kernel's pressure stall
// information (PSI).
type StallCounts struct {
	CPU, Memory, IO time.Duration
}

// NetworkCounts is what went over the interfaces of a container's network namespace, the loopback left out.
type NetworkCounts struct {
	// Namespace is the kernel's number of it. Containers of one namespace have these counts in common.
	Namespace         uint64
	Received, Sent    Bytes
	PacketsIn         int64
	PacketsOut        int64
	Dropped, Failures int64 // packets, both ways
}

// DiskCounts is what a container's programs had disks do. Of a disk that lies upon another both count. Where control
// groups are of version 1, what is written back later from the page cache is nobody's.
type DiskCounts struct {
	Read, Written Bytes
	Reads, Writes int64 // operations
}

// Rates is what a container or a whole task did lately, beside its CPU and its memory. What is not counted is nil.
type Rates struct {
	// Throttled is in how many percent of the periods in which it wanted to work its CPU limit held it back, of a
	// task's containers the most.
	Throttled float64 `json:"throttled,omitempty"`
	// Stall is in how many percent of the time some program waited for a resource, of a task's containers the most.
	Stall   *StallRates   `json:"stall,omitempty"`
	Network *NetworkRates `json:"network,omitempty"`
	// HostNetwork says that there is no network of its own: it is on the node's.
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

// UseDetail is what an attempt does beside what TaskStats says. It is soft, and nobody changes it once it was made.
type UseDetail struct {
	Rates
	// Containers are told where there are several, in the order of the definition.
	Containers []ContainerUse `json:"containers,omitempty"`
}

// ContainerUse is what one container of a task uses.
type ContainerUse struct {
	Name   string   `json:"name"`
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	Rates
}

// Since returns the rates between two looks at the counts of one container, the earlier of which may have been of
// another run: what shrank counts as nothing. There is none of what was not counted at both.
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

// percent returns a share of a whole, in whole percent, 100 at the most.
func percent[T ~int64](part, whole T) float64 {
	return math.Round(min(float64(part)/float64(whole), 1) * 100)
}

// With returns the rates of two containers of one task. Their network is one where they have the same namespace; then
// shared is true and the network is that of the first.
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

// Notable reports whether the rates differ from those that were told by so much that it is worth telling: by half, and
// by more than what nobody would ask about.
func (r Rates) Notable(told Rates) bool {
	const (
		share = 5         // percentage points
		bytes = 64 * 1024 // a second
		ops   = 20        // a second
	)
	far := func(now, told, least float64) bool {
		change := math.Abs(now - told)
		return change >= least && change >= math.Abs(told)/2
	}
	if (r.Stall == nil) != (told.Stall == nil) || (r.Network == nil) != (told.Network == nil) ||
		(r.Disk == nil) != (told.Disk == nil) {
		return true
	}
	if far(r.Throttled, told.Throttled, share) {
		return true
	}
	if a, b := r.Stall, told.Stall; a != nil &&
		(far(a.CPU, b.CPU, 2*share) || far(a.Memory, b.Memory, share) || far(a.IO, b.IO, share)) {
		return true
	}
	if a, b := r.Network, told.Network; a != nil &&
		(far(float64(a.Received), float64(b.Received), bytes) || far(float64(a.Sent), float64(b.Sent), bytes)) {
		return true
	}
	if a, b := r.Disk, told.Disk; a != nil {
		return far(float64(a.Read), float64(b.Read), bytes) || far(float64(a.Written), float64(b.Written), bytes) ||
			far(a.Reads, b.Reads, ops) || far(a.Writes, b.Writes, ops)
	}
	return false
}
