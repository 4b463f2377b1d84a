package containerd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/executor"
)

// cgroups finds the cgroups of containers, which are below one parent.
type cgroups struct{ parent string }

// folders returns the folders of a container's cgroup.
func (g *cgroups) folders(id executor.ID) []string {
	const root = "/sys/fs/cgroup"
	dirs, _ := filepath.Glob(filepath.Join(root, "*", g.parent, nameOf(id)))
	return append(dirs, filepath.Join(root, g.parent, nameOf(id)))
}

// file returns the file of a controller in a container's cgroup, of version 1 or 2.
func (g *cgroups) file(id executor.ID, controller, name string) string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		controller = ""
	}
	return filepath.Join(root, controller, g.parent, nameOf(id), name)
}

// oomKills returns how many processes of a container the kernel killed for its memory limit. The counter disappears
// with the task.
func (g *cgroups) oomKills(id executor.ID) int {
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		b, err := os.ReadFile(g.file(id, "memory", name))
		if err == nil {
			return parseOOMKills(string(b))
		}
	}
	return 0
}

func parseOOMKills(s string) int {
	for line := range strings.Lines(s) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			kills, _ := strconv.Atoi(strings.TrimSpace(n))
			return kills
		}
	}
	return 0
}
