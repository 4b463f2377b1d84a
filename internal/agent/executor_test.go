package agent

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// program is the behaviour of a container of the test executor.
type program struct {
	Runs         time.Duration // 0: forever
	Code         int
	OOM          bool
	IgnoresTerm  bool // ignores TERM
	SurvivesKill bool // survives KILL for a while
	Prepare      error
	Start        error         // Start returns it
	Doubt        error         // the program begins, and Start returns it
	Lost         bool          // the first answer of Start gets lost
	Late         time.Duration // Start returns this much after the program began
	Pull         time.Duration // duration of Prepare
}

// testExecutor is a machine's executor, which outlives the agents that use it. It counts each start of a program as an
// effect.
type testExecutor struct {
	mu       sync.Mutex
	programs map[string]program // by container name; "" for all others
	runs     map[executor.ID]*run
	effects  []string // "<container> <attempt>", in the order of their starts
	down     bool     // does not answer
	mute     bool     // List fails
	// uses holds the use of an attempt's containers, by UUID.
	uses   map[string]executor.Usage
	images []string                 // result of ImageNames
	moved  map[executor.ID][]string // CPUs of each Pin call, in order
	// crash is called at each point before and after an effect; see TestCrashAtEveryStep.
	crash func(point string)
}

func (b *testExecutor) point(name string) func() {
	if b.crash == nil {
		return func() {}
	}
	b.crash("before " + name)
	return func() { b.crash("after " + name) }
}

type run struct {
	spec    executor.Spec
	program program
	state   executor.State
	proc    executor.Process
	exit    cluster.Exit
	ended   chan struct{}
	signals []syscall.Signal
	at      []time.Time
}

// setMute makes List fail, or work again.
func (b *testExecutor) setMute(mute bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mute = mute
}

func newTestExecutor() *testExecutor {
	return &testExecutor{programs: map[string]program{}, runs: map[executor.ID]*run{}}
}

func (b *testExecutor) lock() (unlock func(), err error) {
	b.mu.Lock()
	if b.down {
		b.mu.Unlock()
		return nil, executor.ErrUnavailable
	}
	return b.mu.Unlock, nil
}

func (b *testExecutor) Probe(context.Context) (cluster.ExecutorFact, error) {
	return cluster.ExecutorFact{Name: "box", Version: "1"}, nil
}

// ImageNames implements executor.ImageNamer.
func (b *testExecutor) ImageNames(context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.images), nil
}

// Pin implements executor.Pinner.
func (b *testExecutor) Pin(_ context.Context, id executor.ID, cpus string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.moved == nil {
		b.moved = map[executor.ID][]string{}
	}
	b.moved[id] = append(b.moved[id], cpus)
	return nil
}

func (b *testExecutor) Prepare(ctx context.Context, spec executor.Spec, progress func(string)) error {
	defer b.point("prepare")()
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	p, ok := b.programs[spec.Container.Name]
	if !ok {
		p = b.programs[""]
	}
	unlock()
	if p.Pull > 0 {
		progress("pulling")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.Pull): // in-bubble: test executors run in the tests' bubbles only
		}
	}
	if p.Prepare != nil {
		return p.Prepare
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs[spec.ID] == nil {
		b.runs[spec.ID] = &run{spec: spec, program: p, state: executor.StatePrepared, ended: make(chan struct{})}
	}
	return nil
}

func (b *testExecutor) Start(ctx context.Context, id executor.ID) (executor.Process, error) {
	defer b.point("start")()
	unlock, err := b.lock()
	if err != nil {
		return executor.Process{}, err
	}
	r := b.runs[id]
	switch {
	case r == nil:
		unlock()
		return executor.Process{}, executor.ErrNotFound
	case r.state != executor.StatePrepared:
		unlock()
		return executor.Process{}, executor.ErrStarted
	case r.program.Start != nil:
		unlock()
		return executor.Process{}, r.program.Start
	}
	r.state = executor.StateRunning
	r.proc = executor.Process{Pid: 100 + len(b.effects), PidStart: uint64(len(b.effects)) + 1, Started: time.Now()}
	b.effects = append(b.effects, r.spec.Container.Name+" "+r.spec.Labels[task.LabelUUID])
	if r.program.Runs > 0 {
		time.AfterFunc(r.program.Runs, func() {
			b.end(r, cluster.Exit{Code: r.program.Code, OOM: r.program.OOM})
		})
	}
	if err := r.program.Doubt; err != nil {
		unlock()
		return executor.Process{}, err
	}
	p, late, lost := r.proc, r.program.Late, r.program.Lost
	unlock()
	if lost {
		return executor.Process{}, executor.ErrUnavailable
	}
	if late > 0 {
		select {
		case <-ctx.Done():
			return executor.Process{}, ctx.Err()
		case <-time.After(late): // in-bubble: as above
		}
	}
	return p, nil
}

func (b *testExecutor) end(r *run, exit cluster.Exit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.state != executor.StateRunning {
		return
	}
	exit.At = time.Now()
	r.state, r.exit = executor.StateExited, exit
	close(r.ended)
}

func (b *testExecutor) Wait(ctx context.Context, id executor.ID) (cluster.Exit, error) {
	unlock, err := b.lock()
	if err != nil {
		return cluster.Exit{}, err
	}
	r := b.runs[id]
	unlock()
	if r == nil {
		return cluster.Exit{}, executor.ErrNotFound
	}
	select {
	case <-ctx.Done():
		return cluster.Exit{}, ctx.Err()
	case <-r.ended:
		b.point("wait")()
		return r.exit, nil
	}
}

// Usage is part of executor.Meter.
func (b *testExecutor) Usage(running map[executor.ID]executor.Process) map[executor.ID]executor.Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[executor.ID]executor.Usage{}
	for id := range running {
		if u, ok := b.uses[b.runs[id].spec.Labels[task.LabelUUID]]; ok {
			out[id] = u
		}
	}
	return out
}

func (b *testExecutor) Signal(_ context.Context, id executor.ID, sig syscall.Signal) error {
	defer b.point("signal")()
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	r := b.runs[id]
	if r == nil {
		unlock()
		return executor.ErrNotFound
	}
	if r.state != executor.StateRunning {
		unlock()
		return executor.ErrNotRunning
	}
	r.signals = append(r.signals, sig)
	r.at = append(r.at, time.Now())
	deaf := sig == syscall.SIGTERM && r.program.IgnoresTerm || r.program.SurvivesKill
	unlock()
	if !deaf {
		b.end(r, cluster.Exit{Code: 128 + int(sig), Signal: int(sig)})
	}
	return nil
}

func (b *testExecutor) Remove(_ context.Context, id executor.ID) error {
	defer b.point("remove")()
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	r := b.runs[id]
	delete(b.runs, id)
	unlock()
	if r != nil {
		b.end(r, cluster.Exit{Code: 137, Signal: 9})
	}
	return nil
}

func (b *testExecutor) List(context.Context) ([]executor.Status, error) {
	unlock, err := b.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if b.mute {
		return nil, executor.ErrUnavailable
	}
	var all []executor.Status
	for _, id := range slices.Sorted(maps.Keys(b.runs)) {
		r := b.runs[id]
		s := executor.Status{ID: id, Labels: r.spec.Labels, State: r.state}
		switch r.state {
		case executor.StateRunning:
			s.Process = r.proc
		case executor.StateExited:
			exit := r.exit
			s.Exit = &exit
		case executor.StatePrepared, executor.StateUnknown:
		}
		all = append(all, s)
	}
	return all, nil
}

func (b *testExecutor) Exec(ctx context.Context, _ executor.ID, cmd executor.Command) (int, error) {
	switch cmd.Args[0] {
	case "cat":
		_, err := io.Copy(cmd.Stdout, cmd.Stdin)
		return 0, err
	case "hang":
		<-ctx.Done()
		return 0, ctx.Err()
	case "tty":
		fmt.Fprint(cmd.Stdout, cmd.Env, cmd.Terminal.Size)
		fmt.Fprint(cmd.Stdout, <-cmd.Terminal.Resized)
		_, err := cmd.Stdin.Read(make([]byte, 1))
		return 17, err
	}
	fmt.Fprint(cmd.Stdout, strings.Join(cmd.Args, " "))
	return 3, nil
}

// running returns the number of running programs of all attempts.
func (b *testExecutor) running() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runs {
		if r.state == executor.StateRunning {
			n++
		}
	}
	return n
}

// reboot ends everything, like a power failure.
func (b *testExecutor) reboot() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, r := range b.runs {
		if r.state == executor.StateRunning {
			r.state = executor.StateUnknown
		}
		delete(b.runs, id)
	}
}
