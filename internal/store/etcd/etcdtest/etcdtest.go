// Package etcdtest starts, for tests, an etcd as an operator would run one for Berth: it listens on loopback, over TLS alone, asks for
// client certificates, and has users of which one may do what Berth needs and no more.
package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// Users of the etcd, beside root. Berth has the role "berth", Nobody has none.
const (
	Root, Berth, Nobody = "root", "berth", "nobody"

	Password = "correct horse battery staple"
	NextOne  = "what came after it"
)

// Authority signs certificates and keeps them as files of a folder.
type Authority struct {
	tb   testing.TB
	Dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority, of which ca.crt of a new folder is the certificate.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, Dir: tb.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.key = key
	a.write("ca.crt", "CERTIFICATE", der)
	return a
}

// CA is the file with the authority's certificate.
func (a *Authority) CA() string { return filepath.Join(a.Dir, "ca.crt") }

// Sign writes name.crt and name.key, valid for so long from an hour ago on, and returns their paths. Files of that name are replaced.
func (a *Authority) Sign(name string, life time.Duration) (cert, key string) {
	a.tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life - time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", secret)
}

func (a *Authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.Dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	return path
}

// Server is an etcd of one member.
type Server struct {
	tb        testing.TB
	config    *embed.Config
	server    *embed.Etcd
	Authority *Authority
	Address   string // host:port
	// Cert and Key are of a client that etcd lets in. The certificate's name is no user's.
	Cert, Key string
}

// Start starts an etcd with TLS, client certificates and users, until the test ends. adjust, unless nil, has the last word on its
// configuration.
func Start(tb testing.TB, adjust func(*embed.Config)) *Server {
	tb.Helper()
	s := &Server{tb: tb, Authority: NewAuthority(tb), Address: free(tb)}
	s.Cert, s.Key = s.Authority.Sign("client", 12*time.Hour)
	cert, key := s.Authority.Sign("server", 12*time.Hour)
	peers, clients := url.URL{Scheme: "http", Host: free(tb)}, url.URL{Scheme: "https", Host: s.Address}
	c := embed.NewConfig()
	c.Dir = filepath.Join(tb.TempDir(), "etcd")
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile, c.ClientTLSInfo.TrustedCAFile = cert, key, s.Authority.CA()
	c.ClientTLSInfo.ClientCertAuth = true
	c.LogLevel = "panic"
	c.UnsafeNoFsync = true
	c.BcryptCost = 4
	if adjust != nil {
		adjust(c)
	}
	s.config = c
	s.begin()
	tb.Cleanup(func() { s.server.Close() })
	s.users()
	return s
}

func free(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *Server) begin() {
	s.tb.Helper()
	server, err := embed.StartEtcd(s.config)
	if err != nil {
		s.tb.Fatalf("start etcd: %v", err)
	}
	s.server = server
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		s.tb.Fatal("etcd does not serve")
	}
}

// Restart stops the etcd, calls between, unless nil, and starts it again. It forgets the tokens of those who have logged in.
func (s *Server) Restart(between func(*embed.Config)) {
	s.tb.Helper()
	s.server.Close()
	if between != nil {
		between(s.config)
	}
	s.begin()
}

// As returns a client of the etcd that is logged in as a user, until the test ends.
func (s *Server) As(user string) *clientv3.Client {
	s.tb.Helper()
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		s.tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.Authority.cert)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + s.Address}, Username: user, Password: Password, DialTimeout: 10 * time.Second,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}},
	})
	if err != nil {
		s.tb.Fatalf("log in to etcd: %v", err)
	}
	s.tb.Cleanup(func() { _ = client.Close() })
	return client
}

// users makes the users, the role of Berth's as docs/guide/servers.md gives it, and turns authentication on.
func (s *Server) users() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), time.Minute)
	defer cancel()
	c := s.As("")
	do := func(what string, err error) {
		if err != nil {
			s.tb.Fatalf("%s: %v", what, err)
		}
	}
	for _, user := range []string{Root, Berth, Nobody} {
		_, err := c.UserAdd(ctx, user, Password)
		do("add user "+user, err)
	}
	_, err := c.UserGrantRole(ctx, Root, "root")
	if err != nil { // older ones want the role made first
		_, err = c.RoleAdd(ctx, "root")
		do("add role root", err)
		_, err = c.UserGrantRole(ctx, Root, "root")
	}
	do("grant root", err)
	_, err = c.RoleAdd(ctx, Berth)
	do("add role", err)
	_, err = c.UserGrantRole(ctx, Berth, Berth)
	do("grant role", err)
	s.permit(c, "berth")
	_, err = c.AuthEnable(ctx)
	do("enable authentication", err)
}

// Permit lets the role of Berth's user read and write keys that begin so, too.
func (s *Server) Permit(prefix string) { s.permit(s.As(Root), prefix) }

func (s *Server) permit(c *clientv3.Client, prefix string) {
	s.tb.Helper()
	_, err := c.RoleGrantPermission(s.tb.Context(), Berth, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	if err != nil {
		s.tb.Fatal(fmt.Errorf("permit %q: %w", prefix, err))
	}
}
