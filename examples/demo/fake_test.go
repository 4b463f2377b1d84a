package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

// fakeBerth is a shell script in place of the binary. Its server prints the lines of dev, and ps prints the file
// "tasks" beside it.
func fakeBerth(t *testing.T, dev string) *demo {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
here=$(dirname "$0")
case $1 in
dev) ` + dev + ` ;;
ps) cat "$here/tasks" ;;
node) echo '[{"facts":{"executors":[{"name":"process"}]}}]' ;;
down) shift; echo "$@" >"$here/down"; echo '[]' >"$here/tasks" ;;
*) echo "unknown command $1" >&2; exit 2 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "berth"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &demo{
		examples: examples{root: dir, data: t.TempDir()}, binary: filepath.Join(dir, "berth"),
		stdout: t.Output(), stderr: t.Output(),
	}
}

const serves = `echo "a line"; echo "berth: ready at http://127.0.0.1:7"; trap 'exit 0' TERM; while :; do sleep 0.05; done`

func TestServerStartsAndEnds(t *testing.T) {
	d := fakeBerth(t, serves)
	b, err := startBerth(t.Context(), d, "auto")
	if err != nil {
		t.Fatal(err)
	}
	if b.url != "http://127.0.0.1:7" {
		t.Errorf("ready at %q", b.url)
	}
	if plain, err := b.runsProcesses(t.Context()); !plain || err != nil {
		t.Errorf("runsProcesses: %v, %v", plain, err)
	}
	deployed := map[string]string{
		d.example("web.yaml"): "", d.example("job.yaml"): "", d.example("web-v2.yaml"): "",
		filepath.Join(d.root, "tasks"): `[{"id":"default.web.1.0","state":"running"}]`,
	}
	for file, text := range deployed {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.end(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(d.root, "down")); err != nil || string(got) != "web.yaml job.yaml\n" {
		t.Errorf("berth down of %q, %v, want each deployed manifest, and of web only the first version", got, err)
	}
	if processLives(b.server.Process.Pid) {
		t.Error("the server lives on")
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	d := fakeBerth(t, `echo "no disk" >&2; exit 3`)
	_, err := startBerth(t.Context(), d, "auto")
	if err == nil || !strings.Contains(err.Error(), "no disk") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("startBerth: %v, want the exit code and the log", err)
	}
}

func TestServerThatIsInterrupted(t *testing.T) {
	d := fakeBerth(t, `trap 'exit 0' TERM; while :; do sleep 0.05; done`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := startBerth(ctx, d, "auto"); err == nil {
		t.Error("startBerth returned no error")
	}
}

// webServers serves the pages of web tasks of one version and writes them where the fake's
// ps finds them.
func webServers(t *testing.T, d *demo, version string, count int) {
	t.Helper()
	var tasks []map[string]any
	for i := range count {
		id := fmt.Sprintf("default.web.%s.%d", version, i)
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"version":%q,"task":%q,"index":"%d","count":"3","service":"web"}`, version, id, i)
		}))
		t.Cleanup(site.Close)
		host, port, err := net.SplitHostPort(site.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, map[string]any{
			"id": id, "owner": map[string]string{"kind": "Service", "name": "web"}, "index": i,
			"address": host, "ports": map[string]int{"http": number}, "state": "running", "health": "healthy",
		})
	}
	list, err := json.Marshal(tasks)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(d.root, "tasks")
	if err := os.WriteFile(file+".new", list, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestWebIs(t *testing.T) {
	d := fakeBerth(t, serves)
	d.berth = &berth{demo: d}
	webServers(t, d, "1", 3)
	if err := d.webIs(t.Context(), "1"); err != nil {
		t.Error(err)
	}
	if err := d.webIs(t.Context(), "2"); err == nil {
		t.Error("tasks of version 1 passed for version 2")
	}
	webServers(t, d, "1", 2)
	if err := d.webIs(t.Context(), "1"); err == nil {
		t.Error("two tasks passed for three")
	}
}

func TestHammerFollowsTheTasks(t *testing.T) {
	d := fakeBerth(t, serves)
	d.berth = &berth{demo: d}
	webServers(t, d, "1", 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var h hammer
	var load sync.WaitGroup
	load.Go(func() { h.strike(ctx, d.berth) })
	answered := func(version string) func() error {
		return func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if !strings.Contains(strings.Join(h.versions, " "), version) {
				return fmt.Errorf("the versions %q answered, want %s", h.versions, version)
			}
			return nil
		}
	}
	testkit.Eventually(t, 20*time.Second, answered("1"))
	webServers(t, d, "2", 3)
	testkit.Eventually(t, 20*time.Second, answered("2"))
	cancel()
	load.Wait()
	if err := h.verdict(); err != nil {
		t.Error(err)
	}
}

func TestServerGetsMoreFlags(t *testing.T) {
	d := fakeBerth(t, `echo "args: $*" >&2; exit 3`)
	d.flags = []string{"--store", "etcd://h", "--store-prefix", "demo/"}
	if _, err := startBerth(t.Context(), d, "auto"); err == nil ||
		!strings.Contains(err.Error(), "--executor auto --store etcd://h --store-prefix demo/") {
		t.Errorf("startBerth: %v, want the flags among berth's", err)
	}
}
