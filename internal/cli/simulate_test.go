package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// encodeSnapshot returns a snapshot of a store with these records by key.
func encodeSnapshot(t *testing.T, records map[string]any) []byte {
	t.Helper()
	e := memory.New(memory.Options{})
	defer e.Close()
	for key, record := range records { // order-free: each record is written separately
		value, raw := record.([]byte)
		if !raw {
			var err error
			if value, err = store.Encode(record); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}}); err != nil {
			t.Fatal(err)
		}
	}
	var snapshot bytes.Buffer
	if err := e.Snapshot(t.Context(), store.DefaultPrefix, &snapshot); err != nil {
		t.Fatal(err)
	}
	return snapshot.Bytes()
}

// smallDomain has a leader, and a machine with room for two tasks of one CPU.
func smallDomain() map[string]any {
	prefix := store.Prefix(store.DefaultPrefix)
	taken := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	return map[string]any{
		prefix.Leader(cluster.DefaultDomain): &cluster.Leader{Epoch: 3, Incarnation: 1, Holder: "s1", Since: taken},
		prefix.NodeStatus("n1"): &cluster.NodeStatus{
			Name: "n1", Session: 1, Registered: taken, Synced: true,
			Facts: cluster.Facts{
				OS: "linux", Arch: "amd64", CPU: 2000, Memory: 8 * cluster.GiB, Disk: cluster.TiB,
				Executors: []cluster.ExecutorFact{{Name: "containerd"}},
			},
		},
	}
}

// TestSimulateFromSnapshots simulates from files and from the snapshot of a server.
func TestSimulateFromSnapshots(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := encodeSnapshot(t, smallDomain())
	newer := smallDomain()
	newer[store.Prefix(store.DefaultPrefix).Node("n1")] = []byte(`{"v":99,"name":"n1"}`)
	two := smallDomain()
	two[store.Prefix(store.DefaultPrefix).Domain("ci")] = &cluster.Domain{Name: "ci", Number: 1}
	two[store.Prefix(store.DefaultPrefix).Node("n1")] = &cluster.Node{
		Name: "n1", Domain: cluster.DefaultDomain, State: cluster.NodeReady, Generation: 1, Session: 1,
	}
	trace := "swf:" + write("queue.swf",
		[]byte("; MaxProcs: 3\n1 0 0 60 2 -1 -1 2 60 -1 1 1\n2 10 0 60 1 -1 -1 1 60 -1 1 1\n"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/snapshot" {
			http.NotFound(w, r)
			return
		}
		sum := sha256.Sum256(whole)
		w.Header().Set(api.SnapshotRevision, "3")
		w.Header().Set("Trailer", api.SnapshotSum)
		_, _ = w.Write(whole)
		w.Header().Set(api.SnapshotSum, hex.EncodeToString(sum[:]))
	}))
	defer server.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"title":"Forbidden","status":403,"detail":"it takes the role operator"}`))
	}))
	defer refuses.Close()
	for name, c := range map[string]struct {
		args []string
		code int
		want string // expected in the output
	}{
		"a file": {
			[]string{"--snapshot", write("good", whole), "--remove-node", "n1"},
			0,
			"nodes 1 → 0",
		},
		"a trace on a file": {
			[]string{"--snapshot", write("good", whole), "--trace", trace},
			0,
			"replay " + trace + "       3      0      3        0",
		},
		"a trace on the server's": {
			[]string{"--addr", server.URL, "--trace", trace},
			0,
			"replay " + trace + "       3      0      3        0",
		},
		"a server that refuses": {
			[]string{"--addr", refuses.URL, "--trace", trace},
			2,
			"it takes the role operator",
		},
		"another domain": {
			[]string{"--snapshot", write("two", encodeSnapshot(t, two)), "--domain", "ci", "--add-nodes", "2"},
			0,
			"nodes 0 → 2",
		},
		"a node of another domain": {
			[]string{"--snapshot", write("two", encodeSnapshot(t, two)), "--domain", "ci", "--drain-node", "n1"},
			2,
			"drain node n1: drain_node: node n1 is in the domain default, and this is a simulation of the domain ci",
		},
		"an unknown domain": {
			[]string{"--snapshot", write("good", whole), "--domain", "ci", "--remove-node", "n1"},
			2,
			"there is no domain ci; there are default",
		},
		"cut short": {
			[]string{"--snapshot", write("short", whole[:len(whole)/2]), "--trace", trace},
			2, "it is cut short",
		},
		"not a snapshot": {
			[]string{"--snapshot", write("text", []byte("text")), "--trace", trace},
			2,
			"text: line 1 (byte 0): it is no snapshot of Berth",
		},
		"of a newer build": {
			[]string{"--snapshot", write("newer", encodeSnapshot(t, newer)), "--trace", trace},
			2,
			"newer: node/n1: ",
		},
		"a change that is not there": {[]string{
			"--snapshot", write("good", whole), "--drain-node", "n9", "--trace",
			trace,
		}, 2, "there is no node n9"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := session.New(strings.NewReader(""), &out, &out)
			a.Env = func(string) string { return "" }
			if code := Run(context.Background(), a, append([]string{"simulate"}, c.args...)); code != c.code ||
				!strings.Contains(out.String(), c.want) {
				t.Errorf("code %d, want %d, and %q in:\n%s", code, c.code, c.want, out.String())
			}
		})
	}
}
