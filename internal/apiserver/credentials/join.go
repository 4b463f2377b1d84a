package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"sync"
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

// JoinAPI lets machines join with a token and renews their certificates.
type JoinAPI struct {
	backend.Backend

	Authority *pki.Authority // nil: then every request is refused
	Vault     Vault
	Joiner    Joiner
	Joins     Joins
	Log       *slog.Logger
}

// Joiner takes a server that joins into the members of the store. Safe for concurrent use.
type Joiner interface {
	// AddServer adds a learner of this name, a server's id, that the others reach at peerURL, and returns all members,
	// the new one included. The same again returns the members as they are: a join may be tried again.
	AddServer(ctx context.Context, name, peerURL string) (members []api.ServerMember, err error)
}

// Bounds of joining.
const (
	MaxJoinTries = 20               // in vain, of one address, until it is slowed down
	JoinTryDecay = 6 * time.Second  // until one of them is forgotten
	joinSources  = 1024             // addresses that are told apart
	joinWait     = 10 * time.Second // for the store to take a member
	joinRecent   = 64               // uses that are known again
)

// Joins keeps those who join in order. Its zero value is ready.
type Joins struct {
	// one lets a single use of a token through at a time: they all change one record, and would only overtake each
	// other.
	one sync.Mutex

	mu    sync.Mutex
	tries map[string]*joinTry
}

// joinTry counts what an address tried in vain.
type joinTry struct {
	count int
	since time.Time // from when on the count goes down
}

// blocked reports how long an address is to wait for its next try, 0 for not at all.
func (j *Joins) blocked(address string, now time.Time) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tries[address]
	if t == nil {
		return 0
	}
	t.decay(now)
	if t.count < MaxJoinTries {
		return 0
	}
	return JoinTryDecay
}

func (t *joinTry) decay(now time.Time) {
	for t.count > 0 && now.Sub(t.since) >= JoinTryDecay {
		t.count--
		t.since = t.since.Add(JoinTryDecay)
	}
	if t.count == 0 || now.Before(t.since) { // a clock that was set back
		t.since = now
	}
}

// failed notes a try in vain.
func (j *Joins) failed(address string, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tries == nil {
		j.tries = map[string]*joinTry{}
	}
	t := j.tries[address]
	if t == nil {
		if len(j.tries) >= joinSources {
			j.forget(now)
		}
		t = &joinTry{since: now}
		j.tries[address] = t
	}
	t.decay(now)
	t.count++
}

// forget makes room: what has run down goes, and if that is nothing, any one. Who has so many addresses is not stopped
// by counting them, and must not stop others.
func (j *Joins) forget(now time.Time) {
	some := ""
	for address, t := range j.tries {
		if t.decay(now); t.count == 0 {
			delete(j.tries, address)
		}
		some = address
	}
	if len(j.tries) >= joinSources {
		delete(j.tries, some)
	}
}

// sourceOf is the address that tries are counted for: of IPv6 the network, all of which is mostly one machine's.
func sourceOf(r *http.Request) string {
	host := access.HostOf(access.RemoteAddress(r))
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	network, _ := ip.WithZone("").Prefix(64) // 64 is right for all
	return network.String()
}

// join trades a join token for a certificate. Each key that gets one is a use: it is counted, by compare-and-set,
// before the certificate leaves the server, so N uses are never more than N keys with a certificate. Who did not hear
// the answer asks again with the same key, and that is not counted again.
func (a *JoinAPI) join(w http.ResponseWriter, r *http.Request) error {
	address := sourceOf(r)
	if wait := a.Joins.blocked(address, a.Now()); wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())))
		return respond.Problemf(http.StatusTooManyRequests,
			"too many tries to join from this address came to nothing: wait a minute")
	}
	reply, err := a.joined(w, r)
	var p *respond.Problem
	if errors.As(err, &p) && p.Status < http.StatusInternalServerError {
		a.Joins.failed(address, a.Now())
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
		return nil, respond.Problemf(http.StatusServiceUnavailable,
			"machines cannot join this server: it has no certificate authority. `berth server init` makes one")
	}
	token, err := pki.ParseJoinToken(ask.Token)
	if err != nil {
		return nil, respond.Problemf(http.StatusUnauthorized, "%v", err)
	}
	ca := a.Authority.CertificatePEM()
	if err := token.CheckCA(ca); err != nil {
		return nil, respond.Problemf(http.StatusUnauthorized,
			"the token is for another control plane: take one that `berth token create --join` made on a "+
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
	// A token is looked for before anything is signed, and is counted only once all the rest is right.
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
	if err := nameIsFree(a.Reads.Tables.Snapshot(), &ask); err != nil {
		return nil, err
	}
	cert, err := a.Authority.Sign([]byte(ask.Request), subject, hosts, a.Now())
	if err != nil {
		return nil, err
	}
	snap, err := a.spend(r.Context(), token, subject, use)
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

// errJoin is the answer to every join token that is not good.
func errJoin() error {
	return respond.Problemf(http.StatusUnauthorized,
		"the join token is not one of this control plane, or it was revoked: make a new one with `berth "+
			"token create --join`")
}

// useOf names a use of a join token: who gets a certificate for which key.
func useOf(request []byte, subject pki.Subject) (string, error) {
	key, err := pki.RequestKey(request)
	return HashOf(subject.String() + " " + key)[:32], err
}

// goodFor returns nil if a token may be traded now, for this use.
func goodFor(t *cluster.AccessToken, secret, use string, now time.Time) error {
	switch {
	case !access.MatchesHash(secret, t.Hash), t.Purpose != cluster.TokenJoin:
		return errJoin()
	case access.Expired(t, now):
		return respond.Problemf(http.StatusUnauthorized, "the join token %s expired at %s: make a new one", t.ID,
			t.Expires.Format(time.RFC3339))
	case t.Uses > 0 && t.Used >= t.Uses && !slices.Contains(t.Recent, use):
		return respond.Problemf(http.StatusUnauthorized,
			"the join token %s was used %s, which is all that it is good for: make a new one", t.ID, times(t.Uses))
	}
	return nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// joinToken returns the record of a good token. One that this server's tables do not know may have been made on another
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
	return e.Value, goodFor(e.Value, token.Secret, use, a.Now())
}

// spend counts a use of a token, unless it was counted before.
func (a *JoinAPI) spend(ctx context.Context, token pki.JoinToken, subject pki.Subject, use string) (*store.Snapshot,
	error,
) {
	a.Joins.one.Lock()
	defer a.Joins.one.Unlock()
	return a.Writer.Write(ctx, func(d *draft.Draft) error {
		e, ok := d.Snap.Token(token.ID)
		if !ok {
			return errJoin()
		}
		if err := goodFor(e.Value, token.Secret, use, d.Now); err != nil {
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
		next.Recent = next.Recent[max(0, len(next.Recent)-joinRecent):]
		d.Put(d.Prefix.Token(token.ID), &next, e.Modified)
		return nil
	})
}

// mayJoin returns nil if a machine may have a name: it is the token's, where that has one, and no living machine has
// it, unless the token is for just this name. A node lives while the control plane does not hold it for down; a server
// while it has a record.
func mayJoin(d *draft.Draft, t *cluster.AccessToken, subject pki.Subject) error {
	if t.For != "" {
		if t.For != subject.Name {
			return respond.Problemf(http.StatusForbidden, "the join token %s is good for %s %s only", t.ID, t.Role,
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

// nameIsFree refuses a server that would be called as another one is: people name servers by it.
func nameIsFree(snap *store.Snapshot, ask *api.JoinRequest) error {
	for e := range snap.Servers() {
		if ask.ServerName != "" && e.Value.Name == ask.ServerName && e.Value.ID != ask.Name {
			return respond.Problemf(http.StatusConflict,
				"there is a server called %s already: choose another name with --name, or remove that one "+
					"with `berth server remove`", ask.ServerName)
		}
	}
	return nil
}

// checkPeerURL says what is wrong with the address of a server for the other members of the store.
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

// addServer takes a server into the store and completes what it is answered.
func (a *JoinAPI) addServer(ctx context.Context, ask *api.JoinRequest, reply *api.JoinReply) error {
	if a.Joiner != nil {
		ctx, cancel := context.WithTimeout(ctx, joinWait)
		defer cancel()
		members, err := a.Joiner.AddServer(ctx, ask.Name, ask.PeerURL)
		if err != nil {
			return respond.Problemf(http.StatusServiceUnavailable, "the store did not take the new member: %v", err)
		}
		reply.Members = members
	}
	reply.AuthorityKey = string(a.Authority.KeyPEM())
	if a.Vault != nil {
		reply.SecretsKey, reply.SecretsKeys = a.Vault.Text(a.Reads.Tables.Snapshot().MasterInUse()), a.Vault.All()
	}
	return nil
}

// addresses are those of all servers.
func addresses(snap *store.Snapshot) (all []string) {
	for e := range snap.Servers() {
		if e.Value.API != "" {
			all = append(all, e.Value.API)
		}
	}
	return all
}

// mayRenew returns nil if a machine still belongs to the control plane, by what the store holds now: a server while it
// has a record, a node unless the operator forgot it. Once a forgotten node's last record is gone nothing tells it from
// a machine that joined and has not registered yet. Such a one may renew: with its certificate it may register as a new
// node anyhow, so to refuse it here would end nothing before that does.
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

// renew trades the certificate of a connection for one that lasts longer, of the same subject.
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
			Method: "POST", Path: "/v1/join", Name: "join", Open: true,
			Summary: "Trades a join token for a certificate. The token in the body is all that is asked for.",
			Body:    reflect.TypeFor[api.JoinRequest](), Reply: reflect.TypeFor[api.JoinReply](), Serve: a.join,
		},
		{
			Method: "POST", Path: "/v1/renew", Name: "renew", Role: route.RoleMachine,
			Summary: "Trades a certificate, shown by the connection, for one that lasts longer.",
			Body:    reflect.TypeFor[api.RenewRequest](), Reply: reflect.TypeFor[api.RenewReply](), Serve: a.renew,
		},
	}
}
