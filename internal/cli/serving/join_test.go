package serving

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/join"
	"github.com/berthd/berth/internal/store"
)

// authorityServer is a server that signs every request and counts them.
type authorityServer struct {
	*httptest.Server
	authority *pki.Authority
	joins     int
	refuse    *api.Problem // the answer to all requests, or to the next refusals if that is not 0
	refusals  int
}

func newAuthorityServer(t *testing.T) *authorityServer {
	t.Helper()
	dir := t.TempDir()
	if err := pki.CreateAuthority(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	authority, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := signOwnCertificate(dir, authority, "s1", []string{"127.0.0.1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	keeper, err := pki.OpenKeeper(pki.KeeperConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s := &authorityServer{authority: authority}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.join))
	s.Server.TLS = keeper.ServerTLS()
	s.Server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *authorityServer) join(w http.ResponseWriter, r *http.Request) {
	if refuse := s.refuse; refuse != nil {
		if s.refusals--; s.refusals == 0 {
			s.refuse = nil
		}
		clitest.WriteProblem(w, *refuse)
		return
	}
	var ask api.JoinRequest
	_ = json.NewDecoder(r.Body).Decode(&ask)
	subject, hosts, err := pki.ReadRequest([]byte(ask.Request))
	if err != nil {
		clitest.WriteProblem(w, api.Problem{Status: 422, Detail: err.Error()})
		return
	}
	cert, err := s.authority.Sign([]byte(ask.Request), subject, hosts, time.Now())
	if err != nil {
		clitest.WriteProblem(w, api.Problem{Status: 500, Detail: err.Error()})
		return
	}
	s.joins++
	reply := api.JoinReply{Certificate: string(cert), Authority: string(s.authority.CertificatePEM())}
	if subject.Role == cluster.RoleServer {
		reply.AuthorityKey = string(s.authority.KeyPEM())
		reply.SecretsKeys = "berth-secrets-key-1:" + base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n"
		reply.Members = []api.ServerMember{
			{ID: "1", Name: "s1", PeerURL: "https://10.0.0.1:7072"},
			{ID: "2", PeerURL: ask.PeerURL, Learner: true},
		}
	}
	json.NewEncoder(w).Encode(reply)
}

// token returns a join token for the server's authority.
func (s *authorityServer) token(t *testing.T) string {
	t.Helper()
	hash, err := pki.Fingerprint(s.authority.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	return pki.JoinToken{ID: "t1", Secret: strings.Repeat("s", 32), CAHash: hash}.String()
}

// TestJoinAsksBusyServersAgain joins while the server is busy at first, and with a server that stays busy.
func TestJoinAsksBusyServersAgain(t *testing.T) {
	s := newAuthorityServer(t)
	dir := t.TempDir()
	j := join.Joiner{
		Dir: dir, Self: pki.Subject{Role: cluster.RoleNode, Name: "n1"}, Servers: []string{s.URL}, Token: s.token(t),
	}
	s.refuse, s.refusals = &api.Problem{Status: 503, Detail: "no leader"}, 2
	if _, err := j.Join(t.Context()); err != nil || s.joins != 1 {
		t.Errorf("%v after %d joins, want one", err, s.joins)
	}
	if err := j.Done(); err != nil {
		t.Fatal(err)
	}
	s.refuse, s.refusals = &api.Problem{Status: 403, Detail: "another cluster"}, 2
	if _, err := j.Join(t.Context()); err == nil || s.refusals != 1 {
		t.Errorf("a refusal that is final: %v, and %d refusals are left, want one", err, s.refusals)
	}
}

// TestJoinIsTakenUpAgain interrupts the join of a server after each step. The token is traded once.
func TestJoinIsTakenUpAgain(t *testing.T) {
	for _, lost := range [][]string{
		{"server.json"},
		{"server.json", "pki/self.crt", "pki/self.key"},
		{"server.json", "pki/self.crt", "pki/self.key", "pki/ca.crt", "pki/ca.key"},
	} {
		t.Run(fmt.Sprint(len(lost)), func(t *testing.T) {
			s := newAuthorityServer(t)
			dir := t.TempDir()
			id, err := datadir.ServerID(filepath.Join(dir, datadir.IDFile))
			if err != nil {
				t.Fatal(err)
			}
			want := datadir.Settings{Name: "s2", API: "https://10.0.0.2:7071", Peer: "https://10.0.0.2:7072"}
			j := join.Joiner{
				Servers: []string{"https://127.0.0.1:1", s.URL}, Token: s.token(t),
				Dir:     filepath.Join(dir, datadir.PKIDir),
				PeerURL: want.Peer,
				Self:    pki.Subject{Role: cluster.RoleServer, Name: id}, Hosts: want.Hosts(),
			}
			if _, err := j.Join(t.Context()); err != nil { // the machine fails here
				t.Fatal(err)
			}
			for _, name := range lost {
				if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			a := session.New(nil, &out, &out)
			for range 2 { // the second round finds everything done
				if err := joinServer(t.Context(), a, dir, want,
					join.Joiner{Servers: j.Servers, Token: j.Token}); err != nil {
					t.Fatal(err)
				}
			}
			if s.joins != 1 {
				t.Errorf("the token was traded %d times, want once", s.joins)
			}
			settings, err := datadir.ReadSettings(dir)
			if err != nil || settings == nil || len(settings.Join) != 2 ||
				settings.Join[1] != (store.Member{ID: "2", PeerURL: want.Peer, Learner: true}) {
				t.Errorf("settings: %+v, %v", settings, err)
			}
			if _, err := pki.OpenAuthority(filepath.Join(dir, datadir.PKIDir)); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, datadir.PKIDir, join.JoinFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the join's file is left behind: %v", err)
			}
			info, err := os.Stat(filepath.Join(dir, datadir.SettingsFile))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the settings' mode: %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestJoinFaultsNameTheRemedy checks the hints of the errors when a node joins.
func TestJoinFaultsNameTheRemedy(t *testing.T) {
	s, other := newAuthorityServer(t), newAuthorityServer(t)
	expired := newAuthorityServer(t)
	expired.refuse = &api.Problem{Status: 401, Detail: "the join token t1 expired"}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	tests := []struct {
		name, server, token string
		words               []string
	}{
		{"no token", s.URL, "nonsense", []string{"not a join token", "berth token create --join --role node"}},
		{
			"another authority", s.URL, other.token(t),
			[]string{"does not belong to the authority", "CA hash is that of another"},
		},
		{"expired", expired.URL, expired.token(t), []string{"expired", "berth token create --join --role node"}},
		{
			"no listener", "https://127.0.0.1:1", s.token(t),
			[]string{"https://127.0.0.1:1: nothing listens there (connection refused)"},
		},
		{"plain http", strings.Replace(plain.URL, "http:", "https:", 1), s.token(t), []string{"does not speak https"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(test.token+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			f := agentFlags{
				servers: []string{test.server}, joinToken: file, machine: machineFlags{name: "n1"},
				log: slog.New(slog.DiscardHandler),
			}
			_, err := f.openKeeper(t.Context(), filepath.Join(t.TempDir(), "pki"), nil)
			if err == nil {
				t.Fatal("no error")
			}
			var out strings.Builder
			a := session.New(nil, nil, &out)
			a.ExitCode(t.Context(), err)
			for _, w := range test.words {
				if !strings.Contains(out.String(), w) {
					t.Errorf("want %q in\n%s", w, out.String())
				}
			}
			if strings.Contains(out.String(), strings.Repeat("s", 32)) {
				t.Errorf("the secret is printed:\n%s", out.String())
			}
		})
	}
}

// TestAgentIdentity joins once, starts again without a token, and refuses the certificate of another node.
func TestAgentIdentity(t *testing.T) {
	s := newAuthorityServer(t)
	dir := filepath.Join(t.TempDir(), "pki")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(s.token(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	f := agentFlags{
		servers: []string{s.URL}, machine: machineFlags{name: "n1"},
		log: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	if _, err := f.openKeeper(t.Context(), dir, nil); err == nil ||
		!strings.Contains(err.Error(), "requires this node's certificate") {
		t.Errorf("without a token: %v", err)
	}
	f.joinToken = token
	for range 2 {
		k, err := f.openKeeper(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := k.Subject(), (pki.Subject{Role: cluster.RoleNode, Name: "n1"}); got != want {
			t.Errorf("subject: got %v, want %v", got, want)
		}
	}
	f.joinToken = filepath.Join(dir, "nowhere") // the token is no longer needed
	if _, err := f.openKeeper(t.Context(), dir, nil); err != nil || s.joins != 1 {
		t.Errorf("a later start: %v after %d joins, want one", err, s.joins)
	}
	f.machine.name = "n2"
	if _, err := f.openKeeper(t.Context(), dir, nil); err == nil ||
		!strings.Contains(err.Error(), "belongs to the node n1") {
		t.Errorf("as another node: %v", err)
	}

	// With an expired certificate the agent keeps running and says what to do. With a token it joins again.
	f.machine.name, f.joinToken = "n1", ""
	s.authority.Life = time.Millisecond
	j := join.Joiner{
		Dir: dir, Self: pki.Subject{Role: cluster.RoleNode, Name: "n1"}, Servers: f.servers,
		Token: s.token(t),
	}
	if _, err := j.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Done(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.openKeeper(t.Context(), dir, nil); err != nil ||
		!strings.Contains(logged.String(), "--join-token-file") {
		t.Errorf("expired: %v, and the log says:\n%s", err, logged.String())
	}
	s.refuse, f.joinToken = &api.Problem{Status: 401, Detail: "the token was used"}, token
	if _, err := f.openKeeper(t.Context(), dir, nil); err != nil ||
		!strings.Contains(logged.String(), "the token was used") {
		t.Errorf("expired, with a token that is no good: %v, and the log says:\n%s", err, logged.String())
	}
	s.refuse, s.authority.Life = nil, 0
	k, err := f.openKeeper(t.Context(), dir, nil)
	if err != nil || k.Health() != nil {
		t.Errorf("joined again: %v", err)
	}
	if strings.Contains(logged.String(), strings.Repeat("s", 32)) {
		t.Errorf("the secret is logged:\n%s", logged.String())
	}
}

// TestTrust connects a client with each way to name an authority.
func TestTrust(t *testing.T) {
	s, other := newAuthorityServer(t), newAuthorityServer(t)
	hash, err := pki.Fingerprint(s.authority.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, s.authority.CertificatePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	dial := func(config *tls.Config, server *authorityServer) error {
		d := tls.Dialer{Config: config}
		conn, err := d.DialContext(context.Background(), "tcp", strings.TrimPrefix(server.URL, "https://"))
		if err == nil {
			err = conn.(*tls.Conn).HandshakeContext(context.Background())
			_ = conn.Close() // the connection proved the trust
		}
		return err
	}
	for name, ask := range map[string][2]string{
		"file": {file, ""}, "hash": {"", hash},
		"upper case": {"", strings.ToUpper(hash)}, "both": {file, hash},
	} {
		config, err := session.TrustConfig(ask[0], ask[1])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := dial(config, s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := dial(config, other); err == nil {
			t.Errorf("%s: a server of another authority is believed", name)
		}
	}
	for name, ask := range map[string][3]string{
		"no file":       {"/nowhere", "", "read the CA file"},
		"no authority":  {filepath.Join(filepath.Dir(file), "empty"), "", "ca"},
		"no hash":       {"", "12", "hexadecimal"},
		"not that file": {file, strings.Repeat("0", 64), "does not match --ca-hash"},
	} {
		if _, err := session.TrustConfig(ask[0], ask[1]); err == nil ||
			!strings.Contains(strings.ToLower(err.Error()), strings.ToLower(ask[2])) {
			t.Errorf("%s: got %v, want %q", name, err, ask[2])
		}
	}
}
