package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// pinTimeout limits the move of one container.
const pinTimeout = 10 * time.Second

// pins keeps containers without CPUs of their own off the exclusive CPUs of others. The assignments alone say which
// CPUs are exclusive, so a new run of the agent knows them from its records.
type pins struct {
	node *node.Node
	// cpus are the CPUs that all tasks run on, in ascending order; empty if the agent offers no cores.
	cpus      []int
	executors *executors
	attempts  func() []attempt.Status // ordered by UUID

	wake chan struct{} // capacity 1

	mu sync.Mutex             // held while containers are moved
	on map[executor.ID]string // CPUs of containers that this run of the agent pinned
}

// begin prepares for a run of the agent.
func (p *pins) begin() { p.wake, p.on = make(chan struct{}, 1), map[executor.ID]string{} }

// made records the CPUs of a new container, which then need not be set again.
func (p *pins) made(id executor.ID, cpus string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cpus != "" {
		p.on[id] = cpus
	}
}

// coresOf returns the numbers of an attempt's exclusive CPUs.
func coresOf(uses []cluster.DeviceUse) (cpus []int) {
	for _, u := range uses {
		if cpu, ok := devices.CPU(u.ID); ok {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// sharedCPUs returns the CPUs of containers without CPUs of their own, in the kernel's list format. They are the CPUs
// that no live attempt holds, or all if none is left. It is "" if the agent offers no cores.
func (p *pins) sharedCPUs() string {
	if len(p.cpus) == 0 {
		return ""
	}
	var held []int
	for _, a := range p.attempts() {
		if v := a.View; len(a.Cores) > 0 && (v == nil || !v.Record.Terminal()) {
			held = append(held, a.Cores...)
		}
	}
	left := slices.DeleteFunc(slices.Clone(p.cpus), func(cpu int) bool { return slices.Contains(held, cpu) })
	if len(left) == 0 {
		left = p.cpus
	}
	return devices.FormatCPUs(left)
}

// repin moves all containers on shared CPUs to the currently shared ones. It may be called concurrently.
func (p *pins) repin(ctx context.Context) {
	if len(p.cpus) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.sharedCPUs()
	there := map[executor.ID]bool{}
	for _, a := range p.attempts() {
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
				p.node.Logger.Warn("a container cannot be moved to other CPUs", "task", a.Task, "container", c.ID, "cpus", to,
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
func (p *pins) pinTo(ctx context.Context, name string, id executor.ID, cpus string) error {
	exec, err := p.executors.ByName(name)
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

// freed makes watch spread containers over the CPUs that an attempt no longer holds.
func (p *pins) freed() { node.Nudge(p.wake) }

// watch moves containers as CPUs become free, until ctx ends.
func (p *pins) watch(ctx context.Context) {
	for {
		p.repin(ctx)
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
	}
}
