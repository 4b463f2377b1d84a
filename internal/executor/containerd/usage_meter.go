package containerd

import (
	"path/filepath"
	"sync"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/usage"
)

// usageMeter measures what running containers use. Safe for concurrent use.
type usageMeter struct {
	cgroupParent string

	mu    sync.Mutex
	meter usage.Meter
}

// Usage implements executor.Meter, by the containers' cgroups.
func (m *usageMeter) Usage(running map[executor.ID]executor.Process) map[executor.ID]executor.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[executor.ID]executor.Usage, len(running))
	for id := range running { // order-free: each by itself
		if u, ok := m.meter.Group(filepath.Join(m.cgroupParent, nameOf(id))); ok {
			out[id] = u
		}
	}
	return out
}

// Details implements executor.Detailer, by the containers' cgroups and network namespaces.
func (m *usageMeter) Details(running map[executor.ID]executor.Process) map[executor.ID]cluster.Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[executor.ID]cluster.Counts, len(running))
	for id, p := range running { // order-free: each by itself
		out[id] = m.meter.Detail(filepath.Join(m.cgroupParent, nameOf(id)), p)
	}
	return out
}
