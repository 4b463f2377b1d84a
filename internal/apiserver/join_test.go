package apiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store/memory"
)

// fakeJoiner adds servers to no store.
type fakeJoiner struct {
	mu    sync.Mutex
	added []string
	err   error
}

func (f *fakeJoiner) AddServer(_ context.Context, name, peerURL string) ([]api.ServerMember, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.added = append(f.added, name+" "+peerURL)
	return []api.ServerMember{{ID: "1", Name: "s1"}, {ID: "2", Name: name, PeerURL: peerURL, Learner: true}}, nil
}

// joinToken makes a join token.
func (s *secure) joinToken(role cluster.Role, uses int) api.TokenReply {
	s.t.Helper()
	return s.token(api.TokenRequest{Purpose: cluster.TokenJoin, Role: role, Uses: uses})
}

// request returns a signing request as PEM, and its key.
func request(t *testing.T, s pki.Subject) (csr string, key []byte) {
	t.Helper()
	text, key, err := pki.NewRequest(s, []string{"10.0.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	return string(text), key
}

func TestNodeJoins(t *testing.T) {
	s := newSecure(t)
	s.put(map[string]any{"server/s1": cluster.Server{ID: "s1", API: "https://10.0.0.1:7071"}})
	made := s.joinToken(cluster.RoleNode, 2)
	if made.Expires.Sub(made.Created) != credentials.DefaultJoinLife || made.Uses != 2 {
		t.Errorf("made %+v", made.TokenView)
	}
	token, err := pki.ParseJoinToken(made.Token)
	if err != nil {
		t.Fatal(err)
	}
	csr, key := request(t, nodeOne)
	// A new machine knows only the token.
	first := clientOf(t, pki.Pinned(token.CAHash))
	s.lines.take()
	got := s.ask(first, "", "POST", "/v1/join", api.JoinRequest{Token: made.Token, Name: "n1", Request: csr})
	if got.status != 200 || got.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	reply := read[api.JoinReply](t, got)
	if reply.AuthorityKey != "" || len(reply.Members) != 0 ||
		!slices.Equal(reply.Servers, []string{"https://10.0.0.1:7071"}) {
		t.Errorf("a node got %+v", reply)
	}
	if err := token.CheckCA([]byte(reply.Authority)); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := pki.WriteIdentity(dir, []byte(reply.Authority), []byte(reply.Certificate), key); err != nil {
		t.Fatal(err)
	}
	k, err := pki.OpenKeeper(pki.KeeperConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ask(clientOf(t, k.ClientTLS()), "", "GET", transportPath, nil); got.status != 200 {
		t.Errorf("the certificate opens nothing: %d", got.status)
	}
	lines := s.lines.take()
	if len(lines) != 1 || lines[0].Who != "token:"+made.ID || lines[0].Object != "node n1" || lines[0].Status != 200 ||
		lines[0].Operation != "join" {
		t.Errorf("audit: %+v", lines)
	}
	for _, text := range []string{
		s.log.String(), fmt.Sprintf("%+v", lines),
		string(s.want(200, "GET", "/v1/tokens", nil).body),
	} {
		if strings.Contains(text, token.Secret) {
			t.Errorf("the secret is shown: %s", text)
		}
	}
}

// TestUsesAreCounted sends three times as many joins as the token has uses, to two servers concurrently.
func TestUsesAreCounted(t *testing.T) {
	engine := memory.New(memory.Options{})
	a, _ := newAuthority(t)
	one := newSecureOn(t, engine, a)
	two := newSecureOn(t, engine, a)
	const uses = 20
	made := one.joinToken(cluster.RoleNode, uses)
	var joined, refused atomic.Int64
	var group sync.WaitGroup
	for i := range 3 * uses {
		name := fmt.Sprintf("n%d", i)
		csr, _ := request(t, pki.Subject{Role: cluster.RoleNode, Name: name})
		at := []*secure{one, two}[i%2]
		group.Go(func() {
			// Over loopback, where failures are not limited.
			got := at.ask(at.plain, "", "POST", "/v1/join",
				api.JoinRequest{Token: made.Token, Name: name, Request: csr})
			switch got.status {
			case 200:
				joined.Add(1)
			case 401, 429:
				refused.Add(1)
			default:
				t.Errorf("%s: status %d: %s", name, got.status, got.body)
			}
		})
	}
	group.Wait()
	if joined.Load() != uses || refused.Load() != 2*uses {
		t.Errorf("%d joined and %d were refused, of a token for %d", joined.Load(), refused.Load(), uses)
	}
	if v := read[api.TokenView](t, one.want(200, "GET", "/v1/tokens/"+made.ID+"?consistent", nil)); v.Used != uses ||
		v.State != "used" {
		t.Errorf("the token shows %d uses, %s", v.Used, v.State)
	}
}

// TestJoinIsTriedAgain repeats a join after a lost answer. It is counted once, for its key only.
func TestJoinIsTriedAgain(t *testing.T) {
	s := newSecure(t)
	made := s.joinToken(cluster.RoleNode, 1)
	csr, _ := request(t, nodeOne)
	ask := api.JoinRequest{Token: made.Token, Name: "n1", Request: csr}
	for range 3 {
		if got := s.ask(s.plain, "", "POST", "/v1/join", ask); got.status != 200 {
			t.Fatalf("status %d: %s", got.status, got.body)
		}
	}
	ask.Request, _ = request(t, nodeOne)
	if got := s.ask(s.plain, "", "POST", "/v1/join", ask); got.status != 401 {
		t.Errorf("another key: status %d", got.status)
	}
	s.early.Store(int64(2 * time.Hour))
	ask.Request = csr
	if got := s.ask(s.plain, "", "POST", "/v1/join", ask); got.status != 401 ||
		!strings.Contains(got.problem().Detail, "expired") {
		t.Errorf("after its end: status %d: %s", got.status, got.body)
	}
}

func TestJoinsThatAreRefused(t *testing.T) {
	members := &fakeJoiner{}
	s := newSecure(t, func(c *Config) { c.Trust.Join = members })
	node := s.joinToken(cluster.RoleNode, 1000)
	server := s.joinToken(cluster.RoleServer, 1000)
	named := s.token(api.TokenRequest{Purpose: cluster.TokenJoin, Role: cluster.RoleNode, Uses: 10, For: "taken"})
	access := s.token(api.TokenRequest{Role: cluster.RoleAdmin})
	other, _ := newAuthority(t)
	otherSum, err := pki.Fingerprint(other.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	token, err := pki.ParseJoinToken(node.Token)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := pki.JoinToken{ID: token.ID, Secret: token.Secret, CAHash: otherSum}
	guessed := pki.JoinToken{ID: token.ID, Secret: strings.Repeat("a", 43), CAHash: token.CAHash}
	unknown := pki.JoinToken{ID: "tunknown", Secret: token.Secret, CAHash: token.CAHash}
	traded := pki.JoinToken{
		ID: access.ID, Secret: strings.TrimPrefix(access.Token, access.ID+"."),
		CAHash: token.CAHash,
	}
	csr := func(role cluster.Role, name string) string {
		text, _ := request(t, pki.Subject{Role: role, Name: name})
		return text
	}
	adminCSR := rawRequest(t, pkix.Name{CommonName: "n1", OrganizationalUnit: []string{"admin"}})
	twoRoles := rawRequest(t, pkix.Name{CommonName: "n1", OrganizationalUnit: []string{"node", "server"}})
	s.put(map[string]any{
		"status/taken":  cluster.NodeStatus{Name: "taken", Session: 1},
		"node/taken":    cluster.Node{Name: "taken", State: cluster.NodeReady},
		"status/silent": cluster.NodeStatus{Name: "silent", Session: 1},
		"node/silent":   cluster.Node{Name: "silent", State: cluster.NodeSuspect},
		"status/fresh":  cluster.NodeStatus{Name: "fresh", Session: 1},
		"status/dead":   cluster.NodeStatus{Name: "dead", Session: 1},
		"node/dead":     cluster.Node{Name: "dead", State: cluster.NodeDown},
		"server/s1":     cluster.Server{ID: "s1", Name: "one"},
	})
	const peer = "https://10.0.0.2:7072"
	tests := []struct {
		name string
		ask  api.JoinRequest
		want int
	}{
		{"no token", api.JoinRequest{Name: "n1", Request: csr("node", "n1")}, 401},
		{"a guessed secret", api.JoinRequest{Token: guessed.String(), Name: "n1", Request: csr("node", "n1")}, 401},
		{"an unknown token", api.JoinRequest{Token: unknown.String(), Name: "n1", Request: csr("node", "n1")}, 401},
		{"an access token", api.JoinRequest{Token: traded.String(), Name: "n1", Request: csr("node", "n1")}, 401},
		{
			"a token of another control plane",
			api.JoinRequest{Token: elsewhere.String(), Name: "n1", Request: csr("node", "n1")},
			401,
		},
		{"no request", api.JoinRequest{Token: node.Token, Name: "n1"}, 422},
		{"a request for an admin", api.JoinRequest{Token: node.Token, Name: "n1", Request: adminCSR}, 422},
		{"a request for two roles", api.JoinRequest{Token: node.Token, Name: "n1", Request: twoRoles}, 422},
		{
			"a request for a server with a token for nodes",
			api.JoinRequest{Token: node.Token, Name: "n1", Request: csr("server", "n1")},
			403,
		},
		{
			"a request for a node with a token for servers",
			api.JoinRequest{Token: server.Token, Name: "n1", Request: csr("node", "n1"), PeerURL: peer},
			403,
		},
		{"a request for another name", api.JoinRequest{Token: node.Token, Name: "n1", Request: csr("node", "n2")}, 403},
		{
			"a peer address of a node",
			api.JoinRequest{Token: node.Token, Name: "n1", Request: csr("node", "n1"), PeerURL: peer},
			422,
		},
		{
			"no peer address of a server",
			api.JoinRequest{Token: server.Token, Name: "s2", Request: csr("server", "s2")},
			422,
		},
		{
			"a peer address that cannot be reached",
			api.JoinRequest{
				Token: server.Token, Name: "s2", Request: csr("server", "s2"),
				PeerURL: "https://0.0.0.0:7072",
			},
			422,
		},
		{
			"a peer address without encryption",
			api.JoinRequest{
				Token: server.Token, Name: "s2", Request: csr("server", "s2"),
				PeerURL: "http://10.0.0.2:7072",
			},
			422,
		},
		{"a living node's name", api.JoinRequest{Token: node.Token, Name: "taken", Request: csr("node", "taken")}, 409},
		{
			"a silent node's name",
			api.JoinRequest{Token: node.Token, Name: "silent", Request: csr("node", "silent")},
			409,
		},
		{"a fresh node's name", api.JoinRequest{Token: node.Token, Name: "fresh", Request: csr("node", "fresh")}, 409},
		{"a living server's id", api.JoinRequest{
			Token: server.Token, Name: "s1", Request: csr("server", "s1"),
			PeerURL: peer,
		}, 409},
		{
			"what another server is called",
			api.JoinRequest{
				Token: server.Token, Name: "s2", ServerName: "one", Request: csr("server", "s2"),
				PeerURL: peer,
			},
			409,
		},
		{
			"a name that the token is not for",
			api.JoinRequest{Token: named.Token, Name: "n1", Request: csr("node", "n1")},
			403,
		},

		{
			"a living node's name, with its token",
			api.JoinRequest{Token: named.Token, Name: "taken", Request: csr("node", "taken")},
			200,
		},
		{"a dead node's name", api.JoinRequest{Token: node.Token, Name: "dead", Request: csr("node", "dead")}, 200},
		{
			"a server's id as a node's name",
			api.JoinRequest{Token: node.Token, Name: "s1", Request: csr("node", "s1")},
			200,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s.server.joining.Limiter = credentials.JoinLimiter{} // no request pays for an earlier one
			got := s.ask(s.plain, "", "POST", "/v1/join", test.ask)
			if got.status != test.want ||
				(got.status != 200) == strings.Contains(string(got.body), "CERTIFICATE-----") {
				t.Errorf("status %d, want %d: %s", got.status, test.want, got.body)
			}
			if strings.Contains(string(got.body), token.Secret) {
				t.Error("the answer shows the secret")
			}
		})
	}
	if v := read[api.TokenView](t, s.want(200, "GET", "/v1/tokens/"+node.ID, nil)); v.Used != 2 {
		t.Errorf("%d uses are counted, want 2: what is refused costs none", v.Used)
	}
	if len(members.added) != 0 {
		t.Errorf("the store took %v", members.added)
	}
}

// rawRequest signs a request for any name.
func rawRequest(t *testing.T, n pkix.Name) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: n}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func TestServerJoins(t *testing.T) {
	members := &fakeJoiner{err: errors.New("a learner is there already")}
	s := newSecure(t, func(c *Config) { c.Trust.Join = members })
	made := s.joinToken(cluster.RoleServer, 1)
	csr, _ := request(t, serverTwo)
	ask := api.JoinRequest{Token: made.Token, Name: "s2", Request: csr, PeerURL: "https://10.0.0.2:7072"}
	got := s.ask(s.plain, "", "POST", "/v1/join", ask)
	if got.status != 503 || !strings.Contains(got.problem().Detail, "a learner is there already") ||
		strings.Contains(string(got.body), "PRIVATE") {
		t.Errorf("the store refuses: status %d: %s", got.status, got.body)
	}
	members.err = nil
	reply := read[api.JoinReply](t, s.ask(s.plain, "", "POST", "/v1/join", ask))
	if len(reply.Members) != 2 || !reply.Members[1].Learner ||
		!slices.Equal(members.added, []string{"s2 https://10.0.0.2:7072"}) {
		t.Errorf("members %+v, added %v", reply.Members, members.added)
	}
	if !bytes.Equal([]byte(reply.AuthorityKey), s.authority.KeyPEM()) {
		t.Error("the server was not given the authority's key")
	}
	dir := t.TempDir()
	if err := pki.WriteAuthority(dir, []byte(reply.Authority), []byte(reply.AuthorityKey)); err != nil {
		t.Error(err)
	}
	block, _ := pem.Decode([]byte(reply.Certificate))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.VerifyHostname("10.0.0.2") != nil || cert.VerifyHostname(pki.ServerHost) != nil {
		t.Errorf("certificate for %v %v: %v", cert.DNSNames, cert.IPAddresses, err)
	}
	if strings.Contains(s.log.String(), "PRIVATE") {
		t.Error("the log shows the authority's key")
	}
}

func TestJoinWithoutAuthority(t *testing.T) {
	s := newSecure(t, func(c *Config) { c.Trust.Authority = nil })
	s.want(409, "POST", "/v1/tokens", api.TokenRequest{Purpose: cluster.TokenJoin, Role: cluster.RoleNode})
	csr, _ := request(t, nodeOne)
	if got := s.ask(s.plain, "", "POST", "/v1/join",
		api.JoinRequest{Token: "x", Name: "n1", Request: csr}); got.status != 503 {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

// TestGuessingIsSlowedDown tries tokens from one address until it is refused, and continues after the delay.
func TestGuessingIsSlowedDown(t *testing.T) {
	s := newSecure(t)
	made := s.joinToken(cluster.RoleNode, 1)
	csr, _ := request(t, nodeOne)
	refused := 0
	for range 3 * credentials.MaxJoinTries {
		got := s.ask(s.plain, "", "POST", "/v1/join",
			api.JoinRequest{
				Token: "t1." + strings.Repeat("a", 43) + "." + strings.Repeat("0", 64), Name: "n1",
				Request: csr,
			})
		switch got.status {
		case 401:
			refused++
		case 429:
			if got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		default:
			t.Fatalf("status %d: %s", got.status, got.body)
		}
	}
	if refused != credentials.MaxJoinTries {
		t.Errorf("%d tries were checked, want %d", refused, credentials.MaxJoinTries)
	}
	good := api.JoinRequest{Token: made.Token, Name: "n1", Request: csr}
	if got := s.ask(s.plain, "", "POST", "/v1/join", good); got.status != 429 {
		t.Errorf("the right token without a pause: status %d", got.status)
	}
	s.early.Store(int64(credentials.JoinTryDecay + time.Second))
	if got := s.ask(s.plain, "", "POST", "/v1/join", good); got.status != 200 {
		t.Errorf("the right token later: status %d: %s", got.status, got.body)
	}
}

func TestRenewal(t *testing.T) {
	s := newSecure(t)
	node := s.shows(nodeOne)
	csr, _ := request(t, nodeOne)
	got := s.ask(node, "", "POST", "/v1/renew", api.RenewRequest{Request: csr})
	if got.status != 200 || !strings.Contains(string(got.body), "CERTIFICATE") {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	twice, _ := request(t, pki.Subject{Role: cluster.RoleNode, Name: "n2"})
	higher, _ := request(t, pki.Subject{Role: cluster.RoleServer, Name: "n1"})
	tests := map[string]struct {
		token, request string
		want           int
	}{
		"another node's": {"", twice, 403},
		"a server's":     {"", higher, 403},
		"an admin's": {
			"",
			rawRequest(t, pkix.Name{CommonName: "n1", OrganizationalUnit: []string{"admin"}}), 422,
		},
		"nothing":               {"", "", 422},
		"with an admin's token": {s.access(cluster.RoleAdmin), csr, 403},
		"with an unknown token": {"tx.yyyy", csr, 401},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := s.ask(node, test.token, "POST", "/v1/renew",
				api.RenewRequest{Request: test.request}); got.status != test.want ||
				strings.Contains(string(got.body), "BEGIN CERT") {
				t.Errorf("status %d, want %d: %s", got.status, test.want, got.body)
			}
		})
	}
	if got := s.ask(s.plain, "", "POST", "/v1/renew", api.RenewRequest{Request: csr}); got.status != 401 {
		t.Errorf("without a certificate: status %d", got.status)
	}
}

// TestRenewalOfMachinesThatLeft checks that a removed server and a forgotten node keep their certificates until they
// expire, and get no new ones.
func TestRenewalOfMachinesThatLeft(t *testing.T) {
	s := newSecure(t)
	s.put(map[string]any{
		"server/s2": cluster.Server{ID: "s2"},
		"host/n1":   cluster.Host{Name: "n1", Cordon: true},
		"status/n1": cluster.NodeStatus{Name: "n1", Session: 1},
	})
	machines := []pki.Subject{nodeOne, serverTwo}
	renew := func(who pki.Subject) reply {
		csr, _ := request(t, who)
		return s.ask(s.shows(who), "", "POST", "/v1/renew", api.RenewRequest{Request: csr})
	}
	for _, who := range machines {
		if got := renew(who); got.status != 200 {
			t.Errorf("%s that belongs here: status %d: %s", who, got.status, got.body)
		}
	}
	s.put(map[string]any{"server/s2": nil, "host/n1": cluster.Host{Name: "n1", Gone: true}})
	for _, who := range machines {
		if got := renew(who); got.status != 403 || strings.Contains(string(got.body), "BEGIN CERT") {
			t.Errorf("%s that left: status %d: %s", who, got.status, got.body)
		}
	}
	// Without its records the node is like any machine that has joined and registers.
	s.put(map[string]any{"host/n1": nil, "status/n1": nil})
	if got := renew(nodeOne); got.status != 200 {
		t.Errorf("a node without a record: status %d: %s", got.status, got.body)
	}
}
