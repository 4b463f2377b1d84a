package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// fileJob is a job whose program prints a file of the node, which it gets as an artifact.
func fileJob(in, name, path, sum string) string {
	return fmt.Sprintf(`
kind: Job
cluster: %s
name: %s
steps:
  - name: all
    template:
      network: none
      containers:
        - name: main
          command: [cat, /opt/berth-test/note]
          resources: {cpu: 10m, memory: 16MiB}
          artifacts: [{source: "file://%s", checksum: %q, path: /opt/berth-test/note}]
`, in, name, path, sum)
}

// Tasks get files of the node where the cluster has the permission and the agent shares the path. Otherwise the
// manifest is refused, or the task is not placed. A missing file and a wrong checksum fail the task with the reason.
func TestArtifactsOfTheNode(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	s := harness.New(t, harness.Process)
	s.Strict = true
	shared := filepath.Join(s.Dir, "shared")
	mkdir(t, shared)
	note := []byte("a note of the node\n")
	for _, path := range []string{filepath.Join(shared, "note"), filepath.Join(s.Dir, "secret")} {
		if err := os.WriteFile(path, note, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := s.Server("--listen", "127.0.0.1:0")
	s.Agent("--host-path", shared, "--process-isolation", "none")
	s.Berth("run", s.Write("clusters.yaml",
		"kind: Cluster\nname: plain\n---\nkind: Cluster\nname: files\npermissions: [host-path]\n")).Want(t, 0)
	job := func(in, name, path, sum string) string {
		return s.Write(name+".yaml", fileJob(in, name, path, sum))
	}
	// 1. A submitter whose cluster lacks the permission is refused, and cannot grant it.
	token := s.Berth("token", "create", "--role", "submitter", "--cluster", "plain")
	token.Want(t, 0)
	file := s.Write("token", strings.TrimSpace(token.Stdout)+"\n")
	submit := func(args ...string) harness.Result {
		return s.Berth(append([]string{"--addr", server.URL(), "--token-file", file}, args...)...)
	}
	path := filepath.Join(shared, "note")
	submit("run", job("plain", "refused", path, checksum(note))).Want(t, 2,
		"artifacts[0].source: is file://"+path+", which needs the permission host-path, and cluster plain does not have it")
	submit("run", s.Write("grant.yaml", "kind: Cluster\nname: plain\npermissions: [host-path]\n")).Want(t, 2,
		"needs the role admin")
	// 2. With the permission the program gets the file.
	s.Berth("run", job("files", "good", path, checksum(note))).Want(t, 0, "succeeded")
	s.Prints(string(note), "logs", "files.good.1.all.0")
	// 3. The agent shares no other path, whatever the permission says.
	secret := filepath.Join(s.Dir, "secret")
	s.Berth("run", "--detach", job("files", "secret", secret, checksum(note))).Want(t, 0)
	s.Prints("its agent does not share the path "+secret, "status", "files/job/secret")
	// 4. Faults are said.
	wrong := "sha256:" + strings.Repeat("ab", 32)
	s.Berth("run", "--detach", job("files", "wrong", path, wrong)).Want(t, 0)
	s.Prints("its checksum is "+checksum(note)+", and the manifest wants "+wrong, "status", "files/job/wrong")
	s.Berth("run", "--detach", job("files", "missing", path+"s", wrong)).Want(t, 0)
	s.Prints("the node has no file "+path+"s", "status", "files/job/missing")
}

// imageJob is a job that runs from an image of another source than a registry.
func imageJob(name, source, sum string) string {
	return fmt.Sprintf(`
kind: Job
name: %[1]s
steps:
  - name: all
    template:
      containers:
        - name: main
          image: nowhere.invalid/shell:1
          image_source: {source: %[2]q, checksum: %[3]q}
          command: [sh, -c, "echo the image speaks"]
          resources: {cpu: 10m, memory: 16MiB}
`, name, source, sum)
}

// Containers run from a docker archive and an OCI image layout on the node, and from an archive at an address. The node
// keeps the image, also without its source. Sources that are changed, absent or for other machines are refused.
func TestImagesOfFiles(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	s := harness.New(t, harness.Containerd)
	s.Server()
	s.Agent("--egress-allow", "127.0.0.1", "--image-high", "100")
	archive := filepath.Join(s.Dir, "shell.tar")
	raw := []byte(readFile(t, archive))
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	folder, index := writeLayout(t, s, "layout", img)
	srv := httptest.NewServer(http.FileServer(http.Dir(s.Dir)))
	t.Cleanup(srv.Close)
	for name, from := range map[string]cluster.ImageSource{
		"archive": {Source: "file://" + archive, Checksum: checksum(raw)},
		"layout":  {Source: "file://" + folder, Checksum: index},
		"address": {Source: srv.URL + "/shell.tar", Checksum: checksum(raw)},
	} {
		s.Berth("run", s.Write(name+".yaml", imageJob(name, from.Source, from.Checksum))).Want(t, 0, "succeeded")
		s.Prints("the image speaks", "logs", name+".1.all.0")
	}
	// The node runs it again without the source.
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	s.Berth("run", s.Write("again.yaml", imageJob("again", "file://"+folder, index))).Want(t, 0, "succeeded")

	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture = map[string]string{"amd64": "arm64"}[runtime.GOARCH]
	if config.Architecture == "" {
		config.Architecture = "amd64"
	}
	other, err := mutate.ConfigFile(img, config)
	if err != nil {
		t.Fatal(err)
	}
	foreign, foreignIndex := writeLayout(t, s, "foreign", other)
	config = config.DeepCopy()
	config.Architecture, config.Author = runtime.GOARCH, "another"
	another, err := mutate.ConfigFile(img, config)
	if err != nil {
		t.Fatal(err)
	}
	changed, changedIndex := writeLayout(t, s, "changed", another)
	blobs, err := filepath.Glob(filepath.Join(changed, "blobs", "sha256", "*"))
	if err != nil || len(blobs) < 3 {
		t.Fatalf("the layout has the blobs %q: %v", blobs, err)
	}
	for _, blob := range blobs {
		if err := os.WriteFile(blob, append([]byte(readFile(t, blob)), ' '), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wrong := "sha256:" + strings.Repeat("ab", 32)
	for name, tc := range map[string]struct{ source, sum, word string }{
		"foreign": {"file://" + foreign, foreignIndex, "for other kinds of machines only"},
		"changed": {"file://" + changed, changedIndex, "or that part was changed"},
		"sum":     {"file://" + archive, wrong, "its checksum is " + checksum(raw) + ", and the manifest wants"},
		"index":   {"file://" + changed, wrong, "index.json has the checksum " + changedIndex},
		"absent":  {"file://" + archive + "s", wrong, "the node has no file " + archive + "s"},
		"text":    {"file://" + s.Write("text", "no archive\n"), checksum([]byte("no archive\n")), "archive"},
	} {
		s.Berth("run", "--detach", s.Write(name+".yaml", imageJob(name, tc.source, tc.sum))).Want(t, 0)
		s.Prints(tc.word, "status", "job/"+name)
	}
}

// writeLayout writes an OCI image layout and returns its folder and the checksum of its index.
func writeLayout(t *testing.T, s *harness.Site, name string, img v1.Image) (folder, index string) {
	t.Helper()
	folder = filepath.Join(s.Dir, name)
	at, err := layout.Write(folder, empty.Index)
	if err == nil {
		err = at.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder, checksum([]byte(readFile(t, filepath.Join(folder, "index.json"))))
}
