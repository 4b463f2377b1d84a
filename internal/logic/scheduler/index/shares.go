package index

import (
	"math/bits"

	"github.com/berthd/berth/internal/cluster"
)

// Keys of trees hold the fill of a node in parts of a resource, and below it the number of its tasks.
const (
	Parts           = 1_000_000 // all of a resource
	maxParts        = 8 * Parts // upper limit, for resources that are overcommitted
	FillBits        = 26        // for six amounts in parts: three resources, each used and demanded
	TaskBits        = 20
	MaxCountedTasks = 1<<TaskBits - 1
)

// LevelShift is where a key has its level: the balance of a node in trees by balance, the cell of the curve in trees of
// device classes. The bits below are the fill and the number of tasks.
const LevelShift = FillBits + TaskBits

// Share returns an amount in millionths of a capacity, at most maxParts; 0 of a capacity of 0.
func Share(amount, capacity int64) uint64 {
	if capacity <= 0 || amount <= 0 {
		return 0
	}
	if amount < 1<<43 {
		return min(uint64(amount)*Parts/uint64(capacity), maxParts)
	}
	hi, lo := bits.Mul64(uint64(amount), Parts)
	if hi >= uint64(capacity) {
		return maxParts
	}
	q, _ := bits.Div64(hi, lo, uint64(capacity))
	return min(q, maxParts)
}

// Shares is an amount of each resource in millionths of a shape.
type Shares struct{ CPU, Memory, disk uint64 }

// SharesOf returns a demand in millionths of a shape.
func SharesOf(d, shape cluster.Demand) Shares {
	return Shares{
		Share(int64(d.CPU), int64(shape.CPU)),
		Share(int64(d.Memory), int64(shape.Memory)),
		Share(int64(d.Disk), int64(shape.Disk)),
	}
}

// Fill returns the sum over the resources.
func (s Shares) Fill() uint64 { return s.CPU + s.Memory + s.disk }

// Balance is counted in coarse steps: of nodes with about the same balance, the fullest is taken.
const (
	balanceSteps = 32 // a whole resource
	BalanceZero  = balanceSteps * maxParts / Parts
)

// Balance returns how many steps more of CPU than of memory is used, rounded down.
func (s Shares) Balance() int {
	return (int(s.CPU)-int(s.Memory)+maxParts)*balanceSteps/Parts - BalanceZero
}
