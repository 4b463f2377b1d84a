package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/pause"
)

// shimLimit is how long a shim may take to end after its task was deleted.
const shimLimit = time.Second

// orphans ends what is left of tasks that containerd no longer knows.
type orphans struct {
	namespace, address string // of containerd
	cgroups            *cgroups
}

// kill ends the remains of an interrupted creation of a task. When a client dies during the creation, containerd
// 1.6 forgets the task but leaves its shim, and perhaps the program before its first instruction. It is called for
// containers without a task; deleted says that a task was just deleted, whose shim is about to end. It waits for a shim
// that is still starting.
func (o *orphans) kill(ctx context.Context, id executor.ID, deleted bool) {
	name := nameOf(id)
	pids, coming := o.shims(name)
	for begin := time.Now(); (coming || deleted && len(pids) > 0) &&
		time.Since(begin) < shimLimit; pids, coming = o.shims(name) {
		if pause.For(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, dir := range o.cgroups.folders(id) {
		empty(ctx, dir)
	}
	// The runtime's own record of it, or it would refuse the name.
	_ = os.RemoveAll(filepath.Join("/run/containerd/runc", o.namespace, name))
}

// empty kills the processes of a cgroup and removes it.
func empty(ctx context.Context, dir string) {
	for begin := time.Now(); time.Since(begin) < shimLimit; {
		if err := os.Remove(dir); !errors.Is(err, syscall.EBUSY) {
			return
		}
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if pause.For(ctx, 2*time.Millisecond) != nil {
			return
		}
	}
}

// shims returns the shim processes of a container of this containerd, and whether one is starting.
func (o *orphans) shims(name string) (pids []int, coming bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue
		}
		is, starts := isShim(string(b), o.namespace, name, o.address)
		if is {
			pids = append(pids, pid)
		}
		coming = coming || starts
	}
	return pids, coming
}

// isShim reports whether a command line, as in /proc, belongs to a container's shim, or to the helper that starts one.
func isShim(cmdline, namespace, name, address string) (is, starts bool) {
	args := strings.Split(cmdline, "\x00")
	option := func(key, value string) bool {
		i := slices.Index(args, key)
		return i >= 0 && i+1 < len(args) && args[i+1] == value
	}
	mine := strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") &&
		option("-namespace", namespace) && option("-id", name) && option("-address", address)
	// Other actions belong to helpers of containerd, for example for cleanup.
	starts = slices.Contains(args, "start")
	return mine && !starts && !slices.Contains(args, "delete"), mine && starts
}
