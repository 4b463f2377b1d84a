package index

import (
	"math/bits"

	"github.com/berthd/berth/internal/cluster"
)

// shapeBits is the number of significant binary digits of a shape's amounts.
const shapeBits = 6

// ShapeOf rounds a capacity down, by 3 % at most. Machines of one model differ slightly in the memory that their
// kernels leave; rounding makes their nodes equal.
func ShapeOf(capacity cluster.Demand) cluster.Demand {
	round := func(v int64) int64 {
		drop := max(bits.Len64(uint64(v))-shapeBits, 0)
		return v >> drop << drop
	}
	return cluster.Demand{
		CPU:    cluster.MilliCPU(round(int64(capacity.CPU))),
		Memory: cluster.Bytes(round(int64(capacity.Memory))),
		Disk:   cluster.Bytes(round(int64(capacity.Disk))),
	}
}

// maxAmount is the largest amount of a resource, in its unit. Sums over the tasks of a node, and products with parts,
// stay within 64 bits.
const maxAmount = 1 << 53

// Clamp brings outside amounts into the range from 0 to maxAmount.
func Clamp(d cluster.Demand) cluster.Demand {
	return cluster.Demand{
		CPU:    min(max(d.CPU, 0), maxAmount),
		Memory: min(max(d.Memory, 0), maxAmount),
		Disk:   min(max(d.Disk, 0), maxAmount),
	}
}
