package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// The limits are for an idle machine. The best of several tries is the result.
const (
	versionLimit = 30 * time.Millisecond
	readyLimit   = time.Second
	idleMemory   = 150 << 20
	tries        = 10
)

func TestVersionIsQuick(t *testing.T) {
	s := harness.New(t, harness.Process)
	best := time.Hour
	for range tries {
		r := s.Berth("version")
		r.Want(t, 0, "berth ")
		best = min(best, r.Took)
	}
	testkit.Figure(t, "berth version, the best of its tries", best, versionLimit)
}

func TestDevIsReadySoonAndSmall(t *testing.T) {
	best := time.Hour
	for range 3 {
		s := harness.New(t, harness.Process)
		began := time.Now()
		d := s.Dev()
		best = min(best, time.Since(began))
		if best > readyLimit {
			d.Stop()
			continue
		}
		s.Eventually(soon, func() error { // a size is no matter of speed
			if rss := resident(t, d.Pid()); rss > idleMemory {
				return fmt.Errorf("berth dev takes %d MiB, want at most %d", rss>>20, idleMemory>>20)
			}
			return nil
		})
		break
	}
	testkit.Figure(t, "berth dev is ready, the best of its tries", best, readyLimit)
}

// resident returns the resident memory of a process in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

func TestOutOfMemoryIsItsOwnReason(t *testing.T) {
	needLimits(t)
	harness.Each(t, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Dev()
		s.Berth("run", s.Write("oom.yaml", `
kind: TaskDefinition
name: greedy
version: 1
containers:
  - name: main
    image: `+harness.Image+`
    command: [sh, -c, 'echo eating; x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done']
    resources: {cpu: 10m, memory: 24MiB}
---
kind: Job
name: greedy
steps:
  - {name: all, definition: greedy@1}
`)).Want(t, 1, "killed for its memory limit")
		task := s.Tasks(client.TaskFilter{Job: "greedy"})[0]
		if task.State != cluster.StateFailed || task.Reason != cluster.ReasonOOM || task.Exit == nil || !task.Exit.OOM {
			t.Errorf("the task is %s, reason %s, exit %+v", task.State, task.Reason, task.Exit)
		}
		s.Berth("status").Want(t, 0, "killed for its memory limit")
	})
}

func TestCPULimitThrottles(t *testing.T) {
	needLimits(t)
	harness.Each(t, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Dev()
		s.Berth("run", s.Write("spin.yaml", `
kind: TaskDefinition
name: spin
version: 1
containers:
  - name: main
    image: `+harness.Image+`
    command: [sh, -c, 'while :; do :; done']
    resources: {cpu: 50m, cpu_limit: 100m, memory: 16MiB}
grace: 1s
---
kind: Service
name: spin
definition: spin@1
count: 1
`)).Want(t, 0)
		task := running(t, s, "spin", 1)[0]
		group := cpuGroup(t, task)
		s.Eventually(soon, func() error {
			text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
			if err != nil {
				return err
			}
			for line := range bytes.Lines(text) {
				var n int
				if _, err := fmt.Sscanf(string(line), "nr_throttled %d", &n); err == nil && n > 3 {
					return nil
				}
			}
			return fmt.Errorf("%s was not throttled:\n%s", group, text)
		})
	})
}

// needLimits leaves the test out where no control group can be had.
func needLimits(t *testing.T) {
	t.Helper()
	harness.Need(t, harness.Containerd) // root, that is
}

// cpuGroup returns the folder of the control group that limits a task's CPU.
func cpuGroup(t *testing.T, task api.TaskView) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", task.Containers[0].Pid))
	if err != nil {
		t.Fatal(err)
	}
	unified := ""
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for c := range strings.SplitSeq(f[1], ",") {
			if c == "cpu" {
				return filepath.Join("/sys/fs/cgroup/cpu", f[2])
			}
		}
		if f[1] == "" {
			unified = filepath.Join("/sys/fs/cgroup", f[2])
		}
	}
	return unified
}
