package containerd

import (
	"strings"
	"testing"
)

func TestIsShim(t *testing.T) {
	for name, tc := range map[string]struct {
		args string
		want bool
	}{
		"shim":            {"/usr/bin/containerd-shim-runc-v2 -namespace berth -id a -address /run/c.sock", true},
		"other container": {"/usr/bin/containerd-shim-runc-v2 -namespace berth -id ab -address /run/c.sock", false},
		"other namespace": {"/usr/bin/containerd-shim-runc-v2 -namespace moby -id a -address /run/c.sock", false},
		"other daemon":    {"/usr/bin/containerd-shim-runc-v2 -namespace berth -id a -address /run/d.sock", false},
		"other program":   {"/usr/bin/vi -namespace berth -id a -address /run/c.sock", false},
		"clean-up":        {"/usr/bin/containerd-shim-runc-v2 -namespace berth -id a -address /run/c.sock -bundle /b delete", false},
		"cut":             {"/usr/bin/containerd-shim-runc-v2 -namespace berth -id", false},
		"nothing":         {"", false},
	} {
		if got := isShim(strings.ReplaceAll(tc.args, " ", "\x00"), "berth", "a", "/run/c.sock"); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestOverride(t *testing.T) {
	got := strings.Join(override([]string{"A=1", "PATH=/bin"}, []string{"B=2", "A=3"}), " ")
	if want := "A=3 PATH=/bin B=2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzOOMKills(f *testing.F) {
	f.Add("oom_kill 3\n")
	f.Add("low 0\noom_kill x")
	f.Fuzz(func(t *testing.T, s string) {
		if n := parseOOMKills(s); n != 0 && !strings.Contains(s, "oom_kill ") {
			t.Errorf("%d kills in %q", n, s)
		}
	})
}
