package endpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// A reader never sees a part of the file, whatever its old mode. Equal content leaves the file alone.
func TestFileIsReplacedAtomically(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.cfg")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := func(i int) string { return strings.Repeat(fmt.Sprintf("server s%03d\n", i), 20_000) }
	if changed, err := replaceFile(path, []byte(long(0))); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != fileMode {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	readers.Go(func() {
		for ctx.Err() == nil {
			text, err := os.ReadFile(path)
			if first, _, _ := strings.Cut(string(text), "\n"); err != nil ||
				string(text) != strings.Repeat(first+"\n", 20_000) {
				t.Errorf("a reader got %d bytes, %v", len(text), err)
				return
			}
		}
	})
	for i := range 50 {
		if changed, err := replaceFile(path, []byte(long(i+1))); err != nil || !changed {
			t.Error(changed, err)
		}
	}
	cancel()
	readers.Wait()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := replaceFile(path, []byte(long(50))); err != nil || changed {
		t.Errorf("equal content: %v, %v", changed, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("equal content replaced the file: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("got %v beside the file, %v", left, err)
	}
	if _, err := replaceFile(filepath.Join(t.TempDir(), "none", "x"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// The error of a command has its output. A command that hangs is killed with its children, and a daemon that it leaves
// behind holds nothing up.
func TestCommand(t *testing.T) {
	run := func(command string, limit time.Duration) error { return runCommand(t.Context(), command, limit) }
	if err := run("true", time.Minute); err != nil {
		t.Error(err)
	}
	if err := run("echo no such unit >&2; exit 3", time.Minute); err == nil ||
		err.Error() != "exit status 3: no such unit" {
		t.Errorf("got %v", err)
	}
	note := filepath.Join(t.TempDir(), "pid")
	if err := run("sleep 1000 & echo $! >"+note+"; wait", 200*time.Millisecond); err == nil ||
		!strings.HasPrefix(err.Error(), "it took longer than 200ms") {
		t.Errorf("got %v", err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		pid, _ := os.ReadFile(note)
		if len(pid) == 0 {
			return nil // the shell was killed before it noted the child
		}
		status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err == nil && !strings.Contains(string(status), ") Z ") {
			return fmt.Errorf("the child runs: %s", status)
		}
		return nil
	})
	if err := run("sleep 3 &", time.Minute); err != nil {
		t.Errorf("a command with a daemon: %v", err)
	}
}

// The template of the example marks tasks that are not healthy, and the guide shows it as it is.
func TestExampleTemplate(t *testing.T) {
	const path = "../../../examples/haproxy/kiosk.cfg.template"
	f := fileFlags{template: path}
	render, err := f.renderer([]string{"kiosk-http"})
	if err != nil {
		t.Fatal(err)
	}
	at := func(index, port int, health api.Health) Address {
		return Address{"kiosk-http", api.EndpointAddress{
			Host: "10.0.0.1", Port: port, Node: "n1", Task: cluster.ServiceTask("default", "kiosk", 2, index),
			Health: health, Definition: cluster.Ref{Name: "kiosk", Version: 2},
		}}
	}
	got, err := render(map[string][]Address{
		"kiosk-http": {at(0, 30000, api.HealthHealthy), at(1, 30001, api.HealthFailing)},
	})
	want := "# Written by 'berth addresses'. Changes by hand are lost.\nbackend kiosk\n    balance roundrobin\n" +
		"    server default.kiosk.2.0 10.0.0.1:30000 # kiosk@2 on n1 is healthy\n" +
		"    server default.kiosk.2.1 10.0.0.1:30001 disabled # kiosk@2 on n1 is failing\n"
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("text (-want +got), %v:\n%s", err, diff)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/guide/endpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, _ := strings.Cut(string(text), "\n"); !strings.Contains(string(page), rest) {
		t.Errorf("the guide does not show the template:\n%s", rest)
	}
}
