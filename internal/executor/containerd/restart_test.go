package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd/daemon"
	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/testkit"
)

// make prepares a container whose folders live as long as the test, and returns its spec.
func (n *node) make(t testing.TB, ex executor.Executor, id executor.ID, c cluster.Container) executor.Spec {
	t.Helper()
	s := executor.Spec{ID: id, Container: c, Dir: t.TempDir(), LogDir: t.TempDir()}
	t.Cleanup(func() {
		ctx, cancel := testkit.WithLimit(context.WithoutCancel(t.Context()), executortest.Limit)
		defer cancel()
		if err := n.life(t).Remove(ctx, id); err != nil {
			t.Error(err)
		}
	})
	if err := ex.Prepare(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t testing.TB, ex executor.Executor, id executor.ID) executor.Process {
	t.Helper()
	p, err := ex.Start(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func output(t testing.TB, s executor.Spec) string {
	t.Helper()
	var b strings.Builder
	err := logs.Read(t.Context(), s.LogDir, logs.Options{}, func(l logs.Line) error {
		b.WriteString(l.Text + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// crash kills the daemon the hard way.
func (n *node) crash(t *testing.T) {
	t.Helper()
	killOne(t, filepath.Join(n.dir, "daemon", "config.toml"))
	testkit.Eventually(t, executortest.Limit, func() error {
		if _, err := n.life(t).Probe(t.Context()); err == nil {
			return errors.New("it still answers")
		}
		return nil
	})
}

func (n *node) launch(t *testing.T) {
	t.Helper()
	var err error
	if n.daemon, err = daemon.Launch(t.Context(),
		daemon.Config{Dir: filepath.Join(n.dir, "daemon")}); err != nil {
		t.Fatal(err)
	}
}

func TestDaemonRestart(t *testing.T) {
	n := newNode(t)
	ex := n.life(t)
	long := n.make(t, ex, "long", shell("trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done"))
	away := n.make(t, ex, "away", shell("sleep 1; echo bye; exit 5"))
	early := n.make(t, ex, "early", shell("exit 6"))
	p := start(t, ex, long.ID)
	start(t, ex, away.ID)
	exits := make(chan string, 2)
	for _, id := range []executor.ID{long.ID, away.ID} {
		go func() {
			exit, err := ex.Wait(t.Context(), id)
			exits <- fmt.Sprint(id, " ", exit.Code, " ", err)
		}()
	}
	n.crash(t)
	if _, err := ex.List(t.Context()); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("list without containerd: %v", err)
	}
	if _, err := ex.Start(t.Context(), "none"); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("start without containerd: %v", err)
	}
	// The program ends while containerd is down.
	testkit.Eventually(t, executortest.Limit, func() error {
		if out := output(t, away); !strings.Contains(out, "bye") {
			return fmt.Errorf("output %q", out)
		}
		return nil
	})
	n.launch(t)
	if got := <-exits; got != "away 5 <nil>" {
		t.Errorf("the exit during the crash: %s", got)
	}
	all, err := ex.List(t.Context())
	if err != nil || len(all) != 3 || all[2].ID != long.ID || all[2].State != executor.StateRunning ||
		all[2].Process.Pid != p.Pid || all[2].Process.PidStart != p.PidStart {
		t.Errorf("after the crash: %+v %v, want pid %d", all, err, p.Pid)
	}
	start(t, ex, early.ID)
	if exit, err := ex.Wait(t.Context(), early.ID); err != nil || exit.Code != 6 {
		t.Errorf("prepared before the crash: %+v %v", exit, err)
	}
	// An orderly restart.
	if err := n.daemon.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.launch(t)
	// The connection is tried again within a second; until then calls fail, and their callers repeat them.
	testkit.Eventually(t, executortest.Limit, func() error {
		err := ex.Signal(t.Context(), long.ID, 15)
		if err != nil && !errors.Is(err, executor.ErrUnavailable) {
			t.Fatal(err)
		}
		return err
	})
	if got := <-exits; got != "long 4 <nil>" {
		t.Errorf("the exit after the restart: %s", got)
	}
	// A second launch finds the daemon.
	address := n.daemon.Address
	n.launch(t)
	if n.daemon.Address != address || len(pids(filepath.Join(n.dir, "daemon", "config.toml"))) != 1 {
		t.Error("launched twice")
	}
}

func TestCollectorRestart(t *testing.T) {
	n := newNode(t)
	ex := n.life(t)
	s := n.make(t, ex, "chatty",
		shell("i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; yes | head -n "+
			"200000; echo last"))
	start(t, ex, s.ID)
	ended := make(chan error, 1)
	go func() {
		exit, err := ex.Wait(t.Context(), s.ID)
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("exit %+v", exit)
		}
		ended <- err
	}()
	for _, line := range []string{"line 2\n", "line 15\n"} {
		testkit.Eventually(t, executortest.Limit, func() error {
			if out := output(t, s); !strings.Contains(out, line) {
				return fmt.Errorf("output %q", out)
			}
			return nil
		})
		killOne(t, filepath.Join(n.dir, "collector"))
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	out := output(t, s)
	for i := range 30 {
		if !strings.Contains(out, fmt.Sprintf("line %d\n", i)) && i != 2 && i != 15 {
			t.Errorf("line %d is lost", i)
		}
	}
	if got := strings.Count(out, "y\n"); got != 200000 || !strings.HasSuffix(out, "last\n") {
		t.Errorf("%d of 200000 lines, the end is %q", got, out[max(0, len(out)-20):])
	}
}

// A stopped reader of a log blocks neither the task nor the collector.
func TestStoppedReader(t *testing.T) {
	n := newNode(t)
	ex := n.life(t)
	s := n.make(t, ex, "chatty",
		shell("echo first; sleep 0.2; yes 0123456789012345678901234567890123456789 | head -n 700000; echo last"))
	start(t, ex, s.ID)
	first, release := make(chan struct{}), make(chan struct{})
	type result struct {
		seen, lost int64
		last       string
		err        error
	}
	read := make(chan result, 1)
	done := make(chan struct{})
	go func() {
		var r result
		r.err = logs.Read(t.Context(), s.LogDir, logs.Options{Follow: true, Done: done}, func(l logs.Line) error {
			if r.seen == 0 {
				close(first)
				<-release
			}
			r.lost += l.Lost
			if l.Lost == 0 {
				r.seen++
				r.last = l.Text
			}
			return nil
		})
		read <- r
	}()
	<-first
	begin := time.Now()
	exit, err := ex.Wait(t.Context(), s.ID)
	if err != nil || !exit.Success() {
		t.Fatalf("%+v %v", exit, err)
	}
	t.Logf("with a stopped reader the task took %v", time.Since(begin))
	close(done)
	close(release)
	r := <-read
	if r.err != nil || r.seen+r.lost != 700002 || r.lost == 0 || r.last != "last" {
		t.Errorf("the reader saw %d lines, lost %d, of 700002; the last %q; %v", r.seen, r.lost, r.last, r.err)
	}
}

func TestIsolation(t *testing.T) {
	n := newNode(t)
	ex := n.life(t)
	s := n.make(t, ex, "isolated",
		shell(`grep Seccomp: /proc/self/status | tr -d '\t'; cat /proc/sys/kernel/hostname; stat -L -c %i /proc/self/ns/net; stat -L -c %i /proc/self/ns/uts; echo $$; test -s /etc/resolv.conf && echo resolv; cat /proc/kcore 2>/dev/null | head -c 1 | grep -q . && echo kcore; echo 1 >/proc/sys/kernel/domainname && echo written`))
	start(t, ex, s.ID)
	if exit, err := ex.Wait(t.Context(), s.ID); err != nil || exit.Unknown {
		t.Fatalf("%+v %v", exit, err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	inode := func(name string) uint64 {
		info, err := os.Stat("/proc/self/ns/" + name)
		if err != nil {
			t.Fatal(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("no inode")
		}
		return st.Ino
	}
	want := fmt.Sprintf("Seccomp:2\n%s\n%d\n%d\n1\n", host, inode("net"), inode("uts"))
	if info, err := os.Stat("/etc/resolv.conf"); err == nil && info.Size() > 0 {
		want += "resolv\n"
	}
	got := strings.ReplaceAll(output(t, s), "sh: can't create /proc/sys/kernel/domainname: Read-only file system\n", "")
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestSlowCleanUp kills the shim of a container on a machine that needs longer than containerd's own limit of five
// seconds to clean up after it. Nothing of the container stays mounted.
func TestSlowCleanUp(t *testing.T) {
	testkit.NeedCommand(t, "runc")
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' delete '*) sleep 7;; esac\nexec %s \"$@\"\n", runc)
	if err := os.WriteFile(filepath.Join(tools, "runc"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	n := newNode(t)
	ex := n.life(t)
	id := n.make(t, ex, "slow", shell("while :; do sleep 0.02; done")).ID
	start(t, ex, id)
	killOne(t, string(id)) // the shim
	if exit, err := ex.Wait(t.Context(), id); err != nil {
		t.Fatalf("the exit of a container without its shim: %+v %v", exit, err)
	}
	testkit.Eventually(t, executortest.Limit, func() error {
		text, err := os.ReadFile("/proc/self/mounts")
		if err == nil && strings.Contains(string(text), filepath.Join(n.dir, "daemon", "state")) {
			err = errors.New("the file system of the container is mounted")
		}
		return err
	})
}
