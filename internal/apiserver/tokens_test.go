package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func TestTokenIsMadeUsedAndRevoked(t *testing.T) {
	s := newSecure(t)
	s.lines.take()
	made := s.token(api.TokenRequest{Name: "the build farm", Role: cluster.RoleSubmitter})
	id, secret, ok := strings.Cut(made.Token, ".")
	if !ok || id != made.ID || len(secret) < 40 || made.State != "good" || made.By != "token-file" ||
		made.Purpose != cluster.TokenAccess {
		t.Fatalf("made %+v", made.TokenView)
	}
	if got := s.ask(s.plain, made.Token, "GET", "/v1/version", nil); got.status != 200 {
		t.Errorf("the token is refused: %d %s", got.status, got.body)
	}
	if got := s.call("GET", "/v1/version", nil, "Authorization", "Bearer "+made.Token); got.status != 200 {
		t.Errorf("the token is refused on loopback: %d", got.status)
	}
	for _, wrong := range []string{
		id, id + ".", id + "." + secret[:42], id + "." + secret + "x", "tother." + secret,
		"." + secret, secret, "x.y.z", strings.Repeat("a", 60_000),
	} {
		if got := s.ask(s.plain, wrong, "GET", "/v1/version", nil); got.status != 401 && got.status != 431 {
			t.Errorf("token %.20q: status %d", wrong, got.status)
		}
	}
	// The stored hash is no token.
	e, _ := s.tables.Snapshot().Token(id)
	if got := s.ask(s.plain, id+"."+e.Value.Hash, "GET", "/v1/version", nil); got.status != 401 {
		t.Errorf("the hash opens: %d", got.status)
	}
	list := s.want(200, "GET", "/v1/tokens", nil)
	one := s.want(200, "GET", "/v1/tokens/"+id, nil)
	if !strings.Contains(string(list.body), "the build farm") || one.header.Get("ETag") == "" {
		t.Errorf("list %s, one %v", list.body, one.header)
	}
	s.web()
	s.ask(s.plain, made.Token, "POST", "/v1/clusters/default/services/web/scale", map[string]int{"count": 1})
	events := s.want(200, "GET", "/v1/events", nil)
	if !strings.Contains(string(events.body), `"by":"the build farm (token:`+id+`)"`) ||
		!strings.Contains(string(events.body), `"by":"token-file"`) {
		t.Errorf("the events do not name the user: %s", events.body)
	}
	s.want(204, "DELETE", "/v1/tokens/"+id, nil)
	if got := s.ask(s.plain, made.Token, "GET", "/v1/version", nil); got.status != 401 ||
		got.header.Get("WWW-Authenticate") == "" {
		t.Errorf("the revoked token: status %d, %v", got.status, got.header)
	}
	s.want(404, "DELETE", "/v1/tokens/"+id, nil)
	listing, err := s.engine.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	seen := []string{
		string(list.body), string(one.body), string(events.body), s.log.String(),
		fmt.Sprintf("%+v", s.lines.take()),
	}
	for _, rec := range listing.Records {
		seen = append(seen, string(rec.Value))
	}
	for _, text := range seen {
		if strings.Contains(text, secret) {
			t.Errorf("the secret is shown: %.200s", text)
		}
		if strings.Contains(text, e.Value.Hash) && text != "" && !strings.Contains(text, `"v":`) {
			t.Errorf("the hash is shown: %.200s", text)
		}
	}
}

// behindTables are tables that reach the store only when they are asked to settle.
type behindTables struct {
	snapshot.Tables
	mu      sync.Mutex
	shown   *store.Snapshot
	settled int
	err     error
}

func (l *behindTables) Snapshot() *store.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown == nil {
		l.shown = l.Tables.Snapshot()
	}
	return l.shown
}

func (l *behindTables) Settled(ctx context.Context) (*store.Snapshot, error) {
	snap, err := l.Tables.Settled(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled++
	if l.err != nil {
		return nil, l.err
	}
	return snap, err
}

// asked returns how often the store was asked.
func (l *behindTables) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled
}

func (l *behindTables) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// TestTokenOfAnotherServer makes a token at one server and shows it at another one, whose tables lag. Guessed tokens
// cost the store next to nothing.
func TestTokenOfAnotherServer(t *testing.T) {
	engine := memory.New(memory.Options{})
	a, _ := newAuthority(t)
	one := newSecureOn(t, engine, a)
	behind := &behindTables{}
	two := newSecureOn(t, engine, a, func(c *Config) {
		behind.Tables = c.Tables
		c.Tables = behind
	})
	behind.Snapshot() // and from now on it shows no other one
	made := one.token(api.TokenRequest{Role: cluster.RoleViewer})
	if got := two.ask(two.plain, made.Token, "GET", "/v1/version", nil); got.status != 200 {
		t.Errorf("a token that another server made: status %d: %s", got.status, got.body)
	}
	if got := two.ask(two.plain, made.ID+".guess", "GET", "/v1/version", nil); got.status != 401 {
		t.Errorf("a wrong secret of it: status %d", got.status)
	}
	before, began := behind.asked(), time.Now()
	var guesses sync.WaitGroup
	for i := range 300 {
		guesses.Go(func() {
			got := two.ask(two.plain, fmt.Sprintf("tguess%d.secret", i), "GET", "/v1/version", nil)
			if got.status != 401 {
				t.Errorf("a guess: status %d", got.status)
			}
		})
	}
	guesses.Wait()
	if asked, most := behind.asked()-before, int(time.Since(began)/snapshot.RareReadPause)+2; asked > most {
		t.Errorf("300 guesses had the store asked %d times, want at most %d", asked, most)
	}
	behind.fail(errors.New("no quorum"))
	if got := two.ask(two.plain, "tguess.secret", "GET", "/v1/version", nil); got.status != 503 {
		t.Errorf("the store does not answer: status %d, want 503: the token may be good", got.status)
	}
}

func TestTokenExpires(t *testing.T) {
	s := newSecure(t)
	made := s.token(api.TokenRequest{Role: cluster.RoleViewer, Life: cluster.Duration(time.Hour)})
	s.early.Store(int64(59 * time.Minute))
	if got := s.ask(s.plain, made.Token, "GET", "/v1/version", nil); got.status != 200 {
		t.Errorf("before its end: status %d", got.status)
	}
	s.early.Store(int64(61 * time.Minute))
	got := s.ask(s.plain, made.Token, "GET", "/v1/version", nil)
	if got.status != 401 || !strings.Contains(got.problem().Detail, "expired") {
		t.Errorf("after its end: status %d: %s", got.status, got.body)
	}
	// A client without the secret does not learn even that.
	if got := s.ask(s.plain, made.ID+".wrong", "GET", "/v1/version", nil); strings.Contains(got.problem().Detail,
		"expired") {
		t.Errorf("a wrong secret: %s", got.body)
	}
	if v := read[api.TokenView](t, s.want(200, "GET", "/v1/tokens/"+made.ID, nil)); v.State != "expired" {
		t.Errorf("it is shown as %s", v.State)
	}
	s.early.Store(int64(credentials.KeepEndedTokens + 2*time.Hour))
	s.access(cluster.RoleViewer)
	s.want(404, "GET", "/v1/tokens/"+made.ID, nil)
}

func TestTokensThatAreRefused(t *testing.T) {
	s := newSecure(t)
	tests := []struct {
		name string
		ask  map[string]any
		want string
	}{
		{"no role", map[string]any{}, "role: "},
		{"a role of machines", map[string]any{"role": "node"}, "role: "},
		{"a role that is none", map[string]any{"role": "root"}, "role: "},
		{"a role of people to join", map[string]any{"role": "admin", "purpose": "join"}, "role: "},
		{"another purpose", map[string]any{"role": "viewer", "purpose": "x"}, "purpose: "},
		{"uses of an access token", map[string]any{"role": "viewer", "uses": 2}, "uses: "},
		{
			"an operator of some clusters",
			map[string]any{"role": "operator", "clusters": []string{"default"}},
			"clusters: ",
		},
		{"a cluster that is not there", map[string]any{"role": "viewer", "clusters": []string{"none"}}, "clusters: "},
		{
			"a cluster twice",
			map[string]any{"role": "viewer", "clusters": []string{"default", "default"}},
			"clusters[1]: ",
		},
		{"a negative life", map[string]any{"role": "viewer", "life": "-1h"}, "life"},
		{"a join token for a year", map[string]any{"role": "node", "purpose": "join", "life": "8760h"}, "life: "},
		{"too many uses", map[string]any{"role": "node", "purpose": "join", "uses": 1 << 30}, "uses: "},
		{"a name with a line in it", map[string]any{"role": "viewer", "name": "a\nb"}, "name: "},
		{"a machine that is none", map[string]any{"role": "node", "purpose": "join", "for": "../x"}, "for: "},
		{"a hash", map[string]any{"role": "viewer", "hash": "00"}, "hash: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := s.call("POST", "/v1/tokens", test.ask)
			if got.status != 422 || !strings.Contains(got.faults(), test.want) {
				t.Errorf("status %d, faults %q, want one of %q", got.status, got.faults(), test.want)
			}
		})
	}
	for e := range s.tables.Snapshot().Tokens() {
		t.Errorf("token %s was made", e.Value.ID)
	}
}

// TestInvalidTokenRecords stores records that no server writes.
func TestInvalidTokenRecords(t *testing.T) {
	s := newSecure(t)
	for name, record := range map[string]cluster.AccessToken{
		"a role of machines": {
			Purpose: cluster.TokenAccess, Role: cluster.RoleServer,
			Hash: access.HashOf("secret"),
		},
		"no role": {Purpose: cluster.TokenAccess, Hash: access.HashOf("secret")},
		"to join": {Purpose: cluster.TokenJoin, Role: cluster.RoleAdmin, Hash: access.HashOf("secret")},
		"no hash": {Purpose: cluster.TokenAccess, Role: cluster.RoleAdmin},
	} {
		t.Run(name, func(t *testing.T) {
			record.ID = "todd"
			s.put(map[string]any{"token/todd": &record})
			for _, secret := range []string{"secret", ""} {
				if got := s.ask(s.plain, "todd."+secret, "GET", "/v1/version", nil); got.status != 401 {
					t.Errorf("secret %q: status %d", secret, got.status)
				}
			}
		})
	}
}

func TestOriginOverHTTPS(t *testing.T) {
	s := newSecure(t, func(c *Config) { c.Trust.Origins = []string{"https://ui.example"} })
	host := strings.TrimPrefix(s.https, "https://")
	viewing := s.access(cluster.RoleViewer)
	tests := []struct {
		name, host, origin string
		want               int
	}{
		{"a program", host, "", 200},
		{"a program that knows the server by another name", "berth.example:7071", "", 200},
		{"the own page", host, s.https, 200},
		{"a page that is allowed", host, "https://ui.example", 200},
		{"a foreign page", host, "https://evil.example", 403},
		{"the own page without encryption", host, "http://" + host, 403},
		{"no page", host, "null", 403},
		{"a name that leads here", "evil.example", "https://evil.example", 403},
		{"the name of the store's peers", "server.berth.internal", "https://server.berth.internal", 403},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			headers := []string{"Host", test.host}
			if test.origin != "" {
				headers = append(headers, "Origin", test.origin)
			}
			for _, path := range []string{"/v1/version", "/livez"} {
				if got := s.ask(s.plain, viewing, http.MethodGet, path, nil, headers...); got.status != test.want {
					t.Errorf("%s: status %d, want %d: %s", path, got.status, test.want, got.body)
				}
			}
		})
	}
}
