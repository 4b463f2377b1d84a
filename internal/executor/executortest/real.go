package executortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/yardstick"
)

// realTests test the environment of a program in its container.
func realTests() []test {
	return []test{
		{"arguments, environment and folder", needShell, surroundings},
		{"user", needUsers, userTest},
		{"files", needShell, filesTest},
		{"secrets", needShell, secretsTest},
		{"files that are replaced", needShell, renderedTest},
		{"volumes", needShell, volumesTest},
		{"tmpfs", needShell, tmpfsTest},
		{"read-only root", needShell, readOnlyRoot},
		{"capabilities", needUsers, capabilities},
		{"open files", needShell, openFiles},
		{"missing command", needShell, missingCommand},
		{"exec", needShell, execTest},
		{"exec is killed with its context", needShell, execCancelled},
		{"exec is given up while it starts", needShell, execGivenUp},
		{"chatty program", needShell, chatty},
		{"standard input and outputs", needShell, stdio},
		{"what it uses", needShell, usage},
		{"CPUs", needShell, cpus},
		{"network", needShell, networkTest},
	}
}

// cpus tests the CPUs of programs: those of the spec, and later those of Pin, for all their processes.
func cpus(b *bench) {
	if runtime.NumCPU() < 2 {
		b.Logf("does not apply: the machine has one CPU")
		return
	}
	out, _ := b.run("grep Cpus_allowed_list /proc/self/status | tr -d '\t'", func(s *executor.Spec) { s.CPUs = "1" })
	b.wantOutput(out, "Cpus_allowed_list:1\n")
	s := b.spec(b.m.Shell("sleep 1000000 & wait"))
	s.CPUs = "0-1"
	p := b.started(s)
	pinner, ok := b.ex.(executor.Pinner)
	if !ok {
		b.Fatalf("the executor cannot move containers to other CPUs")
	}
	b.must(pinner.Pin(b.Context(), s.ID, "1"))
	suite.Eventually(b, Limit, func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Pid, p.Pid))
		pids := append(strings.Fields(string(children)), strconv.Itoa(p.Pid))
		if err != nil || len(pids) != 2 {
			return fmt.Errorf("%d has the children %q, %w", p.Pid, children, err)
		}
		for _, pid := range pids {
			status, err := os.ReadFile("/proc/" + pid + "/status")
			if err != nil || !strings.Contains(string(status), "Cpus_allowed_list:\t1\n") {
				return fmt.Errorf("%s was not moved to CPU 1: %w", pid, err)
			}
		}
		return nil
	})
	prepared := b.spec(b.m.Shell("grep Cpus_allowed_list /proc/self/status | tr -d '\t'"))
	b.must(b.ex.Prepare(b.Context(), prepared, nil))
	b.must(pinner.Pin(b.Context(), prepared.ID, "0"))
	if _, err := b.ex.Start(b.Context(), prepared.ID); err != nil {
		b.Fatalf("%v", err)
	}
	if _, err := b.ex.Wait(b.Context(), prepared.ID); err != nil {
		b.Fatalf("%v", err)
	}
	b.must(pinner.Pin(b.Context(), prepared.ID, "0"))
	b.wantOutput(b.output(prepared), "Cpus_allowed_list:0\n")
	for _, id := range []executor.ID{s.ID, prepared.ID} {
		b.must(b.ex.Remove(b.Context(), id))
	}
	b.must(pinner.Pin(b.Context(), s.ID, "0"))
}

// usage makes a child work, which must count, too. An ended program uses nothing.
func usage(b *bench) {
	m, ok := b.ex.(executor.Meter)
	if !ok {
		b.Fatalf("the executor cannot measure its containers")
	}
	s := b.spec(b.m.Shell("(while :; do :; done) & wait"))
	p := b.started(s)
	running := map[executor.ID]executor.Process{s.ID: p, "no-such-container": {Pid: 1 << 30, PidStart: 1}}
	var got executor.Usage
	suite.Eventually(b, Limit, func() error {
		all := m.Usage(running)
		if got = all[s.ID]; len(all) != 1 || got.CPU < 200*time.Millisecond || got.Memory <= 0 {
			return fmt.Errorf("used %+v, want 200 ms of the CPU and some memory, of one container", all)
		}
		return nil
	})
	if got.CPU > Limit || got.Memory > cluster.GiB {
		b.Errorf("used %v and %v: more than a loop can", got.CPU, got.Memory)
	}
	d, ok := b.ex.(executor.Detailer)
	if !ok {
		b.Fatalf("the executor cannot measure more of its containers")
	}
	if c := d.Details(running)[s.ID]; c.HostNetwork == (c.Network != nil) {
		b.Errorf("its network is the node's: %v, and of its own it has %+v; want one of the two", c.HostNetwork,
			c.Network)
	}
	b.must(b.ex.Remove(b.Context(), s.ID))
	if left := m.Usage(running); len(left) != 0 {
		b.Errorf("what is removed uses %+v", left)
	}
}

func (b *bench) wantOutput(got, want string) {
	b.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("output (-want +got):\n%s", diff)
	}
}

func surroundings(b *bench) {
	out, _ := b.run(`echo "$0 $1"; echo "$A"; echo "$B"; pwd; test -n "$PATH" && echo path`, func(s *executor.Spec) {
		s.Container.Args = []string{"zero", "two words"}
		s.Container.Dir = "/usr"
		s.Env = []string{"A=1", "B=two = 2"}
	})
	b.wantOutput(out, "zero two words\n1\ntwo = 2\n/usr\npath\n")
}

func userTest(b *bench) {
	for user, want := range map[string]string{
		"": "0 0", "65534": "65534 ", "65534:12": "65534 12", "nobody": "65534 ",
		"1234:1235": "1234 1235",
	} {
		out, _ := b.run("echo $(id -u) $(id -g)", func(s *executor.Spec) { s.Container.User = user })
		if !strings.HasPrefix(out, want) {
			b.Errorf("user %q is %q, want %q", user, out, want)
		}
	}
}

func filesTest(b *bench) {
	out, _ := b.run(`cat /etc/berth-test/deep/a.conf /berth-test-b; stat -c %a /berth-test-b; echo x 2>/dev/null >/berth-test-b && echo written; id -u; cat /etc/hostname >/dev/null && echo rest`,
		func(s *executor.Spec) {
			s.Container.User = "65534"
			s.Container.Files = []cluster.File{
				{Path: "/etc/berth-test/deep/a.conf", Content: "a = 1\n"},
				{Path: "/berth-test-b", Content: "secret\n", Mode: "0400"},
			}
		})
	b.wantOutput(out, "a = 1\nsecret\n400\n65534\nrest\n")
	for _, path := range []string{"/etc/berth-test", "/berth-test-b"} {
		if _, err := os.Lstat(path); err == nil {
			b.Errorf("%s was left on the node", path)
		}
	}
}

func volumesTest(b *bench) {
	volume := b.TempDir()
	mount := func(readOnly bool) func(*executor.Spec) {
		return func(s *executor.Spec) {
			s.Mounts = []executor.Mount{{Source: volume, Path: "/berth-test/data", ReadOnly: readOnly}}
		}
	}
	_, exit := b.run("echo kept >/berth-test/data/file", mount(false))
	b.wantExit(exit, cluster.Exit{})
	if got, err := os.ReadFile(filepath.Join(volume, "file")); err != nil || string(got) != "kept\n" {
		b.Errorf("the volume holds %q, %v", got, err)
	}
	out, _ := b.run("cat /berth-test/data/file; touch /berth-test/data/more 2>/dev/null || echo refused", mount(true))
	b.wantOutput(out, "kept\nrefused\n")
	if os.Geteuid() != 0 {
		return // below are mounts
	}
	below := filepath.Join(volume, "below")
	if err := errors.Join(os.Mkdir(below, 0o700), syscall.Mount("tmpfs", below, "tmpfs", 0, "size=1m")); err != nil {
		b.Fatalf("%v", err)
	}
	b.Cleanup(func() { _ = syscall.Unmount(below, syscall.MNT_DETACH) })
	out, _ = b.run("touch /berth-test/data/below/x && echo written", mount(false))
	b.wantOutput(out, "written\n")
	out, _ = b.run("ls /berth-test/data/below; touch /berth-test/data/below/more 2>/dev/null || echo refused",
		mount(true))
	b.wantOutput(out, "x\nrefused\n")
}

func tmpfsTest(b *bench) {
	out, _ := b.run(`cd /berth-test-scratch && echo x >x && cat x; dd if=/dev/zero of=big bs=1024k count=5 2>/dev/null || echo full`,
		func(s *executor.Spec) {
			s.Container.User = "65534"
			s.Container.Tmpfs = []cluster.Tmpfs{{Path: "/berth-test-scratch", Size: 2 * cluster.MiB}}
		})
	b.wantOutput(out, "x\nfull\n")
}

func readOnlyRoot(b *bench) {
	volume := b.TempDir()
	out, _ := b.run(`for f in /berth-test-x /tmp/berth-test-x /usr/berth-test-x; do touch $f 2>/dev/null && echo $f; done; echo y >/v/y; cat /v/y; echo z >/t/z; cat /t/z; echo n >/dev/null && echo null; cat /etc/berth-f`,
		func(s *executor.Spec) {
			s.Container.ReadOnlyRoot = true
			s.Container.Resources = cluster.Resources{CPU: 100, Memory: 64 * cluster.MiB}
			s.Container.Tmpfs = []cluster.Tmpfs{{Path: "/t"}}
			s.Container.Files = []cluster.File{{Path: "/etc/berth-f", Content: "f\n"}}
			s.Mounts = []executor.Mount{{Source: volume, Path: "/v"}}
		})
	b.wantOutput(out, "y\nz\nnull\nf\n")
	// and with nothing else to mount
	out, _ = b.run(`touch /berth-test-x 2>/dev/null || echo refused`, func(s *executor.Spec) {
		s.Container.ReadOnlyRoot = true
		s.Container.Resources = cluster.Resources{CPU: 100, Memory: 64 * cluster.MiB}
	})
	b.wantOutput(out, "refused\n")
}

func capabilities(b *bench) {
	probe := `grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\t'`
	none, some := strings.Repeat("0", 16), "0000000000000401" // CHOWN and NET_BIND_SERVICE
	for name, tc := range map[string]struct {
		user string
		caps []string
		want string
	}{
		"none for root":  {"", nil, none},
		"none for user":  {"65534", nil, none},
		"those for root": {"", []string{"NET_BIND_SERVICE", "CHOWN"}, some},
		"those for user": {"65534", []string{"CHOWN", "NET_BIND_SERVICE"}, some},
	} {
		out, _ := b.run(probe, func(s *executor.Spec) { s.Container.User, s.Container.Capabilities = tc.user, tc.caps })
		want := fmt.Sprintf("CapPrm:%[1]s\nCapEff:%[1]s\nCapBnd:%[1]s\nNoNewPrivs:1\n", tc.want)
		if out != want {
			b.Errorf("%s: got\n%swant\n%s", name, out, want)
		}
	}
	s := b.spec(b.m.Shell("true"))
	s.Container.Capabilities = []string{"FLY"}
	b.wantErr("an unknown capability", b.ex.Prepare(b.Context(), s, nil), executor.ErrUnsupported)
}

// openFiles limits the open files of a program and of a command in its container, whoever they run as.
func openFiles(b *bench) {
	const probe = "ulimit -Sn; ulimit -Hn"
	users := []string{""}
	if !b.m.OneUser {
		users = append(users, "65534")
	}
	for _, user := range users {
		for _, n := range []int{cluster.MinOpenFiles, 300} {
			limited := func(s *executor.Spec) { s.Container.User, s.Container.Resources.OpenFiles = user, n }
			want := fmt.Sprintf("%[1]d\n%[1]d\n", n)
			if out, _ := b.run(probe, limited); out != want {
				b.Errorf("user %q: the limits are %q, want %q", user, out, want)
			}
			s := b.spec(b.m.Shell("exec sleep 100000"))
			limited(&s)
			var out bytes.Buffer
			_, err := b.ex.Exec(b.Context(), b.start(s),
				executor.Command{Args: []string{"sh", "-c", probe}, Stdout: &out})
			if err != nil || out.String() != want {
				b.Errorf("user %q: the limits of a command are %q (%v), want %q", user, out.String(), err, want)
			}
		}
	}
	// The kernel enforces the limit: three files are open already.
	out, _ := b.run(`for i in 3 4 5 6 7 8; do eval "exec $i</dev/null" && echo open; done; echo end`,
		func(s *executor.Spec) { s.Container.Resources.OpenFiles = cluster.MinOpenFiles })
	b.wantOutput(out, strings.Repeat("open\n", 6)+"end\n")
	out, _ = b.run(fmt.Sprintf("sh -c 'exec %d</dev/null' 2>/dev/null || echo refused", cluster.MinOpenFiles),
		func(s *executor.Spec) { s.Container.Resources.OpenFiles = cluster.MinOpenFiles })
	b.wantOutput(out, "refused\n")
	// More than the node allows is given, where the driver may, or else refused before the program runs.
	s := b.spec(b.m.Shell(probe))
	s.Container.Resources.OpenFiles = cluster.MaxOpenFiles
	err := b.ex.Prepare(b.Context(), s, nil)
	if err != nil {
		if !strings.Contains(strings.ToLower(err.Error()), "open_files") {
			b.Errorf("the error does not name the field: %v", err)
		}
		b.must(b.ex.Remove(b.Context(), s.ID))
		return
	}
	out, _ = b.run(probe, func(s *executor.Spec) { s.Container.Resources.OpenFiles = cluster.MaxOpenFiles })
	b.wantOutput(out, fmt.Sprintf("%[1]d\n%[1]d\n", cluster.MaxOpenFiles))
	b.must(b.ex.Remove(b.Context(), s.ID))
}

// missingCommand prepares containers whose program does not exist, or cannot be run. The error is typed, and names the
// program and where it was searched.
func missingCommand(b *bench) {
	for _, c := range []struct {
		command []string
		names   []string
	}{
		{[]string{"no-such-program"}, []string{`"no-such-program"`, "PATH"}},
		{[]string{"/bin/no-such-program", "-x"}, []string{"/bin/no-such-program"}},
		{[]string{"/bin/sh/no-such-program"}, []string{"/bin/sh/no-such-program"}},
		{[]string{"/etc"}, []string{"/etc"}},
		{[]string{"/etc/passwd"}, []string{"/etc/passwd"}},
	} {
		s := b.spec(b.m.Shell(""))
		s.Container.Command = c.command
		err := b.ex.Prepare(b.Context(), s, nil)
		if err == nil {
			_, err = b.ex.Start(b.Context(), s.ID)
		}
		if !errors.Is(err, executor.ErrNoProgram) {
			b.Errorf("the missing command %v gives %v, want the kind %v", c.command, err, executor.ErrNoProgram)
		}
		for _, name := range c.names {
			if err != nil && !strings.Contains(err.Error(), name) {
				b.Errorf("the missing command %v gives %v, want %s in it", c.command, err, name)
			}
		}
		b.must(b.ex.Remove(b.Context(), s.ID))
	}
}

func execTest(b *bench) {
	volume := b.TempDir()
	s := b.spec(b.m.Shell("echo up; exec sleep 100000"))
	s.Env, s.Container.User = []string{"A=1"}, "65534"
	s.Mounts = []executor.Mount{{Source: volume, Path: "/berth-test-v"}}
	id := b.start(s)
	var stdout, stderr bytes.Buffer
	code, err := b.ex.Exec(b.Context(), id, executor.Command{
		Args: []string{
			"sh", "-c",
			`read line; echo "got $line $A $B $(pwd) $(id -u)"; echo oops >&2; cat; test -d /berth-test-v && exit 42`,
		},
		Env: []string{"B=2"}, Dir: "/usr", Stdin: strings.NewReader("one\ntwo\n"), Stdout: &stdout, Stderr: &stderr,
	})
	if err != nil || code != 42 {
		b.Errorf("exec: code %d, %v", code, err)
	}
	b.wantOutput(stdout.String(), "got one 1 2 /usr 65534\ntwo\n")
	b.wantOutput(stderr.String(), "oops\n")
	code, err = b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"sh", "-c", "kill -9 $$"}})
	if err != nil || code != 137 {
		b.Errorf("exec of a killed command: code %d, %v", code, err)
	}
	if _, err = b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"no-such-program"}}); err == nil ||
		!strings.Contains(err.Error(), "no-such-program") {
		b.Errorf("exec of a missing command gives %v", err)
	}
	stdout.Reset()
	_, err = b.ex.Exec(b.Context(), id,
		executor.Command{Args: []string{"sh", "-c", "head -c 3000000 /dev/zero"}, Stdout: &stdout})
	if err != nil || stdout.Len() != 3000000 {
		b.Errorf("exec with much output: %d bytes, %v", stdout.Len(), err)
	}
	b.state(id, executor.StateRunning)
}

func execCancelled(b *bench) {
	word := fmt.Sprintf("7%d", time.Now().UnixNano()%1e8)
	id := b.start(b.spec(b.m.Shell("exec sleep 100000")))
	ctx, cancel := context.WithTimeout(b.Context(), 500*time.Millisecond)
	defer cancel()
	watch := yardstick.NewStopwatch()
	_, err := b.ex.Exec(ctx, id, executor.Command{Args: []string{"sleep", word}})
	b.wantErr("exec", err, context.DeadlineExceeded)
	if took := watch.Elapsed(); took > Limit/2 {
		b.Errorf("exec ended after %v", took)
	}
	b.gone(word)
	b.state(id, executor.StateRunning)
}

// execGivenUp gives commands up at all moments of their start: nothing of any of them is left.
func execGivenUp(b *bench) {
	word := fmt.Sprintf("6%d", time.Now().UnixNano()%1e8)
	id := b.start(b.spec(b.m.Shell("exec sleep 100000")))
	begin := time.Now()
	if _, err := b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"true"}}); err != nil {
		b.Fatalf("%v", err)
	}
	const times = 16
	usual := time.Since(begin)
	for i := range times {
		ctx, cancel := context.WithTimeout(b.Context(), usual*time.Duration(i+1)/times)
		cmd := executor.Command{Args: []string{"sleep", word}}
		if i%2 == 0 {
			cmd.Terminal = &executor.Terminal{}
		}
		_, err := b.ex.Exec(ctx, id, cmd)
		b.wantErr("exec", err, context.DeadlineExceeded)
		cancel()
	}
	b.gone(word)
	b.state(id, executor.StateRunning)
}

func chatty(b *bench) {
	// More than the pipes, buffers and the log hold, without a reader.
	lines := b.m.Lines
	if lines == 0 {
		lines = 1_000_000
	}
	s := b.spec(b.m.Shell(fmt.Sprintf(`yes 'a line of some length, as programs print them' | head -n %d; echo last`,
		lines)))
	begin := time.Now()
	exit := b.wait(b.start(s))
	b.wantExit(exit, cluster.Exit{})
	out := b.output(s)
	if !strings.HasSuffix(out, "them\nlast\n") {
		b.Errorf("the log ends with %q", out[max(0, len(out)-100):])
	}
	b.Logf("%d lines took %v", lines, time.Since(begin))
}

func stdio(b *bench) {
	out, _ := b.run(`cat; echo a >/dev/stdout; echo b >/dev/stderr; printf unfinished`, func(s *executor.Spec) {
		s.Container.User = "65534"
	})
	for _, want := range []string{"a\n", "b\n", "unfinished"} {
		if !strings.Contains(out, want) {
			b.Errorf("the output %q has no %q", out, want)
		}
	}
}

// limitTests are about cgroups.
func limitTests() []test {
	return []test{
		{"out of memory", needCgroup, func(b *bench) {
			out, exit := b.run("echo begin; exec tail /dev/zero", func(s *executor.Spec) {
				s.Container.Resources.Memory = 32 * cluster.MiB
			})
			b.wantExit(exit, cluster.Exit{Code: 137, Signal: 9, OOM: true})
			b.wantOutput(out, "begin\n")
		}},
		{"child out of memory", needCgroup, func(b *bench) {
			_, exit := b.run("tail /dev/zero; exit 12", func(s *executor.Spec) {
				s.Container.Resources.Memory = 32 * cluster.MiB
			})
			b.wantExit(exit, cluster.Exit{Code: 12, OOM: true})
		}},
		{"killed, but not for memory", needCgroup, func(b *bench) {
			s := b.spec(b.m.Shell("exec sleep 100000"))
			s.Container.Resources.Memory = 32 * cluster.MiB
			id := b.start(s)
			b.must(b.ex.Signal(b.Context(), id, syscall.SIGKILL))
			b.wantExit(b.wait(id), cluster.Exit{Code: 137, Signal: 9})
		}},
		{"little memory", needCgroup, func(b *bench) {
			out, exit := b.run("echo small", func(s *executor.Spec) { s.Container.Resources.Memory = 12 * cluster.MiB })
			b.wantExit(exit, cluster.Exit{})
			b.wantOutput(out, "small\n")
		}},
		{"processor time", needCgroup, func(b *bench) {
			s := b.spec(b.m.Shell("while :; do :; done"))
			s.Container.Resources = cluster.Resources{CPU: 250, CPULimit: 50}
			id := b.start(s)
			b.throttled(id)
			b.must(b.ex.Remove(b.Context(), id))
			if got := b.m.Cgroup(id, "cpu.stat"); got != "" {
				b.Errorf("the cgroup is left: %q", got)
			}
		}},
	}
}

// gone waits until no process has a word among its arguments.
func (b *bench) gone(word string) {
	b.Helper()
	suite.Eventually(b, Limit, func() error {
		if n := processes(word); n > 0 {
			return fmt.Errorf("%d processes with %s are left", n, word)
		}
		return nil
	})
}

// throttled waits until the kernel has held a container back several times.
func (b *bench) throttled(id executor.ID) {
	b.Helper()
	suite.Eventually(b, Limit, func() error {
		for line := range strings.Lines(b.m.Cgroup(id, "cpu.stat")) {
			var n int
			if _, err := fmt.Sscanf(line, "nr_throttled %d", &n); err == nil && n > 3 {
				return nil
			}
		}
		return fmt.Errorf("not throttled: %q", b.m.Cgroup(id, "cpu.stat"))
	})
}
