package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/pause"
)

// Files of a container's folder.
const (
	planFile    = "plan.json"   // written by Prepare; without it there is no container
	intentFile  = "intent.json" // written by the supervisor right before the start: the Process
	exitFile    = "exit.json"   // written by the supervisor once all is over
	lockFile    = "lock"        // locked by the supervisor while it lives
	controlFile = "control"     // the supervisor's socket
	outputFile  = "supervisor.log"
)

// stateDir is the folder of one container. It survives the agent, the supervisor and reboots.
type stateDir string

// containerState is the state of a container, as its folder shows it.
type containerState struct {
	plan    *plan
	state   executor.State
	alive   bool // the supervisor
	process executor.Process
	exit    *cluster.Exit
}

func (d stateDir) id() executor.ID         { return executor.ID(filepath.Base(string(d))) }
func (d stateDir) path(name string) string { return filepath.Join(string(d), name) }

// removedPrefix begins the name of a folder that is about to be deleted. No id begins with it.
const removedPrefix = ".removed-"

// create makes the folder of a new container, or makes it again if its supervisor died before the start. It returns the
// lock, which the supervisor inherits: there is no moment without an owner. The plan of an earlier life stays until the
// new one replaces it, so that a crash here hides nothing.
func (d stateDir) create(p *plan) (lock *os.File, err error) {
	err = os.Mkdir(string(d), 0o700)
	if os.IsNotExist(err) { // the folder of all containers
		err = os.MkdirAll(string(d), 0o700)
	}
	isNew := err == nil
	if err != nil && !os.IsExist(err) {
		return nil, fmt.Errorf("make container folder: %w", err)
	}
	lock, err = os.OpenFile(d.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock container: %w", err)
	}
	err = outlive.Lock(lock)
	if err == nil && !isNew {
		err = d.removeFiles(intentFile, exitFile, controlFile, outputFile)
	}
	if err == nil {
		err = d.write(planFile, p)
	}
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock container: %w", err)
	}
	return lock, nil
}

// removeFiles deletes files of the folder, as far as they exist.
func (d stateDir) removeFiles(names ...string) error {
	for _, name := range names {
		if err := os.Remove(d.path(name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// remove deletes the folder. It renames the folder first, so the remains of a crash are no container.
func (d stateDir) remove() error {
	gone := filepath.Join(filepath.Dir(string(d)), removedPrefix+string(d.id()))
	err := os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(string(d), gone)
	}
	if err == nil {
		err = os.RemoveAll(gone)
	}
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	return nil
}

// state reads the state of the container. It returns ErrNotFound if there is none. A folder without a plan is a
// container whose Prepare was interrupted by the agent's death: prepared, but without a supervisor.
func (d stateDir) state() (containerState, error) {
	st := containerState{plan: &plan{}, state: executor.StatePrepared}
	if err := d.read(planFile, st.plan); err != nil {
		if _, half := os.Stat(string(d)); os.IsNotExist(err) && half == nil {
			st.plan.ID = d.id()
			return st, nil
		}
		if os.IsNotExist(err) {
			return containerState{}, executor.ErrNotFound
		}
		return containerState{}, err
	}
	// The supervisor is checked before the files: one that is gone writes none any more.
	st.alive = outlive.Locked(d.path(lockFile))
	if err := d.read(intentFile, &st.process); err == nil {
		st.state = executor.StateUnknown
		if st.alive {
			st.state = executor.StateRunning
		}
	} else if !os.IsNotExist(err) {
		return containerState{}, err
	}
	if exit, err := d.exit(); err == nil {
		st.state, st.exit = executor.StateExited, &exit
	} else if !os.IsNotExist(err) {
		return containerState{}, err
	}
	return st, nil
}

func (d stateDir) exit() (cluster.Exit, error) {
	var exit cluster.Exit
	err := d.read(exitFile, &exit)
	return exit, err
}

func (d stateDir) read(name string, v any) error { return outlive.Read(d.path(name), v) }

func (d stateDir) write(name string, v any) error { return outlive.Write(d.path(name), v) }

// killLeftovers kills the remains of a dead supervisor: its program, unless it died too, and the processes of the
// container's cgroup, with the cgroup itself. The cgroup is below parent unless the plan, if any, says otherwise.
// Orphans of a container without a cgroup cannot be found.
func (d stateDir) killLeftovers(ctx context.Context, st containerState, parent string) error {
	if st.plan != nil && st.plan.CgroupParent != "" {
		parent = st.plan.CgroupParent
	}
	for {
		if st.exit == nil && st.process.PidStart != 0 && outlive.StartOf(st.process.Pid) == st.process.PidStart {
			_ = syscall.Kill(st.process.Pid, syscall.SIGKILL)
		} else if endCgroup(parent, d.id()) {
			return nil
		}
		if err := pause.For(ctx, pollAfter); err != nil {
			return fmt.Errorf("end what is left of %s: %w", d.id(), err)
		}
	}
}
