package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/api"
)

// server is one of several with the same store.
type server struct {
	*httptest.Server
	asked atomic.Int32
	mu    sync.Mutex
	do    http.HandlerFunc
}

func (s *server) answers(do http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do = do
}

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(code)
		io.WriteString(w, `{"title": "no", "detail": "no"}`)
	}
}

// breaks takes the request and breaks the connection off without an answer.
func breaks(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

// twoServers returns two servers without faults, and a client of both.
func twoServers(t *testing.T) (a, b *server, c *Client) {
	t.Helper()
	var all [2]*server
	var addrs []string
	for i := range all {
		s := &server{do: ok}
		s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.asked.Add(1)
			s.mu.Lock()
			do := s.do
			s.mu.Unlock()
			do(w, r)
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.Start()
		t.Cleanup(s.Close)
		all[i], addrs = s, append(addrs, s.URL)
	}
	c, err := New(Config{Addr: strings.Join(addrs, ", "), Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return all[0], all[1], c
}

// TestFailover asks a server that cannot, with another one that could.
func TestFailover(t *testing.T) {
	ctx := context.Background()
	read := func(c *Client) error { _, err := c.Version(ctx); return err }
	write := func(c *Client) error {
		_, err := c.PutCluster(ctx, api.Cluster{Name: "a"}, Condition{})
		return err
	}
	compared := func(c *Client) error {
		_, err := c.PutCluster(ctx, api.Cluster{Name: "a"}, Condition{Revision: 7})
		return err
	}
	again := func(c *Client) error { _, err := c.CordonNode(ctx, "n1", Condition{}); return err }
	tests := []struct {
		name       string
		first      http.HandlerFunc // nil: nothing listens
		then       http.HandlerFunc
		call       func(*Client) error
		asked      int32 // of the second
		want       error // nil: success
		wantStatus int
	}{
		{"a read, no listener", nil, ok, read, 1, nil, 0},
		{"a write, no listener", nil, ok, write, 1, nil, 0},
		{"a read that breaks off", breaks, ok, read, 1, nil, 0},
		{"a write that breaks off", breaks, ok, write, 0, ErrUncertain, 0},
		{"a write with If-Match that breaks off", breaks, ok, compared, 1, nil, 0},
		{
			"a write with If-Match that breaks off, and may have happened", breaks, status(412), compared, 1,
			ErrUncertain,
			0,
		},
		{"an action that may be repeated", breaks, ok, again, 1, nil, 0},
		{"a read, the server is not ready", status(503), ok, read, 1, nil, 0},
		{"a write, the server is not ready", status(503), ok, write, 0, nil, 503},
		{"a write with If-Match, the server is not ready", status(503), status(412), compared, 1, ErrUncertain, 0},
		{"a write, the disk is full", status(507), ok, write, 1, nil, 0},
		{"a read, both are not ready", status(503), status(503), read, 1, nil, 503},
		{"a read, one not ready and one away", status(503), breaks, read, 1, nil, 503},
		{"a refusal is final", status(404), ok, read, 0, nil, 404},
		{"a stale write is final", status(412), ok, compared, 0, nil, 412},
		{"both break off", breaks, breaks, read, 1, ErrUnreachable, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, b, c := twoServers(t)
			if test.first == nil {
				a.Close()
			} else {
				a.answers(test.first)
			}
			b.answers(test.then)
			err := test.call(c)
			good := test.want == nil && test.wantStatus == 0
			if (err == nil) != good || test.want != nil && !errors.Is(err, test.want) ||
				StatusOf(err) != test.wantStatus {
				t.Errorf("got %v, want %v with status %d", err, test.want, test.wantStatus)
			}
			if got := b.asked.Load(); got != test.asked {
				t.Errorf("the second was asked %d times, want %d", got, test.asked)
			}
		})
	}
}

// TestStaysWithTheServerThatAnswered asks the server first that answered last.
func TestStaysWithTheServerThatAnswered(t *testing.T) {
	a, b, c := twoServers(t)
	a.answers(status(503))
	for range 3 {
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if a.asked.Load() != 1 || b.asked.Load() != 3 {
		t.Errorf("asked %d and %d times, want 1 and 3", a.asked.Load(), b.asked.Load())
	}
	b.Close()
	a.answers(ok)
	if _, err := c.Version(t.Context()); err != nil {
		t.Errorf("back to the first: %v", err)
	}
}

// roundTrip is a transport that a function makes.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSilentServer has a server that takes requests and says nothing, as one that was stopped does.
func TestSilentServer(t *testing.T) {
	tests := []struct {
		name string
		call func(context.Context, *Client) error
		took time.Duration
		want error
	}{
		{"a read", func(ctx context.Context, c *Client) error {
			_, err := c.Version(ctx)
			return err
		}, readTimeout, nil},
		{"a list that waits", func(ctx context.Context, c *Client) error {
			_, err := c.Services(ctx, "", ListOptions{Index: 7, Wait: time.Minute})
			return err
		}, readTimeout + time.Minute, nil},
		{"a write", func(ctx context.Context, c *Client) error {
			return c.DeleteCluster(ctx, "a", Condition{})
		}, time.Hour, context.DeadlineExceeded},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(Config{
					Addr: "http://silent:1,http://good:1",
					Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
						if r.URL.Host == "good:1" {
							return &http.Response{
									StatusCode: http.StatusOK,
									Body:       io.NopCloser(strings.NewReader("{}")),
								},
								nil
						}
						<-r.Context().Done()
						return nil, r.Context().Err()
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				if err := test.call(ctx, c); !errors.Is(err, test.want) || time.Since(began) != test.took {
					t.Errorf("after %v: %v; want %v after %v", time.Since(began), err, test.want, test.took)
				}
			})
		})
	}
}

// TestUploadIsNotRepeated cannot send a stream twice.
func TestUploadIsNotRepeated(t *testing.T) {
	a, b, c := twoServers(t)
	a.answers(breaks)
	_, err := c.LoadImages(t.Context(), "", io.MultiReader(strings.NewReader("tar")))
	if !errors.Is(err, ErrUncertain) || b.asked.Load() != 0 {
		t.Errorf("got %v, the second was asked %d times", err, b.asked.Load())
	}
}

// TestOneServerUncertain checks that also with one server the error says that the write may have happened.
func TestOneServerUncertain(t *testing.T) {
	c := serve(t, breaks)
	if _, err := c.PutCluster(t.Context(), api.Cluster{Name: "a"}, Condition{}); !errors.Is(err, ErrUncertain) ||
		!errors.Is(err, ErrUnreachable) {
		t.Errorf("a write: %v", err)
	}
	if _, err := c.Version(t.Context()); errors.Is(err, ErrUncertain) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("a read: %v", err)
	}
}

func TestSnapshotMustBeComplete(t *testing.T) {
	sum := sha256.Sum256([]byte("all of it"))
	whole := hex.EncodeToString(sum[:])
	tests := []struct {
		name, text, sum string
		want            error
	}{
		{"whole", "all of it", whole, nil},
		{"another sum", "all of i", whole, ErrCutShort},
		{"no sum", "all of it", "", ErrCutShort},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(api.SnapshotRevision, "17")
				w.Header().Set("Trailer", api.SnapshotSum)
				io.WriteString(w, test.text)
				if test.sum != "" {
					w.Header().Set(api.SnapshotSum, test.sum)
				}
			})
			var out strings.Builder
			revision, err := c.Snapshot(t.Context(), &out)
			if !errors.Is(err, test.want) || err == nil && (revision != 17 || out.String() != test.text) {
				t.Errorf("got %q at %d: %v", out.String(), revision, err)
			}
		})
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.SnapshotRevision, "17")
		io.WriteString(w, strings.Repeat("some", 10_000))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if _, err := c.Snapshot(t.Context(), io.Discard); !errors.Is(err, ErrCutShort) {
		t.Errorf("a connection that breaks: %v", err)
	}
}

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.der, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	var err error
	if a.cert, err = x509.ParseCertificate(a.der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// serve runs a server whose certificate says a unit, and returns its address.
func (a *authority) serve(unit string) string {
	a.t.Helper()
	der, key := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "s1", OrganizationalUnit: []string{unit}},
		// not the test's
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 9)},
	})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der, a.der}, PrivateKey: key}},
	}
	srv.StartTLS()
	a.t.Cleanup(srv.Close)
	return srv.URL
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})
}

func (a *authority) hash() string {
	sum := sha256.Sum256(a.der)
	return hex.EncodeToString(sum[:])
}

// TestTrust checks that the client trusts servers of its authority at any address, and no other server.
func TestTrust(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	trust := func(config *tls.Config, err error) *tls.Config {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	tests := []struct {
		name   string
		config *tls.Config
		addr   string
		says   string
	}{
		{"by its file", trust(TrustCA(ours.pem())), ours.serve("server"), ""},
		{"by its hash", trust(PinCA(ours.hash())), ours.serve("server"), ""},
		{"a node, by file", trust(TrustCA(ours.pem())), ours.serve("node"), "not of a server"},
		{"a node, by hash", trust(PinCA(ours.hash())), ours.serve("node"), "not of a server"},
		{"another authority, by file", trust(TrustCA(ours.pem())), theirs.serve("server"), "unknown authority"},
		{"another authority, by hash", trust(PinCA(ours.hash())), theirs.serve("server"), "unknown authority"},
		{"the machine's authorities", nil, ours.serve("server"), "certificate"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := New(Config{Addr: test.addr, TLS: test.config})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.Version(t.Context())
			if (test.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q", err, test.says)
			}
		})
	}
	for _, hash := range []string{"", "zz", "abcd"} {
		if _, err := PinCA(hash); err == nil {
			t.Errorf("PinCA(%q) took it", hash)
		}
	}
	if _, err := TrustCA([]byte("no pem")); err == nil {
		t.Error("TrustCA took no certificate")
	}
}

// TestDefaultTransportIsThePrograms has a program wrap http.DefaultTransport, as programs do that trace their requests.
func TestDefaultTransportIsThePrograms(t *testing.T) {
	was := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = was })
	http.DefaultTransport = struct{ http.RoundTripper }{was}
	c, err := New(Config{Addr: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
