package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/fake"
	"github.com/berthd/berth/internal/sim/ci"
)

// Resources of a node.
const (
	nodeCPU    = 4000
	nodeMemory = 8 * cluster.GiB
	nodeDisk   = 100 * cluster.GiB
)

// node is a machine with one agent process after another.
type node struct {
	fleet        *fleet
	name         string
	machine      *fake.Machine
	disk         *state.Memory
	boots        atomic.Int64
	boot         atomic.Int64 // offset of its boot-time clock, in nanoseconds
	fails        atomic.Int64 // events that make its disk fail
	pressed      atomic.Int64 // events that make it short of memory
	falseReports falseReports
	devices      func(context.Context) ([]devices.Device, error) // nil for none
	// connected is the server of the session, for the digests.
	connected atomic.Pointer[string]

	mu         sync.Mutex
	booted     time.Time
	down       int
	end        func()
	trouble    int
	lateStarts int // number of events that delay the answers to starts
}

func newNode(f *fleet, name string) *node {
	n := &node{fleet: f, name: name, machine: fake.NewMachine(), booted: time.Now()}
	n.disk = &state.Memory{Fault: func() error {
		if n.fails.Load() > 0 {
			return errors.New("input/output error")
		}
		return nil
	}}
	n.machine.SetObserver(func(r fake.Run) { f.checker.programs.checkProgram(n, r) })
	n.machine.SetTrouble(n.fault)
	if f.day != nil {
		n.machine.SetProgram(func(r fake.Run) []string {
			return ci.Program(f.story.Seed, cluster.TaskID(r.Labels[task.LabelTask]), r.Labels[task.LabelAttempt])
		})
	}
	return n
}

// at reports whether the node's session is at a server.
func (n *node) at(server string) bool {
	s := n.connected.Load()
	return s != nil && *s == server
}

func (n *node) clock() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Minute + time.Since(n.booted) + time.Duration(n.boot.Load())
}

// start starts an agent process, unless an event keeps it down.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down > 0 || n.end != nil {
		return
	}
	ctx, cancel := context.WithCancel(n.fleet.ctx)
	exec := fake.New(n.machine)
	boot := fmt.Sprint("boot-", n.boots.Load())
	a, err := agent.New(agent.Config{
		Name: n.name, DataDir: "/nonexistent/berth-sim", Volatile: true, Outlives: n.disk,
		Source: newSource(n), Executors: []executor.Executor{exec}, Logger: n.fleet.logger(n.name),
		Clock: agent.ClockConfig{Boot: n.clock, Random: func() float64 {
			d := n.fleet.random.at(n.name+":jitter", time.Since(n.fleet.began))
			return float64(d.below(1000)) / 1000
		}},
		Without: n.fleet.options.Without,
		Machine: machine.Config{Facts: func(string) (cluster.Facts, error) {
			return cluster.Facts{
				Hostname: n.name, BootID: boot, Address: "10.0.0.1", OS: "linux", Arch: "amd64",
				CPU: nodeCPU, Memory: nodeMemory, Disk: nodeDisk,
			}, nil
		}, Devices: n.devices},
		Measure: usage.Config{Stats: n.stats()},
		Checks:  task.CheckConfig{PortFree: func(context.Context, int) error { return nil }},
	})
	if err != nil {
		panic(err) // a fault of the simulator
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	n.end = func() {
		n.disk.Crash()
		exec.Die()
		cancel()
		n.fleet.logger(n.name).Debug("the agent ended", "error", <-done)
	}
}

// stats returns a source of the machine's use, in a third of all fleets. Idle nodes report rarely there.
func (n *node) stats() func(string) (cluster.NodeStats, error) {
	if n.fleet.story.Seed%3 != 0 && !n.fleet.story.Has(Pressure) {
		return nil
	}
	return func(string) (cluster.NodeStats, error) {
		s := cluster.NodeStats{At: time.Now(), CPU: 100, Memory: cluster.GiB, Disk: 5 * cluster.GiB}
		if n.pressed.Load() > 0 {
			s.Memory = nodeMemory - cluster.MiB
		}
		return s, nil
	}
}

// kill ends the agent process, as kill -9 does.
func (n *node) kill() {
	n.mu.Lock()
	end := n.end
	n.end = nil
	n.mu.Unlock()
	if end != nil {
		end()
		n.connected.Store(nil)
	}
}

// countHold adds count events that keep the agent down.
func (n *node) countHold(count int) {
	n.mu.Lock()
	n.down += count
	n.mu.Unlock()
	if count > 0 {
		n.kill()
	} else {
		n.start()
	}
}

// reboot restarts the machine. The agent must be down.
func (n *node) reboot() {
	n.machine.Reboot()
	n.boots.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.booted = time.Now()
	n.boot.Store(0)
}

// fault returns the fault of an executor call and its delay. No two containers of a node begin at one moment, because
// their order would then be random.
func (n *node) fault(c fake.Call) fake.Fault {
	f := n.accidentalFault(c)
	f.Delay += time.Duration(1 + hashed(n.fleet.story.Seed, string(c.ID)+string(c.Op))%uint64(100*time.Microsecond))
	return f
}

func (n *node) accidentalFault(c fake.Call) fake.Fault {
	n.mu.Lock()
	trouble, hasty := n.trouble > 0, n.lateStarts > 0
	n.mu.Unlock()
	if hasty && c.Op == fake.OpStart {
		return fake.Fault{Late: 5 * time.Second}
	}
	if !trouble || c.Op == fake.OpProbe {
		return fake.Fault{}
	}
	d := n.fleet.random.roll(n.name+":executor", string(c.ID), string(c.Op))
	broken := errors.New("the executor had an accident")
	switch d.below(14) {
	case 0:
		return fake.Fault{Delay: d.span(5 * time.Second)}
	case 1:
		return fake.Fault{Late: d.span(5 * time.Second)}
	case 2:
		return fake.Fault{Err: broken}
	case 3:
		return fake.Fault{Err: executor.ErrUnavailable}
	case 4:
		return fake.Fault{Twice: true}
	case 5:
		return fake.Fault{Lose: executor.ErrUnavailable}
	case 6:
		if c.Op == fake.OpStart {
			return fake.Fault{Dies: true}
		}
	case 7:
		if c.Op != fake.OpWait && c.Op != fake.OpPrepare { // an image may take half an hour
			return fake.Fault{Hang: true}
		}
	}
	return fake.Fault{}
}
