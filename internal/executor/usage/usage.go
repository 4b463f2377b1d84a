// Package usage measures the resource usage of containers: by their control group if they have one, else by the
// kernel's list of processes.
//
// It reads only three small files for a container's CPU and memory, because a node measures all of its tasks every few
// seconds. (The libraries for control groups read a dozen.) Detail reads all other figures, less often.
package usage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Root is where systems mount control groups, and Proc the kernel's list of processes.
const (
	Root = "/sys/fs/cgroup"
	Proc = "/proc"
)

// tick is one of the kernel's clock ticks in /proc, the same on all machines that Linux runs on today.
const tick = 10 * time.Millisecond

// Meter measures containers. The zero value measures this machine. It is not safe for concurrent use, because it keeps
// one buffer.
type Meter struct {
	// Root and Proc replace the machine's own, for tests.
	Root, Proc string

	buffer  []byte
	unified *bool
}

func (m *Meter) root() string {
	if m.Root == "" {
		return Root
	}
	return m.Root
}

func (m *Meter) proc() string {
	if m.Proc == "" {
		return Proc
	}
	return m.Proc
}

// Group returns the usage of the control group at path, such as "/berth/u1-0-1", on a machine of version 1 or 2. It
// returns false if there is no such group or its memory is not counted. If the group's CPU is not counted, it adds up
// the CPU time of its processes.
func (m *Meter) Group(path string) (executor.Usage, bool) {
	memory, stat, current, dropped := filepath.Join(m.root(), "memory", path), "memory.stat", "memory.usage_in_bytes",
		"total_inactive_file"
	if m.isUnified() {
		memory, current, dropped = filepath.Join(m.root(), path), "memory.current", "inactive_file"
	}
	used, ok := m.number(memory + "/" + current)
	if !ok {
		return executor.Usage{}, false
	}
	inactive, _ := m.field(memory+"/"+stat, dropped)
	u := executor.Usage{Memory: cluster.Bytes(max(used-inactive, 0))}
	if m.isUnified() {
		us, ok := m.field(memory+"/cpu.stat", "usage_usec")
		u.CPU = time.Duration(us) * time.Microsecond
		return u, ok
	}
	for _, controller := range []string{"cpuacct", "cpu"} {
		if ns, ok := m.number(filepath.Join(m.root(), controller, path, "cpuacct.usage")); ok {
			u.CPU = time.Duration(ns)
			return u, true
		}
	}
	u.CPU = m.worked(memory + "/cgroup.procs")
	return u, true
}

// worked sums the CPU of the processes that a file lists, with that of their children that have ended.
func (m *Meter) worked(procs string) (sum time.Duration) {
	list := bytes.Clone(m.read(procs))
	for line := range bytes.Lines(list) {
		if p, ok := m.process(string(bytes.TrimSpace(line))); ok {
			sum += p.cpu
		}
	}
	return sum
}

// Trees returns the usage of the given processes and of the processes that they started. A process that lost its parent
// belongs to the tree of its siblings.
func (m *Meter) Trees(roots map[executor.ID]executor.Process) map[executor.ID]executor.Usage {
	if len(roots) == 0 {
		return nil
	}
	dir, err := os.Open(m.proc())
	if err != nil {
		return nil
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close() // it was read
	if err != nil {
		return nil
	}
	all := map[int]process{}
	children := map[int][]int{}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if p, ok := m.process(name); ok {
			all[p.pid] = p
			children[p.parent] = append(children[p.parent], p.pid)
		}
	}
	out := make(map[executor.ID]executor.Usage, len(roots))
	for id, root := range roots { // order-free: each by itself
		p, ok := all[root.Pid]
		if !ok || root.PidStart != 0 && p.start != root.PidStart {
			continue
		}
		var u executor.Usage
		var add func(pid int)
		add = func(pid int) {
			u.CPU += all[pid].cpu
			u.Memory += m.resident(pid)
			for _, child := range children[pid] {
				add(child)
			}
		}
		if p.parent > 1 && p.parent != os.Getpid() {
			for _, sister := range children[p.parent] { // its supervisor took them in
				add(sister)
			}
		} else {
			add(p.pid)
		}
		out[id] = u
	}
	return out
}

// process is one line of the kernel's list.
type process struct {
	pid, parent int
	start       uint64
	cpu         time.Duration
}

// process reads /proc/<pid>/stat. The name in the second field may hold any bytes.
func (m *Meter) process(pid string) (p process, ok bool) {
	b := m.read(m.proc() + "/" + pid + "/stat")
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return p, false
	}
	// From field 3 on: state ppid … utime(14) stime(15) cutime(16) cstime(17) … starttime(22).
	field := 3
	for f := range bytes.FieldsSeq(b[end+1:]) {
		n, _ := strconv.ParseInt(string(f), 10, 64) // the state is none
		switch field {
		case 4:
			p.parent = int(n)
		case 14, 15, 16, 17:
			p.cpu += time.Duration(n) * tick
		case 22:
			p.start = uint64(max(n, 0))
		}
		field++
	}
	p.pid, _ = strconv.Atoi(pid)
	return p, field > 22
}

// resident returns the memory of a process that no file can give back.
func (m *Meter) resident(pid int) cluster.Bytes {
	var pages [3]int64
	i := 0
	for f := range bytes.FieldsSeq(m.read(m.proc() + "/" + strconv.Itoa(pid) + "/statm")) {
		if i == len(pages) {
			break
		}
		pages[i], _ = strconv.ParseInt(string(f), 10, 64)
		i++
	}
	return cluster.Bytes(max(pages[1]-pages[2], 0) * int64(os.Getpagesize()))
}

// read returns the beginning of a small file, in the meter's buffer, or nothing.
func (m *Meter) read(name string) []byte {
	if m.buffer == nil {
		m.buffer = make([]byte, 16<<10)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) // an os.File would cost as much as the rest
	if err != nil {
		return nil
	}
	defer func() { _ = syscall.Close(fd) }() // it was only read
	n := 0
	for n < len(m.buffer) {
		k, err := syscall.Read(fd, m.buffer[n:])
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return nil
		}
		if err == nil && k <= 0 {
			break
		}
		n += max(k, 0)
	}
	return m.buffer[:n]
}

func (m *Meter) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(m.read(name))), 10, 64)
	return n, err == nil
}

// field returns one line of a file of names and numbers.
func (m *Meter) field(name, want string) (int64, bool) {
	for line := range bytes.Lines(m.read(name)) {
		key, value, _ := bytes.Cut(line, []byte{' '})
		if string(key) == want {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
