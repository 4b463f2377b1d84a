package process_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/executor/process"
	"github.com/berthd/berth/internal/testkit"
)

// TestMain makes the test binary the one that supervisors run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == process.Subcommand {
		os.Exit(process.Supervise(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func shell(script string) cluster.Container {
	return cluster.Container{Name: "main", Command: []string{"/bin/busybox", "sh", "-c", script}}
}

// newExecutor begins a life of an agent whose containers are in dir.
func newExecutor(t testing.TB, dir string, change ...func(*process.Config)) *process.Executor {
	t.Helper()
	cfg := process.Config{Dir: dir, CgroupParent: "/berth-test"}
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
	dir := filepath.Join(t.TempDir(), "a-long-name-that-makes-the-path-of-a-socket-longer-than-a-socket-address-can-be-which-is-107-bytes")
	return executortest.Machine{
		New:       func(t *testing.T) executor.Executor { return newExecutor(t, dir, change...) },
		Container: func(p executortest.Program) cluster.Container { return shell(p.Script()) },
		Shell:     shell,
		Orphan: func(t *testing.T, id executor.ID) {
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
	executortest.Run(t, func(t *testing.T) executortest.Machine {
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
	executortest.Run(t, func(t *testing.T) executortest.Machine {
		return machine(t, func(c *process.Config) { c.NoCgroup = true })
	})
}

// TestWithoutRoot runs the suite in a process of the user nobody, or of the user who runs the tests.
func TestWithoutRoot(t *testing.T) {
	testkit.NeedCommand(t, "busybox")
	if os.Geteuid() != 0 {
		executortest.Run(t, func(t *testing.T) executortest.Machine {
			m := machine(t)
			m.OneUser = true
			return m
		})
		return
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "berth-nobody-")
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
