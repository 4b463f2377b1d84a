package preemption

import (
	"github.com/berthd/berth/internal/cluster"
)

// amounts are of CPU, memory, disk and whole devices.
type amounts [4]int64

func amountsOf(d cluster.Demand, devices int64) amounts {
	return amounts{int64(d.CPU), int64(d.Memory), int64(d.Disk), devices}
}

// less subtracts amounts, down to 0.
func (a amounts) less(b amounts) amounts {
	for i := range a {
		a[i] = max(a[i]-b[i], 0)
	}
	return a
}

func (a amounts) minus(b amounts) amounts {
	for i := range a {
		a[i] -= b[i]
	}
	return a
}

func (a amounts) plus(b amounts) amounts {
	for i := range a {
		a[i] += b[i]
	}
	return a
}
