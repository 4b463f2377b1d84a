package hostapi_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/testkit"
)

// newAuthority returns an authority of its own.
func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	dir := t.TempDir()
	if err := pki.CreateAuthority(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	a, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// keeper returns the keeper of a certificate of an authority.
func keeper(t *testing.T, a *pki.Authority, s pki.Subject) *pki.Keeper {
	t.Helper()
	request, key, err := pki.NewRequest(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Sign(request, s, nil, time.Now())
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

// TestWhoMayUseTheAddress checks what each certificate may do over the address with mutual TLS, on a node that drives
// itself and on one that does not.
func TestWhoMayUseTheAddress(t *testing.T) {
	authority, stranger := newAuthority(t), newAuthority(t)
	self := pki.Subject{Role: cluster.RoleNode, Name: "n1"}
	own := keeper(t, authority, self)
	address := func(d hostapi.Driver) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		config := hostapi.Config{Name: "n1", Node: newNode()}
		if d != nil {
			config.Driver = d
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- hostapi.New(config).Run(ctx, tls.NewListener(l, own.ServerTLS())) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return "https://" + l.Addr().String()
	}
	driving := address(&fakeDriver{changed: make(chan struct{})})
	managed := address(nil)
	server := pki.Subject{Role: cluster.RoleServer, Name: "s1"}
	for _, test := range []struct {
		name   string
		keeper *pki.Keeper // nil shows no certificate
		at     string
		method string
		path   string
		status int // 0 for a connection that is refused
	}{
		{"a server reads", keeper(t, authority, server), driving, "GET", "/v1/tasks", 200},
		{"a server changes", keeper(t, authority, server), driving, "POST", "/v1/tasks/none/stop", 404},
		{"a server changes a managed node", keeper(t, authority, server), managed, "POST", "/v1/tasks/none/stop", 409},
		{"the node itself reads", own, driving, "GET", "/v1/resources", 200},
		{"the node itself changes", own, driving, "POST", "/v1/tasks/none/stop", 403},
		{
			"another node", keeper(t, authority, pki.Subject{Role: cluster.RoleNode, Name: "n2"}), driving, "GET",
			"/v1/tasks", 403,
		},
		{"no certificate", nil, driving, "GET", "/v1/tasks", 401},
		{"no certificate and a wrong path", nil, driving, "GET", "/none", 401},
		{"another authority", keeper(t, stranger, server), driving, "GET", "/v1/tasks", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := own.NodeTLS("n1")
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &tls.Certificate{}, nil
			}
			if test.keeper != nil {
				config.GetClientCertificate = test.keeper.ClientTLS().GetClientCertificate
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
			defer client.CloseIdleConnections()
			r, err := http.NewRequestWithContext(testkit.Context(t, 20*time.Second), test.method, test.at+test.path,
				http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(r)
			if err != nil {
				if test.status != 0 {
					t.Fatal(err)
				}
				return
			}
			defer res.Body.Close()
			if res.StatusCode != test.status {
				t.Errorf("got %d, want %d", res.StatusCode, test.status)
			}
		})
	}
}

// TestNodeTLSAcceptsOneNode checks that a client refuses the certificate of another node, and of a server.
func TestNodeTLSAcceptsOneNode(t *testing.T) {
	authority := newAuthority(t)
	caller := keeper(t, authority, pki.Subject{Role: cluster.RoleServer, Name: "s1"})
	for _, test := range []struct {
		name string
		of   pki.Subject
		ok   bool
	}{
		{"the node", pki.Subject{Role: cluster.RoleNode, Name: "n1"}, true},
		{"another node", pki.Subject{Role: cluster.RoleNode, Name: "n2"}, false},
		{"a server of the name", pki.Subject{Role: cluster.RoleServer, Name: "n1"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			end, other := net.Pipe()
			answer := make(chan error, 1)
			go func() {
				server := tls.Server(other, keeper(t, authority, test.of).ServerTLS())
				answer <- server.HandshakeContext(t.Context())
				_ = other.Close() // the client may wait
			}()
			err := tls.Client(end, caller.NodeTLS("n1")).HandshakeContext(testkit.Context(t, 20*time.Second))
			_ = end.Close() // the server may wait
			<-answer
			if (err == nil) != test.ok {
				t.Errorf("got %v, want accepted: %v", err, test.ok)
			}
		})
	}
}
