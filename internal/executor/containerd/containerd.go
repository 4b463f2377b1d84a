// Package containerd runs containers of images through containerd, from version 1.6 on.
//
// A container is one of containerd's, in a namespace of Berth's, with one task. Prepare pulls missing images, makes the
// snapshot and the container and creates the task, which then waits before its first instruction. Start makes its
// intent durable, starts the task, and is refused ever after. The exit is written into the container's folder before
// the task is deleted. So no restart of the agent or of containerd loses an exit; only the death of a task's shim does.
//
// The program's output goes through named pipes in the container's folder to the collector: one process per node that
// outlives the agent and writes the logs, see package collector. (containerd could start a log process itself, but one
// for each container, and its start would delay the first instruction.)
//
// Programs have the node's network, its /etc/hosts, /etc/resolv.conf and name, their own processes, mounts and IPC;
// only the listed capabilities; no new privileges; containerd's default seccomp profile.
//
// # Size
//
// Half of the package is about images: files named image and pull. Images and containers share the connection and the
// names that pin an image for its containers, which would be exported if they were two packages.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd/collector"
	"github.com/berthd/berth/internal/executor/containerd/runspec"
	"github.com/berthd/berth/internal/executor/outlive"
)

// Name is the executor's name in facts and flags.
const Name = "containerd"

// Defaults of Config.
const (
	DefaultAddress      = "/run/containerd/containerd.sock"
	DefaultNamespace    = "berth"
	DefaultCgroupParent = "/berth"
	// DefaultAtOnce is the default of Config.AtOnce.
	DefaultAtOnce = 8
)

// Config selects a containerd and its settings.
type Config struct {
	// Address is containerd's socket, by default DefaultAddress.
	Address string
	// Namespace is the namespace in containerd, by default DefaultNamespace. It belongs to one agent.
	Namespace string
	// Snapshotter is containerd's, by default its own default.
	Snapshotter string
	// CgroupParent is the cgroup below which containers get theirs, by default DefaultCgroupParent.
	CgroupParent string
	// NoSeccomp leaves out the default seccomp profile, for a runc built without it. Most of runc's work to create a
	// task is the translation of the profile.
	NoSeccomp bool
	// CDIDirs are where specifications of devices are, by default those of the Container Device Interface.
	CDIDirs []string
	// Dir is the folder of the collector. It is made if it does not exist.
	Dir string
	// Executable is the program whose main calls collector.Run, by default the running one, and Subcommand its first
	// argument, by default collector.Subcommand.
	Executable string
	Subcommand string
	// Launcher is a static program whose main calls outlive.Become, by default the running one. It runs inside
	// containers that get variables from secrets, and starts their programs.
	Launcher string
	Logger   *slog.Logger // nil for none
	// Pull bounds how images are pulled.
	Pull PullConfig
	// AtOnce limits the containers that are being created at the same time, and those that are being started. Others
	// wait for a slot; a container that waits for its image takes none. Default: DefaultAtOnce.
	AtOnce int
	// DiskUse measures the disk of a folder. Default: the kernel's figures.
	DiskUse func(folder string) (executor.DiskUse, error)
}

// Executor implements executor.Executor, executor.ImageStore and executor.ImageKeeper. It runs containers; its parts do
// the rest, and their exported methods are methods of the Executor.
type Executor struct {
	*connection
	*imageIndex
	*imageSource
	*usageMeter

	collector *collector.Client
	spec      *runspec.Builder
	cgroups   *cgroups
	orphans   *orphans
	abandoned *abandonedCommands
	locks     outlive.KeyedLock[executor.ID]
	// creating and starting hold a value for each container that is: one that is ready need not wait until others are
	// made.
	creating, starting chan struct{}

	mu       sync.Mutex
	prepared map[executor.ID]prepared // what Start needs to know, to be quick
	cleaned  map[executor.ID]bool     // ended containers whose task this life deleted whole, with its shim
}

// Executor implements ImageKeeper.
var _ executor.ImageKeeper = (*Executor)(nil)

// prepared is a container with a task that was not started in this life.
type prepared struct {
	dir     string
	process executor.Process
}

// New returns an Executor. It starts nothing and does not need a running containerd. Close ends it.
func New(cfg Config) (*Executor, error) {
	setDefault(&cfg.Address, DefaultAddress)
	setDefault(&cfg.Namespace, DefaultNamespace)
	setDefault(&cfg.CgroupParent, DefaultCgroupParent)
	setDefault(&cfg.Subcommand, collector.Subcommand)
	if cfg.Launcher == "" {
		cfg.Launcher, _ = os.Executable() // checked when it is needed
	}
	if cfg.AtOnce <= 0 {
		cfg.AtOnce = DefaultAtOnce
	}
	if cfg.Dir == "" {
		return nil, errors.New("containerd executor: no folder is configured")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Executable == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find own executable: %w", err)
		}
		cfg.Executable = exe
	}
	// The limit of a connection's set-up is also that of the pause between attempts.
	cl, err := client.New(cfg.Address, client.WithTimeout(time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	conn := &connection{cfg: cfg, client: cl}
	e := &Executor{
		connection: conn, imageIndex: &imageIndex{connection: conn},
		usageMeter: &usageMeter{cgroupParent: cfg.CgroupParent},
		collector: collector.New(collector.Config{
			Dir: cfg.Dir, Executable: cfg.Executable, Subcommand: cfg.Subcommand, Cgroup: cfg.CgroupParent,
		}),
		spec:      &runspec.Builder{NoSeccomp: cfg.NoSeccomp, Launcher: cfg.Launcher, CDIDirs: cfg.CDIDirs},
		cgroups:   &cgroups{cfg.CgroupParent},
		abandoned: &abandonedCommands{log: cfg.Logger, folders: map[string]bool{}},
		creating:  make(chan struct{}, cfg.AtOnce), starting: make(chan struct{}, cfg.AtOnce),
		prepared: map[executor.ID]prepared{}, cleaned: map[executor.ID]bool{},
	}
	e.imageSource = &imageSource{connection: conn, index: e.imageIndex, puller: newPuller(cfg.Pull)}
	e.orphans = &orphans{cfg.Namespace, cfg.Address, e.cgroups}
	return e, nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// Close closes the connection to containerd. Containers and the collector run on.
func (e *Executor) Close() error {
	if err := e.client.Close(); err != nil {
		return fmt.Errorf("close connection to containerd: %w", err)
	}
	return nil
}

// StopCollector ends the node's collector, once no container runs any more.
func (e *Executor) StopCollector(ctx context.Context) error { return e.collector.Stop(ctx) }

// Start implements executor.Executor.
func (e *Executor) Start(ctx context.Context, id executor.ID) (executor.Process, error) {
	ctx = e.in(ctx)
	unlock, err := e.locks.Lock(ctx, id)
	if err != nil {
		return executor.Process{}, err
	}
	defer unlock()
	p, err := e.preparedTask(ctx, id)
	if err != nil {
		return executor.Process{}, err
	}
	r := record{id: id, dir: p.dir}
	if _, started := r.intent(); started {
		return executor.Process{}, executor.ErrStarted
	}
	// before the intent: a start that is given up while it waits has not begun
	done, err := takeSlot(ctx, e.starting, nil)
	if err != nil {
		return executor.Process{}, err
	}
	defer done()
	p.process.Started = time.Now()
	if err := outlive.Write(r.path(intentFile), p.process); err != nil {
		return executor.Process{}, executor.NotStarted(err)
	}
	e.dropPrepared(id)
	if _, err := e.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: nameOf(id)}); err != nil {
		err = failed(ctx, "start task", err)
		if ctx.Err() == nil && !errors.Is(err, executor.ErrUnavailable) {
			e.abandonStart(ctx, r)
		}
		return executor.Process{}, err
	}
	return p.process, nil
}

// takeSlot waits for one of the slots of the channel. waiting, unless nil, is called once if there is none now. done
// gives the slot back.
func takeSlot(ctx context.Context, turns chan struct{}, waiting func()) (done func(), err error) {
	done = func() { <-turns }
	select {
	case turns <- struct{}{}:
		return done, nil
	default:
	}
	if waiting != nil {
		waiting()
	}
	select {
	case turns <- struct{}{}:
		return done, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// abandonStart ends a task that could not be started. Its progress is unknown.
func (e *Executor) abandonStart(ctx context.Context, r record) {
	if err := e.kill(ctx, r.id); err == nil {
		_ = outlive.Write(r.path(exitFile), cluster.Exit{Code: -1, Unknown: true, At: time.Now()})
	}
}

// preparedTask returns a prepared container, from memory or from containerd.
func (e *Executor) preparedTask(ctx context.Context, id executor.ID) (prepared, error) {
	e.mu.Lock()
	p, ok := e.prepared[id]
	e.mu.Unlock()
	if ok {
		return p, nil
	}
	r, err := e.load(ctx, id)
	if err != nil {
		return prepared{}, err
	}
	if _, started := r.intent(); started {
		return prepared{}, executor.ErrStarted
	}
	t, err := e.task(ctx, id)
	if err != nil {
		return prepared{}, err
	}
	if t == nil || t.Status != tasktypes.Status_CREATED {
		return prepared{}, fmt.Errorf("%w: the task is gone; prepare the container again", executor.ErrUnavailable)
	}
	return prepared{r.dir, processOf(int(t.Pid))}, nil
}

func processOf(pid int) executor.Process {
	return executor.Process{Pid: pid, PidStart: outlive.StartOf(pid)}
}

func (e *Executor) dropPrepared(id executor.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.prepared, id)
}

// Signal implements executor.Executor.
func (e *Executor) Signal(ctx context.Context, id executor.ID, sig syscall.Signal) error {
	ctx = e.in(ctx)
	r, err := e.load(ctx, id)
	if err != nil {
		return err
	}
	_, started := r.intent()
	if _, ended := r.exit(); !started || ended {
		return executor.ErrNotRunning
	}
	_, err = e.client.TaskService().Kill(ctx, &tasks.KillRequest{
		ContainerID: nameOf(id), Signal: uint32(sig), All: sig == syscall.SIGKILL,
	})
	if isA(err, errdefs.IsNotFound) {
		return executor.ErrNotRunning
	}
	return failed(ctx, "signal task", err)
}

// Remove implements executor.Executor.
func (e *Executor) Remove(ctx context.Context, id executor.ID) error {
	ctx = e.in(ctx)
	unlock, err := e.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return e.remove(ctx, id)
}

func (e *Executor) remove(ctx context.Context, id executor.ID) error {
	if !collector.ValidID(id) {
		return nil // no container has it
	}
	e.dropPrepared(id)
	e.mu.Lock()
	cleaned := e.cleaned[id]
	delete(e.cleaned, id)
	e.mu.Unlock()
	c, err := e.client.ContainerService().Get(ctx, nameOf(id))
	switch {
	case isA(err, errdefs.IsNotFound):
		// A Prepare that failed early may have left a task's pipes with the collector, and a snapshot.
		return errors.Join(e.collector.Finish(ctx, id), e.removeSnapshot(ctx, e.snapshotter(), nameOf(id)))
	case err != nil:
		return failed(ctx, "find container", err)
	}
	r := recordOf(c)
	t, err := e.task(ctx, id)
	if err == nil && t != nil {
		err = e.kill(ctx, id)
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(r.path(againFile)); !cleaned || err == nil {
		e.orphans.kill(ctx, id, t != nil)
	}
	if err := e.collector.Finish(ctx, id); err != nil {
		return err
	}
	if err := e.client.ContainerService().Delete(ctx, c.ID); err != nil && !isA(err, errdefs.IsNotFound) {
		return failed(ctx, "delete container", err)
	}
	if c.SnapshotKey != "" {
		if err := e.removeSnapshot(ctx, c.Snapshotter, c.SnapshotKey); err != nil {
			return err
		}
	}
	e.noteUse(ctx, c.Image)
	for _, name := range []string{
		exitFile, collector.StdoutFile, collector.StderrFile, runspec.FilesDir, againFile, intentFile,
	} {
		_ = os.RemoveAll(r.path(name))
	}
	return nil
}

// List implements executor.Executor.
func (e *Executor) List(ctx context.Context) ([]executor.Status, error) {
	ctx = e.in(ctx)
	all, err := e.client.ContainerService().List(ctx)
	if err != nil {
		return nil, failed(ctx, "list containers", err)
	}
	for _, c := range all { // first, as shims that wait may not answer
		e.abandoned.release(recordOf(c))
	}
	resp, err := e.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, failed(ctx, "list tasks", err)
	}
	byID := map[string]*tasktypes.Process{}
	for _, t := range resp.Tasks {
		byID[t.ID] = t
	}
	var list []executor.Status
	for _, c := range all {
		r := recordOf(c)
		s := executor.Status{ID: r.id, Labels: r.labels, State: executor.StatePrepared}
		process, started := r.intent()
		exit, ended := r.exit()
		t := byID[c.ID]
		if started && !ended && t != nil && t.Status == tasktypes.Status_STOPPED {
			if got, err := e.Wait(ctx, r.id); err == nil {
				exit, ended = got, true
			}
		}
		switch {
		case ended:
			s.State, s.Exit = executor.StateExited, &exit
		case started && t == nil:
			s.State = executor.StateUnknown
		case started:
			s.State, s.Process = executor.StateRunning, process
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b executor.Status) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list, nil
}
