package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// handshake is the result of a connection.
type handshake struct {
	client, server error
	seen           tls.ConnectionState // of the client, by the server
}

// connect joins a client with a server in memory, and lets each send the other a byte.
func connect(client, server *tls.Config) (m handshake) {
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := tls.Server(b, server)
		if m.server = c.Handshake(); m.server == nil {
			m.seen = c.ConnectionState()
			_, m.server = c.Write([]byte("x"))
		}
		if m.server == nil {
			_, m.server = io.ReadFull(c, make([]byte, 1))
		}
		_ = b.Close()
	}()
	c := tls.Client(a, client)
	if m.client = c.Handshake(); m.client == nil {
		_, m.client = io.ReadFull(c, make([]byte, 1))
	}
	if m.client == nil {
		_, m.client = c.Write([]byte("y"))
	}
	if m.client != nil {
		_ = a.Close()
	}
	<-done
	_ = a.Close()
	return m
}

func keeper(t *testing.T, dir string) *Keeper {
	t.Helper()
	k, err := OpenKeeper(KeeperConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestConnectionsBetweenRoles(t *testing.T) {
	now := time.Now()
	ours, _ := authority(t, now)
	theirs, _ := authority(t, now)
	server := keeper(t, member(t, ours, Subject{cluster.RoleServer, "s1"}, now, "10.0.0.1"))
	node := keeper(t, member(t, ours, Subject{cluster.RoleNode, "n1"}, now))
	stranger := keeper(t, member(t, theirs, Subject{cluster.RoleServer, "s1"}, now))
	strangeNode := keeper(t, member(t, theirs, Subject{cluster.RoleNode, "n1"}, now))
	past := keeper(t, member(t, ours, Subject{cluster.RoleNode, "n1"}, now.Add(-LeafLife-time.Hour)))
	sum, err := Fingerprint(ours.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := Trusting(ours.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	old := node.ClientTLS()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	// A client that shows its certificate to any server, without a check.
	forced := func(k *Keeper) *tls.Config {
		return &tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return k.current.Load().shown(), nil
			},
		}
	}
	tests := []struct {
		name           string
		client, server *tls.Config
		want           string  // in an error; "" is a connection
		subject        Subject // that the server sees
	}{
		{"a node and a server", node.ClientTLS(), server.ServerTLS(), "", Subject{cluster.RoleNode, "n1"}},
		{"a server and a server", server.ClientTLS(), server.ServerTLS(), "", Subject{cluster.RoleServer, "s1"}},
		{"a client without a certificate", trusting, server.ServerTLS(), "", Subject{}},
		{"a client with the fingerprint", Pinned(sum), server.ServerTLS(), "", Subject{}},
		{"a wrong fingerprint", Pinned(strings.Repeat("0", 64)), server.ServerTLS(), "token names", Subject{}},
		{"a server of another authority", node.ClientTLS(), stranger.ServerTLS(), "unknown authority", Subject{}},
		{
			"the fingerprint, and a server of another authority", Pinned(sum), stranger.ServerTLS(), "token names",
			Subject{},
		},
		{"a node in the place of a server", node.ClientTLS(), node.ServerTLS(), "incompatible key usage", Subject{}},
		{
			"the fingerprint, and a node in the place of a server", Pinned(sum), node.ServerTLS(),
			"incompatible key usage",
			Subject{},
		},
		{"a node of another authority", forced(strangeNode), server.ServerTLS(), "unknown authority", Subject{}},
		{"a node whose certificate has expired", forced(past), server.ServerTLS(), "expired", Subject{}},
		{"TLS 1.2", old, server.ServerTLS(), "protocol version", Subject{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := connect(test.client, test.server)
			err := errors.Join(m.client, m.server)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
			} else if m.client == nil || m.server == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("client: %v, server: %v; want %q and both to fail", m.client, m.server, test.want)
			}
			got, ok := SubjectOf(&m.seen)
			if got != test.subject || ok != (test.subject != Subject{}) {
				t.Errorf("the server saw %v (%v), want %v", got, ok, test.subject)
			}
		})
	}
}

// TestNodeCertificatesServeNoClient shows a node's certificate in the place of a member of the store and of an API
// server, to clients that know only the authority: etcd's when it dials another member, and any program over https.
// They do not check the unit, and the missing address in the certificate must not be the only protection.
func TestNodeCertificatesServeNoClient(t *testing.T) {
	now := time.Now()
	a, _ := authority(t, now)
	server := keeper(t, member(t, a, Subject{cluster.RoleServer, "s1"}, now, "127.0.0.1"))
	node := keeper(t, member(t, a, Subject{cluster.RoleNode, "n1"}, now, "127.0.0.1"))
	roots := x509.NewCertPool()
	roots.AddCert(leafOf(t, a.CertificatePEM()))
	clients := map[string]*tls.Config{
		"a program": {RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13},
		"a member of the store": {
			RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12,
			GetClientCertificate: server.ClientTLS().GetClientCertificate,
		},
		"one that asks no names": {InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}
	clients["one that asks no names"].VerifyConnection = func(state tls.ConnectionState) error {
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots}) // for servers, as by default
		return err
	}
	for name, client := range clients {
		if m := connect(client, server.ServerTLS()); m.client != nil || m.server != nil {
			t.Errorf("%s and a server: %v", name, errors.Join(m.client, m.server))
		}
		if m := connect(client, node.ServerTLS()); m.client == nil {
			t.Errorf("%s takes a node for a server", name)
		}
	}
	if m := connect(clients["one that asks no names"], node.ServerTLS()); m.client == nil ||
		!strings.Contains(m.client.Error(), "incompatible key usage") {
		t.Errorf("got %v, want an error about the key usage", m.client)
	}
}

// TestSubjectNeedsAVerifiedChain checks the state of a listener that accepts any certificate.
func TestSubjectNeedsAVerifiedChain(t *testing.T) {
	now := time.Now()
	a, _ := authority(t, now)
	k := keeper(t, member(t, a, Subject{cluster.RoleNode, "n1"}, now))
	state := &tls.ConnectionState{}
	state.PeerCertificates = append(state.PeerCertificates, k.current.Load().leaf)
	if s, ok := SubjectOf(state); ok {
		t.Errorf("an unverified certificate is taken for %v", s)
	}
	if _, ok := SubjectOf(nil); ok {
		t.Error("no connection has a subject")
	}
}

// TestFingerprintOfAnotherAuthority shows the right authority's certificate beside a leaf that it did not sign.
func TestFingerprintOfAnotherAuthority(t *testing.T) {
	now := time.Now()
	ours, _ := authority(t, now)
	theirs, _ := authority(t, now)
	evil := keeper(t, member(t, theirs, Subject{cluster.RoleServer, "s1"}, now))
	config := evil.ServerTLS()
	config.GetConfigForClient = nil
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c := evil.current.Load().shown()
		c.Certificate[1] = leafOf(t, ours.CertificatePEM()).Raw
		return c, nil
	}
	sum, err := Fingerprint(ours.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	if m := connect(Pinned(sum), config); m.client == nil {
		t.Error("a server that only carries the authority's certificate was taken for one of its own")
	}
}
