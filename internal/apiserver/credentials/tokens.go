// Package credentials holds the operations of tokens, certificates, secrets, and the keys that seal secrets.
package credentials

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
)

// TokensAPI lists, makes and revokes access tokens and join tokens.
type TokensAPI struct {
	backend.Backend

	Authority *pki.Authority // nil refuses join tokens
}

// Bounds of tokens.
const (
	DefaultJoinLife = time.Hour           // default life of a join token
	maxJoinLife     = 30 * 24 * time.Hour // longest life of a join token
	maxUses         = 100_000
	maxTitle        = 256
	maxClusters     = 256
	// KeepEndedTokens is how long an ended token is listed. maxRemovedTokens is how many are removed in one
	// transaction.
	KeepEndedTokens  = 7 * 24 * time.Hour
	maxRemovedTokens = 50
)

// noAuthority is the sentence for requests that need a certificate authority.
const noAuthority = "machines cannot join this server: it has no certificate authority. `berth server init` makes one"

func (a *TokensAPI) listTokens(w http.ResponseWriter, r *http.Request) error {
	return lists.Serve(a.Lists, w, r, lists.Source[api.TokenView]{
		List: "tokens", // tokens have no topic
		All: func(snap *store.Snapshot) (all []lists.Item[api.TokenView]) {
			for e := range snap.Tokens() {
				all = append(all, lists.Item[api.TokenView]{Key: e.Value.ID, Value: tokenView(e, a.Now())})
			}
			return all
		},
	})
}

func (a *TokensAPI) readToken(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	e, ok := snap.Token(r.PathValue("token"))
	if !ok {
		return respond.NotFound("token", r.PathValue("token"))
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, http.StatusOK, tokenView(e, a.Now()))
}

// tokenView shows a token without the hash of its secret.
func tokenView(e store.Entry[cluster.AccessToken], now time.Time) api.TokenView {
	t := e.Value
	v := api.TokenView{
		ID: t.ID, Name: t.Name, Purpose: t.Purpose, Role: t.Role, Clusters: t.Clusters, For: t.For, Created: t.Created,
		By:      t.By,
		Expires: t.Expires, Uses: t.Uses, Used: t.Used, State: api.TokenGood, Revision: e.Modified,
	}
	switch {
	case t.Uses > 0 && t.Used >= t.Uses:
		v.State = api.TokenUsed
	case access.Expired(t, now):
		v.State = api.TokenExpired
	}
	return v
}

func (a *TokensAPI) createToken(w http.ResponseWriter, r *http.Request) error {
	var ask api.TokenRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	if ask.Purpose == "" {
		ask.Purpose = cluster.TokenAccess
	}
	if faults := tokenFaults(&ask); len(faults) > 0 {
		return respond.Invalid(faults)
	}
	caHash := ""
	if ask.Purpose == cluster.TokenJoin {
		if a.Authority == nil {
			return respond.Problemf(http.StatusConflict, noAuthority)
		}
		sum, err := pki.Fingerprint(a.Authority.CertificatePEM())
		if err != nil {
			return err
		}
		caHash = sum
		if ask.Life == 0 {
			ask.Life = cluster.Duration(DefaultJoinLife)
		}
		ask.Uses = max(ask.Uses, 1)
	}
	id, secret := newTokenID(), newSecret()
	x := access.ExchangeOf(r.Context())
	x.Object = id
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		for _, c := range ask.Clusters {
			if _, ok := d.Snap.Cluster(c); !ok && c != cluster.DefaultCluster {
				return respond.Invalid(cluster.Faults{{Path: "clusters", Message: "there is no cluster " + c}})
			}
		}
		t := &cluster.AccessToken{
			ID: id, Name: ask.Name, Purpose: ask.Purpose, Role: ask.Role, Clusters: ask.Clusters, For: ask.For,
			Hash: access.HashOf(secret), Created: d.Now, By: access.CallerOf(r.Context()).Signature(), Uses: ask.Uses,
		}
		if ask.Life > 0 {
			t.Expires = d.Now.Add(time.Duration(ask.Life))
		}
		d.Put(d.Prefix.Token(id), t, 0)
		removeEndedTokens(d)
		return nil
	})
	if err != nil {
		return err
	}
	e, ok := snap.Token(id)
	if !ok {
		return respond.Problemf(http.StatusConflict, "the token was revoked immediately")
	}
	reply := api.TokenReply{TokenView: tokenView(e, a.Now()), Token: id + "." + secret}
	if ask.Purpose == cluster.TokenJoin {
		reply.Token = pki.JoinToken{ID: id, Secret: secret, CAHash: caHash}.String()
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, http.StatusCreated, reply)
}

// tokenFaults returns all faults of a request for a token.
func tokenFaults(ask *api.TokenRequest) (faults cluster.Faults) {
	fault := func(path, format string, args ...any) {
		faults = append(faults, cluster.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if len(ask.Name) > maxTitle || strings.ContainsFunc(ask.Name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		fault("name", "is longer than %d bytes, or not printable text", maxTitle)
	}
	if ask.Life < 0 {
		fault("life", "is negative")
	}
	if ask.Purpose == cluster.TokenJoin {
		joinTokenFaults(ask, fault)
		return faults
	}
	if ask.Purpose != cluster.TokenAccess {
		fault("purpose", "is %q, want access or join", respond.Clip(string(ask.Purpose)))
	}
	if access.Rank(ask.Role) == 0 {
		fault("role", "is %q, want admin, operator, submitter or viewer", respond.Clip(string(ask.Role)))
	}
	if ask.Uses != 0 {
		fault("uses", "is for join tokens only")
	}
	if ask.For != "" {
		fault("for", "is for join tokens only")
	}
	if len(ask.Clusters) > 0 && access.Rank(ask.Role) > access.Rank(cluster.RoleSubmitter) {
		fault("clusters", "is for submitters and viewers only: an %s acts on what all clusters share", ask.Role)
	}
	if len(ask.Clusters) > maxClusters {
		fault("clusters", "holds %d names, at most %d are allowed", len(ask.Clusters), maxClusters)
	}
	for i, c := range ask.Clusters {
		if !cluster.ValidName(c) || slices.Contains(ask.Clusters[:i], c) {
			fault(fmt.Sprintf("clusters[%d]", i), "%q is not a name, or is repeated", respond.Clip(c))
		}
	}
	return faults
}

func joinTokenFaults(ask *api.TokenRequest, fault func(path, format string, args ...any)) {
	if ask.Role != cluster.RoleNode && ask.Role != cluster.RoleServer {
		fault("role", "is %q, want node or server", respond.Clip(string(ask.Role)))
	}
	if time.Duration(ask.Life) > maxJoinLife {
		fault("life", "is %s, at most %s are allowed for a join token", ask.Life, cluster.Duration(maxJoinLife))
	}
	if ask.Uses < 0 || ask.Uses > maxUses {
		fault("uses", "is %d, want 1 to %d", ask.Uses, maxUses)
	}
	if len(ask.Clusters) > 0 {
		fault("clusters", "is for access tokens only")
	}
	if ask.For != "" && !cluster.ValidNodeName(ask.For) {
		fault("for", "%q cannot be the name of a node or the id of a server", respond.Clip(ask.For))
	}
}

// revokeToken deletes a token. Each server refuses the token as soon as its tables show the deletion, within moments
// unless the server has lost the store.
func (a *TokensAPI) revokeToken(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("token")
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		e, ok := d.Snap.Token(id)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound("token", id)
		}
		d.Put(d.Prefix.Token(id), nil, e.Modified)
		return nil
	})
}

// removeEndedTokens removes some of the tokens that ended long ago.
func removeEndedTokens(d *draft.Draft) {
	n := 0
	for e := range d.Snap.Tokens() {
		if t := e.Value; n < maxRemovedTokens && access.Expired(t, d.Now.Add(-KeepEndedTokens)) {
			d.Put(d.Prefix.Token(t.ID), nil, e.Modified)
			n++
		}
	}
}

// newTokenID returns a new id of a token, which is a valid object name.
func newTokenID() string {
	b := make([]byte, 10)
	_, _ = rand.Read(b) // never fails
	return "t" + strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

// newSecret returns 256 random bits as text without ".".
func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// Routes returns the operations of tokens.
func (a *TokensAPI) Routes() []route.Route {
	const all, one = "/v1/tokens", "/v1/tokens/{token}"
	return []route.Route{
		{
			Method: "GET", Path: all, Name: "listTokens", Role: cluster.RoleAdmin,
			Summary: "All tokens, without their secrets.",
			Query:   route.ListParameters(), Reply: reflect.TypeFor[api.Page[api.TokenView]](),
			Stream: route.MediaEventStream,
			Long:   true,
			Serve:  a.listTokens,
		},
		{
			Method: "GET", Path: one, Name: "readToken", Role: cluster.RoleAdmin,
			Summary: "One token, without its secret.",
			Query:   []route.Parameter{route.Consistent()}, Reply: reflect.TypeFor[api.TokenView](), Serve: a.readToken,
		},
		{
			Method: "POST", Path: all, Name: "createToken", Role: cluster.RoleAdmin,
			Summary: "Makes a token. The answer is the only time that it is shown.",
			Body:    reflect.TypeFor[api.TokenRequest](),
			Status:  http.StatusCreated, Reply: reflect.TypeFor[api.TokenReply](), Serve: a.createToken,
		},
		{
			Method: "DELETE", Path: one, Name: "revokeToken", Role: cluster.RoleAdmin,
			Summary: "Revokes a token. Certificates that a join token was traded for stay valid.",
			Writes:  true, Status: http.StatusNoContent, Serve: a.revokeToken,
		},
	}
}
