package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berthd/berth/internal/testkit"
)

// TestImagesRun runs every image with nothing but containerd.
func TestImagesRun(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "containerd", "ctr", "runc", "apt-get", "dpkg-deb")
	out := t.TempDir()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-out", out}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	c := startContainerd(t)
	for _, archive := range archives() {
		c.ctr("images", "import", filepath.Join(out, archive+".tar"))
	}

	t.Run("web", func(t *testing.T) {
		for _, version := range []string{"1", "2"} {
			addr := freeAddr(t)
			c.start(t, "berth.local/web:"+version, "web-"+version, "ADDR_HTTP="+addr)
			testkit.Eventually(t, 20*time.Second, func() error {
				body, err := fetch(t.Context(), "http://"+addr+"/version")
				if err == nil && !strings.Contains(body, `"version":"`+version+`"`) {
					err = fmt.Errorf("got %q, want version %s", body, version)
				}
				return err
			})
		}
	})
	t.Run("redis", func(t *testing.T) {
		addr := freeAddr(t)
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		c.start(t, "berth.local/redis:7", "redis", "", "/usr/bin/redis-server", "--port", port, "--bind", "127.0.0.1")
		testkit.Eventually(t, 20*time.Second, func() error { return ping(t.Context(), addr) })
	})
	t.Run("work", func(t *testing.T) {
		got := c.ctr("run", "--rm", "--env", "BERTH_INDEX=2", "berth.local/work:1", "work")
		if want := "task 2 of 1, attempt 1\nresult index=2 attempt=1 sum=6330833500\n"; got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	})
	t.Run("redis as plain files", func(t *testing.T) {
		got, err := exec.CommandContext(t.Context(), filepath.Join(out, "bin", "redis-server"),
			"--version").CombinedOutput()
		if err != nil || !strings.Contains(string(got), "Redis server v=7") {
			t.Errorf("redis-server --version: %q, %v", got, err)
		}
	})
}

// containerd is a daemon of its own, with nothing in common with the machine's.
type containerd struct {
	t      *testing.T
	socket string
}

func startContainerd(t *testing.T) containerd {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctrd-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := containerd{t, filepath.Join(dir, "sock")}
	config := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = "+
		"[\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n",
		dir+"/root", dir+"/state", c.socket, c.socket+".ttrpc")
	if err := os.WriteFile(dir+"/config.toml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("containerd", "--config", dir+"/config.toml", "--log-level", "warn")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd: %s", output.String())
		}
	})
	testkit.Eventually(t, 20*time.Second, func() error {
		return exec.CommandContext(t.Context(), "ctr", "-a", c.socket, "version").Run()
	})
	return c
}

// ctr runs containerd's own client and returns its output.
func (c containerd) ctr(args ...string) string {
	c.t.Helper()
	cmd := exec.Command("ctr", append([]string{"-a", c.socket, "-n", "berth-test"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("ctr %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// start runs a container on the host's network until the test ends.
func (c containerd) start(t *testing.T, image, id, env string, command ...string) {
	t.Helper()
	c.ctr(append([]string{"run", "-d", "--net-host", "--env", env, image, id}, command...)...)
	t.Cleanup(func() { c.ctr("tasks", "rm", "-f", id) })
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// ping speaks redis's own protocol.
func ping(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && reply != "+PONG\r\n" {
		err = errors.New("answered " + strconv.Quote(reply))
	}
	return err
}

func TestTreeIsReproducible(t *testing.T) {
	digest := func() string {
		tr := tree{"b/c/file": {mode: 0o755, data: []byte("x")}, "b/link": {link: "c/file"}}
		tr.base()
		image, err := tr.image(v1.Config{Entrypoint: []string{"/b/c/file"}})
		if err != nil {
			t.Fatal(err)
		}
		d, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	first := digest()
	for range 5 {
		if diff := cmp.Diff(first, digest()); diff != "" {
			t.Fatalf("the same tree, another image (-first +later):\n%s", diff)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no output":     {},
		"more":          {"-out", t.TempDir(), "web"},
		"unknown":       {"-out", t.TempDir(), "-only", "nginx"},
		"unknown flag":  {"-outt"},
		"out is a file": {"-out", os.Args[0]},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
				t.Error("run returned no error")
			}
		})
	}
}
