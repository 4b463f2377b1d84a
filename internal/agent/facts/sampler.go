package facts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
)

// cpuWindow sets how far the CPU mean reaches back: one to two windows. With a shorter window each start of a program
// would count as a change of load.
const cpuWindow = 5 * time.Second

// Sampler measures what a machine uses. A machine that is a container with limits of its own is measured by its control
// group, of version 1 or 2; its limits are then the totals that Gather returns. The zero value measures this machine.
// It is not for concurrent use.
type Sampler struct {
	// root is "/" except in tests; cores is the number of the machine unless 0.
	root  string
	cores int
	// before and since are readings of the CPU, the older one first.
	before, since reading
}

// reading is the time that the CPUs have worked, and the time that they could have worked, at a moment.
type reading struct {
	at           time.Time
	worked, last time.Duration
}

// Measure returns what the machine uses now. The CPU is the mean of the last seconds, the first time since the boot.
// Memory is the memory that is not available to programs. Disk is the space that is not available on the file system
// that holds dir. The caller sets Tasks. The error joins all failures; the other values are valid nevertheless.
func (m *Sampler) Measure(dir string) (cluster.NodeStats, error) {
	now := time.Now()
	s := cluster.NodeStats{At: now.UTC()}
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	var err error
	s.CPU, err = m.cpu(now)
	note("cpu", err)
	s.Memory, err = m.memory()
	note("memory", err)
	s.Disk, err = used(dir)
	note("disk", err)
	s.Load, err = m.load()
	note("load", err)
	return s, errors.Join(errs...)
}

func (m *Sampler) path(p string) string {
	if m.root == "" {
		return p
	}
	return filepath.Join(m.root, p)
}

// cpu returns the mean use since the older reading.
func (m *Sampler) cpu(now time.Time) (cluster.MilliCPU, error) {
	r := reading{at: now}
	var err error
	if g := m.group(); g.quota > 0 {
		if r.worked, err = g.worked(); err != nil {
			return 0, err
		}
		if m.before.at.IsZero() {
			m.before, m.since = r, r
			return 0, nil
		}
		r.last = now.Sub(m.before.at) + m.before.last // wall time of one core
	} else if r.worked, r.last, err = m.machineCPU(); err != nil {
		return 0, err
	}
	worked, could := r.worked-m.before.worked, r.last-m.before.last
	if now.Sub(m.since.at) >= cpuWindow {
		m.before, m.since = m.since, r
	}
	if could <= 0 || worked < 0 {
		return 0, nil
	}
	return cluster.MilliCPU(float64(worked) / float64(could) * 1000), nil
}

// tick is the unit of /proc/stat on all Linux architectures that Go supports.
const tick = 10 * time.Millisecond

// machineCPU reads the working time of all CPUs together, and the time that one CPU could have worked.
func (m *Sampler) machineCPU() (worked, could time.Duration, err error) {
	b, err := os.ReadFile(m.path("/proc/stat"))
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 6 || f[0] != "cpu" {
		return 0, 0, errors.New("/proc/stat: no line of all CPUs")
	}
	var all, idle int64
	for i, text := range f[1:min(len(f), 9)] { // user nice system idle iowait irq softirq steal; guests are in user
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		all += n
		if i == 3 || i == 4 {
			idle += n
		}
	}
	cores := m.cores
	if cores == 0 {
		cores = runtime.NumCPU()
	}
	return time.Duration(all-idle) * tick, time.Duration(all) * tick / time.Duration(cores), nil
}

// memory returns the memory that is not available.
func (m *Sampler) memory() (cluster.Bytes, error) {
	fields, err := meminfo(m.path("/proc/meminfo"))
	if err != nil {
		return 0, err
	}
	total, free := fields["MemTotal:"], fields["MemAvailable:"]
	if g := m.group(); g.memory > 0 && g.memory < total {
		return g.memoryUsed()
	}
	return total - free, nil
}

func (m *Sampler) load() (float64, error) {
	b, err := os.ReadFile(m.path("/proc/loadavg"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	return strconv.ParseFloat(first, 64)
}

// used returns the space that is not available on the file system that holds dir, or will hold it.
func used(dir string) (cluster.Bytes, error) {
	f, err := statfs(dir)
	if err != nil {
		return 0, err
	}
	return size(f.Blocks-min(f.Bavail, f.Blocks), f.Bsize), nil
}

func statfs(dir string) (f unix.Statfs_t, err error) {
	for {
		err := unix.Statfs(dir, &f)
		if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		return f, err
	}
}

// meminfo reads /proc/meminfo, in bytes.
func meminfo(path string) (map[string]cluster.Bytes, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := map[string]cluster.Bytes{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemTotal:" && f[0] != "MemAvailable:" {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[f[0]] = cluster.Bytes(n) * cluster.KiB
	}
	if len(all) < 2 {
		return nil, errors.New("no MemTotal and MemAvailable in " + path)
	}
	return all, nil
}

// group is the control group of a container's root, as far as it has limits. On a machine that is no container, the
// root group has no limits.
type group struct {
	quota  cluster.MilliCPU // 0: no limit
	memory cluster.Bytes    // 0: no limit

	v2   bool
	path func(string) string
}

const cgroups = "/sys/fs/cgroup/"

// group reads the limits; an unreadable limit counts as none.
func (m *Sampler) group() group {
	g := group{path: m.path}
	_, err := os.Stat(m.path(cgroups + "cgroup.controllers"))
	g.v2 = err == nil
	var quota, period int64
	if g.v2 {
		f := strings.Fields(g.read("cpu.max"))
		if len(f) == 2 {
			quota, period = number(f[0]), number(f[1])
		}
		g.memory = cluster.Bytes(number(g.read("memory.max")))
	} else {
		quota, period = number(g.read("cpu/cpu.cfs_quota_us")), number(g.read("cpu/cpu.cfs_period_us"))
		g.memory = cluster.Bytes(number(g.read("memory/memory.limit_in_bytes")))
	}
	if quota > 0 && period > 0 {
		g.quota = cluster.MilliCPU(quota * 1000 / period)
	}
	return g
}

func (g group) read(name string) string {
	b, err := os.ReadFile(g.path(cgroups + name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number reads a count; "max", "" and invalid text are 0.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// worked returns the CPU time of the group's programs.
func (g group) worked() (time.Duration, error) {
	if !g.v2 {
		if n := number(g.read("cpuacct/cpuacct.usage")); n > 0 {
			return time.Duration(n), nil
		}
		return 0, fmt.Errorf("%scpuacct/cpuacct.usage: %w", cgroups, fs.ErrNotExist)
	}
	if n, ok := stat(g.read("cpu.stat"), "usage_usec"); ok {
		return time.Duration(n) * time.Microsecond, nil
	}
	return 0, fmt.Errorf("%scpu.stat: no usage_usec", cgroups)
}

// memoryUsed returns the memory of the group, without the file pages that the kernel would drop first.
func (g group) memoryUsed() (cluster.Bytes, error) {
	usage, file, inactive := "memory.current", "memory.stat", "inactive_file"
	if !g.v2 {
		usage, file, inactive = "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"
	}
	n := number(g.read(usage))
	if n == 0 {
		return 0, fmt.Errorf("%s%s: %w", cgroups, usage, fs.ErrNotExist)
	}
	dropped, _ := stat(g.read(file), inactive)
	return cluster.Bytes(max(n-dropped, 0)), nil
}

// stat returns the value of a name in a file of names and numbers.
func stat(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return number(f[1]), true
		}
	}
	return 0, false
}
