package session

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/contexts"
)

// TestCurrentCluster checks the sources of the cluster. Later cases have priority over earlier ones.
func TestCurrentCluster(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	env := map[string]string{}
	s := New(nil, io.Discard, io.Discard)
	s.Env = func(name string) string { return env[name] }
	check := func(step, chosen, current string) {
		t.Helper()
		if a, b := s.ChosenCluster(), s.CurrentCluster(); a != chosen || b != current {
			t.Errorf("%s: chosen %q, current %q; want %q, %q", step, a, b, chosen, current)
		}
	}
	check("nothing", "", "default")
	if err := contexts.Update(filepath.Join(dir, "berth", "contexts.json"), func(f *contexts.File) error {
		f.Set(contexts.Context{Name: "a", Addresses: []string{"unix:///a"}, Cluster: "shop"})
		f.Current = "a"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	check("context", "shop", "shop")
	env["BERTH_CLUSTER"] = "prod"
	check("BERTH_CLUSTER", "prod", "prod")
	s.Cluster = "test"
	check("--cluster", "test", "test")
	s.Cluster, s.AllClusters = "", true
	check("--all-clusters", "", "")
}

// TestCheckProtected checks that a token goes over http only to this machine.
func TestCheckProtected(t *testing.T) {
	for address, allowed := range map[string]bool{
		"unix:///run/berth/api.sock": true, "http://127.0.0.1:7373": true, "http://[::1]:7373": true,
		"http://localhost:7373": true, "https://s1.example:7071": true,
		"http://s1.example:7373": false, "http://10.0.0.1:7373": false, "http://localhost.example:1": false,
	} {
		if err := CheckProtected([]string{"unix:///x", address}); (err == nil) != allowed {
			t.Errorf("%s: %v", address, err)
		}
	}
	s := New(nil, io.Discard, io.Discard)
	s.Env = func(name string) string { return map[string]string{"BERTH_TOKEN": "sesame"}[name] }
	s.Addrs = []string{"http://10.0.0.1:7373"}
	_, err := s.Connect()
	if err == nil || !strings.Contains(err.Error(), "no token is sent over http") ||
		!strings.Contains(s.Hint(err), "ssh -L") || strings.Contains(err.Error(), "sesame") {
		t.Errorf("a token over http: %v", err)
	}
	s.Env = func(string) string { return "" }
	if c, err := s.Connect(); err != nil {
		t.Errorf("without a token: %v", err)
	} else {
		c.Close()
	}
}
