package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// secrets in the places where people put them
const (
	secretEnv      = "Pa55phrase-of-the-database"
	secretFile     = "k3y-in-a-configuration-file"
	secretArgument = "t0psecret-argument"
	secretFlag     = "an0ther-argument"
	secretBearer   = "abcdefghijklmnop1234567890"
	secretLogin    = "cmVnaXN0cnk6cGFzc3dvcmQ="
	secretURL      = "us3r:passw0rd"
	secretToken    = "secretsecretsecretsecret"
)

// plantedState holds each secret in several places.
func plantedState() clitest.State {
	join := "t1." + secretToken + "." + strings.Repeat("0a", 32)
	message := "login failed for " + secretEnv + " at https://" + secretURL +
		"@db.example/ with Authorization: Bearer " + secretBearer
	return clitest.State{
		Definitions: []api.TaskDefinition{{Name: "web", Version: 1, Containers: []cluster.Container{{
			Name: "main", Command: []string{"app", "--password", secretFlag},
			Args:  []string{"--db-token=" + secretArgument, "--verbose"},
			Env:   map[string]string{"DB_PASSWORD": secretEnv, "MODE": "on"},
			Files: []cluster.File{{Path: "/etc/app.conf", Content: "user = app\nkey = \"" + secretFile + "\"\n"}},
		}}}},
		Tasks: []api.TaskView{{
			ID: "default.web.1.0", Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
			State: cluster.StateFailed, Message: message, LogTail: "connecting with " + secretEnv,
		}},
		Services: []api.ServiceView{
			{Service: api.Service{Cluster: "default", Name: "web"}, Status: api.ServiceStatus{Message: message}},
		},
		Nodes: []api.NodeView{{Name: "n1", State: cluster.NodeReady, Reason: `{"auth": "` + secretLogin + `"}`}},
		Events: []api.EventView{
			{ID: "1.0", Event: cluster.Event{
				Type:    "task.failed",
				Message: "could not join with " + join + ", nor with token=" + secretToken,
			}},
		},
		Settings: map[string]string{"data-dir": "/var/lib/berth", "store": "etcd://" + secretURL + "@10.0.0.1:2379"},
		Metrics:  "berth_store_revision 7\nberth_build_info{args=\"--api-key " + secretArgument + "\"} 1\n",
	}
}

// TestDebugBundleHoldsNoSecrets plants secrets, writes a bundle, and searches every file of it.
func TestDebugBundleHoldsNoSecrets(t *testing.T) {
	f := clitest.NewFake()
	defer f.Close()
	f.States = []clitest.State{plantedState()}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	var out, faults strings.Builder
	a := session.New(nil, &out, &faults)
	a.Addrs = []string{f.URL, "http://127.0.0.1:1"}
	if code := Run(t.Context(), a,
		[]string{"--addr", f.URL + ",http://127.0.0.1:1", "operator", "debug", "-o", file, "--cpu", "1s"}); code != 0 {
		t.Fatalf("exit code %d: %s", code, faults.String())
	}
	if !strings.Contains(faults.String(), "server-2") {
		t.Errorf("want a note about the server that does not answer, got %q", faults.String())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle's mode: %v, %v", info.Mode(), err)
	}
	files := unpack(t, file)
	for name, text := range files {
		for _, secret := range []string{
			secretEnv, secretFile, secretArgument, secretFlag, secretBearer, secretLogin,
			secretURL, secretToken,
		} {
			if strings.Contains(text, secret) {
				t.Errorf("%s contains the secret %q:\n%s", name, secret, text)
			}
		}
	}
	want := []string{
		"client.json", "clusters.json", "definitions.json", "domains.json", "events.json", "faults.txt", "jobs.json",
		"nodes.json", "pools.json", "recovery.json",
		"server-1/goroutines.txt", "server-1/heap.pprof", "server-1/metrics.txt", "server-1/profile.pprof",
		"server-1/ready.json", "server-1/settings.json",
		"server-1/version.json", "servers.json", "services.json", "status.json", "tasks.json",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	// Other values must stay, or the bundle would be useless.
	for name, words := range map[string][]string{
		"definitions.json":       {"DB_PASSWORD", "MODE", "/etc/app.conf", "--verbose", `"app"`},
		"tasks.json":             {"default.web.1.0", "login failed for", "db.example"},
		"server-1/settings.json": {"/var/lib/berth", "10.0.0.1:2379"},
		"server-1/metrics.txt":   {"berth_store_revision 7"},
		"events.json":            {"could not join with"},
	} {
		for _, w := range words {
			if !strings.Contains(files[name], w) {
				t.Errorf("%s lacks %q:\n%s", name, w, files[name])
			}
		}
	}
	if code := Run(t.Context(), a, []string{"--addr", f.URL, "operator", "debug", "-o", file}); code != 2 {
		t.Errorf("a second bundle over the first: exit code %d, want 2", code)
	}
}

// unpack returns the files of a bundle.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	raw, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	zipped, err := gzip.NewReader(raw)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "berth-debug/")] = string(text)
	}
}
