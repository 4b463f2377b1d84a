package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// secure is a server for other machines, with an authority, over an engine in memory.
type secure struct {
	*world
	authority *pki.Authority
	keeper    *pki.Keeper
	https     string
	plain     *http.Client // trusts the authority, without a certificate
	lines     *memoryAudit
	log       *lockedBuffer
	early     atomic.Int64 // by which the server's wall clock is ahead
}

// lockedBuffer is a log for tests.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// memoryAudit keeps lines for a test.
type memoryAudit struct {
	mu   sync.Mutex
	all  []audit.Line
	fail error
}

func (m *memoryAudit) Put(line audit.Line) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, line)
	kept := make(chan struct{})
	close(kept)
	return kept
}

func (m *memoryAudit) Health() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fail
}

// take returns the lines since the last call.
func (m *memoryAudit) take() []audit.Line {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.all
	m.all = nil
	return all
}

// echoAgents answers with the node that the transport would accept.
func echoAgents(w http.ResponseWriter, r *http.Request) {
	node, ok := transport.NodeFrom(r.Context())
	_ = json.NewEncoder(w).Encode(map[string]any{"node": node, "bound": ok})
}

func newAuthority(t *testing.T) (*pki.Authority, string) {
	t.Helper()
	dir := t.TempDir()
	if err := pki.CreateAuthority(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	a, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

// machineOf returns the keeper of a machine's certificate.
func machineOf(t *testing.T, a *pki.Authority, s pki.Subject, now time.Time) *pki.Keeper {
	t.Helper()
	csr, key, err := pki.NewRequest(s, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Sign(csr, s, []string{"127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := pki.WriteIdentity(dir, a.CertificatePEM(), cert, key); err != nil {
		t.Fatal(err)
	}
	k, err := pki.OpenKeeper(pki.KeeperConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newSecure(t *testing.T, options ...func(*Config)) *secure {
	t.Helper()
	a, _ := newAuthority(t)
	return newSecureOn(t, memory.New(memory.Options{}), a, options...)
}

func newSecureOn(t *testing.T, engine *memory.Engine, a *pki.Authority, options ...func(*Config)) *secure {
	t.Helper()
	s := &secure{authority: a, lines: &memoryAudit{}, log: &lockedBuffer{}}
	s.keeper = machineOf(t, a, pki.Subject{Role: cluster.RoleServer, Name: "s1"}, time.Now())
	base := func(c *Config) {
		c.Trust.Keeper, c.Trust.Authority, c.Audit = s.keeper, a, s.lines
		c.Agents = http.HandlerFunc(echoAgents)
		c.Peers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		c.Log = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Now = func() time.Time { return time.Now().Add(time.Duration(s.early.Load())) }
	}
	s.world = newWorldOn(t, engine, append([]func(*Config){base}, options...)...)
	l, err := Listen("https://127.0.0.1:0", s.keeper)
	if err != nil {
		t.Fatal(err)
	}
	s.https = l.URL()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve https: %v", err)
		}
	})
	trusting, err := pki.Trusting(a.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	s.plain = clientOf(t, trusting)
	return s
}

// clientOf returns an HTTP/2 client.
func clientOf(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// shows returns a client with a machine's certificate.
func (s *secure) shows(subject pki.Subject) *http.Client {
	s.t.Helper()
	return clientOf(s.t, machineOf(s.t, s.authority, subject, time.Now()).ClientTLS())
}

var (
	nodeOne   = pki.Subject{Role: cluster.RoleNode, Name: "n1"}
	serverTwo = pki.Subject{Role: cluster.RoleServer, Name: "s2"}
)

// ask sends a request over https with a token, unless that is empty; headers come in pairs.
func (s *secure) ask(c *http.Client, token, method, path string, body any, headers ...string) reply {
	s.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = bytes.NewReader([]byte(b))
	default:
		text, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.https+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, text}
}

// token makes a token as the admin of the machine.
func (s *secure) token(ask api.TokenRequest) api.TokenReply {
	s.t.Helper()
	return read[api.TokenReply](s.t, s.want(201, "POST", "/v1/tokens", ask))
}

// access makes an access token of a role.
func (s *secure) access(role cluster.Role, clusters ...string) string {
	s.t.Helper()
	return s.token(api.TokenRequest{Role: role, Clusters: clusters}).Token
}
