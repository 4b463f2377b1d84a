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

// pins keeps containers without CPUs of their own off those that others have to themselves. Who has which is written
// nowhere but in what the control plane assigned, so an agent that begins anew knows it from its records.
type pins struct {
	wake chan struct{} // capacity 1

	mu sync.Mutex             // held while containers are moved
	on map[executor.ID]string // where containers were put in this life of the agent
}

func newPins() *pins { return &pins{wake: make(chan struct{}, 1), on: map[executor.ID]string{}} }

// made notes where a container was made to run, so that it need not be moved there.
func (p *pins) made(id executor.ID, cpus string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cpus != "" {
		p.on[id] = cpus
	}
}

// coresOf returns the numbers of the CPUs that an attempt has to itself.
func coresOf(uses []cluster.DeviceUse) (cpus []int) {
	for _, u := range uses {
		if cpu, ok := devices.CPU(u.ID); ok {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// shared returns the CPUs of containers that have none of their own, as the kernel writes lists: those that no attempt
// holds that may run, or all where none is left. It is empty on a node whose agent offers no cores.
func (a *Agent) shared() string {
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

// repin puts all containers that share CPUs on those that are left for them now. It may be called concurrently.
func (a *Agent) repin(ctx context.Context) {
	if len(a.CPUs) == 0 {
		return
	}
	a.pins.mu.Lock()
	defer a.pins.mu.Unlock()
	to := a.shared()
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
	for id := range a.pins.on { // order-free: each by itself
		if !there[id] {
			delete(a.pins.on, id)
		}
	}
}

// pinTo moves a container where the executor can do that.
func (a *Agent) pinTo(ctx context.Context, name string, id executor.ID, cpus string) error {
	exec, err := a.held(name)
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

// attempts returns all that are known.
func (a *Agent) attempts() []*task {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*task, 0, len(a.tasks))
	for _, uuid := range sortedKeys(a.tasks) {
		all = append(all, a.tasks[uuid])
	}
	return all
}

// unpin has containers spread over what was freed.
func (a *Agent) unpin() {
	select {
	case a.pins.wake <- struct{}{}:
	default:
	}
}

// watchPins moves containers as CPUs are freed, until ctx ends.
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
