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
	// peerIOTimeout bounds the headers of a request and one write on a connection between members.
	peerIOTimeout = 5 * time.Second
	// maxLearners limits the members that join at the same time.
	maxLearners = 8
)

// TLSFiles names the files of a certificate, its key and the authority that signs all of them, in PEM. Certificate and
// key are read again for every connection, so that they can be replaced under a running server; the
// authority is read once.
type TLSFiles struct{ Cert, Key, CA string }

// config returns the settings that both ends of a connection share.
func (f *TLSFiles) config() (*tls.Config, *x509.CertPool, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%s holds no certificate: %w", f.CA, store.ErrInvalid)
	}
	if _, err := f.load(); err != nil { // fails early, not at the first connection
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

// server returns the listener's configuration. The client must present a server's certificate of the same authority.
// Nodes have certificates of the same authority, and must not reach the store.
func (f *TLSFiles) server() (*tls.Config, error) {
	c, pool, err := f.config()
	if err != nil {
		return nil, err
	}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.load() }
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
	c.VerifyConnection = verifyServerCertificate
	return c, nil
}

// client returns the dialer's configuration. verify, unless nil, checks the server's certificate.
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

// verifyServerCertificate checks that the other side's certificate was made for a server of Berth.
func verifyServerCertificate(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 ||
		!slices.Contains(state.PeerCertificates[0].Subject.OrganizationalUnit, serverUnit) {
		return errors.New("the certificate is not a server's")
	}
	return nil
}

// peerServer serves the other members. etcd's own listener would accept every certificate of the authority.
type peerServer struct {
	listener net.Listener
	http     *http.Server
	served   chan struct{}
}

// listenPeers begins to listen, so that connections wait until serve. It returns nil for a member that is alone.
func listenPeers(ctx context.Context, config Config) (*peerServer, error) {
	if config.PeerURL == "" {
		return nil, nil //nolint:nilnil // nil serves no client
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
	listener = deadlineListener{listener}
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
		ReadHeaderTimeout: peerIOTimeout,
		IdleTimeout:       time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // failed handshakes of unknown clients
	}
	go func() {
		defer close(p.served)
		_ = p.http.Serve(p.listener) // returns when the listener is closed
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

// deadlineListener bounds each write of its connections, so that a stream to a disconnected member ends.
type deadlineListener struct{ net.Listener }

func (l deadlineListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return deadlineConn{c}, nil
}

type deadlineConn struct{ net.Conn }

func (c deadlineConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(peerIOTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// reachable reports whether a member's address answers with its version.
func reachable(ctx context.Context, config Config, peerURL string) bool {
	_, err := fetch(ctx, config, peerURL+"/version")
	return err == nil
}

// currentMembers asks the members that a new one joins, one after the other, for the present members. It returns nil
// while no member answers with a list that contains this one.
func currentMembers(ctx context.Context, config Config) []Member {
	for _, u := range peerURLs(config.Join) {
		if u == config.PeerURL {
			continue
		}
		body, err := fetch(ctx, config, u+"/members")
		var listed []*membership.Member
		if err != nil || json.Unmarshal(body, &listed) != nil {
			continue
		}
		members, known := make([]Member, 0, len(listed)), false
		for _, m := range listed {
			if m == nil || len(m.PeerURLs) == 0 {
				continue
			}
			known = known || m.PeerURLs[0] == config.PeerURL
			members = append(members,
				Member{ID: m.ID.String(), Name: m.Name, PeerURL: m.PeerURLs[0], Learner: m.IsLearner})
		}
		if known {
			return members
		}
	}
	return nil
}

// fetch gets a page from another member.
func fetch(ctx context.Context, config Config, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	if config.PeerTLS != nil {
		c, err := config.PeerTLS.client(verifyServerCertificate)
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
