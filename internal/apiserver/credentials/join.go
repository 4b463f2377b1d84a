package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
)

// JoinAPI lets machines join with a token, and renews their certificates.
type JoinAPI struct {
	backend.Backend

	Authority *pki.Authority // nil refuses every request
	Vault     Vault
	Joiner    Joiner
	Limiter   JoinLimiter
	Log       *slog.Logger
}

// Joiner adds servers to the members of the store. Safe for concurrent use.
type Joiner interface {
	// AddServer adds a learner with the name, a server's id, that other members reach at peerURL. It returns all
	// members. A repeated call returns the present members, because a join may be retried.
	AddServer(ctx context.Context, name, peerURL string) (members []api.ServerMember, err error)
}

// Bounds of joining.
const (
	addMemberTimeout = 10 * time.Second // until the store has a new member
	maxRecentUses    = 64               // uses of a token that a retry can repeat
)

// join trades a join token for a certificate. Each key that gets a certificate is a use. A compare-and-set counts the
// use before the certificate leaves the server, so N uses never give certificates to more than N keys. A retry with the
// same key returns the answer again and is not counted.
func (a *JoinAPI) join(w http.ResponseWriter, r *http.Request) error {
	address := sourceOf(r)
	if wait := a.Limiter.retryAfter(address, a.Now()); wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())))
		return respond.Problemf(http.StatusTooManyRequests,
			"too many failed attempts to join from this address: wait a minute")
	}
	reply, err := a.joined(w, r)
	var p *respond.Problem
	if errors.As(err, &p) && p.Status < http.StatusInternalServerError {
		a.Limiter.addFailure(address, a.Now())
	}
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, reply)
}

func (a *JoinAPI) joined(w http.ResponseWriter, r *http.Request) (*api.JoinReply, error) {
	var ask api.JoinRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return nil, err
	}
	if a.Authority == nil {
		return nil, respond.Problemf(http.StatusServiceUnavailable, noAuthority)
	}
	token, err := pki.ParseJoinToken(ask.Token)
	if err != nil {
		return nil, respond.Problemf(http.StatusUnauthorized, "%v", err)
	}
	ca := a.Authority.CertificatePEM()
	if err := token.CheckCA(ca); err != nil {
		return nil, respond.Problemf(http.StatusUnauthorized,
			"the join token belongs to another control plane: create one with `berth token create --join` on a "+
				"server of this one")
	}
	subject, hosts, err := pki.ReadRequest([]byte(ask.Request))
	if err != nil {
		return nil, respond.Invalid(cluster.Faults{{Path: "request", Message: err.Error()}})
	}
	use, err := useOf([]byte(ask.Request), subject)
	if err != nil {
		return nil, err
	}
	// The token is checked before anything is signed, and counted only after all other checks.
	t, err := a.joinToken(r.Context(), token, use)
	if err != nil {
		return nil, err
	}
	x := access.ExchangeOf(r.Context())
	x.Caller = &access.Caller{Who: "token:" + t.ID, Name: t.Name, Role: t.Role}
	x.Object = string(t.Role) + " " + respond.Clip(ask.Name)
	if want := (pki.Subject{Role: t.Role, Name: ask.Name}); subject != want {
		return nil,
			respond.Problemf(http.StatusForbidden, "the request is for a certificate of %s, and this is about %s",
				subject, want)
	}
	if err := a.checkPeerURL(&ask, t.Role); err != nil {
		return nil, err
	}
	if err := requireFreeName(a.Reads.Tables.Snapshot(), &ask); err != nil {
		return nil, err
	}
	cert, err := a.Authority.Sign([]byte(ask.Request), subject, hosts, a.Now())
	if err != nil {
		return nil, err
	}
	snap, err := a.countUse(r.Context(), token, subject, use)
	if err != nil {
		return nil, err
	}
	reply := &api.JoinReply{Certificate: string(cert), Authority: string(ca), Servers: addresses(snap)}
	if subject.Role == cluster.RoleServer {
		if err := a.addServer(r.Context(), &ask, reply); err != nil {
			return nil, err
		}
	}
	a.Log.Info("a machine joined", "subject", subject.String(), "token", t.ID, "from", access.RemoteAddress(r),
		"request", x.ID)
	return reply, nil
}

// errJoin returns the answer to every bad join token.
func errJoin() error {
	return respond.Problemf(http.StatusUnauthorized,
		"the join token is unknown or revoked: create a new one with `berth "+
			"token create --join`")
}

// useOf names a use of a join token by the subject and the key of the certificate.
func useOf(request []byte, subject pki.Subject) (string, error) {
	key, err := pki.RequestKey(request)
	return access.HashOf(subject.String() + " " + key)[:32], err
}

// checkJoinToken returns nil if a token is valid now for the use.
func checkJoinToken(t *cluster.AccessToken, secret, use string, now time.Time) error {
	switch {
	case !access.MatchesHash(secret, t.Hash), t.Purpose != cluster.TokenJoin:
		return errJoin()
	case access.Expired(t, now):
		return respond.Problemf(http.StatusUnauthorized, "the join token %s expired at %s: create a new one", t.ID,
			t.Expires.Format(time.RFC3339))
	case t.Uses > 0 && t.Used >= t.Uses && !slices.Contains(t.Recent, use):
		return respond.Problemf(http.StatusUnauthorized,
			"the join token %s was used %s and has no uses left: create a new one", t.ID,
			respond.Times(t.Uses))
	}
	return nil
}

// joinToken returns the record of a valid token. A token that is missing in the tables may have been made on another
// server just now.
func (a *JoinAPI) joinToken(ctx context.Context, token pki.JoinToken, use string) (*cluster.AccessToken, error) {
	if !cluster.ValidName(token.ID) {
		return nil, errJoin()
	}
	snap := a.Reads.Tables.Snapshot()
	e, ok := snap.Token(token.ID)
	if !ok {
		snap, err := a.Reads.Settled(ctx)
		if err != nil {
			return nil, err
		}
		if e, ok = snap.Token(token.ID); !ok {
			return nil, errJoin()
		}
	}
	return e.Value, checkJoinToken(e.Value, token.Secret, use, a.Now())
}

// countUse counts a use of a token, unless it was counted before.
func (a *JoinAPI) countUse(ctx context.Context, token pki.JoinToken, subject pki.Subject, use string) (*store.Snapshot,
	error,
) {
	a.Limiter.oneUse.Lock()
	defer a.Limiter.oneUse.Unlock()
	return a.Writer.Write(ctx, func(d *draft.Draft) error {
		e, ok := d.Snap.Token(token.ID)
		if !ok {
			return errJoin()
		}
		if err := checkJoinToken(e.Value, token.Secret, use, d.Now); err != nil {
			return err
		}
		if slices.Contains(e.Value.Recent, use) {
			return nil
		}
		if err := mayJoin(d, e.Value, subject); err != nil {
			return err
		}
		next := *e.Value
		next.Used++
		next.Recent = append(slices.Clone(next.Recent), use)
		next.Recent = next.Recent[max(0, len(next.Recent)-maxRecentUses):]
		d.Put(d.Prefix.Token(token.ID), &next, e.Modified)
		return nil
	})
}

// mayJoin returns nil if a machine may have a name. A token for one name admits only that name. Other tokens admit
// names that no living machine has. A node lives unless its verdict is down, a server while it has a record.
func mayJoin(d *draft.Draft, t *cluster.AccessToken, subject pki.Subject) error {
	if t.For != "" {
		if t.For != subject.Name {
			return respond.Problemf(http.StatusForbidden, "the join token %s is valid for %s %s only", t.ID, t.Role,
				t.For)
		}
		return nil
	}
	if subject.Role == cluster.RoleServer {
		if _, ok := d.Snap.Server(subject.Name); ok {
			return respond.Problemf(http.StatusConflict,
				"there is a server %s: remove it first with `berth server remove`, or make a join token for "+
					"just this id with `berth token create --join --role server --for %s`", subject.Name, subject.Name)
		}
		return nil
	}
	_, registered := d.Snap.NodeStatus(subject.Name)
	node, known := d.Snap.Node(subject.Name)
	if down := known && node.Value.State == cluster.NodeDown; registered && !down {
		return respond.Problemf(http.StatusConflict,
			"there is a living node %s: if this machine takes its place, wait until the other one is down, "+
				"or make a join token for just this name with `berth token create --join --role node --for %s`",
			subject.Name, subject.Name)
	}
	return nil
}

// requireFreeName refuses a server with the name of another server, because people name servers by it.
func requireFreeName(snap *store.Snapshot, ask *api.JoinRequest) error {
	for e := range snap.Servers() {
		if ask.ServerName != "" && e.Value.Name == ask.ServerName && e.Value.ID != ask.Name {
			return respond.Problemf(http.StatusConflict,
				"there is a server called %s already: choose another name with --name, or remove that one "+
					"with `berth server remove`", ask.ServerName)
		}
	}
	return nil
}

// checkPeerURL returns the faults of a server's address for the other members of the store.
func (a *JoinAPI) checkPeerURL(ask *api.JoinRequest, role cluster.Role) error {
	if role != cluster.RoleServer {
		if ask.PeerURL != "" {
			return respond.Invalid(cluster.Faults{{Path: "peer_url", Message: "is for servers only"}})
		}
		return nil
	}
	if a.Joiner == nil {
		return nil // the store runs elsewhere
	}
	u, err := url.Parse(ask.PeerURL)
	if err != nil || u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" ||
		u.User != nil {
		return respond.Invalid(cluster.Faults{
			{Path: "peer_url", Message: "want https://host:port, where the other servers reach the store of this one"},
		})
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		return respond.Invalid(cluster.Faults{{Path: "peer_url", Message: "names no address that others can reach"}})
	}
	return nil
}

// addServer adds a server to the store and completes the reply.
func (a *JoinAPI) addServer(ctx context.Context, ask *api.JoinRequest, reply *api.JoinReply) error {
	if a.Joiner != nil {
		ctx, cancel := context.WithTimeout(ctx, addMemberTimeout)
		defer cancel()
		members, err := a.Joiner.AddServer(ctx, ask.Name, ask.PeerURL)
		if err != nil {
			return respond.Problemf(http.StatusServiceUnavailable, "the store did not take the new member: %v", err)
		}
		reply.Members = members
	}
	reply.AuthorityKey = string(a.Authority.KeyPEM())
	if a.Vault != nil {
		reply.SecretsKeys = a.Vault.All()
	}
	return nil
}

// addresses returns the addresses of all servers.
func addresses(snap *store.Snapshot) (all []string) {
	for e := range snap.Servers() {
		if e.Value.API != "" {
			all = append(all, e.Value.API)
		}
	}
	return all
}

// mayRenew returns nil if a machine still belongs to the control plane, by the present content of the store. A server
// needs a record; a node must not be forgotten. Once the last record of a forgotten node is gone, it is like a machine
// that joined and has not registered. It may renew, because with its certificate it may register as a new node anyway.
func (a *JoinAPI) mayRenew(ctx context.Context, subject pki.Subject) error {
	snap, err := a.Reads.Settled(ctx)
	if err != nil {
		return err
	}
	if subject.Role == cluster.RoleServer {
		if _, ok := snap.Server(subject.Name); !ok {
			return respond.Problemf(http.StatusForbidden,
				"there is no server %s: it was removed. A machine becomes one with a join token", subject.Name)
		}
		return nil
	}
	if e, ok := snap.Host(subject.Name); ok && e.Value.Gone {
		return respond.Problemf(http.StatusForbidden,
			"node %s was forgotten, and its certificate is not renewed. A machine becomes a node with a join token",
			subject.Name)
	}
	return nil
}

// renew trades the certificate of a connection for a newer one of the same subject.
func (a *JoinAPI) renew(w http.ResponseWriter, r *http.Request) error {
	var ask api.RenewRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	subject := access.CallerOf(r.Context()).Subject
	access.ExchangeOf(r.Context()).Object = subject.String()
	if a.Authority == nil {
		return respond.Problemf(http.StatusServiceUnavailable,
			"this server has no key to sign with: ask another server")
	}
	_, hosts, err := pki.ReadRequest([]byte(ask.Request))
	if err != nil {
		return respond.Invalid(cluster.Faults{{Path: "request", Message: err.Error()}})
	}
	if err := a.mayRenew(r.Context(), subject); err != nil {
		return err
	}
	cert, err := a.Authority.Sign([]byte(ask.Request), subject, hosts, a.Now())
	if errors.Is(err, pki.ErrRequest) {
		return respond.Problemf(http.StatusForbidden, "%v", err)
	}
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK,
		api.RenewReply{Certificate: string(cert), Authority: string(a.Authority.CertificatePEM())})
}

// Routes returns the operations of joining.
func (a *JoinAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "POST", Path: "/v1/join", Name: "join", Open: true, Limited: true,
			Summary: "Trades a join token for a certificate. The token in the body is the only credential.",
			Body:    reflect.TypeFor[api.JoinRequest](), Reply: reflect.TypeFor[api.JoinReply](), Serve: a.join,
		},
		{
			Method: "POST", Path: "/v1/renew", Name: "renew", Role: route.RoleMachine,
			Summary: "Trades a certificate, shown by the connection, for one that lasts longer.",
			Body:    reflect.TypeFor[api.RenewRequest](), Reply: reflect.TypeFor[api.RenewReply](), Serve: a.renew,
		},
	}
}
