package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/testkit"
)

// moody is a registry on the loopback interface that misbehaves on request.
type moody struct {
	host string

	mu    sync.Mutex
	moods []*mood
	asked []string // "GET /v2/…" of each request that was let through or not, the oldest first
}

// mood is a fault for requests whose line ("GET /v2/…") contains on, times over.
type mood struct {
	on    string
	times int
	do    func(w http.ResponseWriter, r *http.Request, inner http.Handler)
}

func newMoody(t *testing.T) *moody {
	t.Helper()
	m := &moody{}
	inner := inParts(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := r.Method + " " + r.URL.Path
		m.mu.Lock()
		m.asked = append(m.asked, line)
		var do func(http.ResponseWriter, *http.Request, http.Handler)
		for _, mood := range m.moods {
			if mood.times > 0 && strings.Contains(line, mood.on) {
				mood.times--
				do = mood.do
				break
			}
		}
		m.mu.Unlock()
		if do != nil {
			do(w, r, inner)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	m.host = strings.TrimPrefix(srv.URL, "http://")
	return m
}

// inParts makes a registry send blobs from any byte on, as registries do; the library's registry refuses it.
func inParts(whole http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Range") == "" {
			whole.ServeHTTP(w, r)
			return
		}
		plain := r.Clone(r.Context())
		plain.Header.Del("Range")
		rec := httptest.NewRecorder()
		whole.ServeHTTP(rec, plain)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(rec.Body.Bytes()))
	})
}

// will has the registry misbehave.
func (m *moody) will(on string, times int, do func(http.ResponseWriter, *http.Request, http.Handler)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moods = append(m.moods, &mood{on, times, do})
}

// count returns how many requests had that in their line, and forgets none.
func (m *moody) count(on string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.asked {
		if strings.Contains(line, on) {
			n++
		}
	}
	return n
}

// push stores an image with one layer of the size and returns the image and the digest of the layer.
func (m *moody) push(t *testing.T, as string, size int) (img v1.Image, layer string) {
	t.Helper()
	img = busybox(t)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Author = m.host + as
	img, err = mutate.ConfigFile(img, config)
	if err == nil {
		img, err = mutate.AppendLayers(img, filler(t, size))
	}
	ref, parseErr := name.ParseReference(m.host + "/" + as)
	if err = errors.Join(err, parseErr); err == nil {
		err = remote.Write(ref, img)
	}
	layers, layersErr := img.Layers()
	if err = errors.Join(err, layersErr); err != nil {
		t.Fatal(err)
	}
	d, err := layers[len(layers)-1].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return img, d.String()
}

// filler is an uncompressed layer with one file of chance.
func filler(t *testing.T, size int) v1.Layer {
	t.Helper()
	body := make([]byte, size)
	var seed [32]byte
	rand.NewChaCha8(seed).Read(body)
	copy(body, strconv.FormatUint(rand.Uint64(), 16)) // each another
	return static.NewLayer(layerTar(t, "filler", body), types.DockerUncompressedLayer)
}

// layerTar is an archive with one file.
func layerTar(t *testing.T, name string, body []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))})
	if err == nil {
		_, err = w.Write(body)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func status(code int, headers ...string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

// altered answers with the body that change returns, with the announced length.
func altered(change func(body []byte) []byte) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		maps.Copy(w.Header(), rec.Header())
		body := rec.Body.Bytes()
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(change(bytes.Clone(body)))
	}
}

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

// Write takes one line.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

// of returns the lines that contain a text.
func (l *lines) of(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, line := range l.all {
		if strings.Contains(line, text) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func quick(c *containerd.Config) {
	c.Pull = containerd.PullConfig{
		FirstRetry: 20 * time.Millisecond, LongestRetry: 200 * time.Millisecond, StallTimeout: 2 * time.Second,
		ProgressInterval: 20 * time.Millisecond, MaxAttempts: 5,
	}
}

// fetch prepares a container of an image and removes it.
func fetch(t *testing.T, ex *containerd.Executor, c cluster.Container, login [2]string) (seen []string, err error) {
	t.Helper()
	spec := executor.Spec{
		ID: executor.ID("pull-" + strconv.FormatUint(rand.Uint64(), 36)), Dir: t.TempDir(), LogDir: t.TempDir(),
		Container:   c,
		Credentials: func(string) (string, string) { return login[0], login[1] },
	}
	ctx, cancel := testkit.WithLimit(t.Context(), 90*time.Second)
	defer cancel()
	err = ex.Prepare(ctx, spec, func(s string) { seen = append(seen, s) })
	if removeErr := ex.Remove(context.WithoutCancel(ctx), spec.ID); removeErr != nil {
		t.Error(removeErr)
	}
	return seen, err
}

// The image arrives whole after any fault that a registry shows once or twice.
func TestPullFromARegistryInTrouble(t *testing.T) {
	n := newNode(t)
	var causes lines
	ex := n.life(t, quick, func(c *containerd.Config) { c.Logger = slog.New(slog.NewTextHandler(&causes, nil)) })
	const size = 3 << 20
	half := func(body []byte) []byte { return body[:len(body)/2] }
	for name, tc := range map[string]struct {
		on, seen string
		times    int
		do       func(http.ResponseWriter, *http.Request, http.Handler)
	}{
		"too many requests": {
			"/manifests/", "429 Too Many Requests and wants to be asked again after 1s", 1,
			status(429, "Retry-After", "1"),
		},
		"too many without a say": {"/blobs/", "429 Too Many Requests", 2, status(429)},
		"internal error":         {"/blobs/", "500 Internal Server Error", 4, status(500)},
		"half a layer":           {"LAYER", "", 2, altered(half)},
		"a layer that stops": {
			"LAYER", "sent nothing for 2s", 1,
			func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
				altered(func(body []byte) []byte {
					_, _ = w.Write(half(body))
					w.(http.Flusher).Flush()
					<-r.Context().Done()
					return nil
				})(w, r, inner)
			},
		},
		"no parts of layers": {
			"LAYER", "does not continue in the middle", 3,
			func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
				if r.Header.Get("Range") != "" {
					w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
					return
				}
				altered(half)(w, r, inner)
			},
		},
		"wrong bytes": {"LAYER", "sent other bytes than their digest says", 1, altered(func(body []byte) []byte {
			body[len(body)/2] ^= 1
			return body
		})},
		"a manifest of something else": {
			"GET /v2/", "sent other bytes than their digest says", 1,
			altered(func(body []byte) []byte {
				return bytes.Replace(body, []byte(`"schemaVersion"`), []byte(`"SchemaVersion"`), 1)
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoody(t)
			_, layer := m.push(t, "app:1", size)
			m.will(strings.ReplaceAll(tc.on, "LAYER", "GET /v2/app/blobs/"+layer), tc.times, tc.do)
			seen, err := fetch(t, ex, cluster.Container{Image: m.host + "/app:1"}, [2]string{})
			if err != nil {
				t.Fatalf("%v; progress %q", err, seen)
			}
			if all := causes.of(m.host); !strings.Contains(all, tc.seen) {
				t.Errorf("causes %s\nwant %q", all, tc.seen)
			}
			if n := m.count("GET /v2/app/blobs/" + layer); n > tc.times+1 {
				t.Errorf("the layer was requested %d times", n)
			}
		})
	}
}

// A pull contacts no address that the policy refuses, and fails immediately with the reason.
func TestPullFromARefusedAddress(t *testing.T) {
	n := newNode(t)
	m := newMoody(t)
	m.push(t, "app:1", 1<<10)
	before := m.count("")
	deny, err := egress.New(nil, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		policy      egress.Policy
		image, want string
	}{
		"denied by the operator": {deny, m.host + "/app:1", "denied by the operator"},
		"a metadata service":     {egress.Policy{}, "169.254.169.254/app:1", "link-local"},
	} {
		t.Run(name, func(t *testing.T) {
			ex := n.life(t, quick, func(c *containerd.Config) { c.Pull.Egress = tc.policy })
			seen, err := fetch(t, ex, cluster.Container{Image: tc.image}, [2]string{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if strings.Contains(strings.Join(seen, "\n"), "again") {
				t.Errorf("a refusal was tried again: %q", seen)
			}
		})
	}
	if n := m.count("") - before; n > 0 {
		t.Errorf("the registry got %d requests", n)
	}
}

// A pull that must fail fails soon, with a message that names the registry and the remedy, and leaves nothing wrong
// behind.
func TestPullThatFails(t *testing.T) {
	n := newNode(t)
	ex := n.life(t, quick)
	wrong := altered(func(body []byte) []byte { body[len(body)/2] ^= 1; return body })
	for name, tc := range map[string]struct {
		on, image, want string
		do              func(http.ResponseWriter, *http.Request, http.Handler)
		login           [2]string
		most            int // requests
	}{
		"no such image": {"none", "nothing:1", "does not have it", nil, [2]string{}, 4},
		"no login": {
			"/v2/", "app:1", "wants a login (401 Unauthorized), and there is none",
			status(401, "WWW-Authenticate", `Basic realm="x"`),
			[2]string{},
			3,
		},
		"an expired login": {
			"/v2/", "app:1", "does not accept the login of user ann (401 Unauthorized)",
			status(401, "WWW-Authenticate", `Basic realm="x"`),
			[2]string{"ann", "s3cret"},
			6,
		},
		"forbidden":       {"/v2/", "app:1", "403 Forbidden to user ann", status(403), [2]string{"ann", "s3cret"}, 4},
		"always an error": {"/v2/", "app:1", "502 Bad Gateway (tried 5 times)", status(502), [2]string{}, 20},
		"always wrong": {
			"GET /v2/app/blobs/LAYER", "app:1",
			"sent other bytes than their digest says (tried 3 times)", wrong,
			[2]string{},
			40,
		},
		"busy for long": {
			"/v2/", "app:1", "later than a pull waits", status(429, "Retry-After", "3600"),
			[2]string{},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoody(t)
			_, layer := m.push(t, "app:1", 100_000)
			before := m.count("")
			if tc.do != nil {
				m.will(strings.ReplaceAll(tc.on, "LAYER", layer), 1000, tc.do)
			}
			_, err := fetch(t, ex, cluster.Container{Image: m.host + "/" + tc.image}, tc.login)
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), "registry "+m.host) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("an error contains a secret: %v", err)
			}
			if n := m.count("") - before; n > tc.most {
				t.Errorf("%d requests, at most %d were expected", n, tc.most)
			}
			// Nothing wrong is kept: once the registry works, the image can be pulled.
			m.mu.Lock()
			m.moods = nil
			m.mu.Unlock()
			if name == "busy for long" || tc.do == nil {
				return
			}
			if _, err := fetch(t, ex, cluster.Container{Image: m.host + "/app:1"}, [2]string{}); err != nil {
				t.Errorf("without faults: %v", err)
			}
		})
	}
}

// A partial layer continues where it stopped, also in the next attempt.
func TestPullContinuesWhereItStopped(t *testing.T) {
	n := newNode(t)
	m := newMoody(t)
	_, layer := m.push(t, "app:1", 4<<20)
	var mu sync.Mutex
	var ranges []string
	m.will("GET /v2/app/blobs/"+layer, 1000, func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
		mu.Lock()
		ranges = append(ranges, r.Header.Get("Range"))
		first := len(ranges) == 1
		mu.Unlock()
		if !first {
			inner.ServeHTTP(w, r)
			return
		}
		altered(func(body []byte) []byte {
			_, _ = w.Write(body[:len(body)/2])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return nil
		})(w, r, inner)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	spec := executor.Spec{
		ID: "cut-short", Dir: t.TempDir(), LogDir: t.TempDir(),
		Container: cluster.Container{Image: m.host + "/app:1"},
	}
	ex := n.life(t, quick, func(c *containerd.Config) { c.Pull.StallTimeout = time.Minute })
	cut := make(chan error, 1)
	half := make(chan struct{})
	var once sync.Once
	go func() {
		cut <- ex.Prepare(ctx, spec, func(text string) {
			_, counts, _ := strings.Cut(text, " of 1 layers, ")
			have, _, _ := strings.Cut(counts, " of ")
			if n, err := strconv.ParseFloat(have, 64); err == nil && n >= 2 {
				once.Do(func() { close(half) })
			}
		})
	}()
	select {
	case <-half:
	case <-testkit.Context(t, time.Minute).Done():
		t.Fatal("no progress was reported")
	}
	cancel()
	if err := <-cut; !errors.Is(err, context.Canceled) {
		t.Errorf("a pull that is cut short: %v", err)
	}
	// The next life of the agent continues.
	if _, err := fetch(t, n.life(t, quick), cluster.Container{Image: m.host + "/app:1"}, [2]string{}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ranges) != 2 || !strings.HasPrefix(ranges[1], "bytes=") || ranges[1] == "bytes=0-" {
		t.Errorf("the layer was requested in ranges %q", ranges)
	}
	if err := ex.Remove(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
}

// A registry that is slow or limits its rate delays its own images, not those of others; an image with many users is
// pulled once.
func TestPullsDoNotDelayOthers(t *testing.T) {
	n := newNode(t)
	ex := n.life(t, quick, func(c *containerd.Config) { c.Pull.MaxConcurrent, c.Pull.StallTimeout = 3, time.Minute })
	slow, well := newMoody(t), newMoody(t)
	ctx, cancel := context.WithCancel(t.Context())
	var pulls sync.WaitGroup
	defer pulls.Wait()
	defer cancel()
	for i := range 5 {
		_, layer := slow.push(t, fmt.Sprintf("app:%d", i), 100_000+i)
		slow.will("GET /v2/app/blobs/"+layer, 1000, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			<-r.Context().Done()
		})
	}
	for i := range 5 {
		spec := executor.Spec{
			ID: executor.ID("slow-" + strconv.Itoa(i)), Dir: t.TempDir(), LogDir: t.TempDir(),
			Container: cluster.Container{Image: fmt.Sprintf("%s/app:%d", slow.host, i)},
		}
		pulls.Go(func() {
			if err := ex.Prepare(ctx, spec, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("a slow pull: %v", err)
			}
			if err := ex.Remove(context.WithoutCancel(ctx), spec.ID); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		if n := slow.count("GET /v2/app/blobs/"); n < 2 {
			return fmt.Errorf("%d blobs were requested", n)
		}
		return nil
	})
	_, layer := well.push(t, "app:1", 200_000)
	var some sync.WaitGroup
	for range 4 {
		some.Go(func() {
			if _, err := fetch(t, ex, cluster.Container{Image: well.host + "/app:1"}, [2]string{}); err != nil {
				t.Errorf("beside a slow registry: %v", err)
			}
		})
	}
	some.Wait()
	if n := well.count("GET /v2/app/blobs/" + layer); n != 1 {
		t.Errorf("four pulls of an image requested its layer %d times", n)
	}
	manifests := map[string]bool{}
	slow.mu.Lock()
	for _, line := range slow.asked {
		if strings.HasPrefix(line, "GET /v2/app/manifests/sha256") {
			manifests[line] = true
		}
	}
	slow.mu.Unlock()
	if len(manifests) > 2 {
		t.Errorf("%d pulls went on from the slow registry, want 2 of 3 slots", len(manifests))
	}
}

// A pinned version always runs one image, wherever the tag points.
func TestPullOfAPinnedImage(t *testing.T) {
	n := newNode(t)
	ex := n.life(t, quick)
	m := newMoody(t)
	was, _ := m.push(t, "app:1", 1000)
	digest, err := was.Digest()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ex.ResolveImage(t.Context(), m.host+"/app:1", nil)
	if err != nil || got != digest.String() {
		t.Fatalf("resolved %q %v, want %s", got, err, digest)
	}
	m.push(t, "app:1", 2000) // the tag moves
	pinned := cluster.Container{Image: m.host + "/app:1", Digest: got}
	if _, err := fetch(t, ex, pinned, [2]string{}); err != nil {
		t.Fatal(err)
	}
	all, err := ex.Images(t.Context())
	var names []string
	for _, i := range all {
		if i.Digest == got {
			names = append(names, i.Name)
		}
	}
	if want := m.host + "/app:1 " + m.host + "/app@" + got; err != nil || strings.Join(names, " ") != want {
		t.Errorf("of that digest are %q %v, want %q", names, err, want)
	}
	// A local pinned image needs no request; an image without a digest is updated on request.
	before := m.count("")
	if _, err := fetch(t, ex, pinned, [2]string{}); err != nil || m.count("") != before {
		t.Errorf("again: %v, %d requests", err, m.count("")-before)
	}
	if _, err := fetch(t, ex, cluster.Container{Image: m.host + "/app:1", Pull: cluster.PullAlways, Digest: got},
		[2]string{}); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t, ex, pinned, [2]string{}); err != nil {
		t.Errorf("pinned after the name moved on: %v", err)
	}
	gone := cluster.Container{
		Image:  m.host + "/app:1",
		Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(runtime.GOARCH))),
	}
	if _, err := fetch(t, ex, gone, [2]string{}); err == nil || !strings.Contains(err.Error(), "does not have it") {
		t.Errorf("a pin that the registry does not have: %v", err)
	}
}
