package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
)

// watchedBuffer calls seen once its text contains a phrase.
type watchedBuffer struct {
	mu     sync.Mutex
	text   bytes.Buffer
	phrase string
	seen   func()
}

func (b *watchedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.text.Write(p)
	if b.seen != nil && strings.Contains(b.text.String(), b.phrase) {
		b.seen()
		b.seen = nil
	}
	return n, err
}

func (b *watchedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestRunInterrupted stops the waiting, and nothing else.
func TestRunInterrupted(t *testing.T) {
	f := clitest.NewFake()
	defer f.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	err := f.Load(write("world", `
apply: {changes: [{kind: Service, cluster: default, name: web, action: create, revision: 7}]}
services: [{cluster: default, name: web, definition: web@2, count: 3, revision: 7, status: {desired: 3, state: starting}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	file := write("web.yaml", "kind: Service\nname: web\ndefinition: web@2\ncount: 3\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	stderr := &watchedBuffer{phrase: "0 of 3 tasks healthy", seen: cancel}
	code := run(ctx, []string{"--addr", f.URL, "run", file}, strings.NewReader(""), &stdout, stderr)
	if code != session.ExitInterrupted || stdout.Len() != 0 {
		t.Errorf("got code %d and stdout %q, want %d and none", code, &stdout, session.ExitInterrupted)
	}
	for _, want := range []string{"Stopped waiting; the applied objects continue. See 'berth status'."} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr: got %q, want %q in it", stderr, want)
		}
	}
	f.Mutex.Lock()
	defer f.Mutex.Unlock()
	if len(f.Calls) != 1 {
		t.Errorf("changes on the server: got %q, want the apply alone", f.Calls)
	}
}
