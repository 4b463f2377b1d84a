package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// cleanLimit is how long the tasks of a site may take to end.
const cleanLimit = time.Minute

// close deletes all that runs, ends the processes, and fails the test if anything is left.
func (s *Site) close() {
	ctx, cancel := testkit.WithLimit(context.Background(), 2*cleanLimit)
	defer cancel()
	if s.tb.Failed() {
		s.logState(ctx)
	}
	if err := s.clear(ctx); err != nil {
		s.tb.Errorf("clear the site: %v", err)
		s.logState(ctx)
	}
	for _, d := range slices.Backward(s.daemons) {
		d.Stop()
		if strings.Contains(d.Output(), "panic: ") || strings.Contains(d.Output(), "DATA RACE") {
			s.tb.Errorf("berth %s crashed:\n%s", d.args[0], d.Output())
		}
	}
	s.left.checkLeft()
	if err := os.RemoveAll(s.Dir); err != nil {
		s.tb.Errorf("remove the site: %v", err)
	}
}

// logState logs the state of the site after a failure.
func (s *Site) logState(ctx context.Context) {
	for _, d := range s.daemons {
		text := d.Output()
		if len(text) > 8<<10 {
			text = "…" + text[len(text)-8<<10:]
		}
		s.tb.Logf("berth %s (pid %d):\n%s", strings.Join(d.args, " "), d.Pid(), text)
	}
	c := s.Client()
	page, err := c.Tasks(ctx, client.TaskFilter{}, client.ListOptions{})
	if err != nil {
		return
	}
	shown := map[cluster.TaskID]bool{}
	for _, t := range page.Items[:min(len(page.Items), 20)] {
		s.tb.Logf("%s attempt %d: %s %s %s %s", t.ID, t.Attempt, t.State, t.Health, t.Reason, t.Message)
		shown[t.ID] = true
	}
	s.logEvents(ctx, c, shown)
}

// logEvents logs the newest events, except for the events of tasks that are not shown.
func (s *Site) logEvents(ctx context.Context, c *client.Client, shown map[cluster.TaskID]bool) {
	var lines []string
	for after := ""; ; {
		page, err := c.Events(ctx, client.EventOptions{After: after}, client.ListOptions{})
		if err != nil || len(page.Items) == 0 {
			break
		}
		for _, e := range page.Items {
			if e.Task == "" || shown[e.Task] {
				lines = append(lines, fmt.Sprintf("%s %s %s %d %s %s", e.At.Format(time.TimeOnly), e.Type, e.Task,
					e.Attempt, e.Node, e.Message))
			}
		}
		after = page.Items[len(page.Items)-1].ID
	}
	s.tb.Logf("events:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
}

// clear deletes every service and job and waits until all their tasks are gone. It restarts a site whose processes were
// ended.
func (s *Site) clear(ctx context.Context) error {
	revive := s.revive
	if s.fleet != nil {
		revive = s.fleet.revive
	}
	if len(s.daemons) == 0 || s.fleet == nil && !s.hasStore() {
		return nil
	}
	if err := revive(ctx); err != nil {
		return err
	}
	c := s.Client()
	clean, cancel := testkit.WithLimit(ctx, cleanLimit)
	defer cancel()
	return testkit.Poll(clean, func() error { return s.deleteAll(ctx, c) })
}

func (s *Site) hasStore() bool {
	elsewhere := slices.ContainsFunc(s.daemons, func(d *Daemon) bool { return slices.Contains(d.args, "--store") })
	_, err := os.Stat(filepath.Join(s.ServerDir, "etcd"))
	return err == nil || elsewhere
}

// revive starts the processes that the test ended.
func (s *Site) revive(ctx context.Context) error {
	kinds := []string{"dev", "standalone", "server", "agent"}
	last := map[string]*Daemon{}
	for _, d := range s.daemons {
		if !slices.Contains(kinds, d.args[0]) {
			continue
		}
		if old := last[d.args[0]]; old == nil || !old.Alive() {
			last[d.args[0]] = d
		}
	}
	for _, kind := range kinds {
		d := last[kind]
		if d == nil || d.Alive() || kind == "dev" && last["server"] != nil {
			continue
		}
		again := s.keep(s.start(d.args...))
		if kind == "agent" {
			continue
		}
		err := testkit.Poll(ctx, func() error {
			if !strings.Contains(again.Output(), "berth: ready at ") && again.Alive() {
				return fmt.Errorf("start once more: %s", again.Output())
			}
			return nil
		})
		if err == nil && !again.Alive() {
			err = fmt.Errorf("start once more: it ended: %s", again.Output())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteAll deletes what there is and returns nil once there is nothing.
func (s *Site) deleteAll(ctx context.Context, c *client.Client) error {
	services, err := c.Services(ctx, "", client.ListOptions{})
	if err != nil {
		return err
	}
	jobs, err := c.Jobs(ctx, "", client.ListOptions{})
	if err != nil {
		return err
	}
	tasks, err := c.Tasks(ctx, client.TaskFilter{All: true}, client.ListOptions{})
	if err != nil {
		return err
	}
	s.left.note(tasks.Items)
	var errs []error
	for _, v := range services.Items {
		if !v.Deleted {
			err = c.DeleteService(ctx, v.Cluster, v.Name, client.Condition{})
		}
		errs = append(errs, err, fmt.Errorf("service %s is there: %s", v.Name, v.Status.Message))
	}
	for _, v := range jobs.Items {
		if !v.Deleted {
			err = c.DeleteJob(ctx, v.Cluster, v.Name, client.Condition{})
		}
		errs = append(errs, err, fmt.Errorf("job %s is there: %s", v.Name, v.Status.Message))
	}
	for _, t := range tasks.Items {
		if !t.State.Terminal() || t.State == cluster.StateLost {
			errs = append(errs, fmt.Errorf("task %s is there: %s %s", t.ID, t.State, t.Message))
		}
	}
	if err := errors.Join(errs[:min(len(errs), 6)]...); err != nil {
		return err
	}
	return s.gone()
}

// gone returns nil once the agent has cleaned up behind all tasks.
func (s *Site) gone() error {
	dirs := []string{s.AgentDir}
	if s.fleet != nil {
		dirs = s.fleet.agentDirs()
	}
	for _, dir := range dirs {
		for _, pattern := range []string{"agent/tasks/*", "agent/network/tasks/*", "process/*"} {
			left, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return err
			}
			if len(left) > 0 {
				return fmt.Errorf("%d folders are left, such as %s", len(left), left[0])
			}
		}
	}
	return nil
}

// leftovers finds what a site leaves behind on the machine.
type leftovers struct {
	tb      testing.TB
	folders func() []string // of the site, the first holds all of it
	pids    map[int]uint64  // of containers that were seen, with their starts
	uuids   map[string]bool // of attempts that were seen
}

// checkLeft fails the test for every process, control group and mount of the site that is left, and removes it.
func (l *leftovers) checkLeft() {
	var left []string
	ending, cancel := testkit.WithLimit(context.Background(), 5*time.Second) // the test'l own context has ended
	defer cancel()
	err := testkit.Poll(ending, func() error {
		if left = slices.Concat(l.processes(), l.cgroups(), l.mounts()); len(left) > 0 {
			return errors.New("something is left")
		}
		return nil
	})
	if err == nil {
		return
	}
	for _, what := range left {
		l.tb.Errorf("left behind: %s", what)
	}
	l.sweep()
}

// note remembers what belongs to tasks, for the leak check.
func (l *leftovers) note(tasks []api.TaskView) {
	for _, t := range tasks {
		if t.UUID != "" {
			l.uuids[t.UUID] = true
		}
		for _, c := range t.Containers {
			if c.Pid != 0 && c.PidStart != 0 {
				l.pids[c.Pid] = c.PidStart
			}
		}
	}
}

// processes describes every process that names the site's folder, and every known container that still lives.
func (l *leftovers) processes() []string {
	var left []string
	for pid := range l.own() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		left = append(left, fmt.Sprintf("process %d: %s", pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte(" "))))
	}
	slices.Sort(left)
	return left
}

// own returns the processes of the site.
func (l *leftovers) own() map[int]bool {
	own := map[int]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		l.tb.Errorf("find processes: %v", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		start := StartOf(pid)
		if start == 0 {
			continue
		}
		if seen, ok := l.pids[pid]; ok && seen == start {
			own[pid] = true
			continue
		}
		if slices.ContainsFunc(l.folders(), func(dir string) bool { return names(pid, dir) }) {
			own[pid] = true
		}
	}
	return own
}

// names reports whether a process's arguments or environment name a temporary folder. The cleanup kills such processes,
// so a match must be exact.
func names(pid int, dir string) bool {
	if !strings.HasPrefix(dir, filepath.Join(os.TempDir(), "")+"/") {
		return false
	}
	for _, name := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err == nil && bytes.Contains(text, []byte(dir)) {
			return true
		}
	}
	return false
}

// ProcessesOf returns the processes whose arguments or environment name a folder, but this one.
func ProcessesOf(dir string) []int {
	entries, _ := os.ReadDir("/proc") // it is always there
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && StartOf(pid) != 0 && names(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// StartOf returns the start of a process in ticks since boot, or 0 if it is gone. With its pid it identifies one
// process, even after the pid is reused.
func StartOf(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	start, _ := strconv.ParseUint(fields[19], 10, 64) // the kernel writes a number
	return start
}

// cgroups lists the control groups of the site's attempts.
func (l *leftovers) cgroups() []string {
	var left []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil //nolint:nilerr // others come and go
		}
		if name := e.Name(); len(name) >= 36 && l.uuids[name[:36]] {
			left = append(left, "control group "+path)
			return fs.SkipDir
		}
		return nil
	})
	return left
}

// mounts lists the mounts below the site's folder.
func (l *leftovers) mounts() []string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		l.tb.Errorf("find mounts: %v", err)
	}
	var left []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], l.folders()[0]+"/") {
			left = append(left, "mount "+f[1])
		}
	}
	return left
}

// sweep removes what was left behind, so that the next test begins on a clean machine.
func (l *leftovers) sweep() {
	for pid := range l.own() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	for _, m := range slices.Backward(l.mounts()) {
		_ = syscall.Unmount(strings.TrimPrefix(m, "mount "), syscall.MNT_DETACH) // the test has failed already
	}
	ending, cancel := testkit.WithLimit(context.Background(), 5*time.Second)
	defer cancel()
	_ = testkit.Poll(ending, func() error { // the same; those who are killed leave their groups within that time
		left := l.cgroups()
		for _, g := range left {
			_ = os.Remove(strings.TrimPrefix(g, "control group "))
		}
		if len(left) > 0 {
			return errors.New("control groups are left")
		}
		return nil
	})
}
