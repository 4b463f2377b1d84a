package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/testkit"
)

const editedWorld = `
services:
- {cluster: default, name: web, definition: web@1, count: 2, revision: 7, generation: 1, status: {state: healthy}}
`

// silentWrites passes reads on to a server and answers no write. Each write is announced in asked.
func silentWrites(t *testing.T, to string) (address string, asked <-chan struct{}) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	writes, ended := make(chan struct{}, 16), make(chan struct{})
	pass := httputil.NewSingleHostReverseProxy(target)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			pass.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		writes <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(ended) })
	return s.URL, writes
}

// TestInterruptAfterTheEditor interrupts `berth edit` while a silent server has the edited text. The command ends,
// keeps the text and says where. An interrupt during the editor is in testdata/edit.txtar.
func TestInterruptAfterTheEditor(t *testing.T) {
	testkit.NeedCommand(t, "sh", "sed")
	f := clitest.NewFake()
	t.Cleanup(f.Close)
	folder := t.TempDir()
	world := filepath.Join(folder, "world.yaml")
	if err := os.WriteFile(world, []byte(editedWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Load(world); err != nil {
		t.Fatal(err)
	}
	address, asked := silentWrites(t, f.URL)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := testkit.WithLimit(context.Background(), 30*time.Second)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = []string{"berth-main", "edit", "service/web"} // see TestMain
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "HOME="+folder, "XDG_CONFIG_HOME="+folder, "TMPDIR="+folder, "BERTH_ADDR="+address,
		"BERTH_CONTEXT=", "VISUAL=", "EDITOR=sed -i s/web@1/web@2/", "GORACE=atexit_sleep_ms=0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-ctx.Done():
		t.Error("the server got no write")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != session.ExitInterrupted {
		t.Errorf("end of the command: got %v, want exit code %d", err, session.ExitInterrupted)
	}
	want := "berth: interrupted before the server answered: service/web may have been changed\n"
	if !strings.Contains(stderr.String(), want) {
		t.Errorf("messages: got\n%s, want %s", &stderr, want)
	}
	place := regexp.MustCompile(`The edited text is in (.*)\.\n`).FindStringSubmatch(stderr.String())
	if place == nil {
		t.Fatalf("messages: got\n%s, want the place of the text", &stderr)
	}
	kept, err := os.ReadFile(place[1])
	if err != nil || !strings.Contains(string(kept), "web@2") || strings.HasPrefix(string(kept), "#") {
		t.Errorf("the kept text: got %q, %v, want the edited manifest", kept, err)
	}
}
