package e2e_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// depot is a registry on the loopback that can delay a blob.
type depot struct {
	host string

	mu   sync.Mutex
	held map[string]chan struct{} // digests of blobs, until closed
}

func newDepot(t *testing.T) *depot {
	t.Helper()
	d := &depot{held: map[string]chan struct{}{}}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		wait := d.held[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
		d.mu.Unlock()
		if wait != nil && r.Method == http.MethodGet {
			select {
			case <-wait:
			case <-r.Context().Done():
				return
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	d.host = strings.TrimPrefix(srv.URL, "http://")
	return d
}

// hold has requests for a blob wait until the returned function is called.
func (d *depot) hold(t *testing.T, digest string) (release func()) {
	wait := make(chan struct{})
	d.mu.Lock()
	d.held[digest] = wait
	d.mu.Unlock()
	release = sync.OnceFunc(func() { close(wait) })
	t.Cleanup(release)
	return release
}

// push stores the shell's image with another layer of chance of a size, and returns the image's digest and that
// layer's.
func (d *depot) push(t *testing.T, s *harness.Site, as string, size int) (digest, layer string) {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	body := make([]byte, size)
	var seed [32]byte
	copy(seed[:], fmt.Sprint(rand.Uint64()))
	_, _ = rand.NewChaCha8(seed).Read(body)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.WriteHeader(&tar.Header{Name: "filler", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size)}))
	_, err := w.Write(body)
	must(err)
	must(w.Close())
	img, err := tarball.ImageFromPath(filepath.Join(s.Dir, "shell.tar"), nil)
	must(err)
	own := static.NewLayer(buf.Bytes(), types.DockerUncompressedLayer)
	img, err = mutate.AppendLayers(img, own)
	must(err)
	ref, err := name.ParseReference(d.host + "/" + as)
	must(err)
	must(remote.Write(ref, img))
	whole, err := img.Digest()
	must(err)
	part, err := own.Digest()
	must(err)
	return whole.String(), part.String()
}

// imaged is a service of one image.
func imaged(name, image string) string {
	return fmt.Sprintf(`
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - {name: main, image: %[2]q, command: [sh, -c, "exec sleep 100000"], resources: {cpu: 10m, memory: 16MiB}}
grace: 1s
---
kind: Service
name: %[1]s
definition: %[1]s
count: 1
`, name, image)
}

// digests returns the digests of the images of a node, by their names.
func digests(t *testing.T, s *harness.Site) map[string]string {
	t.Helper()
	r := s.Berth("image", "ls", "-o", "json")
	r.Want(t, 0)
	var all []api.ImageView
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	by := map[string]string{}
	for _, i := range all {
		by[i.Name] = i.Digest
	}
	return by
}

// An image comes from a registry, with its progress shown. A version keeps its image when the tag moves. A full disk
// removes unused images and keeps used ones.
func TestImagesOfARegistry(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	disk := harness.NewDisk(t, 400<<20)
	s := harness.New(t, harness.Containerd)
	s.AgentDir = filepath.Join(disk.Dir, "node")
	s.Server()
	agent := s.Agent("--image-high", "60", "--image-low", "35", "--log-level", "info")
	d := newDepot(t)
	was, layer := d.push(t, s, "app:1", 20<<20)
	app := d.host + "/app:1"

	release := d.hold(t, layer)
	s.Berth("run", "--detach", s.Write("app.yaml", imaged("app", app))).Want(t, 0)
	s.Eventually(soon, func() error {
		for _, v := range s.Tasks(client.TaskFilter{Service: "app"}) {
			if v.State == cluster.StatePreparing &&
				strings.Contains(v.Message, "pulling "+app+"@"+was[:19]+": 0 of 1 layers, 0.0 of 20.0 MiB") {
				return nil
			}
		}
		return fmt.Errorf("the progress of the pull is missing: %v", s.Berth("ps", "-o", "wide"))
	})
	release()
	running(t, s, "app", 1)
	def, err := s.Client().Definition(t.Context(), cluster.Ref{Name: "app", Version: 1})
	if err != nil || def.Containers[0].Digest != was {
		t.Errorf("the version has image %q %v, want %s", def.Containers[0].Digest, err, was)
	}

	// The tag moves, the image is removed, and the version still runs the same.
	d.push(t, s, "app:1", 1000)
	s.Berth("image", "prune", "--all", "--dry-run").Want(t, 0, "stays: task app.")
	s.Berth("stop", "--detach", "service/app").Want(t, 0)
	running(t, s, "app", 0)
	s.Eventually(soon, func() error { // the end of the task may be on its way
		s.Berth("image", "prune", "--all").Want(t, 0)
		if left := digests(t, s); len(left) > 0 {
			return fmt.Errorf("left are %v", left)
		}
		return nil
	})
	s.Berth("run", s.Write("app.yaml", imaged("app", app))).Want(t, 0) // the same manifest is the same version
	s.Berth("start", "--detach", "service/app").Want(t, 0)
	running(t, s, "app", 1)
	if got := digests(t, s)[app]; got != was {
		t.Errorf("the version runs %s now, want %s", got, was)
	}

	// An unavailable image is reported with its cause.
	s.Berth("run", "--detach", s.Write("none.yaml", imaged("none", d.host+"/none:1"))).Want(t, 0, "is not pinned",
		"does not have it")
	s.Prints("registry "+d.host+" does not have it", "status", "service/none")
	s.Berth("delete", "service/none").Want(t, 0)

	// Images that nothing uses make room; the one that the task runs from stays.
	for i := range 3 {
		d.push(t, s, fmt.Sprintf("other:%d", i), 40<<20)
	}
	s.Berth("image", "pull", d.host+"/other:0", d.host+"/other:1", d.host+"/other:2").Want(t, 0, "other:2",
		"node/node  pulling "+d.host+"/other:0", "node/node  done")
	s.Eventually(soon, func() error {
		there := digests(t, s)
		if there[app] == "" {
			t.Fatalf("the image of a task is gone: %v", there)
		}
		if there[d.host+"/other:0"] != "" ||
			!strings.Contains(agent.Output(), "an image was removed: the disk is full") {
			return fmt.Errorf("left are %v", there)
		}
		return nil
	})
	running(t, s, "app", 1)
	s.Prints(" unused: ", "events", "--type", "node.disk-freed", "--node", "node", "--tail", "-1")

	// A full disk without removable images is reported first, with the remedy, until there is room.
	s.Berth("image", "prune").Want(t, 0)
	full := nearlyFill(t, disk.Dir)
	for _, command := range [][]string{{"status"}, {"node", "status", "node"}} {
		s.Prints("no image or artifact on it can be removed", command...)
	}
	s.Prints("disk-full", "status")
	s.Prints("node.disk-full", "events", "--node", "node", "--tail", "-1")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	s.Eventually(soon, func() error {
		if r := s.Berth("status"); strings.Contains(r.Stdout, "disk-full") {
			return fmt.Errorf("with room again: %v", r)
		}
		return nil
	})
}

// nearlyFill uses all but 4 MiB of a file system, so that agents can still write their state, and returns the file.
func nearlyFill(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "bulk")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-4<<20); err != nil {
		t.Fatal(err)
	}
	return name
}
