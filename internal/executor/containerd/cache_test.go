package containerd_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
)

// shown is a list of pruned images in words, "<tag> removed" or "<tag> <what keeps it>".
func shown(all []executor.PrunedImage) (out []string) {
	for _, p := range all {
		names := make([]string, len(p.Names))
		for i, n := range p.Names {
			names[i] = n[strings.LastIndexByte(n, '/')+1:]
		}
		end := p.Kept
		if p.Removed {
			end = "removed"
		}
		out = append(out, strings.Join(names, "+")+" "+end)
	}
	return out
}

// Pruning removes the least recently used images until there is room. It keeps images that are used, reserved, loaded
// or pinned.
func TestPruneImages(t *testing.T) {
	n := newNode(t)
	ex := n.life(t, quick)
	m := newMoody(t)
	ctx := t.Context()
	var digests []string
	for i := range 6 {
		img, _ := m.push(t, fmt.Sprintf("app:%d", i), 3<<20)
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d.String())
		pull := executor.ImagePull{Name: fmt.Sprintf("%s/app:%d", m.host, i), Keep: i == 2}
		if _, err := ex.PullImage(ctx, pull, nil); err != nil {
			t.Fatal(err)
		}
		n.usedAt(t, pull.Name, time.Now().Add(time.Duration(i-100)*time.Hour)) // the first was used first
	}
	n.usedAt(t, busyboxImage, time.Now())
	spec := executor.Spec{
		ID: "user", Dir: t.TempDir(), LogDir: t.TempDir(), Labels: map[string]string{"berth.task": "default.web.1.0"},
		Container: cluster.Container{Image: m.host + "/app:1", Pull: cluster.PullNever},
	}
	if err := ex.Prepare(ctx, spec, nil); err != nil {
		t.Fatal(err)
	}
	n.usedAt(t, m.host+"/app:1", time.Now().Add(-99*time.Hour))
	wanted := func() map[string]string { return map[string]string{digests[3]: "task default.db.1.0"} }

	before, err := ex.ImageDisk(ctx)
	if err != nil || before.Total == 0 {
		t.Fatalf("disk %+v %v", before, err)
	}
	prune := func(p executor.ImagePrune, want ...string) []executor.PrunedImage {
		t.Helper()
		p.Wanted = wanted
		got, err := ex.PruneImages(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, shown(got)); diff != "" {
			t.Errorf("prune %+v (-want +got):\n%s", p, diff)
		}
		return got
	}
	users := []string{"app:1 task default.web.1.0", "app:2 is pinned", "app:3 task default.db.1.0"}
	list := func(first string, rest ...string) []string { return slices.Concat([]string{first}, users, rest) }
	// A dry run lists the candidates and removes nothing.
	dry := prune(executor.ImagePrune{DryRun: true},
		list("app:0 removed", "app:4 removed", "app:5 removed", "busybox:1 was loaded by hand")...)
	// Layers count once and unpacked: the filler that only this image has, twice 3 MiB.
	if size := dry[0].Size; size < 6<<20 || size > 8<<20 {
		t.Errorf("without app:0 the disk gains %v", size)
	}
	const room = " there is room again"
	prune(executor.ImagePrune{Need: 1 << 20}, "app:0 removed", "app:1"+room, "app:2"+room, "app:3"+room, "app:4"+room,
		"app:5"+room, "busybox:1"+room)
	prune(executor.ImagePrune{Unused: 95*time.Hour + time.Minute},
		slices.Concat(users, []string{"app:4 removed", "app:5 was used lately", "busybox:1 was used lately"})...)
	prune(executor.ImagePrune{All: true}, "app:1 task default.web.1.0", "app:2 removed", "app:3 task default.db.1.0",
		"app:5 removed", "busybox:1 removed")
	images, err := ex.ListImages(ctx, wanted)
	var names []string
	for _, i := range images {
		names = append(names, i.Name[strings.LastIndexByte(i.Name, '/')+1:]+" "+i.Kept)
	}
	if diff := cmp.Diff([]string{"app:1 task default.web.1.0", "app:3 task default.db.1.0"}, names); err != nil ||
		diff != "" {
		t.Errorf("left %v (-want +got):\n%s", err, diff)
	}
	// The container still runs, and a removed image can be pulled again, whole.
	start(t, ex, spec.ID)
	if exit, err := ex.Wait(ctx, spec.ID); err != nil || !exit.Success() || output(t, spec) != "from the image\n" {
		t.Errorf("%+v %v %q", exit, err, output(t, spec))
	}
	if err := ex.Remove(ctx, spec.ID); err != nil {
		t.Error(err)
	}
	asked := m.count("GET /v2/app/blobs/")
	if _, err := fetch(t, ex, cluster.Container{Image: m.host + "/app:0"}, [2]string{}); err != nil {
		t.Error(err)
	}
	if m.count("GET /v2/app/blobs/") == asked {
		t.Error("the layer of an image that was removed is still there")
	}
	if _, err := ex.LoadImages(ctx, bytes.NewReader(archive(t, busyboxImage, busybox(t)))); err != nil {
		t.Error(err)
	}
}

// An image that was loaded by hand may differ from the registry's image of the name, so no version is pinned to it.
func TestResolveImage(t *testing.T) {
	n := newNode(t)
	ex := n.life(t, quick, func(c *containerd.Config) { c.Pull.FirstRetry = time.Hour })
	m := newMoody(t)
	m.push(t, "app:1", 10)
	if got, err := ex.ResolveImage(t.Context(), busyboxImage, nil); err != nil || got != "" {
		t.Errorf("of a loaded image: %q %v", got, err)
	}
	if _, err := ex.ResolveImage(t.Context(), m.host+"/other:1", nil); err == nil ||
		!strings.Contains(err.Error(), "does not have it") {
		t.Errorf("of no image: %v", err)
	}
	m.will("/v2/", 1, status(429))
	for range 2 { // the second attempt sends no request: the registry asked to wait
		if _, err := ex.ResolveImage(t.Context(), m.host+"/app:1", nil); err == nil ||
			!strings.Contains(err.Error(), "429") {
			t.Errorf("of a busy registry: %v", err)
		}
	}
}

// usedAt sets the time of an image's last use.
func (n *node) usedAt(t *testing.T, image string, at time.Time) {
	t.Helper()
	if err := n.lives[0].UsedAt(t.Context(), image, at); err != nil {
		t.Fatal(err)
	}
}
