package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
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
	if err = flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
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
	st.alive = d.locked()
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

// locked reports whether a supervisor lives.
func (d stateDir) locked() bool {
	f, err := os.OpenFile(d.path(lockFile), os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(flock(f, syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (d stateDir) read(name string, v any) error {
	b, err := os.ReadFile(d.path(name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s of container %s: %w", name, d.id(), err)
	}
	return nil
}

// write makes a file durable: after a crash it is there whole, or not at all.
func (d stateDir) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp := d.path(name + ".new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, d.path(name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return syncDir(string(d))
}

func syncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// killLeftovers kills what a dead supervisor left behind: its program, unless that died with it, and what the
// container's cgroup holds. Orphans of a container without a cgroup cannot be found.
func (d stateDir) killLeftovers(ctx context.Context, st standing) error {
	var group *cgroup
	if st.plan.CgroupParent != "" {
		group = findCgroup(st.plan.CgroupParent, st.plan.ID)
	}
	for {
		left := 0
		if st.exit == nil && st.process.Pid > 0 && startOf(st.process.Pid) == st.process.PidStart && st.process.PidStart != 0 {
			_ = syscall.Kill(st.process.Pid, syscall.SIGKILL)
			left++
		}
		left += group.kill()
		if left == 0 {
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	group.remove()
	return nil
}
