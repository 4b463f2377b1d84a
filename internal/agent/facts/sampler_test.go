package facts

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// machine is a tree of the kernel's files.
type machine map[string]string

func (m machine) write(t *testing.T, root string) {
	t.Helper()
	for name, text := range m {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// before and after are readings of a machine with four cores. Two and a half of them worked for ten seconds.
var (
	before = machine{
		"proc/stat":    "cpu  1000 100 300 8000 400 20 30 50 0 0\ncpu0 1 2 3\n",
		"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   12582912 kB\n",
		"proc/loadavg": "0.42 0.30 0.20 1/300 12345\n",
	}
	after = machine{
		"proc/stat": "cpu  2500 600 700 9300 600 40 50 80 0 0\ncpu0 1 2 3\n",
	}
)

func TestMeter(t *testing.T) {
	for name, c := range map[string]struct {
		more, later machine
		cpu         cluster.MilliCPU
		memory      cluster.Bytes
	}{
		"a machine": {cpu: 2490, memory: 4 * cluster.GiB},
		"a container with cgroups of version 2": {
			more: machine{
				"sys/fs/cgroup/cgroup.controllers": "cpu memory\n", "sys/fs/cgroup/cpu.max": "200000 100000\n",
				"sys/fs/cgroup/cpu.stat":   "usage_usec 5000000\nuser_usec 1\n",
				"sys/fs/cgroup/memory.max": "2147483648\n", "sys/fs/cgroup/memory.current": "1073741824\n",
				"sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 268435456\n",
			},
			later: machine{"sys/fs/cgroup/cpu.stat": "usage_usec 15000000\n"},
			cpu:   1000, memory: 768 * cluster.MiB,
		},
		"a container with cgroups of version 1": {
			more: machine{
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/cpuacct/cpuacct.usage":        "5000000000\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n",
				"sys/fs/cgroup/memory/memory.stat":           "total_inactive_file 268435456\n",
			},
			later: machine{"sys/fs/cgroup/cpuacct/cpuacct.usage": "15000000000\n"},
			cpu:   1000, memory: 768 * cluster.MiB,
		},
		"a container without limits": {
			more: machine{
				"sys/fs/cgroup/cgroup.controllers": "", "sys/fs/cgroup/cpu.max": "max 100000\n",
				"sys/fs/cgroup/memory.max": "max\n",
			},
			cpu: 2490, memory: 4 * cluster.GiB,
		},
		"a root group of version 1": {
			more: machine{
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			},
			cpu: 2490, memory: 4 * cluster.GiB,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Sampler{root: t.TempDir(), cores: 4}
			before.write(t, m.root)
			c.more.write(t, m.root)
			now := time.Unix(1_000_000, 0)
			if _, err := m.cpu(now); err != nil {
				t.Fatal(err)
			}
			now = now.Add(cpuWindow)
			if _, err := m.cpu(now); err != nil { // the same reading, so that the next counts from it
				t.Fatal(err)
			}
			after.write(t, m.root)
			c.later.write(t, m.root)
			cpu, err := m.cpu(now.Add(10 * time.Second))
			if err != nil {
				t.Fatal(err)
			}
			memory, err := m.memory()
			if err != nil {
				t.Fatal(err)
			}
			load, err := m.load()
			if err != nil {
				t.Fatal(err)
			}
			// The mean reaches back beyond the previous reading, which counts by its length.
			if diff := cpu - c.cpu; diff < -400 || diff > 100 || memory != c.memory || load != 0.42 {
				t.Errorf("got cpu %v, memory %v, load %v; want %v, %v, 0.42", cpu, memory, load, c.cpu, c.memory)
			}
		})
	}
}

// This machine can be measured.
func TestMeterOfThisMachine(t *testing.T) {
	m := new(Sampler)
	s, err := m.Measure(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if s.Memory <= 0 || s.Disk <= 0 || s.CPU < 0 || s.At.IsZero() {
		t.Errorf("got %+v", s)
	}
}

// Unreadable files are named in the error, and the rest is measured.
func TestMeterWithoutFiles(t *testing.T) {
	m := &Sampler{root: t.TempDir()}
	s, err := m.Measure("/")
	if err == nil || s.Disk <= 0 {
		t.Errorf("got %+v %v, want an error and the disk", s, err)
	}
}
