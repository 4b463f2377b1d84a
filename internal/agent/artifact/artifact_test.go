package artifact_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
)

// site is a server of one body; its turns describe its faults, one for each request.
type site struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // the ranges, "" for all
	turns []func(w http.ResponseWriter, r *http.Request)
	body  []byte
}

func newSite(t *testing.T, body []byte, turns ...func(http.ResponseWriter, *http.Request)) *site {
	t.Helper()
	s := &site{body: body, turns: turns}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := len(s.asked)
		s.asked = append(s.asked, r.Header.Get("Range"))
		s.mu.Unlock()
		if n < len(s.turns) {
			s.turns[n](w, r)
			return
		}
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(s.body))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// half sends half of a body and breaks the connection.
func half(body []byte) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func sha256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func newStore(t *testing.T, change ...func(*artifact.Config)) *artifact.Store {
	t.Helper()
	c := artifact.Config{
		Dir: t.TempDir(), First: time.Millisecond, Longest: 2 * time.Millisecond, OnProgress: time.Millisecond,
		Stall:  30 * time.Second,
		Egress: egress.Policy{}.WithLoopback(),
	}
	for _, f := range change {
		f(&c)
	}
	return artifact.New(c)
}

func body(n int) []byte { return bytes.Repeat([]byte("berth\n"), n) }

// A fetched file matches the checksum after any faults of the server.
func TestGet(t *testing.T) {
	t.Parallel()
	whole := body(20000)
	changed := slices.Clone(whole)
	changed[0] = 'B'
	for name, tc := range map[string]struct {
		turns  []func(http.ResponseWriter, *http.Request)
		ranges []string
	}{
		"immediately": {nil, []string{""}},
		"busy, then broken": {
			[]func(http.ResponseWriter, *http.Request){status(503), status(429)},
			[]string{"", "", ""},
		},
		"half a body, and the rest": {
			[]func(http.ResponseWriter, *http.Request){half(whole)},
			[]string{"", "bytes=60000-"},
		},
		"half of something else": {
			[]func(http.ResponseWriter, *http.Request){half(changed)},
			[]string{"", "bytes=60000-", ""},
		},
		"no ranges": {[]func(http.ResponseWriter, *http.Request){
			half(whole),
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(whole)
			},
		}, []string{"", "bytes=60000-"}},
		"refused ranges": {
			[]func(http.ResponseWriter, *http.Request){half(whole), status(416)},
			[]string{"", "bytes=60000-", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := newSite(t, whole, tc.turns...), newStore(t)
			a := &cluster.Artifact{
				Source: srv.URL + "/tool?key=hush", Checksum: sha256Of(whole), Path: "tool",
				Mode: "0755",
			}
			path, err := s.Get(t.Context(), a, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			info, err2 := os.Stat(path)
			if err := errors.Join(err, err2); err != nil || !bytes.Equal(got, whole) || info.Mode() != 0o755 {
				t.Errorf("got %d bytes, mode %v, %v", len(got), info.Mode(), err)
			}
			if again, err := s.Get(t.Context(), a, nil); err != nil || again != path {
				t.Errorf("again: %s, %v", again, err)
			}
			if diff := cmp.Diff(tc.ranges, srv.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A failed fetch has an error with a remedy and without secrets, and leaves nothing that could count as the artifact.
func TestGetFails(t *testing.T) {
	t.Parallel()
	whole := body(100)
	other := sha512.Sum512([]byte("something else"))
	want512 := "sha512:" + hex.EncodeToString(other[:])
	have512 := sha512.Sum512(whole)
	to := func(address string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, address, http.StatusFound) }
	}
	for name, tc := range map[string]struct {
		checksum string
		turns    []func(http.ResponseWriter, *http.Request)
		change   func(*artifact.Config)
		words    []string
		requests int
	}{
		"a wrong checksum": {
			checksum: want512,
			words:    []string{want512, hex.EncodeToString(have512[:]), "correct the checksum"}, requests: 1,
		},
		"not there": {
			turns: []func(http.ResponseWriter, *http.Request){status(404)},
			words: []string{"404 Not Found"}, requests: 1,
		},
		"a login": {
			turns: []func(http.ResponseWriter, *http.Request){status(403)},
			words: []string{"403 Forbidden", "without a login"}, requests: 1,
		},
		"busy forever": {
			turns: slices.Repeat([]func(http.ResponseWriter, *http.Request){status(503)}, 9),
			words: []string{"503 Service Unavailable", "gave up after 6 tries"}, requests: 6,
		},
		"too large": {change: func(c *artifact.Config) {
			c.MaxFetched = 99
		}, words: []string{"more than 99 B"}, requests: 1},
		"the machine's own": {
			turns: []func(http.ResponseWriter, *http.Request){to("http://169.254.169.254/latest")},
			words: []string{"link-local"}, requests: 1,
		},
		"a cloud's own": {
			turns: []func(http.ResponseWriter, *http.Request){to("http://100.100.100.200/latest")},
			words: []string{"Alibaba Cloud", "--egress-allow"}, requests: 1,
		},
		"another scheme": {
			turns: []func(http.ResponseWriter, *http.Request){to("ftp://127.0.0.1/x")},
			words: []string{"redirects to ftp"}, requests: 1,
		},
		"in circles": {
			turns: slices.Repeat([]func(http.ResponseWriter, *http.Request){to("/again")}, 9),
			words: []string{"more than 5 redirects"}, requests: 6,
		},
		"a stall": {
			turns: slices.Repeat([]func(http.ResponseWriter,
				*http.Request){func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "600")
				if f, ok := w.(http.Flusher); ok {
					f.Flush()
				}
				<-r.Context().Done()
			}}, 9),
			change: func(c *artifact.Config) { c.Stall, c.Tries = 50*time.Millisecond, 2 },
			words:  []string{"sent nothing for 50ms", "gave up after 2 tries"}, requests: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(*artifact.Config) {}
			if tc.change != nil {
				change = tc.change
			}
			srv, s := newSite(t, whole, tc.turns...), newStore(t, change)
			checksum := tc.checksum
			if checksum == "" {
				checksum = sha256Of(whole)
			}
			a := &cluster.Artifact{Source: srv.URL + "/tool?key=hush", Checksum: checksum, Path: "tool"}
			_, err := s.Get(t.Context(), a, nil)
			if err == nil {
				t.Fatal("it was fetched")
			}
			for _, w := range append(tc.words, srv.URL+"/tool?…") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("%q contains the key", err)
			}
			if n := len(srv.requests()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			for _, dir := range []string{"kept", "coming"} {
				if left, _ := os.ReadDir(filepath.Join(s.Dir, dir)); len(left) != 0 {
					t.Errorf("left in %s: %v", dir, left)
				}
			}
		})
	}
}

// Concurrent requests for the same artifact share one fetch. If its first caller ends, the others get theirs.
func TestGetShared(t *testing.T) {
	t.Parallel()
	whole := body(1000)
	begun, release := make(chan struct{}), make(chan struct{})
	srv := newSite(t, whole, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		<-release
	})
	s := newStore(t)
	a := &cluster.Artifact{Source: srv.URL, Checksum: sha256Of(whole), Path: "tool"}
	first, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := s.Get(first, a, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
	})
	<-begun
	var reports atomic.Int64
	for range 8 {
		group.Go(func() {
			if _, err := s.Get(t.Context(), a, func(text string) {
				if strings.Contains(text, "fetching "+srv.URL) {
					reports.Add(1)
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	close(release)
	group.Wait()
	if n := len(srv.requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// A fetch resumes from the part of an earlier store; a half unpacked folder is not kept.
func TestGetAfterACrash(t *testing.T) {
	t.Parallel()
	whole := tarOf(t, tar.Header{Name: "a", Size: 3})
	srv, s := newSite(t, whole), newStore(t)
	a := &cluster.Artifact{Source: srv.URL, Checksum: sha256Of(whole), Path: "tool", Unpack: true}
	coming := filepath.Join(s.Dir, "coming", artifact.Key(a))
	if err := os.MkdirAll(coming+".unpacked/old", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(coming, whole[:600], 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := s.Get(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bytes=600-"}, srv.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{".": "drwxr-xr-x", "a": "-rw-r--r-- xxx"}, tree(t, path)); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	if left, err := os.ReadDir(filepath.Dir(coming)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Prune removes unused artifacts, the oldest first, no more than necessary.
func TestPrune(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var keys []string
	for i := range 4 {
		whole := body(100 + i)
		srv := newSite(t, whole)
		a := &cluster.Artifact{Source: srv.URL, Checksum: sha256Of(whole), Path: "tool"}
		path, err := s.Get(t.Context(), a, nil)
		if err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1000*(4-i)), 0) // the last is the oldest
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, artifact.Key(a))
	}
	old := filepath.Join(s.Dir, "coming", "sha256-0-0644")
	for _, name := range []string{old, old + ".removed"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	used := func() map[string]bool { return map[string]bool{keys[3]: true} }
	removed, err := s.Prune(used, 601)
	if err != nil {
		t.Fatal(err)
	}
	want := []artifact.Removed{{Key: keys[2], Size: 612, Used: time.Unix(2000, 0)}}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(old + ".removed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was half removed is left: %v", err)
	}
	if _, err := os.Stat(old); err != nil {
		t.Errorf("what is half fetched is gone: %v", err)
	}
	if removed, err = s.Prune(used, 1<<40); err != nil || len(removed) != 2 {
		t.Errorf("removed %v, %v; want all but the one in use", removed, err)
	}
}
