package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// tree writes files and returns their folder.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const pageful = "anon 1\ninactive_file 1000\ntotal_inactive_file 2000\n"

func TestGroup(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  executor.Usage
		found bool
	}{
		"version 2": {
			files: map[string]string{
				"cgroup.controllers": "", "berth/u/memory.current": "5000\n", "berth/u/memory.stat": pageful,
				"berth/u/cpu.stat": "nr_periods 3\nusage_usec 1500000\n",
			},
			want: executor.Usage{CPU: 1500 * time.Millisecond, Memory: 4000}, found: true,
		},
		"version 1": {
			files: map[string]string{
				"memory/berth/u/memory.usage_in_bytes": "5000\n", "memory/berth/u/memory.stat": pageful,
				"cpuacct/berth/u/cpuacct.usage": "2000000000\n",
			},
			want: executor.Usage{CPU: 2 * time.Second, Memory: 3000}, found: true,
		},
		"version 1, both CPU controllers in one place": {
			files: map[string]string{
				"memory/berth/u/memory.usage_in_bytes": "1000\n", "memory/berth/u/memory.stat": pageful,
				"cpu/berth/u/cpuacct.usage": "2000000000\n",
			},
			want: executor.Usage{CPU: 2 * time.Second}, found: true,
		},
		"version 1, CPU is not counted": {
			files: map[string]string{
				"memory/berth/u/memory.usage_in_bytes": "5000\n",
				"memory/berth/u/cgroup.procs":          "7\n8\n",
			},
			want: executor.Usage{CPU: 70 * time.Millisecond, Memory: 5000}, found: true,
		},
		"no group":         {files: map[string]string{"cgroup.controllers": ""}},
		"memory uncounted": {files: map[string]string{"cgroup.controllers": "", "berth/u/cpu.stat": "usage_usec 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := tree(t, map[string]string{"7/stat": stat(7, 1, 5), "8/stat": stat(8, 7, 2)})
			m := Meter{Root: tree(t, test.files), Proc: proc}
			got, found := m.Group("/berth/u")
			if diff := cmp.Diff(test.want, got); diff != "" && test.found || found != test.found {
				t.Errorf("found %v, want %v (-want +got):\n%s", found, test.found, diff)
			}
		})
	}
}

// stat is a process' line in the kernel's list; all that it worked is in the last of its four counts.
func stat(pid, parent, ticks int) string {
	return fmt.Sprintf("%d (a) b (c) S %d 1 1 0 -1 0 0 0 0 0 0 0 0 %d 20 0 1 0 %d 0 0", pid, parent, ticks, 100+pid)
}

func TestTrees(t *testing.T) {
	page := cluster.Bytes(os.Getpagesize())
	files := map[string]string{"self/stat": "no", "meminfo": "no"}
	for _, p := range [][2]int{{1, 0}, {5, 1}, {10, 5}, {11, 10}, {12, 5}, {20, 1}, {21, 20}, {30, 1}} {
		files[fmt.Sprintf("%d/stat", p[0])] = stat(p[0], p[1], p[0])
		files[fmt.Sprintf("%d/statm", p[0])] = "900 7 4 1 0 0 0"
	}
	m := Meter{Proc: tree(t, files)}
	got := m.Trees(map[executor.ID]executor.Process{
		"with an orphan":       {Pid: 10, PidStart: 110},
		"without a supervisor": {Pid: 20, PidStart: 120},
		"another process":      {Pid: 30, PidStart: 7},
		"gone":                 {Pid: 40, PidStart: 140},
	})
	want := map[executor.ID]executor.Usage{
		"with an orphan":       {CPU: 330 * time.Millisecond, Memory: 9 * page},
		"without a supervisor": {CPU: 410 * time.Millisecond, Memory: 6 * page},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trees (-want +got):\n%s", diff)
	}
}

// The cost of one measurement of 200 containers. An agent measures them every two seconds.
func BenchmarkGroups(b *testing.B) {
	files := map[string]string{"cgroup.controllers": ""}
	for i := range 200 {
		dir := fmt.Sprintf("berth/u%d/", i)
		files[dir+"memory.current"], files[dir+"memory.stat"], files[dir+"cpu.stat"] = "5000\n", pageful,
			"usage_usec 1500000\n"
	}
	m := Meter{Root: tree(b, files)}
	b.ReportAllocs()
	for b.Loop() {
		for i := range 200 {
			if _, ok := m.Group(fmt.Sprintf("/berth/u%d", i)); !ok {
				b.Fatal("no group")
			}
		}
	}
}
