// Package access finds the sender of a request and decides whether the request is admitted.
//
// A Gate identifies the Caller of a request and keeps it in the request's Exchange. A Caller knows its role and the
// clusters that its token is limited to. It removes from views what its limit hides.
package access

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
)

// Begin records the route of a request and the object that the address names.
func (x *Exchange) Begin(rt *route.Route, r *http.Request) {
	x.route = rt
	var parts []string
	for _, name := range rt.Names() {
		parts = append(parts, respond.Clip(r.PathValue(name)))
	}
	x.Object = strings.Join(parts, "/")
}

// Caller is the sender of a request.
type Caller struct {
	Who  string // as AuditLine.Who
	Name string // the name of a token
	Role cluster.Role
	// Clusters limits the caller to some clusters; nil is no limit.
	Clusters []string
	// Subject is the subject of the connection's certificate if that identifies the caller.
	Subject pki.Subject
	// token identified the caller, or is nil.
	token *cluster.AccessToken
	// local is set for a caller on this machine that may do everything, as admin and as any node.
	local bool
}

// Exchange holds the id, the caller, the route and the object of a request while it is answered.
type Exchange struct {
	ID     string
	Caller *Caller
	route  *route.Route
	Object string
	Trace  string // the traceparent that the client sent
	// Audited has the request in the audit log, although its route is quiet.
	Audited bool
}

// Operation returns the name of the request's operation; empty for a request without a route.
func (x *Exchange) Operation() string {
	if x.route == nil {
		return ""
	}
	return x.route.Name
}

type exchangeKey struct{}

// ExchangeOf returns the exchange of a request. Outside of a request it returns an empty exchange.
func ExchangeOf(ctx context.Context) *Exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*Exchange); ok {
		return x
	}
	return new(Exchange)
}

// CallerOf returns the caller of a request, or a caller without a role if the request was not admitted.
func CallerOf(ctx context.Context) *Caller {
	if c := ExchangeOf(ctx).Caller; c != nil {
		return c
	}
	return new(Caller)
}

// User returns the name of the caller's token, or how the caller was identified. Tokens of one name are of one user.
func (c *Caller) User() string { return cmp.Or(c.Name, c.Who) }

// Signature returns the caller's name and identity, as events show them.
func (c *Caller) Signature() string {
	if c.Name == "" {
		return c.Who
	}
	return c.Name + " (" + c.Who + ")"
}

// Rank orders the roles of people; 0 means anything else.
func Rank(r cluster.Role) int {
	return 1 +
		slices.Index([]cluster.Role{
			cluster.RoleViewer, cluster.RoleSubmitter, cluster.RoleOperator,
			cluster.RoleAdmin,
		}, r)
}

// MayUse returns a check that is nil if a caller may use the route for the object that the request names.
//
// A route states the least role that it needs, and whether it is open to a token that is limited to some clusters.
// Routes of a cluster or of a task refuse such a token for other clusters here. A shared route has no cluster, or its
// answers leave out other clusters. All other routes need a token without a limit.
func MayUse(rt *route.Route) func(*http.Request, *Caller) error {
	return func(r *http.Request, c *Caller) error { return c.mayUse(rt, r) }
}

func (c *Caller) mayUse(rt *route.Route, r *http.Request) error {
	if rt.Role == route.RoleMachine {
		if c.Subject.Role == "" {
			return respond.Problemf(http.StatusForbidden, "only machines may do this, with their certificate")
		}
		return nil
	}
	need := rt.Role
	if Rank(need) == 0 {
		need = cluster.RoleAdmin // a route without a role is closed
	}
	switch {
	case Rank(c.Role) == 0:
		return respond.Problemf(http.StatusForbidden,
			"the certificate of a %s allows its own part of the API only; people and programs use tokens", c.Role)
	case Rank(c.Role) < Rank(need):
		return respond.Problemf(http.StatusForbidden, "this needs the role %s, and %s has the role %s", need, c.Who,
			c.Role)
	case c.Clusters == nil:
		return nil
	}
	in := r.PathValue("cluster")
	if id := r.PathValue("task"); id != "" {
		parts, ok := cluster.TaskID(id).Parts()
		if !ok {
			return nil // route.Check refuses the address
		}
		in = parts.Cluster
	}
	if in == "" && rt.Shared {
		return nil
	}
	return c.MayReach(in)
}

// MayReach refuses a cluster outside the caller's token; "" means objects without a cluster.
func (c *Caller) MayReach(in string) error {
	switch {
	case c.Clusters == nil || slices.Contains(c.Clusters, in):
		return nil
	case in == "":
		return respond.Problemf(http.StatusForbidden, "%s is limited to %s; the request is not", c.Who,
			c.limit())
	}
	return respond.Problemf(http.StatusForbidden, "%s is limited to %s; the request is for cluster %s", c.Who,
		c.limit(), respond.Clip(in))
}

func (c *Caller) limit() string {
	if len(c.Clusters) == 1 {
		return "cluster " + c.Clusters[0]
	}
	return "the clusters " + strings.Join(c.Clusters, ", ")
}

// IsLimited reports whether the caller is limited to some clusters. A nil caller, the server itself, is not.
func (c *Caller) IsLimited() bool { return c != nil && c.Clusters != nil }

// Sees reports whether objects of a cluster may be shown to the caller; "" means objects without a cluster.
func (c *Caller) Sees(in string) bool { return c.Clusters == nil || slices.Contains(c.Clusters, in) }

// Scope names the set of objects that the caller sees. Answers are cached and shared by scope, so every limit of a list
// must be part of it.
func (c *Caller) Scope() string {
	scope := "all"
	if c.Clusters != nil { // an empty list allows no cluster
		scope = "only " + strings.Join(c.Clusters, ",")
	}
	if !c.reads() {
		scope += "#" + masked
	}
	return scope
}

// MayApply returns nil if the caller may make the changes: only an operator makes or changes domains, clusters, pools
// and profiles. Those without a change may be in anybody's manifests.
func (c *Caller) MayApply(changes []api.Change) error {
	for i := range changes {
		switch changes[i].Kind {
		case cluster.KindDomain, cluster.KindCluster, cluster.KindPool, cluster.KindProfile:
			if err := c.mayMake(&changes[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayMake returns nil if the caller may make or change a domain, a cluster, a pool or a profile, or if the change is
// none.
func (c *Caller) mayMake(change *api.Change) error {
	if change.Action == api.ActionNone || Rank(c.Role) >= Rank(cluster.RoleOperator) {
		return nil
	}
	return respond.Problemf(http.StatusForbidden, "to make or change %s %s needs the role %s, and %s has the role %s",
		strings.ToLower(string(change.Kind)), change.Name, cluster.RoleOperator, c.Who, c.Role)
}
