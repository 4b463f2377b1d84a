package e2e_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// The output of a container arrives while it is written. An interrupt ends only the command, or goes to the container's
// program.
func TestAttach(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		s := newBox(t, executor)
		d := s.Start("attach", "box.1.0")
		ticks := func() int { return strings.Count(d.Output(), "tick ") }
		s.Eventually(soon, more(ticks, 3))
		s.Eventually(soon, more(func() int { return strings.Count(d.Output(), "tock ") }, 3))
		if strings.Contains(d.Output(), "tick 1\n") &&
			strings.Contains(s.Berth("logs", "box.1.0").Stdout, "tick 20\n") {
			t.Errorf("it begins with what was written long before:\n%s", d.Output())
		}
		if code := d.Stop(); code != 130 {
			t.Errorf("an interrupt ends it with %d, want 130:\n%s", code, d.Output())
		}
		before := running(t, s, "box", 1)

		d = s.Start("attach", "--tail", "2", "--signals", "box.1.0")
		s.Eventually(soon, more(ticks, 3))
		d.Signal(syscall.SIGUSR1)
		s.Eventually(soon, more(func() int { return strings.Count(d.Output(), "woken\n") }, 1))
		samePids(t, before, running(t, s, "box", 1))
		d.Signal(os.Interrupt)
		if code := d.Exit(soon); code != 9 || !strings.Contains(d.Output(), "told to stop\n") {
			t.Errorf("after an interrupt that was passed on: exit code %d, want 9:\n%s", code, d.Output())
		}
		s.Berth("attach", "-c", "other", "box.1.0").Want(t, 125, `no container "other"`)
	})
}
