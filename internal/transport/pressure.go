package transport

import (
	"math"

	"github.com/berthd/berth/internal/cluster"
)

// Where a node is near a limit, as shares of what it has, and by how much of it the use of a resource has to change to
// be worth a report at once. Agent and server judge by the same numbers.
const (
	NearCPU    = 0.9
	NearMemory = 0.9
	NearDisk   = 0.95
	Jump       = 0.1
)

// Share is what a node uses of what it has, from 0 to about 1.
type Share struct{ CPU, Memory, Disk float64 }

// Shares returns what the statistics are of the node's total; what has no total counts as unused.
func Shares(s *cluster.NodeStats, total cluster.Facts) Share {
	return Share{
		CPU:    share(float64(s.CPU), float64(total.CPU)),
		Memory: share(float64(s.Memory), float64(total.Memory)),
		Disk:   share(float64(s.Disk), float64(total.Disk)),
	}
}

func share(used, total float64) float64 {
	if total <= 0 || used <= 0 {
		return 0
	}
	return used / total
}

// Change returns by how much the resource changed that changed most.
func (s Share) Change(t Share) float64 {
	return max(math.Abs(s.CPU-t.CPU), math.Abs(s.Memory-t.Memory), math.Abs(s.Disk-t.Disk))
}

// hardly is the change of a share that is not worth telling.
const hardly = 0.01

// Same reports whether the statistics of the machine, attempts apart, say no more than those that were told: what a
// report then leaves out.
func Same(s, told *cluster.NodeStats, total cluster.Facts) bool {
	return s == told || s != nil && told != nil && s.Tasks == told.Tasks && samePressure(s.Pressure, told.Pressure) &&
		(s.Sweep == nil || s.Sweep == told.Sweep) && s.DiskFull == told.DiskFull &&
		Shares(s, total).Change(Shares(told, total)) < hardly
}

// samePressure reports whether two say the same of what is to be moved; what was measured changes all the time.
func samePressure(p, q *cluster.Pressure) bool {
	return p == q || p != nil && q != nil && p.Since.Equal(q.Since) && p.Victim == q.Victim
}

// Presses reports whether a node has to tell of itself now, and not at its next report: since what it last told it came
// near a limit, or its use changed by a jump.
func (s Share) Presses(told Share) bool {
	return s.Change(told) >= Jump ||
		s.CPU >= NearCPU && told.CPU < NearCPU ||
		s.Memory >= NearMemory && told.Memory < NearMemory ||
		s.Disk >= NearDisk && told.Disk < NearDisk
}
