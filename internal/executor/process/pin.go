package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/executor"
)

// Pin implements executor.Pinner for the existing threads; new threads inherit it. Programs may move away again,
// because nothing enforces it. Without a cgroup it finds the processes of the program's own session.
func (e *Executor) Pin(ctx context.Context, id executor.ID, cpus string) error {
	list, err := parseCPUs(cpus)
	if err != nil {
		return err
	}
	st, err := e.dir(id).state()
	if errors.Is(err, executor.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	leader := st.process.Pid
	if leader == 0 {
		// prepared; its supervisor may end at any time
		if known, err := e.dir(id).call(ctx, request{Op: opWhich}); err == nil {
			leader = known.Process.Pid
		}
	}
	var errs []error
	for range 2 { // the second round catches processes that started meanwhile
		errs = nil
		for _, pid := range e.pids(id, leader) {
			threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			for _, t := range threads {
				tid, err := strconv.Atoi(t.Name())
				if err == nil {
					err = setAffinity(tid, list)
				}
				if err != nil && !errors.Is(err, syscall.ESRCH) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// pids returns the processes of a container.
func (e *Executor) pids(id executor.ID, leader int) (pids []int) {
	if g := findCgroup(e.cfg.CgroupParent, id); g != nil && !e.cfg.NoCgroup {
		for _, file := range g.join()[:1] {
			f, err := os.Open(file)
			if err != nil {
				return nil
			}
			defer f.Close()
			for lines := bufio.NewScanner(f); lines.Scan(); {
				if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
		return pids
	}
	if leader <= 0 {
		return nil
	}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		if session, err := unix.Getsid(pid); err == nil && session == leader {
			pids = append(pids, pid)
		}
	}
	return pids
}

// setAffinity has a thread, 0 for the calling one, run on these CPUs only; none are all.
func setAffinity(tid int, cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("cpus: run on %v: %w", cpus, err)
	}
	return nil
}

// parseCPUs reads a list such as "0-3,8".
func parseCPUs(text string) (cpus []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.ParseUint(low, 10, 10)
		to, err2 := strconv.ParseUint(high, 10, 10)
		if err != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("cpus: %q is not a list of CPUs", text)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
