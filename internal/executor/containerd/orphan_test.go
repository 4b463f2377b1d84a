package containerd

import (
	"encoding/json"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/executor/containerd/runspec"
)

func TestIsShim(t *testing.T) {
	for name, tc := range map[string]struct {
		args         string
		want, starts bool
	}{
		"shim": {
			"/usr/bin/containerd-shim-runc-v2 -namespace berth -id a -address /run/c.sock", true,
			false,
		},
		"other container": {
			"/usr/bin/containerd-shim-runc-v2 -namespace berth -id ab -address /run/c.sock", false,
			false,
		},
		"other namespace": {
			"/usr/bin/containerd-shim-runc-v2 -namespace moby -id a -address /run/c.sock", false,
			false,
		},
		"other daemon": {
			"/usr/bin/containerd-shim-runc-v2 -namespace berth -id a -address /run/d.sock", false,
			false,
		},
		"other program": {"/usr/bin/vi -namespace berth -id a -address /run/c.sock", false, false},
		"clean-up": {"/usr/bin/containerd-shim-runc-v2 -namespace berth -id a -address /run/c.sock " +
			"-bundle /b delete", false, false},
		"cut": {"/usr/bin/containerd-shim-runc-v2 -namespace berth -id", false, false},
		"start": {
			"/usr/bin/containerd-shim-runc-v2 -namespace berth -address /run/c.sock -id a start", false,
			true,
		},
		"other start": {
			"/usr/bin/containerd-shim-runc-v2 -namespace berth -address /run/c.sock -id b start", false,
			false,
		},
		"nothing": {"", false, false},
	} {
		if is, starts := isShim(strings.ReplaceAll(tc.args, " ", "\x00"), "berth", "a", "/run/c.sock"); is != tc.want ||
			starts != tc.starts {
			t.Errorf("%s: a shim: %v, starts one: %v", name, is, starts)
		}
	}
}

// The first line that counts kills decides, whatever follows it.
func FuzzOOMKills(f *testing.F) {
	f.Add("oom_kill 3\n")
	f.Add("low 0\noom_kill x")
	f.Fuzz(func(t *testing.T, s string) {
		n := parseOOMKills(s)
		if n != 0 && !strings.Contains(s, "oom_kill ") {
			t.Errorf("%d kills in %q", n, s)
		}
		if got := parseOOMKills("oom_kill 7\n" + s); got != 7 {
			t.Errorf("%d kills, want the first line's 7, in %q", got, s)
		}
	})
}

// Any image configuration is refused, or survives encoding and decoding.
func FuzzImageConfig(f *testing.F) {
	f.Add([]byte(`{"config":{"Entrypoint":["/bin/sh"],"Cmd":["-c"],"Env":["A=1"],"WorkingDir":"/tmp","User":"1:2"}}`))
	f.Add([]byte(`{"config":{"Env":null}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg, err := decodeConfig("x", b)
		if err != nil {
			return
		}
		again, err := json.Marshal(ocispec.Image{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeConfig("x", again)
		if err != nil || len(back.Entrypoint) != len(cfg.Entrypoint) || len(back.Cmd) != len(cfg.Cmd) ||
			back.WorkingDir != cfg.WorkingDir || back.User != cfg.User {
			t.Errorf("%+v became %+v: %v", cfg, back, err)
		}
		args := map[string]bool{}
		for _, kv := range runspec.Override([]string{"PATH=/bin"}, cfg.Env) {
			name, _, _ := strings.Cut(kv, "=")
			args[name] = true
		}
		if !args["PATH"] {
			t.Errorf("%q lost the PATH", cfg.Env)
		}
	})
}
