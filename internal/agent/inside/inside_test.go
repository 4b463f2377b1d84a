package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/thread"
)

// program starts a program and returns its process.
func program(t *testing.T, change func(*exec.Cmd)) executor.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "100000")
	change(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return executor.Process{Pid: cmd.Process.Pid, PidStart: outlive.StartOf(cmd.Process.Pid)}
}

func TestRights(t *testing.T) {
	t.Parallel()
	got, err := parseRights("Name:\tx: y\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 " +
		"\nCapEff:\t0000000000000401\n")
	want := rights{uid: 4, gid: 8, groups: []int{9, 10}, capabilities: 0x401}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(rights{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, bad := range []string{
		"", "Uid:\t1\t2\t3\t4\n",
		"Uid:\t1\t2\t3\tx\nGid:\t5\t6\t7\t8\nGroups:\t\nCapEff:\t0\n",
	} {
		if got, err := parseRights(bad); err == nil {
			t.Errorf("%q gives %+v", bad, got)
		}
	}
}

// TestFilesWithTheProgramsRights: files are accessed with the program's rights, and this process keeps its own.
func TestFilesWithTheProgramsRights(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	dir := t.TempDir()
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && info.Mode().Perm()&0o005 != 0o005 {
			if err := os.Chmod(at, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Mkdir(dir+"/open", 0o777), os.Chmod(dir+"/open", 0o777),
		os.WriteFile(dir+"/secret", []byte("root's"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p := program(t, func(c *exec.Cmd) {
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: 65534, Gid: 65533, Groups: []uint32{77}},
		}
	})
	err := Files(p, "/", func(root *os.Root) error {
		_, secret := root.ReadFile(strings.TrimPrefix(dir, "/") + "/secret")
		if !errors.Is(secret, os.ErrPermission) {
			t.Errorf("the file of root: got %v, want that it is forbidden", secret)
		}
		return root.WriteFile(strings.TrimPrefix(dir, "/")+"/open/mine", nil, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir + "/open/mine")
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 65534 || st.Gid != 65533 {
		t.Errorf("the new file is that of %+v", info.Sys())
	}
	err = Files(p, "open/mine", func(root *os.Root) error {
		_, err := root.Stat("open/mine")
		_, out := root.Stat("../" + filepath.Base(dir))
		if out == nil {
			t.Error("a path leads out of the folder where the program is")
		}
		return err
	})
	if err != nil {
		t.Errorf("below the program's folder: %v", err)
	}
	if b, err := os.ReadFile(dir + "/secret"); err != nil || string(b) != "root's" {
		t.Errorf("this process: %q %v", b, err)
	}

	// Modes also bind a root without capabilities.
	bare := program(t, func(c *exec.Cmd) {
		c.Path, c.Args = "/bin/sh",
			[]string{"sh", "-c", "exec setpriv --bounding-set=-all --inh-caps=-all sleep 100000"}
	})
	var r rights
	testkit.Eventually(t, 20*time.Second, func() error {
		if r, _ = rightsOf(bare.Pid); r.capabilities != 0 {
			return fmt.Errorf("it has the capabilities %x", r.capabilities)
		}
		return nil
	})
	if err := os.Chown(dir+"/secret", 1, 1); err != nil {
		t.Fatal(err)
	}
	err = Files(bare, "/", func(root *os.Root) error {
		_, err := root.ReadFile(strings.TrimPrefix(dir, "/") + "/secret")
		return err
	})
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("root without capabilities: got %v, want that it is forbidden", err)
	}
}

// TestDial finds a port in the machine's network and in a program's own network.
func TestDial(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(l.Addr())
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	shared := program(t, func(*exec.Cmd) {})
	conn, err := Dial(t.Context(), shared, addr.Port, "")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()

	testkit.NeedCommand(t, "busybox")
	own := program(t, func(c *exec.Cmd) {
		c.Path, c.Args = "/bin/sh", []string{"sh", "-c", "busybox ip link set lo up; exec sleep 100000"}
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	})
	if conn, err := Dial(t.Context(), own, addr.Port, ""); err == nil {
		_ = conn.Close()
		t.Error("a port of the machine was reached from the program's own network")
	}
	inner := listenIn(t, own, 7777)
	defer inner.Close()
	go func() {
		for {
			conn, err := inner.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("inside"))
			_ = conn.Close()
		}
	}()
	testkit.Eventually(t, time.Minute, func() error { // its loopback may not be up yet
		conn, err := Dial(t.Context(), own, 7777, "")
		if err != nil {
			return err
		}
		defer conn.Close()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "inside" {
			return fmt.Errorf("got %q %w", got, err)
		}
		return nil
	})
}

// listenIn listens in a program's network, once its loopback is up.
func listenIn(t *testing.T, p executor.Process, port int) (l net.Listener) {
	t.Helper()
	ns, err := os.Open(proc(p.Pid, "ns/net"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	testkit.Eventually(t, time.Minute, func() error {
		return thread.Apart(func() (err error) {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			return err
		})
	})
	return l
}

// TestNotThere: another process with the program's PID is not entered.
func TestNotThere(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]executor.Process{
		"another process": {Pid: os.Getpid(), PidStart: 1}, "none": {Pid: 1 << 30, PidStart: 1}, "nothing": {},
	} {
		if err := Files(p, "/", func(*os.Root) error { return nil }); !errors.Is(err, executor.ErrNotRunning) {
			t.Errorf("files of %s: %v", name, err)
		}
		if _, err := Dial(context.Background(), p, 80, ""); !errors.Is(err, executor.ErrNotRunning) {
			t.Errorf("a port of %s: %v", name, err)
		}
	}
}
