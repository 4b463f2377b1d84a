package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/unixsocket"
)

// The rules of admission:
//
//   - A client on the unix socket is an admin: the mode of the socket lets only its owner open it.
//   - On a loopback address, a client with the token of the server's token file is an admin.
//   - Over https, machines show a certificate, which is valid for their own part of the API only.
//   - Everywhere, people and programs have an access token, whose record holds their role and their clusters (MayUse).
//
// Over TCP a request's Host and Origin must be the server's own: else a web page that a browser shows could talk to the
// server under a name of its own (DNS rebinding) or across origins.

// Gate identifies the sender of each request and decides whether the request is admitted. Safe for concurrent use.
type Gate struct {
	GateConfig

	reads *snapshot.Reader
	rare  snapshot.RareReads // for tokens that are not in the tables yet
}

// GateConfig is what NewGate needs.
type GateConfig struct {
	Tables  snapshot.Tables
	Token   string
	Origins []string
	Keeper  *pki.Keeper
	Audit   audit.Sink
	Refused *prometheus.CounterVec // of requests, by status
	Log     *slog.Logger
	Now     func() time.Time
}

// NewGate returns a gate.
func NewGate(cfg GateConfig, reads *snapshot.Reader) *Gate {
	return &Gate{GateConfig: cfg, reads: reads}
}

// Admit calls next for requests with a known sender that pass the check, and refuses all others.
func (s *Gate) Admit(next http.Handler, check func(*http.Request, *Caller) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.admission(r)
		if err == nil {
			err = s.enter(w, r)
		}
		if err == nil && check != nil {
			err = check(r, CallerOf(r.Context()))
		}
		if err != nil {
			s.Refused.WithLabelValues(strconv.Itoa(respond.ProblemOf(err).Status)).Inc()
			respond.WriteProblem(w, r, s.Log, err)
			return
		}
		ctx, end := s.whileValid(r)
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// whileValid returns the context of a request. The context of a read, a stream or a websocket ends once the token of
// the caller was revoked, was changed or has expired, with a problem of status 401 as its cause. A write is not
// interrupted, because the caller would not know whether it happened. The returned function releases the context.
func (s *Gate) whileValid(r *http.Request) (context.Context, context.CancelFunc) {
	token := CallerOf(r.Context()).token
	if token == nil || r.Method != http.MethodGet {
		return r.Context(), func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	first := time.AfterFunc(tokenCheck, func() {
		for ctx.Err() == nil {
			if err := s.stillValid(token); err != nil {
				cancel(err)
				return
			}
			_ = pause.For(ctx, tokenCheck) // an end of the context ends the loop
		}
	})
	return ctx, func() {
		first.Stop()
		cancel(nil)
	}
}

// tokenCheck is the interval at which the gate checks the token of an open request again.
const tokenCheck = time.Second

// stillValid returns an error if a token that admitted a request was revoked, was changed or has expired since.
func (s *Gate) stillValid(was *cluster.AccessToken) error {
	e, found := s.Tables.Snapshot().Token(was.ID)
	switch {
	case !found, e.Value.Hash != was.Hash, e.Value.Role != was.Role, !slices.Equal(e.Value.Clusters, was.Clusters):
		return respond.Problemf(http.StatusUnauthorized, "the token %s was revoked or changed meanwhile", was.ID)
	case Expired(e.Value, s.Now()):
		return errExpired(e.Value)
	}
	return nil
}

// AdmitAnyone calls next for every client, but refuses requests of foreign web pages.
func (s *Gate) AdmitAnyone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.admission(r); err != nil {
			respond.WriteProblem(w, r, s.Log, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// enter identifies the caller of a request and keeps it in the request's exchange.
func (s *Gate) enter(w http.ResponseWriter, r *http.Request) error {
	c, err := s.identify(w, r)
	if err != nil {
		return err
	}
	ExchangeOf(r.Context()).Caller = c
	return nil
}

// identify returns the caller of a request. A token in the request has precedence over the certificate of the
// connection.
func (s *Gate) identify(w http.ResponseWriter, r *http.Request) (*Caller, error) {
	if trusted(r) {
		who, known := unixsocket.PeerOf(r.Context())
		if !known {
			who = "unix"
		}
		return &Caller{Who: who, Role: cluster.RoleAdmin, local: true}, nil
	}
	if header := r.Header.Get("Authorization"); header != "" {
		c, err := s.bearer(r, header)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="berth", error="invalid_token"`)
		}
		return c, err
	}
	if r.TLS != nil {
		if c, err := s.certified(w, r); c != nil || err != nil {
			return c, err
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="berth"`)
	if r.TLS != nil {
		return nil, respond.Problemf(http.StatusUnauthorized,
			"the request needs a token, as \"Authorization: Bearer TOKEN\": `berth token create` makes one")
	}
	return nil, respond.Problemf(http.StatusUnauthorized,
		"the request needs a token, as \"Authorization: Bearer TOKEN\": that of the server's token file")
}

// errToken returns the answer to every bad token. It does not reveal the fault of the token.
func errToken() error {
	return respond.Problemf(http.StatusUnauthorized,
		"the token is unknown or revoked: ask an admin for a new one, which "+
			"`berth token create` makes")
}

func errExpired(t *cluster.AccessToken) error {
	return respond.Problemf(http.StatusUnauthorized, "the token %s expired at %s: request a new one", t.ID,
		t.Expires.Format(time.RFC3339))
}

// bearer returns the caller of a request with a token in the header.
func (s *Gate) bearer(r *http.Request, header string) (*Caller, error) {
	scheme, got, _ := strings.Cut(header, " ")
	got = strings.TrimSpace(got)
	if !strings.EqualFold(scheme, "Bearer") || got == "" {
		return nil, respond.Problemf(http.StatusUnauthorized, "the Authorization header is not \"Bearer <token>\"")
	}
	if r.TLS == nil && s.Token != "" && sameText(got, s.Token) {
		return &Caller{Who: "token-file", Role: cluster.RoleAdmin, local: true}, nil
	}
	id, secret, ok := strings.Cut(got, ".")
	if !ok || !cluster.ValidName(id) || len(secret) > maxSecret {
		return nil, errToken()
	}
	if err := s.reads.Synced(r.Context()); err != nil {
		return nil, err // earlier, no token is known
	}
	e, found := s.Tables.Snapshot().Token(id)
	if !found { // another server may just have made it
		snap, err := s.rare.Snapshot(r.Context(), s.Tables)
		if err != nil {
			return nil, respond.Problemf(http.StatusServiceUnavailable,
				"this server does not know the token, and cannot read the store to see whether it is new: retry, "+
					"or use another server")
		}
		e, found = snap.Token(id)
	}
	t := &cluster.AccessToken{}
	if found {
		t = e.Value
	}
	switch {
	case !MatchesHash(secret, t.Hash), t.Purpose != cluster.TokenAccess, Rank(t.Role) == 0:
		return nil, errToken()
	case Expired(t, s.Now()):
		return nil, errExpired(t)
	}
	return &Caller{Who: "token:" + t.ID, Name: t.Name, Role: t.Role, Clusters: t.Clusters, token: t}, nil
}

// certified returns the machine whose certificate the connection shows, or nil. A long connection outlives its
// certificate, so the server asks the client in time to reconnect with the next one.
func (s *Gate) certified(w http.ResponseWriter, r *http.Request) (*Caller, error) {
	subject, ok := pki.SubjectOf(r.TLS)
	if !ok {
		return nil, nil //nolint:nilnil // no certificate is no error
	}
	leaf, now := r.TLS.PeerCertificates[0], s.Now()
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	if now.After(leaf.NotAfter.Add(-life / 6)) {
		w.Header().Set("Connection", "close")
	}
	if now.After(leaf.NotAfter) {
		return nil, respond.Problemf(http.StatusUnauthorized,
			"the certificate of %s expired at %s: connect with the new one, or join again", subject,
			leaf.NotAfter.Format(time.RFC3339))
	}
	return &Caller{Who: string(subject.Role) + ":" + subject.Name, Role: subject.Role, Subject: subject}, nil
}

// admission refuses requests that a foreign web page may have sent.
func (s *Gate) admission(r *http.Request) error {
	if trusted(r) {
		return nil
	}
	origin := r.Header.Get("Origin")
	scheme := "http"
	switch {
	case r.TLS != nil:
		scheme = "https"
		// Programs verify the server's certificate and may use any address. A web page may have led a browser here
		// under any name.
		if origin != "" && !slices.Contains(s.Origins, origin) && !s.ownHost(r.Host) {
			return respond.Problemf(http.StatusForbidden,
				"the Host header %q does not name this server: use an address that is in its certificate",
				respond.Clip(r.Host))
		}
	case !loopbackHost(r.Host):
		return respond.Problemf(http.StatusForbidden,
			"the Host header %q does not name this machine's loopback: use 127.0.0.1, [::1] or localhost",
			respond.Clip(r.Host))
	}
	if origin == "" || slices.Contains(s.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Scheme == scheme && u.Host == r.Host {
		return nil
	}
	return respond.Problemf(http.StatusForbidden, "requests from the web origin %q are not allowed",
		respond.Clip(origin))
}

// ownHost reports whether a Host header names this server: a name in its certificate, or loopback.
func (s *Gate) ownHost(hostport string) bool {
	return loopbackHost(hostport) || s.Keeper != nil && slices.Contains(s.Keeper.Hosts(), HostOf(hostport))
}

// trusted reports whether the request came over a unix socket.
func trusted(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

// maxSecret bounds a token in a header, in bytes.
const maxSecret = 512

// MatchesHash compares a secret with a stored hash, in constant time.
func MatchesHash(secret, hash string) bool {
	return subtle.ConstantTimeCompare([]byte(HashOf(secret)), []byte(hash)) == 1
}

// HashOf returns the hash that the store keeps of a secret, in hex.
func HashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// sameText compares two texts in constant time.
func sameText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// loopbackHost reports whether a Host header names this machine's loopback, with or without a port.
func loopbackHost(hostport string) bool {
	host := HostOf(hostport)
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// HostOf returns a Host header without its port and brackets.
func HostOf(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// Agents admits nodes to the agents' part of the API, each for itself alone.
func (s *Gate) Agents(next http.Handler) http.Handler {
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := CallerOf(r.Context()); c.Subject.Role == cluster.RoleNode {
			r = r.WithContext(transport.WithNode(r.Context(), c.Subject.Name))
		}
		next.ServeHTTP(w, r)
	})
	return s.Admit(named, func(r *http.Request, c *Caller) error {
		if r.URL.Path == transport.PathSecrets && r.TLS == nil && !trusted(r) {
			return respond.Problemf(http.StatusForbidden,
				"secrets are handed to agents over TLS or the unix socket only: connect the agent to "+
					"https://… or unix://…")
		}
		if c.local || c.Subject.Role == cluster.RoleNode {
			return nil
		}
		return respond.Problemf(http.StatusForbidden,
			"only agents may connect here, with the certificate of their node")
	})
}

// Peers admits other servers to the servers' part of the API.
func (s *Gate) Peers(next http.Handler) http.Handler {
	return s.Admit(next, func(_ *http.Request, c *Caller) error {
		if c.Subject.Role == cluster.RoleServer {
			return nil
		}
		return respond.Problemf(http.StatusForbidden, "only servers may connect here, with their certificate")
	})
}

// Expired reports whether a token has expired.
func Expired(t *cluster.AccessToken, now time.Time) bool {
	return !t.Expires.IsZero() && !now.Before(t.Expires)
}
