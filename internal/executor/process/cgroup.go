package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// cgroupRoot is where systems mount cgroups.
const cgroupRoot = "/sys/fs/cgroup"

// cpuPeriod is the period of a CPU limit in microseconds.
const cpuPeriod = 100_000

// cgroup is a container's control group: one folder of version 2, or one of each controller
// of version 1. The methods of a nil cgroup do nothing.
type cgroup struct {
	unified bool
	dirs    map[string]string // by controller; of version 2 all are the same
}

// controllers are the controllers that Berth uses. With version 1, a missing controller means no limit.
func controllers() []string { return []string{"memory", "cpu", "pids"} }

// counters are further hierarchies of version 1, used only for measurement if they are mounted: processor time, disk
// traffic, and the stall times of version 2 next to version 1.
func counters() []string { return []string{"cpuacct", "blkio", "unified"} }

// unified reports whether the machine has version 2 alone.
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// probeCgroup reports why containers can have no cgroups below parent.
func probeCgroup(parent string) error {
	g := locate(parent)
	if len(g.dirs) == 0 {
		return errors.New("no cgroup controllers are mounted")
	}
	return g.make()
}

// locate returns the folders of a cgroup, whether they exist or not.
func locate(path string) *cgroup {
	g := &cgroup{unified: unified(), dirs: map[string]string{}}
	for _, c := range controllers() {
		root := cgroupRoot
		if !g.unified {
			root = filepath.Join(cgroupRoot, c)
			if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
				continue
			}
		}
		g.dirs[c] = filepath.Join(root, path)
	}
	if g.unified || len(g.dirs) == 0 {
		return g
	}
	for _, c := range counters() {
		root := filepath.Join(cgroupRoot, c)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil && syscall.Access(root, 2) == nil {
			g.dirs[c] = filepath.Join(root, path)
		}
	}
	return g
}

func (g *cgroup) make() error {
	for _, dir := range g.dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if err := syscall.Access(dir, 2); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return nil
}

// makeCgroup makes the cgroup of a container with its limits.
func makeCgroup(parent string, id executor.ID, limits cluster.Resources) (*cgroup, error) {
	g := locate(filepath.Join(parent, string(id)))
	if g.unified {
		up := filepath.Join(cgroupRoot, parent)
		if err := os.MkdirAll(up, 0o755); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		for _, dir := range []string{cgroupRoot, up} {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +cpu +pids"),
				0); err != nil {
				return nil, fmt.Errorf("enable cgroup controllers: %w", err)
			}
			// Only for measurement: without it the disk traffic of containers is unknown.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+io"), 0)
		}
	}
	if err := g.make(); err != nil {
		return nil, err
	}
	if err := g.limit(limits); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// findCgroup returns the cgroup that an earlier life made, or nil.
func findCgroup(parent string, id executor.ID) *cgroup {
	g := locate(filepath.Join(parent, string(id)))
	for c, dir := range g.dirs {
		if _, err := os.Stat(dir); err != nil {
			delete(g.dirs, c)
		}
	}
	if len(g.dirs) == 0 {
		return nil
	}
	return g
}

func (g *cgroup) limit(r cluster.Resources) error {
	type setting struct {
		controller, file, value string
		optional                bool
	}
	var all []setting
	set := func(controller, file string, value int64, optional bool) {
		all = append(all, setting{controller, file, strconv.FormatInt(value, 10), optional})
	}
	shares := max(int64(r.CPU)*1024/1000, 2)
	quota := max(int64(r.CPULimit)*cpuPeriod/1000, 1000)
	switch {
	case g.unified && r.Memory > 0:
		set("memory", "memory.max", int64(r.Memory), false)
		set("memory", "memory.swap.max", 0, true)
	case r.Memory > 0:
		set("memory", "memory.limit_in_bytes", int64(r.Memory), false)
		set("memory", "memory.memsw.limit_in_bytes", int64(r.Memory), true)
	}
	switch {
	case g.unified && r.CPU > 0:
		set("cpu", "cpu.weight", 1+(shares-2)*9999/262142, false)
	case r.CPU > 0:
		set("cpu", "cpu.shares", shares, false)
	}
	switch {
	case g.unified && r.CPULimit > 0:
		all = append(all, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod), false})
	case r.CPULimit > 0:
		set("cpu", "cpu.cfs_period_us", cpuPeriod, false)
		set("cpu", "cpu.cfs_quota_us", quota, false)
	}
	if r.Pids > 0 {
		set("pids", "pids.max", int64(r.Pids), false)
	}
	for _, s := range all {
		dir, ok := g.dirs[s.controller]
		if !ok {
			return unsupported("resources", "the machine has no cgroup controller "+s.controller)
		}
		if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0); err != nil && !s.optional {
			return fmt.Errorf("resources: set %s to %s: %w", s.file, s.value, err)
		}
	}
	return nil
}

// each calls f once for each of the folders.
func (g *cgroup) each(f func(dir string)) {
	if g == nil {
		return
	}
	seen := map[string]bool{}
	for _, dir := range g.dirs {
		if !seen[dir] {
			seen[dir] = true
			f(dir)
		}
	}
}

// join returns the files that a process writes its pid to.
func (g *cgroup) join() (files []string) {
	g.each(func(dir string) { files = append(files, filepath.Join(dir, "cgroup.procs")) })
	return files
}

// kill kills every process of the cgroup and returns how many there were.
func (g *cgroup) kill() (killed int) {
	g.each(func(dir string) {
		f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			pid, err := strconv.Atoi(lines.Text())
			if err != nil || pid <= 0 || outlive.StartOf(pid) == 0 {
				continue // a zombie stays until its parent waits for it
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed++
		}
	})
	return killed
}

// oomKills returns how many of the cgroup's processes the kernel killed for its memory limit.
func (g *cgroup) oomKills() int {
	if g == nil {
		return 0
	}
	file := "memory.oom_control"
	if g.unified {
		file = "memory.events"
	}
	b, err := os.ReadFile(filepath.Join(g.dirs["memory"], file))
	if err != nil {
		return 0
	}
	return parseOOMKills(string(b))
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

// remove removes the cgroup, whose processes have been killed. It tries for a short while, because ending threads may
// hold the cgroup; after that Remove has to do it.
func (g *cgroup) remove() {
	for range 50 {
		if g.tryRemove() {
			return
		}
		time.Sleep(pollAfter)
	}
}

// tryRemove reports whether the cgroup is gone.
func (g *cgroup) tryRemove() bool {
	gone := true
	g.each(func(dir string) {
		if errors.Is(os.Remove(dir), syscall.EBUSY) {
			gone = false
		}
	})
	return gone
}

// endCgroup kills what an earlier life left in a container's cgroup and reports whether neither that nor the cgroup is
// there any more.
func endCgroup(parent string, id executor.ID) bool {
	g := findCgroup(parent, id)
	return g.kill() == 0 && g.tryRemove()
}
