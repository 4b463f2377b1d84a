package process_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/executor/process"
	"github.com/berthd/berth/internal/suite/suitetest"
	"github.com/berthd/berth/internal/testkit"
)

// TestMain makes the test binary the one that supervisors run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == process.Subcommand {
		os.Exit(process.Supervise(os.Args[2:]))
	}
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		ex, err := process.New(process.Config{
			Dir: filepath.Join(os.Args[2], "state"), CgroupParent: "/berth-test",
			Isolation: cluster.IsolationNone,
		})
		if err == nil {
			err = executortest.Agent(context.Background(), ex, os.Args[2], shell)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestCrashedAgents(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	dir := t.TempDir()
	m := executortest.Machine{
		New:   func() executor.Executor { return newExecutor(t, filepath.Join(dir, "state")) },
		Shell: shell,
	}
	executortest.Crash(t, m, dir, func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, os.Args[0], "agent", dir)
	})
}

func shell(script string) cluster.Container {
	return cluster.Container{Name: "main", Command: []string{"/bin/busybox", "sh", "-c", script}}
}

// newExecutor begins a life of an agent whose containers are in dir.
func newExecutor(t testing.TB, dir string, change ...func(*process.Config)) *process.Executor {
	t.Helper()
	cfg := process.Config{Dir: dir, CgroupParent: "/berth-test", Isolation: cluster.IsolationNone}
	for _, c := range change {
		c(&cfg)
	}
	ex, err := process.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ex
}

// supervisors returns the pids of the supervisors of a container.
func supervisors(dir string, id executor.ID) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		args, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(args), filepath.Join(dir, string(id))+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func machine(t *testing.T, change ...func(*process.Config)) executortest.Machine {
	dir := filepath.Join(t.TempDir(),
		"a-long-name-that-makes-the-path-of-a-socket-longer-than-a-socket-address-can-be-which-is-107-bytes")
	return executortest.Machine{
		New:       func() executor.Executor { return newExecutor(t, dir, change...) },
		Container: func(p executortest.Program) cluster.Container { return shell(p.Script()) },
		Shell:     shell,
		Lines:     testkit.Setting(t, "BERTH_TEST_LINES", 0),
		Orphan: func(id executor.ID) {
			pids := supervisors(dir, id)
			if len(pids) != 1 {
				t.Fatalf("%s has %d supervisors", id, len(pids))
			}
			p, err := os.FindProcess(pids[0])
			if err == nil {
				err = p.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestWithCgroup(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	suitetest.Run(t, executortest.Cases(), func(t *testing.T) executortest.Machine {
		m := machine(t)
		m.Cgroup = func(id executor.ID, file string) string {
			for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/" + strings.SplitN(file, ".", 2)[0]} {
				if b, err := os.ReadFile(filepath.Join(root, "berth-test", string(id), file)); err == nil {
					return string(b)
				}
			}
			return ""
		}
		return m
	})
}

func TestWithoutCgroup(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	suitetest.Run(t, executortest.Cases(), func(t *testing.T) executortest.Machine {
		return machine(t, func(c *process.Config) { c.NoCgroup = true })
	})
}

// TestWithoutRoot runs the suite in a process of the user nobody, or of the user who runs the tests.
func TestWithoutRoot(t *testing.T) {
	testkit.NeedCommand(t, "busybox")
	if os.Geteuid() != 0 {
		suitetest.Run(t, executortest.Cases(), func(t *testing.T) executortest.Machine {
			m := machine(t)
			m.OneUser = true
			return m
		})
		return
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "berth-nobody-") //nolint:usetesting // nobody must be able to reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	binary := filepath.Join(dir, "test")
	program, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(binary, program, 0o755)
	}
	if err == nil {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestWithoutRoot$", "-test.v", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestWithoutRoot/files")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// cgroups returns the folders of a container's cgroup.
func cgroups(t *testing.T, id executor.ID) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/berth-test/", "/sys/fs/cgroup/*/berth-test/"} {
		dirs, err := filepath.Glob(pattern + string(id))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// An agent may die anywhere in Prepare and in Remove. The remains are listed or are no container at all. They can be
// prepared again, and are removed completely, with the cgroup.
func TestCutShort(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	for name, tc := range map[string]struct {
		leave  []string // in the container's folder
		folder string   // "" is the id
		listed bool
	}{
		"before the lock":           {listed: true},
		"before the plan":           {leave: []string{"lock"}, listed: true},
		"in the middle of the plan": {leave: []string{"lock", "plan.json.new"}, listed: true},
		"of a container that ended": {leave: []string{"lock", "exit.json", "intent.json"}, listed: true},
		"while it was removed":      {leave: []string{"lock", "plan.json", "exit.json"}, folder: ".removed-cut"},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", prepared again: ", again), func(t *testing.T) {
				const id = "cut"
				state := filepath.Join(t.TempDir(), "state")
				folder := filepath.Join(state, cmp.Or(tc.folder, id))
				if err := os.MkdirAll(folder, 0o700); err != nil {
					t.Fatal(err)
				}
				for _, f := range tc.leave {
					if err := os.WriteFile(filepath.Join(folder, f), []byte("{}"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				ex := newExecutor(t, state)
				if _, err := ex.Probe(t.Context()); err != nil { // it makes the parent cgroup
					t.Fatal(err)
				}
				stray := "/sys/fs/cgroup/pids/berth-test/" + id
				if _, err := os.Stat(filepath.Dir(stray)); err != nil {
					stray = "/sys/fs/cgroup/berth-test/" + id
				}
				if err := os.MkdirAll(stray, 0o755); err != nil {
					t.Fatal(err)
				}
				all, err := ex.List(t.Context())
				if err != nil || (len(all) == 1) != tc.listed {
					t.Fatalf("list: %+v %v", all, err)
				}
				if tc.listed && (all[0].ID != id || all[0].State != executor.StatePrepared) {
					t.Errorf("listed as %+v", all[0])
				}
				want := executor.ErrNotFound
				if tc.listed {
					want = executor.ErrUnavailable
				}
				if _, err := ex.Start(t.Context(), id); !errors.Is(err, want) {
					t.Errorf("start: %v, want %v", err, want)
				}
				if again {
					runOnce(t, ex, id)
				}
				if err := ex.Remove(t.Context(), id); err != nil {
					t.Error(err)
				}
				left, err := os.ReadDir(state)
				if err != nil || len(left) > 0 {
					t.Errorf("left in the state: %v %v", left, err)
				}
				if left := cgroups(t, id); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

// runOnce prepares a container, runs its program, and demands its exit.
func runOnce(t *testing.T, ex executor.Executor, id executor.ID) {
	t.Helper()
	s := executor.Spec{ID: id, Container: shell("exit 3"), Dir: t.TempDir(), LogDir: t.TempDir()}
	if err := ex.Prepare(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ex.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if exit, err := ex.Wait(t.Context(), id); err != nil || exit.Code != 3 || exit.Unknown {
		t.Errorf("got %+v %v", exit, err)
	}
}

// A supervisor that is killed at any moment of Prepare leaves nothing that Remove does not remove.
func TestKilledSupervisors(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	state := t.TempDir()
	ex := newExecutor(t, state)
	made := 0
	for i := range 24 {
		id := executor.ID(fmt.Sprintf("killed-%d-%d", os.Getpid(), i))
		s := executor.Spec{
			ID: id, Container: shell("exec sleep 100000"), Dir: t.TempDir(), LogDir: t.TempDir(),
		}
		done := make(chan error, 1)
		go func() { done <- ex.Prepare(t.Context(), s, nil) }()
		testkit.Eventually(t, executortest.Limit, func() error {
			// Each time a little later: without a cgroup, with one, and when the program is ready to start.
			if pids := supervisors(state, id); len(pids) == 0 || i%3 > 0 && len(cgroups(t, id)) == 0 {
				return errors.New("no supervisor")
			}
			return nil
		})
		if i%3 == 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			done <- nil
		}
		for _, pid := range supervisors(state, id) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be a launcher that ends
		}
		if err := <-done; err == nil {
			made++
		}
		if err := ex.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
		if left := cgroups(t, id); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left in the state: %v %v", left, err)
	}
	if made == 0 {
		t.Error("every supervisor was killed before it had prepared anything")
	}
}

// A container whose supervisor died before the start gets another one, and its program runs once.
func TestStartAfterTheSupervisorDied(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	state, effects := t.TempDir(), filepath.Join(t.TempDir(), "effects")
	id := executor.ID(fmt.Sprintf("revived-%d", os.Getpid()))
	ex := newExecutor(t, state)
	s := executor.Spec{ID: id, Container: shell("echo ran >>" + effects), Dir: t.TempDir(), LogDir: t.TempDir()}
	if err := ex.Prepare(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	for _, pid := range supervisors(state, id) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be a launcher that ends
	}
	testkit.Eventually(t, executortest.Limit, func() error {
		if pids := supervisors(state, id); len(pids) > 0 {
			return fmt.Errorf("supervisors %v live", pids)
		}
		return nil
	})
	if _, err := newExecutor(t, state).Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	exit, err := ex.Wait(t.Context(), id)
	if err != nil || !exit.Success() {
		t.Errorf("exit: got %+v %v, want success", exit, err)
	}
	if _, err := ex.Start(t.Context(), id); !errors.Is(err, executor.ErrStarted) {
		t.Errorf("start again: got %v, want ErrStarted", err)
	}
	if b, err := os.ReadFile(effects); err != nil || string(b) != "ran\n" {
		t.Errorf("effects: got %q %v, want one", b, err)
	}
	if err := ex.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// When the kernel refuses to run the program, its start was written down already: the error does not promise that the
// program never ran. The container ends, and is not started again, in this life of the agent and in the next one.
func TestStartInDoubt(t *testing.T) {
	for _, life := range []string{"same", "next"} {
		t.Run(life, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "program")
			if err := os.WriteFile(program, []byte("#!/no/interpreter\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(dir, "state")
			ex := newExecutor(t, state, func(c *process.Config) { c.NoCgroup = true })
			c := cluster.Container{Name: "main", Command: []string{program}}
			s := executor.Spec{ID: "doubt", Container: c, Dir: t.TempDir(), LogDir: t.TempDir()}
			ctx := testkit.Context(t, executortest.Limit)
			defer func() {
				if err := ex.Remove(context.WithoutCancel(ctx), s.ID); err != nil {
					t.Error(err)
				}
			}()
			if err := ex.Prepare(ctx, s, nil); err != nil {
				t.Fatal(err)
			}
			_, err := ex.Start(ctx, s.ID)
			if err == nil || !strings.Contains(err.Error(), program) {
				t.Fatalf("start: %v, want an error about %s", err, program)
			}
			for _, promise := range []error{executor.ErrNotStarted, executor.ErrUnavailable, executor.ErrStarted} {
				if errors.Is(err, promise) {
					t.Errorf("start: %v is also: %v", err, promise)
				}
			}
			if life == "next" {
				ex = newExecutor(t, state, func(c *process.Config) { c.NoCgroup = true })
			}
			if exit, err := ex.Wait(ctx, s.ID); err != nil || exit.Code == 0 {
				t.Errorf("wait: %+v %v, want an end that is no success", exit, err)
			}
			if _, err := ex.Start(ctx, s.ID); !errors.Is(err, executor.ErrStarted) {
				t.Errorf("second start: %v, want %v", err, executor.ErrStarted)
			}
		})
	}
}

// An invalid container id names no folder above the container's.
func TestStrangeIDs(t *testing.T) {
	dir := t.TempDir()
	ex := newExecutor(t, filepath.Join(dir, "state"))
	keep := filepath.Join(dir, "state", "keep")
	if err := os.MkdirAll(keep, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []executor.ID{"", ".", "..", "a/..", "/", "x/keep", "../state"} {
		if err := ex.Remove(t.Context(), id); err != nil {
			t.Errorf("remove %q: %v", id, err)
		}
		if _, err := ex.Start(t.Context(), id); !errors.Is(err, executor.ErrNotFound) {
			t.Errorf("start %q: %v", id, err)
		}
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

// On a full disk the supervisor keeps the exit until there is room.
func TestFullDisk(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=512k"); err != nil {
		testkit.Skip(t, "cannot mount a small disk: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ex := newExecutor(t, filepath.Join(disk, "state"))
	s := executor.Spec{
		ID: "full", Container: shell("while ! test -e /berth-test/go; do sleep 0.01; done; exit 7"), Dir: t.TempDir(),
		LogDir: t.TempDir(),
		Mounts: []executor.Mount{{Source: t.TempDir(), Path: "/berth-test"}},
	}
	if err := ex.Prepare(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	p, err := ex.Start(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	_ = f.Close()
	if err := os.WriteFile(filepath.Join(s.Mounts[0].Source, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, executortest.Limit, func() error {
		if outlive.StartOf(p.Pid) == p.PidStart {
			return errors.New("the program still runs")
		}
		return nil
	})
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if exit, err := ex.Wait(short, s.ID); err == nil {
		t.Errorf("an exit that is not durable was reported: %+v", exit)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if exit, err := ex.Wait(t.Context(), s.ID); err != nil || exit.Code != 7 || exit.Unknown {
		t.Errorf("got %+v %v", exit, err)
	}
	if err := ex.Remove(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
}

// The agent's folder may be below a folder that is closed to the program's user.
func TestIsolationBelowAClosedFolder(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	closed := fmt.Sprintf("/srv/berth-test-%d", os.Getpid()) // isolated programs do not see what is below /tmp
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(closed); err != nil {
			t.Error(err)
		}
	})
	data := filepath.Join(closed, "data")
	ex := newExecutor(t, filepath.Join(data, "process"), func(c *process.Config) {
		c.Isolation, c.Hidden = cluster.IsolationRequired, []string{data}
	})
	const id = "closed"
	spec := executor.Spec{
		ID: id, Container: shell("echo x >note && /bin/busybox cat note"), Dir: filepath.Join(data, "dir"),
		LogDir: filepath.Join(data, "logs"),
	}
	err := ex.Prepare(t.Context(), spec, nil)
	if err == nil {
		_, err = ex.Start(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	exit, err := ex.Wait(t.Context(), id)
	if err != nil || exit.Code != 0 {
		t.Errorf("the program ended with %+v, %v", exit, err)
	}
	if err := ex.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
}
