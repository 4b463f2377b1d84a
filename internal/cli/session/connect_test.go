package session

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestFindServer checks the sources of addresses and tokens. Later cases have priority over earlier ones.
func TestFindServer(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"XDG_RUNTIME_DIR": dir}
	t.Setenv("XDG_CONFIG_HOME", dir)
	a := New(nil, io.Discard, io.Discard)
	a.Env = func(name string) string { return env[name] }
	check := func(step, addr, token string) {
		t.Helper()
		gotAddr := a.FindAddresses()
		gotToken, err := a.findToken(gotAddr)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if gotAddr != addr || gotToken != token {
			t.Errorf("%s: got %q, %q; want %q, %q", step, gotAddr, gotToken, addr, token)
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

	if !isSocket(systemSocket) {
		check("nothing", defaultAddr, "")
	}
	write("token", "own\n")
	write("addr", "http://localhost:9\n")
	check("this user's server", "http://localhost:9", "own")

	socket := filepath.Join(dir, "berth", "api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check("its socket, without a token", "unix://"+socket, "")

	env["BERTH_ADDR"] = "https://far.example:1"
	check("another machine is not sent this machine's token", "https://far.example:1", "")
	env["BERTH_TOKEN_FILE"] = write("other", "given by file")
	check("a token that is given by file", "https://far.example:1", "given by file")
	env["BERTH_TOKEN"] = "given"
	check("a token that is given", "https://far.example:1", "given")
	a.Addrs = []string{"http://[::1]:2"}
	check("the flag", "http://[::1]:2", "given")
}
