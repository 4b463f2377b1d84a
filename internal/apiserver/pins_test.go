package apiserver

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport"
)

// imageNode is a fake node that answers requests about images.
type imageNode struct {
	mu      sync.Mutex
	digests map[string]string // by normal name; the registry has only these
	asked   []string
}

func (n *imageNode) play(req transport.StreamRequest, conn net.Conn) {
	out := transport.NewFrameWriter(conn)
	say := func(v any) {
		_ = json.NewEncoder(out.Channel(transport.ChannelStdout)).Encode(v)
		_ = out.End(transport.ExecEnd{})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := string(req.Kind) + " " + req.Images.Name
	if l := req.Images.Login; l != nil {
		asked += " as " + l.Cluster + "/" + l.Secret
	}
	n.asked = append(n.asked, asked)
	switch req.Kind {
	case transport.StreamImageResolve:
		d, ok := n.digests[req.Images.Name]
		if !ok {
			_ = out.End(transport.ExecEnd{Error: "registry docker.io does not have it"})
			return
		}
		say([]transport.Image{{Name: req.Images.Name, Digest: d}})
	case transport.StreamImagePull:
		_, _ = out.Channel(transport.ChannelStderr).Write([]byte("pulling " + req.Images.Name + ": 1 of 2 layers"))
		say([]transport.Image{{Name: req.Images.Name, Digest: "sha256:1", Size: 7}})
	case transport.StreamImagePrune:
		say([]transport.PrunedImage{
			{Names: []string{"a:1"}, Digest: "sha256:1", Size: 7, Removed: req.Images.All && !req.Images.DryRun},
		})
	default: // as an agent that does not know the kind
	}
}

func digestOf(c string) string { return "sha256:" + strings.Repeat(c, 64) }

// pinnedVersion returns a definition whose containers use images.
func pinnedVersion(version int, containers ...map[string]any) map[string]any {
	all := make([]any, len(containers))
	for i, c := range containers {
		c["name"] = "c" + string(rune('a'+i))
		c["resources"] = map[string]any{"cpu": "10m", "memory": "16MiB"}
		all[i] = c
	}
	return map[string]any{"name": "pinned", "version": version, "containers": all}
}

// withImages returns a world with a node that runs images.
func withImages(t *testing.T) (*world, *imageNode) {
	w := newWorld(t)
	n := &imageNode{digests: map[string]string{"docker.io/library/web:1": digestOf("a"), "docker.io/library/own:1": ""}}
	w.addImageNode(n)
	return w, n
}

// addImageNode adds the node n1, which runs images.
func (w *world) addImageNode(n *imageNode) {
	w.nodes.set(agent(n.play))
	w.put(map[string]any{
		"status/n1": cluster.NodeStatus{
			Name: "n1", Session: 1, Registered: noon,
			Facts: cluster.Facts{Executors: []cluster.ExecutorFact{{Name: "containerd"}}},
		},
		"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default", Since: noon, Session: 1},
	})
}

// TestVersionsArePinned checks that a tag is resolved when its version is written. The same manifest remains the same
// version after the tag has moved.
func TestVersionsArePinned(t *testing.T) {
	w, n := withImages(t)
	first := func() map[string]any {
		return pinnedVersion(1, map[string]any{"image": "web:1"}, map[string]any{"image": "own:1"},
			map[string]any{"image": "none:1"},
			map[string]any{"image": "web:1", "pull": "always"}, map[string]any{"image": "web@" + digestOf("c")})
	}
	reply := read[api.ApplyReply](t, w.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", first())))
	if got := reply.Changes[0].Note; !strings.Contains(got, "image none:1 is not pinned") ||
		!strings.Contains(got, "does not have it") || strings.Contains(got, "own:1") {
		t.Errorf("note %q", got)
	}
	pins := func(version string) (all []string) {
		t.Helper()
		for _, c := range read[api.DefinitionView](t,
			w.want(200, "GET", "/v1/definitions/pinned/"+version, nil)).Containers {
			all = append(all, c.Digest)
		}
		return all
	}
	want := []string{digestOf("a"), "", "", "", ""}
	if diff := cmp.Diff(want, pins("1")); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
	n.mu.Lock()
	n.digests["docker.io/library/web:1"] = digestOf("b")
	asked := len(n.asked)
	n.mu.Unlock()
	if asked != 3 {
		t.Errorf("asked %q", n.asked)
	}
	reply = read[api.ApplyReply](t, w.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", first())))
	if reply.Changes[0].Action != api.ActionNone || reply.Changes[0].Note != "" || len(n.asked) != asked {
		t.Errorf("the same again: %+v, asked %q", reply.Changes, n.asked[asked:])
	}
	w.want(201, "PUT", "/v1/definitions/pinned/2", pinnedVersion(2, map[string]any{"image": "web:1"}))
	w.want(200, "PUT", "/v1/definitions/pinned/2", pinnedVersion(2, map[string]any{"image": "web:1"}))
	if diff := cmp.Diff([]string{digestOf("b")}, pins("2")); diff != "" {
		t.Errorf("the next version (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, pins("1")); diff != "" {
		t.Errorf("the first version later (-want +got):\n%s", diff)
	}
	// Another digest is other content.
	w.want(409, "PUT", "/v1/definitions/pinned/2",
		pinnedVersion(2, map[string]any{"image": "web:1", "digest": digestOf("a")}))
	w.want(201, "PUT", "/v1/definitions/pinned/3",
		pinnedVersion(3, map[string]any{"image": "web:1", "digest": digestOf("a")}))
	for _, bad := range []map[string]any{
		{"image": "web:1", "digest": "sha256:12"},
		{"image": "web:1", "digest": digestOf("a"), "pull": "always"},
		{"image": "web@" + digestOf("a"), "digest": digestOf("a")},
		{"command": []string{"a"}, "digest": digestOf("a")},
	} {
		if got := w.want(422, "PUT", "/v1/definitions/pinned/4",
			pinnedVersion(4, bad)); !strings.Contains(string(got.body), "digest") {
			t.Errorf("%v: %s", bad, got.body)
		}
	}
}

// TestVersionsThatCannotBePinned checks that nodes without an answer, or of an old build, do not delay a write for
// long.
func TestVersionsThatCannotBePinned(t *testing.T) {
	w, _ := withImages(t)
	gone := make(chan struct{})
	w.nodes.set(agent(func(_ transport.StreamRequest, conn net.Conn) {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1)) // says nothing
	}))
	watch := testkit.NewStopwatch()
	reply := read[api.ApplyReply](t,
		w.want(200, "POST", "/v1/apply",
			manifestsOf("TaskDefinition", pinnedVersion(1, map[string]any{"image": "web:1"}))))
	if d := watch.Elapsed(); d > 30*time.Second || !strings.Contains(reply.Changes[0].Note, "no node answered") {
		t.Errorf("after %v: %+v", d, reply.Changes)
	}
	<-gone
	w.nodes.set(agent(func(transport.StreamRequest, net.Conn) {}))
	reply = read[api.ApplyReply](t,
		w.want(200, "POST", "/v1/apply",
			manifestsOf("TaskDefinition", pinnedVersion(2, map[string]any{"image": "web:1"}))))
	if !strings.Contains(reply.Changes[0].Note, "too old") {
		t.Errorf("%+v", reply.Changes)
	}
}

func TestPullAndPruneImages(t *testing.T) {
	w, n := withImages(t)
	got := read[api.ImagesReply](t,
		w.want(200, "POST", "/v1/images/pull", api.ImagePull{Images: []string{"a:1", "b:2"}, Nodes: []string{"n1"}}))
	want := api.ImagesReply{Items: []api.ImageView{
		{Node: "n1", Name: "a:1", Digest: "sha256:1", Size: 7},
		{Node: "n1", Name: "b:2", Digest: "sha256:1", Size: 7},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pulled (-want +got):\n%s", diff)
	}
	var received []api.ImagePullNews
	ask := api.ImagePull{Images: []string{"a:1", "b:2"}, Nodes: []string{"n1"}}
	for line := range strings.Lines(string(w.want(200, "POST", "/v1/images/pull", ask, "Accept",
		route.MediaLines).body)) {
		var one api.ImagePullNews
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		received = append(received, one)
	}
	wantReceived := []api.ImagePullNews{
		{Node: "n1", Image: "a:1", Message: "pulling a:1: 1 of 2 layers"},
		{Node: "n1", Image: "b:2", Message: "pulling b:2: 1 of 2 layers"},
		{Node: "n1", Done: true},
		{Reply: &want},
	}
	if diff := cmp.Diff(wantReceived, received); diff != "" {
		t.Errorf("followed (-want +got):\n%s", diff)
	}
	for _, dry := range []bool{false, true} {
		pruned := read[api.ImagePruneReply](t,
			w.want(200, "POST", "/v1/images/prune", api.ImagePrune{All: true, DryRun: dry}))
		want := api.ImagePruneReply{
			Items: []api.PrunedImage{{Node: "n1", Names: []string{"a:1"}, Digest: "sha256:1", Size: 7, Removed: !dry}},
		}
		if diff := cmp.Diff(want, pruned); diff != "" {
			t.Errorf("pruned (-want +got):\n%s", diff)
		}
	}
	n.mu.Lock()
	asked := len(n.asked)
	n.mu.Unlock()
	for path, body := range map[string]any{
		"/v1/images/pull":  map[string]any{"images": []string{"A B", "ok:1"}, "nodes": []string{"nowhere"}},
		"/v1/images/prune": map[string]any{"nodes": []string{"nowhere"}, "unused": "-1s"},
	} {
		if got := w.want(http.StatusUnprocessableEntity, "POST", path, body); strings.Count(string(got.body),
			`"path"`) != 2 {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	w.want(422, "POST", "/v1/images/pull", map[string]any{})
	if len(n.asked) != asked {
		t.Errorf("asked in spite of faults: %q", n.asked[asked:])
	}
	w.nodes.set(agent(func(transport.StreamRequest, net.Conn) {})) // an agent that is too old
	old := read[api.ImagePruneReply](t, w.want(200, "POST", "/v1/images/prune", api.ImagePrune{}))
	if len(old.Faults) != 1 || !strings.Contains(old.Faults[0].Message, "too old") {
		t.Errorf("%+v", old)
	}
}

func TestImagesRemovedAreCounted(t *testing.T) {
	w, _ := withImages(t)
	w.tables.SetPulse("n1", cluster.Pulse{
		Session: 1, Seq: 1,
		Stats: &cluster.NodeStats{ImagesRemoved: 3, ImagesFreed: 4096},
	})
	got := string(w.want(200, "GET", "/metrics", nil).body)
	for _, want := range []string{"berth_domain_images_removed 3\n", "berth_domain_images_freed_bytes 4096\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
}
