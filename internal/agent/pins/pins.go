// Package pins moves containers between the CPUs of a machine, so that exclusive CPUs stay exclusive.
package pins

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// pinTimeout limits the move of one container.
const pinTimeout = 10 * time.Second

// Pins keeps containers without CPUs of their own off the exclusive CPUs of others. The assignments alone say which
// CPUs are exclusive, so a new run of the agent knows them from its records.
type Pins struct {
	Node *node.Node
	// CPUs are the CPUs that all tasks run on, in ascending order; empty if the agent offers no cores.
	CPUs      []int
	Executors *machine.Executors
	Attempts  func() []attempt.Status // ordered by UUID

	wake chan struct{} // capacity 1

	mu sync.Mutex             // held while containers are moved
	on map[executor.ID]string // CPUs of containers that this run of the agent pinned
}

// Begin prepares for a run of the agent.
func (p *Pins) Begin() { p.wake, p.on = make(chan struct{}, 1), map[executor.ID]string{} }

// NoteMade records the CPUs of a new container, which then need not be set again.
func (p *Pins) NoteMade(id executor.ID, cpus string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cpus != "" {
		p.on[id] = cpus
	}
}

// CoresOf returns the numbers of an attempt's exclusive CPUs.
func CoresOf(uses []cluster.DeviceUse) (cpus []int) {
	for _, u := range uses {
		if cpu, ok := devices.CPU(u.ID); ok {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// SharedCPUs returns the CPUs of containers without CPUs of their own, in the kernel's list format. They are the CPUs
// that no live attempt holds, or all if none is left. It is "" if the agent offers no cores.
func (p *Pins) SharedCPUs() string {
	if len(p.CPUs) == 0 {
		return ""
	}
	var held []int
	for _, a := range p.Attempts() {
		if v := a.View; len(a.Cores) > 0 && (v == nil || !v.Record.Terminal()) {
			held = append(held, a.Cores...)
		}
	}
	left := slices.DeleteFunc(slices.Clone(p.CPUs), func(cpu int) bool { return slices.Contains(held, cpu) })
	if len(left) == 0 {
		left = p.CPUs
	}
	return devices.FormatCPUs(left)
}

// Repin moves all containers on shared CPUs to the currently shared ones. It may be called concurrently.
func (p *Pins) Repin(ctx context.Context) {
	if len(p.CPUs) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.SharedCPUs()
	there := map[executor.ID]bool{}
	for _, a := range p.Attempts() {
		v := a.View
		if v == nil || v.Definition == nil {
			continue
		}
		for i := range v.Record.Containers {
			c := &v.Record.Containers[i]
			pinned := i < len(v.Definition.Containers) && v.Definition.Containers[i].Resources.Cores() > 0
			if pinned || c.Progress == attempt.Waiting || c.Progress == attempt.Exited {
				continue
			}
			if there[c.ID] = true; p.on[c.ID] == to {
				continue
			}
			if err := p.pinTo(ctx, v.Record.Executor, c.ID, to); err != nil {
				p.Node.Logger.Warn("a container cannot be moved to other CPUs", "task", a.Task, "container", c.ID,
					"cpus", to,
					"error", err)
				continue
			}
			p.on[c.ID] = to
		}
	}
	for id := range p.on { // order-free: containers are independent
		if !there[id] {
			delete(p.on, id)
		}
	}
}

// pinTo moves a container if its executor supports that.
func (p *Pins) pinTo(ctx context.Context, name string, id executor.ID, cpus string) error {
	exec, err := p.Executors.ByName(name)
	if err != nil {
		return err
	}
	pinner, ok := exec.(executor.Pinner)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	return pinner.Pin(ctx, id, cpus)
}

// NoteFreed makes Watch spread containers over the CPUs that an attempt no longer holds.
func (p *Pins) NoteFreed() { node.Nudge(p.wake) }

// Watch moves containers as CPUs become free, until ctx ends.
func (p *Pins) Watch(ctx context.Context) {
	for {
		p.Repin(ctx)
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
	}
}
