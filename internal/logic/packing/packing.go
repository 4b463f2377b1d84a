// Package packing says how much a node is worth before and after a placement, for the strategy "whole": what is left of
// a node should stay usable together, its CPU beside its memory, its devices with the CPU and the memory that they
// need.
//
// A Mix is learned from the tasks that arrive: which demands are typical, with their weights. A Worth is made of it now
// and then: tables of what a stream of such tasks would come to fill. Score looks a node up before and after a task and
// returns what is lost, as one number; the lowest is the best node. All is integers, so every server finds the same
// order.
//
// The worth of a node, in devices, is
//
//	Σ over its devices H(free share) + M(devices that are whole)
//	  - C(free CPU, free devices) - C'(free memory, free devices)
//
// H is how much of one device tasks of the mix fill when they come one after the other at random and each that fits is
// taken. M is the part of the whole devices that demands for several at once could use, by their weight; it keeps such
// nodes together. C is how much less of the devices is filled because the CPU is not endless: with what the mix asks
// beside a device, light tasks are welcome where there is little CPU, heavy ones and those without a device where there
// is more than the devices need. C' is the same for memory.
//
// The idea to judge a placement by what it does to the expected usable share is that of Fragmentation Gradient Descent
// (Weng et al., "Beware of Fragmentation", USENIX ATC 2023). What differs: not whether the next task fits but what a
// whole stream of them fills, so that the CPU beside a device has a price long before it is gone.
//
// What a node has no devices for costs nothing in devices. Nodes of equal loss are told apart by the CPU or memory that
// the task would strand, and then by how full they are, the fullest first.
package packing

import (
	"math/bits"

	"github.com/berthd/berth/internal/cluster"
)

// Bounds.
const (
	// MostDevices is how many devices of a node are looked at; more are as if they were not there.
	MostDevices = 64
	// CostBits is the width of a cost: 0 <= Cost < 1<<CostBits.
	CostBits = LossBits + strandBits + fillBits
	// LossBits is the width of a loss alone, and NoLoss the loss of what costs nothing.
	LossBits = 21
	NoLoss   = 1 << (LossBits - 1)
	// LossSteps is how many steps of a loss are one device.
	LossSteps = fine / coarse
)

// Models is a set of device models, which the caller numbers from 0 to 63. The empty set stands for any.
type Models uint64

// Has reports whether the model is in the set, or the set is for any.
func (m Models) Has(model uint8) bool { return m == 0 || model < 64 && m>>model&1 == 1 }

// Demand is what a task asks of a node. Negative amounts are not allowed.
type Demand struct {
	CPU    cluster.MilliCPU
	Memory cluster.Bytes
	// Devices is how many devices; 0 for a task without, whatever the fields below say.
	Devices int
	// Share, unless 0, is the part of one device, 1 to cluster.WholeDevice; Devices is 1 then.
	Share int
	// DeviceMemory is what each device must have free of its own memory.
	DeviceMemory cluster.Bytes
	// Models are those that will do.
	Models Models
}

// share returns what is taken of each device, in thousandths.
func (d *Demand) share() int {
	if d.Share > 0 {
		return d.Share
	}
	return cluster.WholeDevice
}

// Device is one device of a node.
type Device struct {
	// Free is its free share, 0 to cluster.WholeDevice; Memory its free memory.
	Free   int
	Memory cluster.Bytes
	Model  uint8
}

// Node is what a node has and what of it is free. A node whose free amounts are below 0 has nothing free.
type Node struct {
	CPU, FreeCPU       cluster.MilliCPU
	Memory, FreeMemory cluster.Bytes
	// Devices are those of the one type that tasks of this mix ask for.
	Devices []Device
}

// Choice is how a task would be placed on a node.
type Choice struct {
	// Cost ranks nodes: the lowest is the best.
	Cost uint64
	// Devices has a bit for each device of the node that the task would use, by its index.
	Devices uint64
}

// Parts of a cost, from the most to the least important: what is lost in devices, the CPU or memory that is stranded,
// how empty the node is.
const (
	strandBits = 12
	fillBits   = 11

	fine     = 1_000_000 // a device, in what tables hold
	coarse   = 100       // what a step of a cost's loss is of that
	mostLoss = 1<<LossBits - 1
	parts    = 1000 // all of a node's CPU or memory
)

// Score returns the devices that the task should use on the node and what the placement costs; false if it does not
// fit. It allocates nothing, takes about a tenth of a microsecond for eight devices, and may be called concurrently.
// The node and the demand stay as they are.
func (w *Worth) Score(n *Node, d *Demand) (Choice, bool) {
	if d.CPU > max(n.FreeCPU, 0) || d.Memory > max(n.FreeMemory, 0) {
		return Choice{}, false
	}
	use, ok := w.choose(n, d)
	if !ok {
		return Choice{}, false
	}
	loss := int64(0)
	if len(n.Devices) > 0 {
		loss = w.of(n, n.FreeCPU, n.FreeMemory, 0, 0) - w.of(n, n.FreeCPU-d.CPU, n.FreeMemory-d.Memory, use, d.share())
	}
	strand, empty := w.rest(n, d)
	return Choice{Cost: Loss(loss)<<(strandBits+fillBits) | strand<<fillBits | empty, Devices: use}, true
}

// choose picks the devices: for a share the one whose worth falls least, of equals the one with the least left; whole
// ones with as little memory as will do. Of equals the first.
func (w *Worth) choose(n *Node, d *Demand) (uint64, bool) {
	if d.Devices <= 0 {
		return 0, true
	}
	if d.Share > 0 && d.Share < cluster.WholeDevice {
		best, ok := w.Pick(n, d)
		return 1 << max(best, 0), ok
	}
	var use uint64
	for range d.Devices {
		best := -1
		for i := range devicesOf(n) {
			v := &n.Devices[i]
			if use>>i&1 == 0 && takes(v, d) && (best < 0 || v.Memory < n.Devices[best].Memory) {
				best = i
			}
		}
		if best < 0 {
			return 0, false
		}
		use |= 1 << best
	}
	return use, true
}

// Pick returns the device of which the demand's share should be taken, by its index: the one whose worth falls least,
// of equals the one with the least left, of those the first; false if none has room. It looks at nothing else of the
// demand, and allocates nothing.
func (w *Worth) Pick(n *Node, d *Demand) (device int, ok bool) {
	best, lost, left := -1, int64(0), 0
	wholes := 0
	if w.several {
		wholes = wholesOf(n)
	}
	for i := range devicesOf(n) {
		v := &n.Devices[i]
		if !takes(v, d) {
			continue
		}
		l := w.tables[w.table[v.Model&63]].lost(v.Free, d.share(), wholes)
		if best < 0 || l < lost || l == lost && v.Free < left {
			best, lost, left = i, l, v.Free
		}
	}
	return best, best >= 0
}

// Value returns what the node is worth as it is, in millionths of a device. Of the node it looks at what is free. It
// allocates nothing.
func (w *Worth) Value(n *Node) int64 { return w.of(n, n.FreeCPU, n.FreeMemory, 0, 0) }

// Loss brings a loss of worth, in millionths of a device, into steps that fit into LossBits: NoLoss is none, less is a
// gain, and what is too much counts as the most. Two losses that differ by less than a step are equal.
func Loss(lost int64) uint64 {
	return uint64(min(max(lost/coarse+NoLoss, 0), mostLoss))
}

func devicesOf(n *Node) []Device { return n.Devices[:min(len(n.Devices), MostDevices)] }

// wholesOf counts the devices of which nothing is used.
func wholesOf(n *Node) int {
	wholes := 0
	for i := range devicesOf(n) {
		if n.Devices[i].Free >= cluster.WholeDevice {
			wholes++
		}
	}
	return wholes
}

// takes reports whether the device has room for the demand's part of it.
func takes(v *Device, d *Demand) bool {
	return v.Free >= d.share() && v.Memory >= d.DeviceMemory && d.Models.Has(v.Model)
}

// Stock is what the devices of a node are worth by themselves: what CPU and memory go with them is told to Value. So
// what was found out of some devices holds for all nodes with the same.
type Stock struct {
	table *table // nil where there are no devices
	worth int64
	free  int64 // thousandths of a device
}

// Stock returns that of some devices, of one type. It allocates nothing.
func (w *Worth) Stock(devices []Device) Stock { return w.stock(&Node{Devices: devices}, 0, 0) }

// Value returns what a node with these devices is worth, in millionths of a device, with so much of its CPU and memory
// free. More of either is never worth less.
func (s *Stock) Value(cpu cluster.MilliCPU, memory cluster.Bytes) int64 {
	if s.table == nil {
		return 0
	}
	return s.worth - s.table.cpu.short(int64(max(cpu, 0)), s.free) - s.table.memory.short(int64(max(memory, 0)), s.free)
}

// stock returns that of a node's devices with the share of each of the devices of use taken.
func (w *Worth) stock(n *Node, use uint64, share int) (s Stock) {
	if len(n.Devices) == 0 {
		return s
	}
	wholes := 0
	for i := range devicesOf(n) {
		v := &n.Devices[i]
		left := min(max(v.Free, 0), cluster.WholeDevice)
		if use>>i&1 == 1 {
			left -= share
		}
		if left == cluster.WholeDevice {
			wholes++
		}
		s.free += int64(left)
		s.worth += int64(w.tables[w.table[v.Model&63]].hole[left])
	}
	s.table = w.tables[w.table[n.Devices[0].Model&63]]
	s.worth += s.table.sets[wholes]
	return s
}

// of returns the worth of the node in millionths of a device, with that CPU and memory free and the share of each of
// the devices of use taken.
func (w *Worth) of(n *Node, cpu cluster.MilliCPU, memory cluster.Bytes, use uint64, share int) int64 {
	s := w.stock(n, use, share)
	return s.Value(cpu, memory)
}

// rest returns which part of the node's CPU or memory, in thousandths, the task strands, counted from parts, and how
// empty it leaves the node, 0 to 2*parts.
func (w *Worth) rest(n *Node, d *Demand) (strand, empty uint64) {
	cpu, memory := max(n.FreeCPU, 0), max(n.FreeMemory, 0)
	left, room := part(int64(cpu-d.CPU), int64(n.CPU)), part(int64(memory-d.Memory), int64(n.Memory))
	after := w.stranded(n, int64(cpu-d.CPU), int64(memory-d.Memory))
	return uint64(parts + after - w.stranded(n, int64(cpu), int64(memory))), uint64(left + room)
}

// stranded returns the thousandths of the node's CPU or memory that tasks of the mix's mean would leave unused, as the
// other is gone.
func (w *Worth) stranded(n *Node, cpu, memory int64) int64 {
	c, m := part(cpu, int64(n.CPU)), part(memory, int64(n.Memory))
	if w.meanCPU == 0 || w.meanMemory == 0 || n.CPU <= 0 || n.Memory <= 0 {
		return 0
	}
	// How much CPU goes with all the memory that is free, and the other way round.
	if with := scale(memory, w.meanCPU, w.meanMemory); with < cpu {
		return c - part(with, int64(n.CPU))
	}
	return m - part(scale(cpu, w.meanMemory, w.meanCPU), int64(n.Memory))
}

// part returns x in thousandths of all, 0 to parts.
func part(x, all int64) int64 {
	if x <= 0 || all <= 0 {
		return 0
	}
	return min(scale(x, parts, all), parts)
}

// scale returns x*by/of without overflow, at most the largest int64. None is negative, and of is not 0.
func scale(x, by, of int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(by))
	if hi >= uint64(of) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(min(q, 1<<63-1))
}
