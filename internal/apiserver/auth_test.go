package apiserver

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuthentication(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name, path string
		host       string
		headers    map[string]string
		want       int
	}{
		{"the token", "/v1/version", "", map[string]string{"Authorization": "Bearer " + token}, 200},
		{"the scheme in another case", "/v1/version", "", map[string]string{"Authorization": "bearer " + token}, 200},
		{"no token", "/v1/version", "", nil, 401},
		{"a wrong token", "/v1/version", "", map[string]string{"Authorization": "Bearer " + token + "x"}, 401},
		{"an empty token", "/v1/version", "", map[string]string{"Authorization": "Bearer "}, 401},
		{"another scheme", "/v1/version", "", map[string]string{"Authorization": "Basic " + token}, 401},
		{
			"a foreign name in Host", "/v1/version", "evil.example:7070",
			map[string]string{"Authorization": "Bearer " + token},
			403,
		},
		{"localhost in Host", "/v1/version", "localhost:1", map[string]string{"Authorization": "Bearer " + token}, 200},
		{
			"the IPv6 loopback in Host", "/v1/version", "[::1]:1",
			map[string]string{"Authorization": "Bearer " + token},
			200,
		},
		{
			"a foreign page", "/v1/version", "",
			map[string]string{"Authorization": "Bearer " + token, "Origin": "http://evil.example"},
			403,
		},
		{
			"a page without origin", "/v1/version", "",
			map[string]string{"Authorization": "Bearer " + token, "Origin": "null"},
			403,
		},
		{
			"the own page", "/v1/version", "",
			map[string]string{"Authorization": "Bearer " + token, "Origin": w.url},
			200,
		},
		{"livez without token", "/livez", "", nil, 200},
		{"livez of a foreign page", "/livez", "", map[string]string{"Origin": "http://evil.example"}, 403},
		{"readyz without token", "/readyz", "", nil, 503},
		{"metrics without token", "/metrics", "", nil, 401},
		{"an unknown path without token", "/v2", "", nil, 401},
		{"agents without token", "/agent/v1/register", "", nil, 401},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.host != "" {
				r.Host = test.host
			}
			for k, v := range test.headers {
				r.Header.Set(k, v)
			}
			got := w.do(r)
			if got.status != test.want {
				t.Errorf("status %d, want %d: %s", got.status, test.want, got.body)
			}
			if strings.Contains(string(got.body), token) {
				t.Error("the answer shows the token")
			}
		})
	}
}

func TestRequestsWithoutTokenAreRefused(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Trust.Token = "" })
	if got := w.call("GET", "/v1/version", nil, "Authorization", "Bearer "); got.status != 401 {
		t.Errorf("status %d, want 401", got.status)
	}
}

func TestUnixSocketIsTrusted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.sock")
	l, err := Listen("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("the socket's mode is %o, want 600", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- New(Config{}).Serve(ctx, l) }()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	resp, err := client.Get("http://berth/v1/version")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, want 200", resp.StatusCode)
	}
	if _, err := Listen("unix://" + path); err == nil {
		t.Error("a second server took the socket of a living one")
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestListenReplacesDeadSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file was taken for a socket: %v", err)
	}
}

func TestListenPolicy(t *testing.T) {
	tests := []struct {
		addr string
		ok   bool
	}{
		{"127.0.0.1:0", true},
		{"http://127.0.0.1:0", true},
		{"localhost:0", true},
		{"0.0.0.0:0", false},
		{":0", false},
		{"192.0.2.1:7070", false},
		{"berth.example:7070", false},
		{"https://127.0.0.1:0", false},
		{"tcp://127.0.0.1:0", false},
		{"127.0.0.1", false},
		{"", false},
	}
	for _, test := range tests {
		l, err := Listen(test.addr)
		if (err == nil) != test.ok {
			t.Errorf("Listen(%q): %v, want ok %v", test.addr, err, test.ok)
		}
		if err == nil {
			l.Close()
		}
	}
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := TokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := TokenFile(path)
	if err != nil || first != second || len(first) != 64 {
		t.Errorf("tokens %d and %d long, same %v, error %v", len(first), len(second), first == second, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := TokenFile(path); err == nil || strings.Contains(err.Error(), first) {
		t.Errorf("a token that others may read: %v", err)
	}
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := TokenFile(path); err == nil {
		t.Error("a short token was taken")
	}
}
