package session

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/contexts"
)

// TestFindTarget checks the sources of addresses and tokens. Later cases have priority over earlier ones.
func TestFindTarget(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"XDG_RUNTIME_DIR": dir}
	t.Setenv("XDG_CONFIG_HOME", dir)
	a := New(nil, io.Discard, io.Discard)
	a.Env = func(name string) string { return env[name] }
	check := func(step, addr, token string) {
		t.Helper()
		to, err := a.FindTarget()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		gotToken, err := a.findToken(to)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got := strings.Join(to.Addresses, ","); got != addr || gotToken != token {
			t.Errorf("%s: got %q, %q; want %q, %q", step, got, gotToken, addr, token)
		}
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, "berth", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path, err := contexts.Path()
	if err != nil {
		t.Fatal(err)
	}

	if !isSocket(systemSocket) {
		check("nothing", defaultAddr, "")
	}
	socket := filepath.Join(dir, "berth", "api.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check("the socket of this user's server", "unix://"+socket, "")

	err = contexts.Update(path, func(f *contexts.File) error {
		f.Set(contexts.Context{Name: "dev", Addresses: []string{"unix:///nowhere"}, Dev: "/data"})
		f.Set(contexts.Context{Name: "prod", Addresses: []string{"https://s1:1", "https://s2:1"}, Token: "of prod"})
		f.Set(contexts.Context{
			Name: "test", Addresses: []string{"http://t:1"},
			TokenFile: write("test-token", "of test\n"),
		})
		f.Current = "dev"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	env["BERTH_TOKEN_FILE"] = write("other", "given by file")
	check("the current context", "unix:///nowhere", "")
	env["BERTH_CONTEXT"] = "prod"
	check("a context of the environment, with its own token", "https://s1:1,https://s2:1", "of prod")
	env["BERTH_ADDR"] = "https://far.example:1"
	check("an address is not sent the token of a context", "https://far.example:1", "given by file")
	a.ContextName = "test"
	check("the flag for the context", "http://t:1", "of test")
	a.ContextName, a.Addrs = "", []string{"http://[::1]:2"}
	check("the flag for the address", "http://[::1]:2", "given by file")
	env["BERTH_TOKEN"] = "given"
	check("a token that is given", "http://[::1]:2", "given")
	a.Addrs, a.ContextName = nil, "prod"
	a.TokenFile = write("flag", "by flag")
	check("the flag for the token", "https://s1:1,https://s2:1", "by flag")

	a.ContextName = "prd"
	if _, err := a.FindTarget(); err == nil || !strings.Contains(err.Error(), "did you mean prod?") {
		t.Errorf("an unknown context: %v", err)
	}
	a.ContextName, a.Addrs = "prod", []string{"http://t:1"}
	if _, err := a.FindTarget(); err == nil || !strings.Contains(err.Error(), "give one of them") {
		t.Errorf("both flags: %v", err)
	}
}
