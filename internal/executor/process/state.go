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

// stateDir is the folder of one container. It survives the agent, the supervisor and the machine.
type stateDir string

// standing is what the folder tells about a container.
type standing struct {
	plan    *plan
	state   executor.State
	alive   bool // the supervisor
	process executor.Process
	exit    *cluster.Exit
}

func (d stateDir) id() executor.ID         { return executor.ID(filepath.Base(string(d))) }
func (d stateDir) path(name string) string { return filepath.Join(string(d), name) }

// create makes the folder of a new container, or makes anew that of one whose supervisor died
// before the start. It returns the lock, which the supervisor inherits: there is no moment without an owner.
func (d stateDir) create(p *plan) (lock *os.File, err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("make container folder: %w", err)
	}
	lock, err = os.OpenFile(d.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock container: %w", err)
	}
	if err = outlive.Lock(lock); err == nil {
		for _, name := range []string{planFile, intentFile, exitFile, controlFile, outputFile} {
			if err = os.Remove(d.path(name)); err != nil && !os.IsNotExist(err) {
				break
			}
		}
		if err == nil || os.IsNotExist(err) {
			err = d.write(planFile, p)
		}
	}
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock container: %w", err)
	}
	return lock, nil
}

// remove deletes the folder, the plan first: without it nothing else counts.
func (d stateDir) remove() error {
	if err := os.Remove(d.path(planFile)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	if err := os.RemoveAll(string(d)); err != nil {
		return fmt.Errorf("remove container: %w", err)
	}
	return nil
}

// state reads where the container stands. It returns ErrNotFound where there is none.
func (d stateDir) state() (standing, error) {
	st := standing{plan: &plan{}, state: executor.StatePrepared}
	if err := d.read(planFile, st.plan); err != nil {
		if os.IsNotExist(err) {
			return standing{}, executor.ErrNotFound
		}
		return standing{}, err
	}
	// The supervisor is looked at before the files: one that is gone writes none any more.
	st.alive = outlive.Locked(d.path(lockFile))
	if err := d.read(intentFile, &st.process); err == nil {
		st.state = executor.StateUnknown
		if st.alive {
			st.state = executor.StateRunning
		}
	} else if !os.IsNotExist(err) {
		return standing{}, err
	}
	if exit, err := d.exit(); err == nil {
		st.state, st.exit = executor.StateExited, &exit
	} else if !os.IsNotExist(err) {
		return standing{}, err
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

// killLeftovers kills what a dead supervisor left behind: its program, unless that died with it, and what the
// container's cgroup holds. Orphans of a container without a cgroup cannot be found.
func (d stateDir) killLeftovers(ctx context.Context, st standing) error {
	var group *cgroup
	if st.plan.CgroupParent != "" {
		group = findCgroup(st.plan.CgroupParent, st.plan.ID)
	}
	for {
		left := 0
		if st.exit == nil && st.process.Pid > 0 && outlive.StartOf(st.process.Pid) == st.process.PidStart && st.process.PidStart != 0 {
			_ = syscall.Kill(st.process.Pid, syscall.SIGKILL)
			left++
		}
		left += group.kill()
		if left == 0 {
			break
		}
		if err := outlive.Pause(ctx, pollAfter); err != nil {
			return err
		}
	}
	group.remove()
	return nil
}
