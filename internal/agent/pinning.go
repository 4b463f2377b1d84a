package agent

import (
	"context"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// pins keeps containers without CPUs of their own off the exclusive CPUs of others. The assignments alone say which
// CPUs are exclusive, so a new run of the agent knows them from its records.
type pins struct {
	wake chan struct{} // capacity 1

	mu sync.Mutex             // held while containers are moved
	on map[executor.ID]string // CPUs of containers that this run of the agent pinned
}

func newPins() *pins { return &pins{wake: make(chan struct{}, 1), on: map[executor.ID]string{}} }

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
func (a *Agent) sharedCPUs() string {
	if len(a.CPUs) == 0 {
		return ""
	}
	a.mu.Lock()
	var held []int
	for _, t := range a.tasks { // order-free: a set
		if v := t.view.Load(); len(t.cores) > 0 && (v == nil || !v.rec.Terminal()) {
			held = append(held, t.cores...)
		}
	}
	a.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(a.CPUs), func(cpu int) bool { return slices.Contains(held, cpu) })
	if len(left) == 0 {
		left = a.CPUs
	}
	return devices.FormatCPUs(left)
}

// repin moves all containers on shared CPUs to the currently shared ones. It may be called concurrently.
func (a *Agent) repin(ctx context.Context) {
	if len(a.CPUs) == 0 {
		return
	}
	a.pins.mu.Lock()
	defer a.pins.mu.Unlock()
	to := a.sharedCPUs()
	there := map[executor.ID]bool{}
	for _, t := range a.attempts() {
		v := t.view.Load()
		if v == nil || v.def == nil {
			continue
		}
		for i := range v.rec.Containers {
			c := &v.rec.Containers[i]
			pinned := i < len(v.def.Containers) && v.def.Containers[i].Resources.Cores() > 0
			if pinned || c.Progress == attempt.Waiting || c.Progress == attempt.Exited {
				continue
			}
			if there[c.ID] = true; a.pins.on[c.ID] == to {
				continue
			}
			if err := a.pinTo(ctx, v.rec.Executor, c.ID, to); err != nil {
				a.Logger.Warn("a container cannot be moved to other CPUs", "task", t.id, "container", c.ID, "cpus", to,
					"error", err)
				continue
			}
			a.pins.on[c.ID] = to
		}
	}
	for id := range a.pins.on { // order-free: containers are independent
		if !there[id] {
			delete(a.pins.on, id)
		}
	}
}

// pinTo moves a container if its executor supports that.
func (a *Agent) pinTo(ctx context.Context, name string, id executor.ID, cpus string) error {
	exec, err := a.executorByName(name)
	if err != nil {
		return err
	}
	p, ok := exec.(executor.Pinner)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	return p.Pin(ctx, id, cpus)
}

// attempts returns all known attempts, ordered by UUID.
func (a *Agent) attempts() []*task {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*task, 0, len(a.tasks))
	for _, uuid := range sortedKeys(a.tasks) {
		all = append(all, a.tasks[uuid])
	}
	return all
}

// unpin makes watchPins spread containers over the freed CPUs.
func (a *Agent) unpin() {
	select {
	case a.pins.wake <- struct{}{}:
	default:
	}
}

// watchPins moves containers as CPUs become free, until ctx ends.
func (a *Agent) watchPins(ctx context.Context) {
	for {
		a.repin(ctx)
		select {
		case <-ctx.Done():
			return
		case <-a.pins.wake:
		}
	}
}
