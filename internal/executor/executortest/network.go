package executortest

import (
	"bytes"
	"os/exec"
	"path/filepath"

	"github.com/berthd/berth/internal/executor"
)

// networkTest tests the network namespace of the spec: the program and further commands are in it, also with mounts of
// their own. Without one they are in the driver's.
func networkTest(b *bench) {
	if b.m.OneUser {
		b.Logf("does not apply: only root can give a network")
		return
	}
	if _, err := exec.LookPath("ip"); err != nil {
		b.Skipf("needs the command ip")
	}
	space := "berth-" + filepath.Base(b.TempDir()) + "-" + string(b.spec(b.m.Shell("")).ID)
	ip := func(args ...string) {
		b.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			b.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", space)
	b.Cleanup(func() { ip("netns", "delete", space) })
	ip("-n", space, "link", "add", "berth-mark", "type", "bridge")

	const probe = "grep -c berth-mark /proc/self/net/dev; true"
	out, _ := b.run(probe)
	b.wantOutput(out, "0\n")
	in := func(s *executor.Spec) { s.Network = "/var/run/netns/" + space }
	out, _ = b.run(probe, in)
	b.wantOutput(out, "1\n")

	s := b.spec(b.m.Shell("exec sleep 100000"))
	s.Mounts = []executor.Mount{{Source: b.TempDir(), Path: "/berth-test-v"}}
	in(&s)
	id := b.start(s)
	var stdout bytes.Buffer
	code, err := b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"sh", "-c", probe}, Stdout: &stdout})
	if err != nil || code != 0 {
		b.Errorf("exec: code %d, %v", code, err)
	}
	b.wantOutput(stdout.String(), "1\n")
	b.must(b.ex.Remove(b.Context(), id))
}
