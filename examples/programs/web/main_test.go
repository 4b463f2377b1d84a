package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

// lookup makes an environment of a map.
func lookup(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func do(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestSite(t *testing.T) {
	site := httptest.NewServer(newSite(lookup(map[string]string{
		"VERSION": "2", "BERTH_TASK": "t1", "BERTH_INDEX": "0", "BERTH_COUNT": "3", "BERTH_NODE": "n1",
	})))
	defer site.Close()
	steps := []struct {
		method, path string
		code         int
		part         string
	}{
		{"GET", "/", 200, "task 0 of 3 (version 2, task id t1, node n1)"},
		{"GET", "/healthz", 200, "ok"},
		{"POST", "/fail", 200, "failing"},
		{"GET", "/healthz", 500, "as requested"},
		{"POST", "/recover", 200, "well"},
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/elsewhere", 404, ""},
	}
	for _, s := range steps {
		code, body := do(t, s.method, site.URL+s.path)
		if code != s.code || !strings.Contains(body, s.part) {
			t.Errorf("%s %s: %d %q, want %d and %q", s.method, s.path, code, body, s.code, s.part)
		}
	}
	_, body := do(t, "GET", site.URL+"/version")
	var got answer
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Version != "2" || got.Task != "t1" {
		t.Errorf("/version: %q, %v", body, err)
	}
}

// TestRunServesWhileStopping checks a requirement of rollouts: after TERM, a client that still has the address of the
// task gets an answer.
func TestRunServesWhileStopping(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		env := lookup(map[string]string{"ADDR_HTTP": "127.0.0.1:0", "VERSION": "1", "STOP_DELAY": "300ms"})
		err := run(ctx, env, w)
		_ = w.CloseWithError(io.EOF)
		ended <- err
	}()
	lines := bufio.NewScanner(r)
	if !lines.Scan() {
		t.Fatal("no first line")
	}
	_, url, ok := strings.Cut(lines.Text(), " at ")
	if !ok {
		t.Fatalf("first line %q", lines.Text())
	}
	cancel()
	if !lines.Scan() || !strings.Contains(lines.Text(), "received a signal to stop") {
		t.Fatalf("second line %q", lines.Text())
	}
	if code, _ := do(t, "GET", url+"/"); code != http.StatusOK {
		t.Errorf("a request after TERM got %d", code)
	}
	for lines.Scan() {
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-testkit.Context(t, 10*time.Second).Done():
		t.Error("still running")
	}
}

func TestRunRefuses(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no address": {},
		"bad delay":  {"ADDR_HTTP": "127.0.0.1:0", "STOP_DELAY": "soon"},
		"bad port":   {"PORT_HTTP": "notaport"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), lookup(env), io.Discard); err == nil {
				t.Error("run returned no error")
			}
		})
	}
}
