package executortest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/suite"
)

// isolationTests test programs that require isolation, and private copies of files. A driver that isolates all its
// programs passes the first without further work.
func isolationTests() []test {
	return []test{
		{"isolation", needUsers, isolation},
		{"exec in isolation", needUsers, execIsolated},
		{"isolation is refused", needOneUser, isolationRefused},
		{"most processes", needCgroup, maxProcesses},
	}
}

func needOneUser(m Machine) string {
	if m.Shell == nil || !m.OneUser {
		return "lack of rights"
	}
	return ""
}

// keptApart reports whether the driver isolates all its programs, by images: its facts do not mention isolation.
func (b *bench) keptApart() bool {
	b.Helper()
	fact, err := b.ex.Probe(b.Context())
	b.must(err)
	if fact.Isolation == "" && fact.NoIsolation == "" {
		b.Logf("does not apply: all programs of the driver are kept apart")
		return true
	}
	return false
}

func isolated(s *executor.Spec) { s.Container.Isolation = cluster.IsolationRequired }

// isolation tests what a program could do to its node, and that its own needs are met.
func isolation(b *bench) {
	if b.keptApart() {
		return
	}
	other, volume := b.TempDir(), b.TempDir()
	private := filepath.Join(other, "private")
	b.must(os.WriteFile(private, []byte("of the node\n"), 0o644))
	outside := []string{"/", "/usr", "/etc", "/var", "/tmp/..", "/proc/sys/kernel", "/sys", "/dev", other}
	script := `
echo "I am process $$"
n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; [ $n -lt 5 ] && echo "few processes"
for dir in ` + strings.Join(outside, " ") + `; do (echo x >$dir/berth-test-x) 2>/dev/null && echo "wrote to $dir"; done
cat ` + private + ` 2>/dev/null
[ -b /dev/vda -o -b /dev/sda -o -e /dev/kmsg -o -e /dev/mem ] && echo "devices of the node"
echo mine >/tmp/berth-test-x && cat /tmp/berth-test-x; echo own >/v/x && cat /v/x; echo memory >/t/x && cat /t/x; echo n >/dev/null && echo null
(ls /home/* /root/* || true) 2>/dev/null
ls /etc/hostname >/dev/null && echo rest
`
	for _, user := range []string{"", "0", "65534:65534"} {
		b.must(os.Chmod(volume, 0o777))
		_ = os.Remove(filepath.Join(volume, "x"))
		out, exit := b.run(script, isolated, func(s *executor.Spec) {
			s.Container.User = user
			s.Mounts = []executor.Mount{{Source: volume, Path: "/v"}}
			s.Container.Tmpfs = []cluster.Tmpfs{{Path: "/t"}}
		})
		b.wantExit(exit, cluster.Exit{})
		b.wantOutput(out, "I am process 1\nfew processes\nmine\nown\nmemory\nnull\nrest\n")
	}
	if _, err := os.Stat("/tmp/berth-test-x"); err == nil {
		b.Errorf("the node's /tmp was written to")
	}
	if got, err := os.ReadFile(filepath.Join(volume, "x")); err != nil || string(got) != "own\n" {
		b.Errorf("the volume holds %q, %v", got, err)
	}
}

// execIsolated runs a command in the surroundings of an isolated program, whose end ends it.
func execIsolated(b *bench) {
	if b.keptApart() {
		return
	}
	s := b.spec(b.m.Shell("echo up; echo of the program >/tmp/berth-test-x; trap 'exit 3' TERM; while :; do " +
		"sleep 0.05; done"))
	isolated(&s)
	id := b.start(s)
	b.appears(s, "up")
	run := func(script string) (string, int) {
		b.Helper()
		var out bytes.Buffer
		code, err := b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"sh", "-c", script}, Stdout: &out})
		b.must(err)
		return out.String(), code
	}
	suite.Eventually(b, Limit, func() error {
		if out, _ := run("cat /tmp/berth-test-x"); out != "of the program\n" {
			return fmt.Errorf("its temporary file is %q", out)
		}
		return nil
	})
	out, code := run("(echo x >/usr/berth-test-x) 2>/dev/null && echo wrote; [ -d /proc/1 ] && [ $$ -gt 1 " +
		"-a $$ -lt 1000 ] && echo among; exit 7")
	b.wantOutput(out, "among\n")
	if code != 7 {
		b.Errorf("exit code %d, want 7", code)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"sleep", "1000000"}})
		ended <- err
	}()
	b.must(b.ex.Signal(b.Context(), id, 15))
	b.wantExit(b.wait(id), cluster.Exit{Code: 3})
	<-ended // with the program
}

// isolationRefused tests agents that cannot isolate: they say what they lack.
func isolationRefused(b *bench) {
	fact, err := b.ex.Probe(b.Context())
	b.must(err)
	if fact.Isolation != "" || !strings.Contains(fact.NoIsolation, "root") {
		b.Errorf("the executor returns %+v", fact)
	}
	s := b.spec(b.m.Shell("echo it runs"))
	isolated(&s)
	err = b.ex.Prepare(b.Context(), s, nil)
	if !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "isolation: ") ||
		!strings.Contains(err.Error(), "run it as root") {
		b.Errorf("got %v", err)
	}
	s = b.spec(b.m.Shell("echo it runs"))
	s.Container.User = "0:0"
	if err = b.ex.Prepare(b.Context(), s, nil); !errors.Is(err, executor.ErrUnsupported) ||
		!strings.Contains(err.Error(), "only an agent that is root can run programs as another user") {
		b.Errorf("another user: %v", err)
	}
}

// maxProcesses is about a program that begins more of them than it may.
func maxProcesses(b *bench) {
	out, _ := b.run(`n=0; while [ $n -lt 40 ] && (sleep 5 & ) 2>/dev/null; do n=$((n+1)); done; [ $n -lt 40 ] && echo held`, func(s *executor.Spec) {
		s.Container.Resources.Pids = 20
	})
	if !strings.HasSuffix(out, "held\n") {
		b.Errorf("a limit of 20 processes held nothing: %q", out)
	}
}
