package e2e_test

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// digestOf returns the digest of a tag in the registry.
func (d *depot) digestOf(t *testing.T, tag string) string {
	t.Helper()
	ref, err := name.ParseReference(d.host + "/" + tag)
	if err != nil {
		t.Fatal(err)
	}
	head, err := remote.Head(ref)
	if err != nil {
		t.Fatal(err)
	}
	return head.Digest.String()
}

// guard is a proxy before a registry that demands the password of the user ci. It returns its host.
func guard(t *testing.T, registry string) (host string, password *atomic.Pointer[string]) {
	t.Helper()
	inner := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry})
	password = new(atomic.Pointer[string])
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, given, _ := r.BasicAuth()
		if want := password.Load(); user != "ci" || want == nil ||
			subtle.ConstantTimeCompare([]byte(given), []byte(*want)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="guarded"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return strings.TrimPrefix(srv.URL, "http://"), password
}

// An image comes from a registry with a login, by a secret of the cluster. A missing or wrong secret is reported with
// the names of the secret and the registry. With the right secret, the same task gets its image. Other clusters cannot
// use the secret.
func TestRegistryThatRequiresASecret(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	s := harness.New(t, harness.Containerd)
	s.Server()
	agent := s.Agent()
	d := newDepot(t)
	for _, image := range []string{"app:1", "app:2", "other:1"} {
		d.push(t, s, image, 1000)
	}
	host, password := guard(t, d.host)
	const right, wrong, rolled = "Hush9right-password", "Hush9wrong-password", "Hush9rolled-password"
	allow := func(p string) { password.Store(&p) }
	allow(right)
	set := func(value string) {
		t.Helper()
		s.BerthWith(strings.NewReader(value+"\n"), "secret", "set", "pull", "--type", "registry", "--registry", host,
			"--username", "ci").Want(t, 0)
	}
	wantStatus := func(service string, texts ...string) {
		t.Helper()
		s.Eventually(soon, func() error {
			r := s.Berth("status", "service/"+service)
			for _, text := range texts {
				if !strings.Contains(r.Stdout, text) {
					return fmt.Errorf("want %q in %v", text, r)
				}
			}
			return nil
		})
	}

	// 1. No login, and then a wrong one.
	s.Berth("run", "--detach", s.Write("app.yaml", imaged("app", host+"/app:1"))).Want(t, 0)
	wantStatus("app", "registry "+host+" wants a login", "berth secret set NAME --type registry")
	set(wrong)
	s.Berth("restart", "--detach", "service/app").Want(t, 0)
	wantStatus("app", "registry "+host+" does not accept the login of user ci",
		"the secret pull of the cluster default", "berth secret set pull --type registry")
	// 2. The right one: what failed is tried again, and comes up.
	set(right)
	s.Berth("restart", "--detach", "service/app").Want(t, 0)
	running(t, s, "app", 1)
	// 3. The password changes at the registry. The next pull fails with the cause, and works once the secret is
	//    updated.
	allow(rolled)
	s.Berth("run", "--detach", s.Write("next.yaml", imaged("next", host+"/app:2"))).Want(t, 0)
	wantStatus("next", "does not accept the login of user ci", "the secret pull")
	set(rolled)
	s.Berth("restart", "--detach", "service/next").Want(t, 0)
	running(t, s, "next", 1)
	// The version is pinned with that login: no node has one of its own.
	rolling := d.digestOf(t, "app:2")
	if r := s.Berth("run", "--detach", s.Write("pinned.yaml", imaged("pinned", host+"/app:2"))); r.Code != 0 ||
		strings.Contains(r.Stdout+r.Stderr, "not pinned") {
		t.Errorf("it is not pinned: %v", r)
	}
	def, err := s.Client().Definition(t.Context(), cluster.Ref{Name: "pinned", Version: 1})
	if err != nil || def.Containers[0].Digest != rolling {
		t.Errorf("the version has image %q, %v, want %s", def.Containers[0].Digest, err, rolling)
	}
	running(t, s, "pinned", 1)
	// 4. A container may name its secret, which must be for its registry.
	s.BerthWith(strings.NewReader("x"), "secret", "set", "plain").Want(t, 0)
	named := strings.Replace(imaged("named", host+"/other:1"), "resources:", "pull_secret: plain, resources:", 1)
	s.Berth("run", "--detach", s.Write("named.yaml", named)).Want(t, 0)
	wantStatus("named", "the secret plain is not for the registry "+host)
	// No output contains a password.
	said := s.Berth("events", "--tail", "-1").Stdout + agent.Output() + s.Berth("status", "service/app").Stdout +
		s.Berth("secret", "ls", "-o", "json").Stdout
	if strings.Contains(said, "Hush9") {
		t.Errorf("a password is printed:\n%s", said)
	}
}
