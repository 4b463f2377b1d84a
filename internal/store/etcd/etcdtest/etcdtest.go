// Package etcdtest starts, for tests, an etcd as an operator would run one for Berth: it listens on loopback, over TLS
// alone, requests client certificates, and has users. One of them may do exactly what Berth needs.
package etcdtest

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store/remote/remotetest"
	"github.com/berthd/berth/internal/testkit"
)

// Users of the etcd. Berth has the role "berth", Nobody has none.
const (
	Root   = "root"
	Berth  = "berth"
	Nobody = "nobody"
)

// Password is that of all users, and NextOne what a test may change it to.
const (
	Password = "correct horse battery staple"
	NextOne  = "what came after it"
)

// Server is an etcd of one member.
type Server struct {
	tb        testing.TB
	config    *embed.Config
	server    *embed.Etcd
	Authority *remotetest.Authority
	Address   string // host:port
	// Cert and Key are of a client that etcd lets in. The certificate's name is no user's.
	Cert, Key string
}

// Start starts an etcd with TLS, client certificates and users, until the test ends. adjust, unless nil, has the last
// word on its configuration.
func Start(tb testing.TB, adjust func(*embed.Config)) *Server {
	tb.Helper()
	s := &Server{tb: tb, Authority: remotetest.NewAuthority(tb), Address: testkit.FreeAddress(tb)}
	s.Cert, s.Key = s.Authority.Sign("client", 12*time.Hour)
	cert, key := s.Authority.Sign("server", 12*time.Hour)
	peers, clients := url.URL{Scheme: "http", Host: testkit.FreeAddress(tb)}, url.URL{Scheme: "https", Host: s.Address}
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

// addressWait bounds the wait for the address of an etcd that restarts. Another program may hold the address for a
// moment, because it looks for a free one.
const addressWait = 20 * time.Second

func (s *Server) begin() {
	s.tb.Helper()
	var server *embed.Etcd
	var err error
	testkit.Eventually(s.tb, addressWait, func() error {
		if server, err = embed.StartEtcd(s.config); errors.Is(err, syscall.EADDRINUSE) {
			s.tb.Logf("etcd is started again: %v", err)
			return err
		}
		return nil
	})
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

// Restart stops the etcd, calls between, unless nil, and starts it again. It forgets the tokens of those who have
// logged in.
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
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + s.Address}, Username: user, Password: Password, DialTimeout: 10 * time.Second,
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: s.Authority.Pool(), Certificates: []tls.Certificate{pair},
		},
	})
	if err != nil {
		s.tb.Fatalf("log in to etcd: %v", err)
	}
	s.tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Commands make the user that Berth logs in as, and turn authentication on: exactly those that docs/guide/servers.md
// gives.
const Commands = `etcdctl role add berth
etcdctl role grant-permission berth --prefix=true readwrite berth
etcdctl user add berth
etcdctl user grant-role berth berth
etcdctl user add root
etcdctl user grant-role root root
etcdctl auth enable
`

// users makes the users and turns authentication on.
func (s *Server) users() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), time.Minute)
	defer cancel()
	c := s.As("")
	for line := range strings.Lines("etcdctl user add " + Nobody + "\n" + Commands) {
		if err := etcdctl(ctx, c, strings.Fields(line)); err != nil {
			s.tb.Fatalf("%s: %v", strings.TrimSpace(line), err)
		}
	}
}

// etcdctl does what the command of that name does. Every password is Password.
func etcdctl(ctx context.Context, c *clientv3.Client, words []string) (err error) {
	switch command := strings.Join(words[:min(3, len(words))], " "); {
	case command == "etcdctl role add" && len(words) == 4:
		_, err = c.RoleAdd(ctx, words[3])
	case command == "etcdctl role grant-permission" && len(words) == 7 && words[4] == "--prefix=true" &&
		words[5] == "readwrite":
		_, err = c.RoleGrantPermission(ctx, words[3], words[6], clientv3.GetPrefixRangeEnd(words[6]),
			clientv3.PermissionType(clientv3.PermReadWrite))
	case command == "etcdctl user add" && len(words) == 4:
		_, err = c.UserAdd(ctx, words[3], Password)
	case command == "etcdctl user grant-role" && len(words) == 5:
		_, err = c.UserGrantRole(ctx, words[3], words[4])
	case command == "etcdctl auth enable" && len(words) == 3:
		_, err = c.AuthEnable(ctx)
	default:
		err = errors.New("the tests do not know this command")
	}
	return err
}

// Permit lets the role of Berth's user read and write keys that begin so, too.
func (s *Server) Permit(prefix string) {
	s.tb.Helper()
	if err := etcdctl(s.tb.Context(), s.As(Root),
		strings.Fields("etcdctl role grant-permission berth --prefix=true readwrite "+prefix)); err != nil {
		s.tb.Fatalf("permit %q: %v", prefix, err)
	}
}
