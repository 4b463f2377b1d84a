package apiserver

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// TestVersionsArePinnedWithSecrets checks that an image is looked up with the secret of its container or cluster, by a
// feasible node, or else with the node's own login. Requests name the secret and do not contain it.
func TestVersionsArePinnedWithSecrets(t *testing.T) {
	w, n := withImages(t)
	n.digests["own.example/app:1"], n.digests["named.example/app:1"], n.digests["free.example/app:1"] = digestOf("a"),
		digestOf("b"), digestOf("c")
	var mu sync.Mutex
	var nodes []string
	play := agent(n.play)
	w.nodes.set(func(node string, req transport.StreamRequest) (io.ReadWriteCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return play("n1", req)
	})
	secret := func(in, name, registry string) cluster.Secret {
		return cluster.Secret{
			Cluster: in, Name: name, Type: cluster.SecretRegistry, Registry: registry, Key: "1",
			Sealed: []byte("sealed"),
		}
	}
	w.put(map[string]any{
		"status/n2": cluster.NodeStatus{Name: "n2", Session: 1, Registered: noon.Add(1e9), Facts: cluster.Facts{
			Executors: []cluster.ExecutorFact{{Name: "containerd"}}, Labels: cluster.Labels{"zone": "far"},
		}},
		"node/n2": cluster.Node{
			Name: "n2", State: cluster.NodeReady, Domain: "default", Since: noon,
			Session: 1,
		},
		"secret/default/pull":    secret("default", "pull", "own.example"),
		"secret/default/special": secret("default", "special", "named.example"),
		"secret/other/pull":      secret("other", "pull", "free.example"), // another cluster's
	})
	service := map[string]any{
		"name": "app", "definition": "pinned", "count": 1,
		"placement": map[string]any{
			"constraints": []any{map[string]any{"attribute": "label.zone", "op": "!=", "value": "far"}},
		},
	}
	ask := manifestsOf("TaskDefinition", pinnedVersion(1,
		map[string]any{"image": "own.example/app:1"},
		map[string]any{"image": "named.example/app:1", "pull_secret": "special"},
		map[string]any{"image": "free.example/app:1"}), "Service", service)
	reply := read[api.ApplyReply](t, w.want(http.StatusOK, "POST", "/v1/apply", ask))
	for _, c := range reply.Changes {
		if c.Note != "" {
			t.Errorf("note %q", c.Note)
		}
	}
	slices.Sort(n.asked)
	want := []string{
		"image-resolve free.example/app:1", "image-resolve named.example/app:1 as default/special",
		"image-resolve own.example/app:1 as default/pull",
	}
	if diff := cmp.Diff(want, n.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if got := strings.Count(strings.Join(nodes, " "), "n1"); got != 2 || len(nodes) != 3 {
		t.Errorf("asked were %q: want n1 for what needs a secret, and n2, the newest, for the rest", nodes)
	}
	var pins []string
	for _, c := range read[api.DefinitionView](t, w.want(200, "GET", "/v1/definitions/pinned/1", nil)).Containers {
		pins = append(pins, c.Digest)
	}
	if diff := cmp.Diff([]string{digestOf("a"), digestOf("b"), digestOf("c")}, pins); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
}
