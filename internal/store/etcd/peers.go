package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/berthd/berth/internal/store"
)

const (
	// serverUnit is the organizational unit of the certificates of Berth's servers.
	serverUnit = "server"
	// peerPatience is how long a connection between members may take for its handshake, its headers, and one write.
	peerPatience = 5 * time.Second
	// maxLearners is how many members may be on their way in at once.
	maxLearners = 8
)

// TLSFiles names the files of a certificate, its key and the authority that signs all of them, in PEM. Certificate and
// key are read again for every connection, so that they can be replaced under a running server; the
// authority is read once.
type TLSFiles struct{ Cert, Key, CA string }

// config returns what both ends of a connection share.
func (f *TLSFiles) config() (*tls.Config, *x509.CertPool, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%s holds no certificate: %w", f.CA, store.ErrInvalid)
	}
	if _, err := f.load(); err != nil { // better said now than at the first connection
		return nil, nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}, pool, nil
}

func (f *TLSFiles) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the server's certificate: %w", err)
	}
	return &pair, nil
}

// server returns the listener's side: it shows the certificate, and lets in who shows one of the same authority that
// was made for a server. A node's certificate is of the same authority, and must not reach the store.
func (f *TLSFiles) server() (*tls.Config, error) {
	c, pool, err := f.config()
	if err != nil {
		return nil, err
	}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.load() }
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
	c.VerifyConnection = ofServer
	return c, nil
}

// client returns the dialer's side. verify, unless nil, is asked about who answered.
func (f *TLSFiles) client(verify func(tls.ConnectionState) error) (*tls.Config, error) {
	c, pool, err := f.config()
	if err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.load() }
	c.RootCAs = pool
	c.VerifyConnection = verify
	return c, nil
}

// ofServer checks that the other side's certificate was made for a server.
func ofServer(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 ||
		!slices.Contains(state.PeerCertificates[0].Subject.OrganizationalUnit, serverUnit) {
		return errors.New("the certificate is not a server's")
	}
	return nil
}

// peerServer serves the other members. etcd could listen by itself, but lets in every certificate of the authority.
type peerServer struct {
	listener net.Listener
	http     *http.Server
	served   chan struct{}
}

// listenPeers begins to listen, so that connections wait until serve. It returns nil for a member that is alone.
func listenPeers(ctx context.Context, config Config) (*peerServer, error) {
	if config.PeerURL == "" {
		return nil, nil //nolint:nilnil // nil serves nobody
	}
	address := config.PeerListen
	if address == "" {
		u, err := url.Parse(config.PeerURL)
		if err != nil {
			return nil, fmt.Errorf("peer address: %w", err)
		}
		address = u.Host
	}
	var secure *tls.Config
	if strings.HasPrefix(config.PeerURL, "https:") {
		var err error
		if secure, err = config.PeerTLS.server(); err != nil {
			return nil, err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for other members: %w", err)
	}
	listener = patient{listener}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	return &peerServer{listener: listener, served: make(chan struct{})}, nil
}

// serve answers the other members until close.
func (p *peerServer) serve(server *embed.Etcd) {
	if p == nil {
		return
	}
	p.http = &http.Server{
		Handler:           etcdhttp.NewPeerHandler(server.GetLogger(), server.Server),
		ReadHeaderTimeout: peerPatience,
		IdleTimeout:       time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // strangers' handshakes
	}
	go func() {
		defer close(p.served)
		_ = p.http.Serve(p.listener) // it ends with the listener
	}()
}

// close ends all connections.
func (p *peerServer) close() {
	switch {
	case p == nil:
	case p.http == nil:
		_ = p.listener.Close()
	default:
		_ = p.http.Close()
		<-p.served
	}
}

// patient bounds each write of its connections, so that a stream to a member that is cut off ends.
type patient struct{ net.Listener }

func (l patient) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return patientConn{c}, nil
}

type patientConn struct{ net.Conn }

func (c patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(peerPatience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// reachable asks a member's address for its version.
func (e *Engine) reachable(ctx context.Context, peerURL string) bool {
	_, err := e.ask(ctx, peerURL+"/version")
	return err == nil
}

// present asks the members that this one joins, one after the other, who the members are now. It returns nil while none
// answers that knows this one.
func (e *Engine) present(ctx context.Context) []Member {
	for _, u := range peerURLs(e.config.Join) {
		if u == e.config.PeerURL {
			continue
		}
		body, err := e.ask(ctx, u+"/members")
		var listed []*membership.Member
		if err != nil || json.Unmarshal(body, &listed) != nil {
			continue
		}
		members, known := make([]Member, 0, len(listed)), false
		for _, m := range listed {
			if m == nil || len(m.PeerURLs) == 0 {
				continue
			}
			known = known || m.PeerURLs[0] == e.config.PeerURL
			members = append(members,
				Member{ID: m.ID.String(), Name: m.Name, PeerURL: m.PeerURLs[0], Learner: m.IsLearner})
		}
		if known {
			return members
		}
	}
	return nil
}

// ask gets a page of another member.
func (e *Engine) ask(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	if e.config.PeerTLS != nil {
		c, err := e.config.PeerTLS.client(ofServer)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = c
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, 1<<20))
}

func peerURLs(members []Member) []string {
	var urls []string
	for _, m := range members {
		urls = append(urls, m.PeerURL)
	}
	return urls
}
