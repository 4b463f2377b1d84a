package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
)

// guarded serves the status of a control plane to whoever sends the token.
func guarded(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"title": "Unauthorized", "status": 401, "detail": "the token is not known"}`))
			return
		}
		_, _ = w.Write([]byte(`{}`))
	})
}

// runWith runs a command line with an input, and returns its exit code and both outputs.
func runWith(t *testing.T, input string, args ...string) (code int, out, messages string) {
	t.Helper()
	var stdout, stderr strings.Builder
	sess := session.New(strings.NewReader(input), &stdout, &stderr)
	sess.Env = func(string) string { return "" }
	code = Run(t.Context(), sess, args)
	return code, stdout.String(), stderr.String()
}

// TestLogin checks that a login tries the token before it stores it, that later commands send it, and that no command
// shows it.
func TestLogin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	file := filepath.Join(dir, "berth", "contexts.json")
	server := httptest.NewServer(guarded("sesame"))
	defer server.Close()

	code, _, messages := runWith(t, "wrong\n", "login", server.URL, "--context", "prod")
	if _, err := os.Stat(file); code != 2 || !strings.Contains(messages, "the server refuses the token") || err == nil {
		t.Errorf("a wrong token: exit code %d, %v: %s", code, err, messages)
	}
	code, _, messages = runWith(t, "", "login", server.URL)
	if code != 2 || !strings.Contains(messages, "the token is empty") {
		t.Errorf("no token: exit code %d: %s", code, messages)
	}
	code, out, messages := runWith(t, "sesame\n", "login", server.URL, "--context", "prod")
	if code != 0 || !strings.Contains(messages, "context prod") || strings.Contains(out+messages, "sesame") {
		t.Fatalf("exit code %d: %s%s", code, out, messages)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if code, _, messages = runWith(t, "", "version"); code != 0 || strings.Contains(messages, "token") {
		t.Errorf("a later command: exit code %d: %s", code, messages)
	}
	for _, format := range []string{"table", "json"} {
		code, out, messages = runWith(t, "", "context", "ls", "-o", format)
		if code != 0 || !strings.Contains(out, "prod") || !strings.Contains(out, server.URL) ||
			strings.Contains(out+messages, "sesame") {
			t.Errorf("context ls -o %s: exit code %d: %s%s", format, code, out, messages)
		}
	}
}

// TestLoginOverTLS checks that login trusts no unknown authority without a confirmation, and that it accepts the hash
// that its error names.
func TestLoginOverTLS(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	server := httptest.NewTLSServer(guarded("sesame"))
	defer server.Close()
	code, _, messages := runWith(t, "sesame\n", "login", server.URL)
	if code != 2 || !strings.Contains(messages, "give it with --ca-hash") {
		t.Errorf("exit code %d: %s", code, messages)
	}
	if _, out, _ := runWith(t, "", "context", "ls", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("a context was stored: %s", out)
	}
}

// TestContexts checks that contexts are added, chosen and removed.
func TestContexts(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	step := func(want int, contains string, args ...string) {
		t.Helper()
		code, out, messages := runWith(t, "", args...)
		if code != want || !strings.Contains(out+messages, contains) {
			t.Errorf("%q: exit code %d, want %d with %q:\n%s%s", args, code, want, contains, out, messages)
		}
	}
	step(0, "No contexts.", "context", "ls")
	step(2, "--addr is missing", "context", "add", "prod")
	step(2, "is not the name of a context", "context", "add", "Prod/1", "--addr", "http://s1:7070")
	step(0, "context prod", "context", "add", "prod", "--addr", "http://s1:7070,http://s2:7070")
	step(0, "The current context is prod", "context", "add", "test", "--addr", "http://t1:7070")
	step(2, "did you mean prod?", "context", "use", "prd")
	step(2, "no token is sent over http", "context", "add", "open", "--addr", "http://s1:7070", "--token-file", "token")
	step(2, "no token is sent over http", "login", "http://s1.example:7070")
	step(2, "a tunnel: 'ssh -L", "login", "http://10.0.0.1:7070")
	step(0, "prod, with the cluster shop", "context", "use", "prod", "-n", "shop")
	step(0, "shop", "context", "ls")
	step(0, "the current context is prod", "context", "use", "-A")
	step(2, "did you mean prod?", "--context", "prd", "ps")
	step(0, "the current context is test", "context", "use", "test")
	step(2, `no context "other"`, "context", "rm", "prod", "other")
	step(0, "prod", "context", "ls")
	step(0, "No context is the current one", "context", "rm", "test")
	step(0, "http://s1:7070,http://s2:7070", "context", "ls")
}
