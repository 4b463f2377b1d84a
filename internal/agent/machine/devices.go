package machine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/plain"
)

// Devices holds the machine's devices of the newest search and how containers get them.
type Devices struct {
	node *node.Node
	// find, unless nil, finds the devices. The result counts even with an error.
	find func(ctx context.Context) ([]devices.Device, error)

	mu      sync.Mutex
	known   map[string]devices.Device // by ID
	problem string                    // the error of the newest search
}

// NewDevices returns a set without devices. The function finds them; nil means that the agent does not search.
func NewDevices(n *node.Node, find func(ctx context.Context) ([]devices.Device, error)) *Devices {
	return &Devices{node: n, find: find}
}

// AddFacts finds the machine's devices. It logs once an error, and each device that is gone.
func (s *Devices) AddFacts(ctx context.Context, f *cluster.Facts) {
	if s.find == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	all, err := s.find(ctx)
	byID := make(map[string]devices.Device, len(all))
	for i := range all {
		byID[all[i].ID] = all[i]
		f.Devices = append(f.Devices, all[i].Device)
	}
	if invalid := f.Validate(); invalid != nil { // servers would refuse the node
		err = errors.Join(err, invalid)
		f.Devices = nil
	}
	text := ""
	if err != nil {
		text = plain.Text(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != s.problem && text != "" {
		s.node.Logger.Warn("not all devices of the machine are known", "error", text)
	}
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		if _, there := byID[id]; !there {
			s.node.Logger.Warn("a device is gone", "device", id)
		}
	}
	s.problem, s.known = text, byID
}

// ByID returns the devices. Callers do not change the map.
func (s *Devices) ByID() map[string]devices.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}
