// Package process runs containers as plain processes, on machines without containerd.
//
// Each container has a supervisor: a small program inside the berth binary (ADR 0093), or that binary itself, started
// by Prepare with a hidden subcommand in a session of its own. It is the parent of the program and outlives the agent.
// It prepares a launcher, which waits right before the program's first instruction until Start; it writes the log,
// keeps the exit status on disk, takes in the program's orphans, and ends once the program and all that it started are
// gone and the exit is durable. A supervisor runs its program at most once; if it dies, so does the program, and its
// exit is unknown.
//
// # What a manifest's fields mean here
//
// There is no image: the program sees the node's file system. "image" is ignored where "command" is given, and is an
// error without it. Files, mounts and tmpfs appear at their absolute paths in a mount namespace that is the container's
// own, also where the path does not exist on the node, and leave no trace there. Without "dir" the program starts in an
// empty folder of its own, which BERTH_DIR names. Without "user" it runs as nobody, unless the operator said otherwise;
// who is not the agent's user finds the folder only as its working folder where the agent's data are closed to it.
// Nobody becomes root by another name than root or 0. read_only_root makes everything read-only for it but its mounts,
// its tmpfs, /dev and /proc. As root, all capabilities are dropped that are not listed. Limits need a cgroup (version 1
// or 2) that may be written: root's. An agent that is not root needs user namespaces for files, mounts, tmpfs and
// read_only_root, and can give neither another user nor capabilities.
//
// A field that cannot be honoured is refused with executor.ErrUnsupported and the field's name. Only limits without a
// cgroup are ignored: Probe and Prepare's progress say so.
//
// It is kept apart unless its container, or the operator for those that say nothing, has isolation none: then the
// program shares the node's network, processes and users. With isolation it has processes, devices, temporary files and
// memory between processes of its own, may write to nothing else but its folder, mounts and tmpfs, sees no homes and
// nothing of the agent's, and is nobody where no user is named. Only root can give that. As in a container of an image
// the program is process 1 then, which no signal ends that it does not handle, but KILL.
//
// # Isolation
//
// Landlock is a second wall, never the only one: mounts already keep a program from writing. Its rules are made with
// x/sys directly, because the launcher changes one thread and go-landlock changes all threads of a process. Commands of
// `berth exec` start in the program's process namespace by a supervisor's thread that entered it and never ends,
// because the kernel kills a child that is bound to its parent when the parent's thread ends. Temporary files of
// isolated programs are on the disk of the agent's data and go with the container.
//
// # Size
//
// The executor, the supervisor and the launcher are three processes of one binary. They exchange the same files and
// messages, whose formats are private, so they are one package. File names say which process runs the code:
// supervisor.go, launch.go, and process.go for the executor.
package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/executor/usage"
	"github.com/berthd/berth/internal/pause"
)

// Name is the executor's name in facts and flags.
const Name = "process"

// Subcommand is the hidden subcommand of the default Config: when os.Args[1] is it, main must
// return Supervise(os.Args[2:]) before it does anything else.
const Subcommand = "supervise-process"

// Config holds the settings of supervisors.
type Config struct {
	// Dir holds a folder for each container. It is made if it does not exist, and must survive the agent.
	Dir string
	// Executable is the program whose main calls Supervise, by default the running one, and Subcommand its first
	// argument, by default Subcommand.
	Executable string
	Subcommand string
	// Program, unless empty, is another program with the same main, smaller than Executable: supervisors run it from
	// memory. Where the machine does not run it they run Executable.
	Program string
	// CgroupParent is the cgroup below which containers get theirs, by default "/berth".
	CgroupParent string
	// Isolation holds for containers that name none. Default cluster.IsolationRequired.
	Isolation cluster.Isolation
	// User is the default user of programs, in the form of a container's user. Without it the default is nobody if the
	// agent is root, unless Isolation is none for the program: then it is the agent's own user.
	User string
	// Hidden are folders that isolated programs see empty, the agent's own.
	Hidden []string
	// NoCgroup runs containers without limits also where a cgroup could be had.
	NoCgroup bool
}

// Executor implements executor.Executor.
type Executor struct {
	cfg   Config
	locks outlive.KeyedLock[executor.ID]

	measuring sync.Mutex
	meter     usage.Meter

	// isolates asks the kernel once what it can do.
	isolates func() (by, lacks string)
	// program opens cfg.Program once.
	program func() (*os.File, error)
}

// New returns an Executor. It starts nothing; it finds earlier containers in cfg.Dir.
func New(cfg Config) (*Executor, error) {
	if cfg.Dir == "" {
		return nil, errors.New("process executor: no folder is configured")
	}
	if cfg.Executable == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find own executable: %w", err)
		}
		cfg.Executable = exe
	}
	if cfg.Subcommand == "" {
		cfg.Subcommand = Subcommand
	}
	if cfg.CgroupParent == "" {
		cfg.CgroupParent = "/berth"
	}
	return &Executor{
		cfg: cfg, isolates: sync.OnceValues(isolates),
		program: sync.OnceValues(func() (*os.File, error) { return openProgram(cfg.Program) }),
	}, nil
}

// Probe implements executor.Executor. The version lists the features that this machine lacks.
func (e *Executor) Probe(context.Context) (cluster.ExecutorFact, error) {
	if err := os.MkdirAll(e.cfg.Dir, 0o700); err != nil {
		return cluster.ExecutorFact{}, fmt.Errorf("make folder: %w", err)
	}
	fact := cluster.ExecutorFact{Name: Name, Version: "1"}
	fact.Isolation, fact.NoIsolation = e.isolates()
	if why := e.unlimited(); why != "" {
		fact.Version += " (" + why + ")"
	}
	return fact, nil
}

// unlimited says why limits are not enforced, or nothing if they are.
func (e *Executor) unlimited() string {
	if e.cfg.NoCgroup {
		return "cgroups are switched off: limits are not enforced"
	}
	if err := probeCgroup(e.cfg.CgroupParent); err != nil {
		return "no cgroup: limits are not enforced"
	}
	return ""
}

// Usage implements executor.Meter: by the container's cgroup if it has one, else by the processes that descend from the
// supervisor.
func (e *Executor) Usage(running map[executor.ID]executor.Process) map[executor.ID]executor.Usage {
	e.measuring.Lock()
	defer e.measuring.Unlock()
	out := make(map[executor.ID]executor.Usage, len(running))
	bare := map[executor.ID]executor.Process{}
	for id, p := range running { // order-free: each by itself
		if u, ok := e.meter.Group(filepath.Join(e.cfg.CgroupParent, string(id))); ok && !e.cfg.NoCgroup {
			out[id] = u
		} else if p.Pid > 0 {
			bare[id] = p
		}
	}
	maps.Copy(out, e.meter.Trees(bare))
	return out
}

// Details implements executor.Detailer, by the containers' cgroups, if they have one, and network namespaces.
func (e *Executor) Details(running map[executor.ID]executor.Process) map[executor.ID]cluster.Counts {
	e.measuring.Lock()
	defer e.measuring.Unlock()
	out := make(map[executor.ID]cluster.Counts, len(running))
	for id, p := range running { // order-free: each by itself
		path := filepath.Join(e.cfg.CgroupParent, string(id))
		if e.cfg.NoCgroup {
			path = ""
		}
		out[id] = e.meter.Detail(path, p)
	}
	return out
}

// Prepare implements executor.Executor: it starts the container's supervisor.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(string)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if progress == nil {
		progress = func(string) {}
	}
	plan, err := e.newPlan(spec)
	if err != nil {
		return err
	}
	unlock, err := e.locks.Lock(ctx, spec.ID)
	if err != nil {
		return err
	}
	defer unlock()
	dir := e.dir(spec.ID)
	switch st, err := dir.state(); {
	case err != nil && !errors.Is(err, executor.ErrNotFound):
		return err
	case err == nil && st.state != executor.StatePrepared:
		return fmt.Errorf("prepare: %w", executor.ErrStarted)
	case err == nil && st.alive:
		return nil
	}
	if why := e.unlimited(); why == "" {
		plan.CgroupParent = e.cfg.CgroupParent
	} else {
		progress(why)
	}
	plan.Subcommand = e.cfg.Subcommand
	if err := plan.makeFiles(); err != nil {
		return err
	}
	lock, err := dir.create(plan)
	if err != nil {
		return err
	}
	defer lock.Close()
	progress("starting the supervisor")
	return e.spawn(ctx, dir, lock)
}

// Start implements executor.Executor.
func (e *Executor) Start(ctx context.Context, id executor.ID) (executor.Process, error) {
	dir := e.dir(id)
	for {
		reply, err := dir.call(ctx, request{Op: opStart})
		if !errors.Is(err, errNoSupervisor) {
			return reply.Process, err
		}
		switch st, err := dir.state(); {
		case err != nil:
			return executor.Process{}, err
		case st.state != executor.StatePrepared:
			return executor.Process{}, executor.ErrStarted
		case !st.alive:
			if err := e.revive(ctx, id); err != nil {
				return executor.Process{}, executor.NotStarted(err)
			}
		}
		if err := pause.For(ctx, pollAfter); err != nil { // it does not listen yet
			return executor.Process{}, err
		}
	}
}

// revive starts another supervisor for a prepared container whose supervisor has died. The program has not run, because
// the intent to start it is written before its first instruction. So the next agent retries after a supervisor that
// failed when its agent was already dead.
func (e *Executor) revive(ctx context.Context, id executor.ID) error {
	unlock, err := e.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	dir := e.dir(id)
	st, err := dir.state()
	switch {
	case err != nil:
		return err
	case st.alive || st.state != executor.StatePrepared:
		return nil
	case len(st.plan.Args) == 0:
		return fmt.Errorf("%w: the container is half made; prepare it again", executor.ErrUnavailable)
	}
	lock, err := dir.create(st.plan)
	if err != nil {
		return err
	}
	defer lock.Close()
	return e.spawn(ctx, dir, lock)
}

// Wait implements executor.Executor.
func (e *Executor) Wait(ctx context.Context, id executor.ID) (cluster.Exit, error) {
	dir := e.dir(id)
	for {
		reply, err := dir.call(ctx, request{Op: opWait})
		if err == nil && reply.Exit != nil {
			return *reply.Exit, nil
		}
		if err != nil && !errors.Is(err, errNoSupervisor) {
			return cluster.Exit{}, err
		}
		st, err := dir.state()
		if err != nil {
			return cluster.Exit{}, err
		}
		switch {
		case st.exit != nil:
			return *st.exit, nil
		case st.alive:
			if err := pause.For(ctx, pollAfter); err != nil { // it is about to listen, or about to end
				return cluster.Exit{}, err
			}
		case st.state == executor.StatePrepared:
			return cluster.Exit{}, fmt.Errorf("%w: the supervisor has died before the start", executor.ErrUnavailable)
		default:
			return e.unseen(ctx, dir, st)
		}
	}
}

// unseen ends the remains of a dead supervisor's started container and records that the exit is unknown.
func (e *Executor) unseen(ctx context.Context, dir stateDir, st containerState) (cluster.Exit, error) {
	unlock, err := e.locks.Lock(ctx, dir.id())
	if err != nil {
		return cluster.Exit{}, err
	}
	defer unlock()
	if err := dir.killLeftovers(ctx, st, e.cfg.CgroupParent); err != nil {
		return cluster.Exit{}, err
	}
	exit := cluster.Exit{Code: -1, Unknown: true, At: time.Now()}
	if got, err := dir.exit(); err == nil {
		return got, nil
	}
	if err := dir.write(exitFile, exit); err != nil {
		return cluster.Exit{}, err
	}
	return exit, nil
}

// Signal implements executor.Executor.
func (e *Executor) Signal(ctx context.Context, id executor.ID, sig syscall.Signal) error {
	dir := e.dir(id)
	_, err := dir.call(ctx, request{Op: opSignal, Signal: int(sig)})
	if !errors.Is(err, errNoSupervisor) {
		return err
	}
	st, err := dir.state()
	if err != nil {
		return err
	}
	if st.state == executor.StateUnknown && sig == syscall.SIGKILL {
		return dir.killLeftovers(ctx, st, e.cfg.CgroupParent)
	}
	return executor.ErrNotRunning
}

// Remove implements executor.Executor.
func (e *Executor) Remove(ctx context.Context, id executor.ID) error {
	if !validID(id) {
		return nil // no container has it
	}
	unlock, err := e.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	dir := e.dir(id)
	for {
		st, err := dir.state()
		if err != nil && !errors.Is(err, executor.ErrNotFound) {
			return err
		}
		if !st.alive { // nor is one that is not found
			if err := dir.killLeftovers(ctx, st, e.cfg.CgroupParent); err != nil {
				return err
			}
			break
		}
		if _, err := dir.call(ctx, request{Op: opRemove}); err != nil && !errors.Is(err, errNoSupervisor) {
			return err
		}
		if err := pause.For(ctx, pollAfter); err != nil {
			return err
		}
	}
	return dir.remove()
}

// List implements executor.Executor.
func (e *Executor) List(ctx context.Context) ([]executor.Status, error) {
	entries, err := os.ReadDir(e.cfg.Dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var all []executor.Status
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id := executor.ID(entry.Name())
		if strings.HasPrefix(entry.Name(), removedPrefix) {
			// of a life that ended meanwhile; the next call tries again
			_ = os.RemoveAll(filepath.Join(e.cfg.Dir, entry.Name()))
		}
		if !validID(id) {
			continue
		}
		busy := e.locks.Held(id)
		st, err := e.dir(id).state()
		if errors.Is(err, executor.ErrNotFound) || err == nil && busy && len(st.plan.Args) == 0 {
			continue // removed, or in the making, just now
		}
		if err != nil {
			return nil, err
		}
		s := executor.Status{ID: st.plan.ID, Labels: st.plan.Labels, State: st.state, Exit: st.exit}
		if st.state == executor.StateRunning {
			s.Process = st.process
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b executor.Status) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all, nil
}

// dir returns the folder of a container. For an invalid id it is a folder that never exists.
func (e *Executor) dir(id executor.ID) stateDir {
	if !validID(id) {
		id = ".no-id"
	}
	return stateDir(filepath.Join(e.cfg.Dir, string(id)))
}

// pollAfter is the interval of the driver's checks for an imminent action of a supervisor.
const pollAfter = 2 * time.Millisecond
