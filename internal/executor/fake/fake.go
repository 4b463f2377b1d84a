// Package fake is an executor that simulates programs, on a machine with many kinds of faults.
//
// A Machine holds the containers; each life of an agent attaches an Executor to it. The container's command describes
// the program's behaviour, such as ["print", "hello", "exit", "3", "after", "2s"]; parse lists the words. Faults come
// from the machine's trouble function or from a container's labels: see Fault. All time comes from package time and no
// goroutine is left behind, so a machine works inside a synctest bubble.
package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/pause"
)

// Name is the executor's name in facts and flags.
const Name = "fake"

// Machine is the state that outlives agents. Its methods may be called concurrently.
type Machine struct {
	mu         sync.Mutex
	containers map[executor.ID]*container
	trouble    func(Call) Fault
	calls      map[Call]int
	nextPid    int
	history    []Run
	observe    func(Run)
	use        func(Run) executor.Usage
	counts     func(Run) cluster.Counts
	program    func(Run) []string
}

// Run is one run of a program, for invariants. A container has at most one.
type Run struct {
	ID      executor.ID
	Labels  map[string]string
	Started time.Time
	// Ended is zero while it runs.
	Ended time.Time
	Exit  cluster.Exit
}

// container is one container of a machine, guarded by its lock.
type container struct {
	spec    executor.Spec
	play    play
	state   executor.State
	process executor.Process
	exit    cluster.Exit
	ended   chan struct{} // closed with the end
	removed chan struct{}
	timer   *time.Timer
	run     int // index in history
}

// NewMachine returns a machine without containers and without trouble.
func NewMachine() *Machine {
	return &Machine{containers: map[executor.ID]*container{}, calls: map[Call]int{}, nextPid: 1000}
}

// SetTrouble sets the function that decides the fault of each call; nil means no faults. It is called without a lock.
func (m *Machine) SetTrouble(f func(Call) Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = f
}

// SetObserver sets the function that is called at every start and end of a program, in their order. It sees the truth,
// whatever an agent knows. It runs under the machine's lock and must not call the machine.
func (m *Machine) SetObserver(f func(Run)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe = f
}

// SetUse sets the function that returns the resource usage of a run; nil means that it is unknown. It runs under the
// machine's lock and must not call the machine.
func (m *Machine) SetUse(f func(Run) executor.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use = f
}

// SetCounts sets the function that returns the kernel's counters of a run, in the same way.
func (m *Machine) SetCounts(f func(Run) cluster.Counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts = f
}

// SetProgram sets the function that returns the words of the program of a run at its start. No words mean the command
// of the container. A program that fails once and succeeds later is such a function. It runs under the machine's lock
// and must not call the machine.
func (m *Machine) SetProgram(f func(Run) []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.program = f
}

// notify calls the observer for a run. The lock is held.
func (m *Machine) notify(run int) {
	if m.observe != nil {
		m.observe(m.history[run])
	}
}

// History returns all runs so far in the order of their starts, also of removed containers.
func (m *Machine) History() []Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.history)
}

// Kill ends a program with the signal KILL, as an external kill would. It returns ErrNotRunning if none runs.
func (m *Machine) Kill(id executor.ID) error {
	return m.End(id, cluster.Exit{Code: 137, Signal: 9})
}

// End ends a program with an exit of the caller's choice.
func (m *Machine) End(id executor.ID, exit cluster.Exit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.containers[id]
	if c == nil || c.state != executor.StateRunning {
		return executor.ErrNotRunning
	}
	m.end(c, exit)
	return nil
}

// Reboot ends all programs; their exits are not observed.
func (m *Machine) Reboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.containers)) {
		c := m.containers[id]
		if c.state == executor.StateRunning {
			m.end(c, cluster.Exit{Code: -1, Unknown: true})
		}
	}
}

// end is called with the lock held, on a running container.
func (m *Machine) end(c *container, exit cluster.Exit) {
	if c.timer != nil {
		c.timer.Stop()
	}
	if exit.At.IsZero() {
		exit.At = time.Now()
	}
	c.state, c.exit = executor.StateExited, exit
	m.history[c.run].Ended, m.history[c.run].Exit = exit.At, exit
	m.notify(c.run)
	close(c.ended)
}

// Executor is one life of an agent on a machine.
type Executor struct {
	machine *Machine
	dead    chan struct{}
	once    sync.Once
}

// New attaches a life of an agent to a machine.
func New(m *Machine) *Executor { return &Executor{machine: m, dead: make(chan struct{})} }

// Die ends this life of the agent: pending and later calls return ErrUnavailable. Programs run on.
func (e *Executor) Die() { e.once.Do(func() { close(e.dead) }) }

// Probe implements executor.Executor.
func (e *Executor) Probe(ctx context.Context) (cluster.ExecutorFact, error) {
	err := e.call(ctx, Call{Op: OpProbe}, nil, func(Fault) error { return nil })
	return cluster.ExecutorFact{Name: Name, Version: "1"}, err
}

// Usage implements executor.Meter with the function of Machine.SetUse.
func (e *Executor) Usage(running map[executor.ID]executor.Process) map[executor.ID]executor.Usage {
	m := e.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.use == nil {
		return nil
	}
	out := make(map[executor.ID]executor.Usage, len(running))
	for id := range running { // order-free: each by itself
		if c := m.containers[id]; c != nil && c.state == executor.StateRunning {
			out[id] = m.use(m.history[c.run])
		}
	}
	return out
}

// Details implements executor.Detailer with the function of Machine.SetCounts.
func (e *Executor) Details(running map[executor.ID]executor.Process) map[executor.ID]cluster.Counts {
	m := e.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		return nil
	}
	out := make(map[executor.ID]cluster.Counts, len(running))
	for id := range running { // order-free: each by itself
		if c := m.containers[id]; c != nil && c.state == executor.StateRunning {
			out[id] = m.counts(m.history[c.run])
		}
	}
	return out
}

// Prepare implements executor.Executor.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(string)) error {
	p, err := parse(spec.Container.Command, spec.Container.Args)
	if err != nil {
		return err
	}
	if progress != nil {
		progress("preparing")
	}
	return e.call(ctx, Call{Op: OpPrepare, ID: spec.ID}, spec.Labels, func(Fault) error {
		if p.prepareDelay > 0 {
			if err := e.sleep(ctx, p.prepareDelay); err != nil {
				return err
			}
		}
		if p.prepareFail != "" {
			return errors.New(p.prepareFail)
		}
		m := e.machine
		m.mu.Lock()
		defer m.mu.Unlock()
		if c := m.containers[spec.ID]; c != nil {
			if c.state != executor.StatePrepared {
				return executor.ErrStarted
			}
			return nil
		}
		spec.Labels = maps.Clone(spec.Labels)
		m.containers[spec.ID] = &container{
			spec: spec, play: p, state: executor.StatePrepared, ended: make(chan struct{}),
			removed: make(chan struct{}),
		}
		return nil
	})
}

// Start implements executor.Executor.
func (e *Executor) Start(ctx context.Context, id executor.ID) (executor.Process, error) {
	var process executor.Process
	err := e.call(ctx, Call{Op: OpStart, ID: id}, e.machine.labels(id), func(f Fault) error {
		m := e.machine
		m.mu.Lock()
		defer m.mu.Unlock()
		c := m.containers[id]
		switch {
		case c == nil:
			return executor.ErrNotFound
		case c.state != executor.StatePrepared:
			return executor.ErrStarted
		}
		if err := m.start(c, f); err != nil {
			return err
		}
		process = c.process
		return nil
	})
	return process, err
}

// start is called with the lock held.
func (m *Machine) start(c *container, f Fault) error {
	run := Run{ID: c.spec.ID, Labels: c.spec.Labels, Started: time.Now()}
	if m.program != nil {
		if words := m.program(run); len(words) > 0 {
			play, err := parse(words, nil)
			if err != nil {
				return err
			}
			c.play = play
		}
	}
	m.nextPid++
	c.process = executor.Process{Pid: m.nextPid, PidStart: uint64(m.nextPid) * 100, Started: run.Started}
	c.state, c.run = executor.StateRunning, len(m.history)
	m.history = append(m.history, run)
	m.notify(c.run)
	c.play.writeOutput(c.spec.LogDir)
	switch {
	case f.Dies:
		m.end(c, cluster.Exit{Code: 139, Signal: 11})
	case c.play.ends && c.play.after == 0:
		m.end(c, c.play.exit)
	case c.play.ends:
		c.timer = time.AfterFunc(c.play.after, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if c.state == executor.StateRunning {
				m.end(c, c.play.exit)
			}
		})
	}
	return nil
}

// Wait implements executor.Executor.
func (e *Executor) Wait(ctx context.Context, id executor.ID) (cluster.Exit, error) {
	var exit cluster.Exit
	err := e.call(ctx, Call{Op: OpWait, ID: id}, e.machine.labels(id), func(f Fault) error {
		m := e.machine
		m.mu.Lock()
		c := m.containers[id]
		m.mu.Unlock()
		if c == nil {
			return executor.ErrNotFound
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.dead:
			return executor.ErrUnavailable
		case <-c.ended:
		case <-c.removed:
			return executor.ErrNotFound
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		exit = c.exit
		if f.Exit != nil {
			exit = *f.Exit
		}
		return nil
	})
	return exit, err
}

// Signal implements executor.Executor.
func (e *Executor) Signal(ctx context.Context, id executor.ID, sig syscall.Signal) error {
	return e.call(ctx, Call{Op: OpSignal, ID: id}, e.machine.labels(id), func(Fault) error {
		m := e.machine
		m.mu.Lock()
		defer m.mu.Unlock()
		c := m.containers[id]
		switch {
		case c == nil:
			return executor.ErrNotFound
		case c.state != executor.StateRunning:
			return executor.ErrNotRunning
		case sig == syscall.SIGTERM && c.play.ignoreTerm, sig != syscall.SIGTERM && sig != syscall.SIGKILL:
			return nil
		case sig == syscall.SIGTERM && c.play.onTerm != nil:
			m.end(c, *c.play.onTerm)
		default:
			m.end(c, cluster.Exit{Code: 128 + int(sig), Signal: int(sig)})
		}
		return nil
	})
}

// Remove implements executor.Executor.
func (e *Executor) Remove(ctx context.Context, id executor.ID) error {
	return e.call(ctx, Call{Op: OpRemove, ID: id}, e.machine.labels(id), func(Fault) error {
		m := e.machine
		m.mu.Lock()
		defer m.mu.Unlock()
		c := m.containers[id]
		if c == nil {
			return nil
		}
		if c.state == executor.StateRunning {
			m.end(c, cluster.Exit{Code: 137, Signal: 9})
		}
		close(c.removed)
		delete(m.containers, id)
		return nil
	})
}

// List implements executor.Executor.
func (e *Executor) List(ctx context.Context) ([]executor.Status, error) {
	var all []executor.Status
	err := e.call(ctx, Call{Op: OpList}, nil, func(Fault) error {
		m := e.machine
		m.mu.Lock()
		defer m.mu.Unlock()
		all = nil
		for _, id := range slices.Sorted(maps.Keys(m.containers)) {
			c := m.containers[id]
			s := executor.Status{ID: id, Labels: maps.Clone(c.spec.Labels), State: c.state}
			switch c.state {
			case executor.StateRunning:
				s.Process = c.process
			case executor.StateExited:
				exit := c.exit
				s.Exit = &exit
			}
			all = append(all, s)
		}
		return nil
	})
	return all, err
}

// Exec implements executor.Executor. The command is a play of its own.
func (e *Executor) Exec(ctx context.Context, id executor.ID, cmd executor.Command) (int, error) {
	code := 0
	err := e.call(ctx, Call{Op: OpExec, ID: id}, e.machine.labels(id), func(Fault) error {
		m := e.machine
		m.mu.Lock()
		c := m.containers[id]
		m.mu.Unlock()
		if c == nil {
			return executor.ErrNotFound
		}
		select {
		case <-c.ended:
			return executor.ErrNotRunning
		default:
		}
		p, err := parse(cmd.Args, nil)
		if err != nil {
			return err
		}
		say(cmd.Stdout, p.stdout)
		say(cmd.Stderr, p.stderr)
		if !p.ends {
			p.after = 1<<63 - 1
		}
		if err := e.sleep(ctx, p.after); err != nil {
			return err
		}
		code = p.exit.Code
		return nil
	})
	return code, err
}

func say(w io.Writer, lines []string) {
	if w != nil && len(lines) > 0 {
		_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	}
}

func (m *Machine) labels(id executor.ID) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.containers[id]; c != nil {
		return c.spec.Labels
	}
	return nil
}

// sleep waits on this life's behalf.
func (e *Executor) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	dead, err := pause.Until(ctx, e.dead, d)
	if dead {
		return executor.ErrUnavailable
	}
	return err
}

// writeOutput writes the program's output into its log.
func (p *play) writeOutput(dir string) {
	if dir == "" || len(p.stdout)+len(p.stderr) == 0 {
		return
	}
	w := logs.NewWriter(logs.Config{Dir: dir})
	say(w.Stream(logs.Stdout), p.stdout)
	say(w.Stream(logs.Stderr), p.stderr)
	_ = w.Close()
}

// errTrouble is the error of a Fault that names none.
var errTrouble = fmt.Errorf("%w: the machine is in trouble", executor.ErrUnavailable)
