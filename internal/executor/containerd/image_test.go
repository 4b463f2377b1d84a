package containerd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/distribution/reference"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// askPassword is a registry in memory that requires a password. It counts the blobs that are read.
func askPassword(pulls *atomic.Int64) http.Handler {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, secret, ok := r.BasicAuth(); !ok || user != "ann" || secret != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			pulls.Add(1)
		}
		inner.ServeHTTP(w, r)
	})
}

// push stores an image of busybox as app:1 that differs from the loaded one.
func push(t *testing.T, host string, over http.RoundTripper) {
	t.Helper()
	img := busybox(t)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Author = host
	ref, err := name.ParseReference(host + "/app:1")
	if err == nil {
		img, err = mutate.ConfigFile(img, config)
	}
	if err == nil {
		err = remote.Write(ref, img, remote.WithTransport(over),
			remote.WithAuth(&authn.Basic{Username: "ann", Password: "s3cret"}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs a registry on the loopback that wants a password, holding busybox as app:1.
func serve(t *testing.T) (host string, pulls *atomic.Int64) {
	t.Helper()
	pulls = new(atomic.Int64)
	srv := httptest.NewServer(askPassword(pulls))
	t.Cleanup(srv.Close)
	host = strings.TrimPrefix(srv.URL, "http://")
	push(t, host, http.DefaultTransport)
	return host, pulls
}

func TestPull(t *testing.T) {
	n := newNode(t)
	ex := n.life(t)
	host, pulls := serve(t)
	spec := executor.Spec{
		ID: "pulled", Dir: t.TempDir(), LogDir: t.TempDir(),
		Container:   cluster.Container{Image: host + "/app:1"},
		Credentials: func(string) (string, string) { return "", "" },
	}
	if err := ex.Prepare(t.Context(), spec, nil); err == nil {
		t.Error("pulled without credentials")
	}
	var asked string
	spec.Credentials = func(registry string) (string, string) { asked = registry; return "ann", "s3cret" }
	spec.Container.Pull = cluster.PullNever
	if err := ex.Prepare(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "never") {
		t.Errorf("pulled though it must not: %v", err)
	}
	spec.Container.Pull = ""
	var progress []string
	if err := ex.Prepare(t.Context(), spec, func(s string) { progress = append(progress, s) }); err != nil {
		t.Fatal(err)
	}
	if asked != host || len(progress) == 0 || !strings.Contains(progress[0], "pulling "+host+"/app:1") {
		t.Errorf("credentials were requested %q, progress %q", asked, progress)
	}
	if got := pulls.Load(); got == 0 {
		t.Error("nothing was pulled")
	}
	start(t, ex, spec.ID)
	if exit, err := ex.Wait(t.Context(), spec.ID); err != nil || !exit.Success() {
		t.Errorf("%+v %v", exit, err)
	}
	if got := output(t, spec); got != "from the image\n" {
		t.Errorf("output %q", got)
	}
	if err := ex.Remove(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	// A local image is not pulled again; the policy "always" asks the registry.
	before := pulls.Load()
	for policy, fails := range map[cluster.PullPolicy]bool{cluster.PullMissing: false, cluster.PullAlways: true} {
		spec.Container.Pull = policy
		spec.Credentials = func(string) (string, string) { return "ann", "wrong" }
		if err := ex.Prepare(t.Context(), spec, nil); (err != nil) != fails {
			t.Errorf("%s with wrong credentials: %v", policy, err)
		}
		if err := ex.Remove(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
	}
	if pulls.Load() != before {
		t.Error("pulled again")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ex.Prepare(ctx, spec, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled pull: %v", err)
	}
}

func TestImages(t *testing.T) {
	n := newNode(t)
	ex := n.life(t)
	img := busybox(t)
	for as, want := range map[string]string{
		"web:1":                     "docker.io/library/web:1",
		"registry.example/team/a:b": "registry.example/team/a:b",
	} {
		got, err := ex.LoadImages(t.Context(), bytes.NewReader(archive(t, as, img)))
		if err != nil || len(got) != 1 || got[0].Name != want || !strings.HasPrefix(got[0].Digest, "sha256:") ||
			got[0].Size < 1000 {
			t.Errorf("load %s: %+v %v", as, got, err)
		}
	}
	if _, err := ex.LoadImages(t.Context(), strings.NewReader("no archive")); err == nil {
		t.Error("loaded garbage")
	}
	all, err := ex.Images(t.Context())
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	want := []string{busyboxImage, "docker.io/library/web:1", "registry.example/team/a:b"}
	if diff := cmp.Diff(want, names); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for i, tc := range []struct {
		c    cluster.Container
		want string
	}{
		{cluster.Container{}, "from the image\n"},
		{cluster.Container{Args: []string{"echo $FROM $(pwd)"}}, "image /tmp\n"},
		{cluster.Container{Command: []string{"echo", "plain"}, Args: []string{"args"}}, "plain args\n"},
	} {
		tc.c.Image, tc.c.Pull = "web:1", cluster.PullNever
		s := n.make(t, ex, executor.ID("semantics-"+string(rune('a'+i))), tc.c)
		start(t, ex, s.ID)
		if exit, err := ex.Wait(t.Context(), s.ID); err != nil || !exit.Success() {
			t.Errorf("%+v %v", exit, err)
		}
		if got := output(t, s); got != tc.want {
			t.Errorf("output %q, want %q", got, tc.want)
		}
	}
	spec := executor.Spec{ID: "x", Dir: t.TempDir(), LogDir: t.TempDir(), Container: cluster.Container{Image: "UPPER"}}
	if err := ex.Prepare(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "image") {
		t.Errorf("a bad name: %v", err)
	}
	spec.Container.Image = ""
	if err := ex.Prepare(t.Context(), spec, nil); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("no image: %v", err)
	}
}

// The canonical image names of the control plane are the names of images here.
func TestNormalNames(t *testing.T) {
	for _, name := range []string{
		"redis", "redis:7", "docker.io/redis", "index.docker.io/library/redis:7", "group/app:1", "localhost/app",
		"localhost:5000/app", "registry.example/a/b/c:v1",
		"app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"registry.example:443/app:1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	} {
		want, err := reference.ParseDockerRef(name)
		if got := cluster.NormalImage(name); err != nil || got != want.String() {
			t.Errorf("%q is %q, here %v, %v", name, got, want, err)
		}
	}
}
