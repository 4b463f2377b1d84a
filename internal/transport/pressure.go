package transport

import (
	"math"

	"github.com/berthd/berth/internal/cluster"
)

// A node is near a limit when it uses these shares of a resource. A change by the share Jump causes an immediate
// report. Agent and server use the same numbers.
const (
	NearCPU    = 0.9
	NearMemory = 0.9
	NearDisk   = 0.95
	Jump       = 0.1
)

// Share is the used share of each resource of a node, from 0 to about 1.
type Share struct{ CPU, Memory, Disk float64 }

// Shares returns the used shares of the node's totals. A resource without a total counts as unused.
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

// Change returns the largest change of a share.
func (s Share) Change(t Share) float64 {
	return max(math.Abs(s.CPU-t.CPU), math.Abs(s.Memory-t.Memory), math.Abs(s.Disk-t.Disk))
}

// negligibleChange is the change of a share below which statistics are not sent again.
const negligibleChange = 0.01

// Same reports whether the statistics of the machine, attempts apart, are close enough to the last ones sent
// that a report leaves them out.
func Same(s, sent *cluster.NodeStats, total cluster.Facts) bool {
	return s == sent || s != nil && sent != nil && s.Tasks == sent.Tasks && samePressure(s.Pressure, sent.Pressure) &&
		(s.Sweep == nil || s.Sweep == sent.Sweep) && s.DiskFull == sent.DiskFull &&
		Shares(s, total).Change(Shares(sent, total)) < negligibleChange
}

// samePressure reports whether two pressures have the same victim since the same time. It ignores the measured values,
// which change all the time.
func samePressure(p, q *cluster.Pressure) bool {
	return p == q || p != nil && q != nil && p.Since.Equal(q.Since) && p.Victim == q.Victim
}

// NeedsReportNow reports whether a node has to send statistics immediately, before its next report. Since the last
// statistics, the node came near a limit, or its use changed by Jump.
func (s Share) NeedsReportNow(sent Share) bool {
	return s.Change(sent) >= Jump ||
		s.CPU >= NearCPU && sent.CPU < NearCPU ||
		s.Memory >= NearMemory && sent.Memory < NearMemory ||
		s.Disk >= NearDisk && sent.Disk < NearDisk
}
