package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
)

// TestSocketOfAnotherServer checks that a second server on a socket learns of the first.
func TestSocketOfAnotherServer(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "api.sock")
	l, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Listen(address)
	if err == nil || !strings.Contains(err.Error(), "a server serves there already") {
		t.Errorf("the second server: got %v, want it to name the first", err)
	}
}

func TestListenWithCertificate(t *testing.T) {
	s := newSecure(t)
	for _, addr := range []string{"https://127.0.0.1:0", "https://localhost:0", "https://:0", "https://[::1]:0/"} {
		l, err := Listen(addr, s.keeper)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if !strings.HasPrefix(l.URL(), "https://") {
			t.Errorf("%s is served as %s", addr, l.URL())
		}
		l.Close()
	}
	if _, err := Listen("https://127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "berth server init") {
		t.Errorf("https without a certificate: %v", err)
	}
	var none *pki.Keeper
	if _, err := Listen("https://127.0.0.1:0", none); err == nil {
		t.Error("https with a nil keeper")
	}
	if _, err := Listen("0.0.0.0:0", s.keeper); err == nil || !strings.Contains(err.Error(), "https://") {
		t.Errorf("an open address without encryption: %v", err)
	}
	if _, err := Listen("https://127.0.0.1", s.keeper); err == nil {
		t.Error("https without a port")
	}
}

// dialed counts the connections of a client.
func dialed(c *http.Client) *atomic.Int64 {
	var n atomic.Int64
	tr, _ := c.Transport.(*http.Transport)
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return &n
}

// TestConnectionOutlivesItsCertificate keeps a connection while the server's clock advances. Shortly before the
// certificate expires the client is asked to reconnect; afterwards it gets no more answers.
func TestConnectionOutlivesItsCertificate(t *testing.T) {
	s := newSecure(t)
	node := s.shows(nodeOne)
	dials := dialed(node)
	for range 3 {
		s.ask(node, "", "GET", transportPath, nil)
	}
	if dials.Load() != 1 {
		t.Fatalf("%d connections for three requests", dials.Load())
	}
	s.early.Store(int64(pki.LeafLife * 9 / 10))
	for i := range 3 {
		if got := s.ask(node, "", "GET", transportPath, nil); got.status != 200 {
			t.Errorf("request %d near the end: status %d", i, got.status)
		}
	}
	if dials.Load() < 2 {
		t.Error("the other side was not asked to reconnect")
	}
	s.early.Store(int64(pki.LeafLife + time.Hour))
	got := s.ask(node, "", "GET", transportPath, nil)
	if got.status != 401 || !strings.Contains(got.problem().Detail, "expired") {
		t.Errorf("after the end: status %d: %s", got.status, got.body)
	}
}

func TestForeignConnections(t *testing.T) {
	s := newSecure(t)
	other, _ := newAuthority(t)
	stranger := machineOf(t, other, nodeOne, time.Now()).ClientTLS()
	stranger.VerifyConnection = nil // accepts any server
	late := machineOf(t, s.authority, nodeOne, time.Now().Add(-pki.LeafLife-time.Hour)).ClientTLS()
	old := machineOf(t, s.authority, nodeOne, time.Now()).ClientTLS()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"a certificate of another authority": stranger,
		"an expired certificate":             late, "TLS 1.2": old,
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := clientOf(t, config).Get(s.https + "/livez")
			if err == nil {
				resp.Body.Close()
				t.Errorf("status %d, want no connection", resp.StatusCode)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		resp, err := http.Get(strings.Replace(s.https, "https", "http", 1) + "/livez")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d, want 400", resp.StatusCode)
			}
		}
	})
	t.Run("a host that is not in the certificate", func(t *testing.T) {
		config := &tls.Config{ServerName: "evil.example", MinVersion: tls.VersionTLS13}
		if resp, err := clientOf(t, config).Get(s.https + "/livez"); err == nil {
			resp.Body.Close()
			t.Error("a program that knows nothing of the authority believed the server")
		}
	})
}

// TestSlowHandshake opens silent connections. They are closed, and other clients are served meanwhile.
func TestSlowHandshake(t *testing.T) {
	s := newSecure(t, impatient)
	addr := strings.TrimPrefix(s.https, "https://")
	var silent []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	if got := s.ask(s.plain, "", "GET", "/livez", nil); got.status != 200 {
		t.Errorf("status %d", got.status)
	}
	for _, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("a silent connection is kept open: %v", err)
			break
		}
	}
	// The same applies to headers after the handshake.
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: ")
	if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Errorf("slow headers: %v", err)
	}
}

// TestUnreadBodies announces bodies that never come, for requests that need none. The connections are closed.
func TestUnreadBodies(t *testing.T) {
	s := newSecure(t, impatient)
	addr := strings.TrimPrefix(s.https, "https://")
	for _, request := range []string{"GET /livez", "GET /v1/nodes", "POST /v1/nothing", "DELETE /livez"} {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		fmt.Fprint(c, request+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nx")
		all, err := io.ReadAll(c)
		if !strings.HasPrefix(string(all), "HTTP/1.1 ") || err != nil && !strings.Contains(err.Error(), "EOF") {
			t.Errorf("%s: the answer is %q, and then %v; want the end of the connection", request, all, err)
		}
	}
}

func TestRequestsHaveIDs(t *testing.T) {
	s := newSecure(t)
	seen := map[string]bool{}
	for range 3 {
		id := s.ask(s.plain, "", "GET", "/livez", nil).header.Get("X-Request-Id")
		if len(id) != 16 || seen[id] {
			t.Errorf("id %q", id)
		}
		seen[id] = true
	}
}

// TestUserOfTheSocket checks the user at the other end of the unix socket.
func TestUserOfTheSocket(t *testing.T) {
	s := newSecure(t)
	s.web()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ctx, l) }()
	defer func() { cancel(); <-ended }()
	s.lines.take()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// An additional token changes nothing.
	const body = `{"count": 2}`
	fmt.Fprintf(c, "POST /v1/clusters/default/services/web/scale HTTP/1.1\r\nHost: x\r\nAuthorization: "+
		"Bearer t.t\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	who := fmt.Sprintf("uid:%d", os.Getuid())
	lines := s.lines.take()
	if resp.StatusCode != http.StatusOK || len(lines) != 1 || lines[0].Who != who || lines[0].From != "unix" ||
		lines[0].Role != string(cluster.RoleAdmin) {
		t.Errorf("status %d, audit %+v, want %s", resp.StatusCode, lines, who)
	}
	if events := s.want(200, "GET", "/v1/events", nil); !strings.Contains(string(events.body), `"by":"`+who+`"`) {
		t.Errorf("the event does not name the user: %s", events.body)
	}
}
