package scheduler

import (
	"math/bits"

	"github.com/berthd/berth/internal/cluster"
)

const (
	parts           = 1_000_000 // all of a resource
	maxParts        = 8 * parts // upper limit, for resources that are overcommitted
	fillBits        = 26        // for six amounts in parts: three resources, each used and demanded
	taskBits        = 20
	maxCountedTasks = 1<<taskBits - 1
)

// levelShift is where a key has its level: the balance of a node in trees by balance, the cell of the curve in trees of
// device classes. The bits below are the fill and the number of tasks.
const levelShift = fillBits + taskBits

// share returns an amount in millionths of a capacity, at most maxParts; 0 of a capacity of 0.
func share(amount, capacity int64) uint64 {
	if capacity <= 0 || amount <= 0 {
		return 0
	}
	if amount < 1<<43 {
		return min(uint64(amount)*parts/uint64(capacity), maxParts)
	}
	hi, lo := bits.Mul64(uint64(amount), parts)
	if hi >= uint64(capacity) {
		return maxParts
	}
	q, _ := bits.Div64(hi, lo, uint64(capacity))
	return min(q, maxParts)
}

// shares is an amount of each resource in millionths of a shape.
type shares struct{ cpu, memory, disk uint64 }

func sharesOf(d, shape cluster.Demand) shares {
	return shares{
		share(int64(d.CPU), int64(shape.CPU)),
		share(int64(d.Memory), int64(shape.Memory)),
		share(int64(d.Disk), int64(shape.Disk)),
	}
}

func (s shares) fill() uint64 { return s.cpu + s.memory + s.disk }

// Balance is counted in coarse steps: of nodes with about the same balance, the fullest is taken.
const (
	balanceSteps = 32 // a whole resource
	balanceZero  = balanceSteps * maxParts / parts
)

// balance returns by how many steps CPU is used more than memory, rounded down.
func (s shares) balance() int {
	return (int(s.cpu)-int(s.memory)+maxParts)*balanceSteps/parts - balanceZero
}
