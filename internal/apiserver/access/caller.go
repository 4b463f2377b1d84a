// Package access finds out who sends a request, and whether it is let in.
//
// A Gate identifies the Caller of a request and keeps it in the request's Exchange. A Caller knows its role and the
// clusters that its token is limited to, and leaves out of views what it may not see.
package access

import (
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

// Begin notes which route a request took, and what it is about.
func (x *Exchange) Begin(rt *route.Route, r *http.Request) {
	x.route = rt
	var parts []string
	for _, name := range rt.Names() {
		parts = append(parts, respond.Clip(r.PathValue(name)))
	}
	x.Object = strings.Join(parts, "/")
}

// Caller is who sent a request.
type Caller struct {
	Who  string // as AuditLine.Who
	Name string // what a token is called
	Role cluster.Role
	// Clusters, unless nil, are the only ones that the caller reaches.
	Clusters []string
	// Subject is the subject of the connection's certificate, where the certificate identifies the caller.
	Subject pki.Subject
	// local says that the caller is on this machine and may do everything, as admin and as any node.
	local bool
}

// Exchange is what is known of a request while it is answered: its id, its caller, its route and its object.
type Exchange struct {
	ID     string
	Caller *Caller
	route  *route.Route
	Object string
	Trace  string // the traceparent that the client sent
}

// Operation returns what the request's route is called, empty outside of one.
func (x *Exchange) Operation() string {
	if x.route == nil {
		return ""
	}
	return x.route.Name
}

type exchangeKey struct{}

// ExchangeOf returns what is known of a request; outside of one it returns an empty exchange.
func ExchangeOf(ctx context.Context) *Exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*Exchange); ok {
		return x
	}
	return new(Exchange)
}

// CallerOf returns the caller of a request, or a caller without a role where the request was not let in.
func CallerOf(ctx context.Context) *Caller {
	if c := ExchangeOf(ctx).Caller; c != nil {
		return c
	}
	return new(Caller)
}

// Signature names the caller as events do: what it is called, with what it is known by.
func (c *Caller) Signature() string {
	if c.Name == "" {
		return c.Who
	}
	return c.Name + " (" + c.Who + ")"
}

// Rank orders the roles of people; 0 is not one.
func Rank(r cluster.Role) int {
	return 1 +
		slices.Index([]cluster.Role{
			cluster.RoleViewer, cluster.RoleSubmitter, cluster.RoleOperator,
			cluster.RoleAdmin,
		}, r)
}

// MayUse returns a check: nil if a caller may use the route for what the request names.
//
// Each route names the least role that it needs, and whether a token that is limited to some clusters may use it. Those
// of a cluster, or of a task, are refused for any other cluster here; those that are shared have no cluster, or leave
// out of their answers what is not the caller's to see. All the rest is for callers without a limit.
func MayUse(rt *route.Route) func(*http.Request, *Caller) error {
	return func(r *http.Request, c *Caller) error { return c.mayUse(rt, r) }
}

func (c *Caller) mayUse(rt *route.Route, r *http.Request) error {
	if rt.Role == route.RoleMachine {
		if c.Subject.Role == "" {
			return respond.Problemf(http.StatusForbidden, "this is for machines, with their certificate")
		}
		return nil
	}
	need := rt.Role
	if Rank(need) == 0 {
		need = cluster.RoleAdmin // a route that nobody thought about is closed
	}
	switch {
	case Rank(c.Role) == 0:
		return respond.Problemf(http.StatusForbidden,
			"the certificate of a %s is good for its own part of the API only; people and programs use tokens", c.Role)
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
			return nil // the address is refused for that
		}
		in = parts.Cluster
	}
	if in == "" && rt.Shared {
		return nil
	}
	return c.reach(in)
}

// reach refuses a cluster that a caller's token does not reach; "" is what is in no cluster.
func (c *Caller) reach(in string) error {
	switch {
	case c.Clusters == nil || slices.Contains(c.Clusters, in):
		return nil
	case in == "":
		return respond.Problemf(http.StatusForbidden, "%s is limited to %s, and this is about more than that", c.Who,
			c.limit())
	}
	return respond.Problemf(http.StatusForbidden, "%s is limited to %s, and this is about cluster %s", c.Who, c.limit(),
		respond.Clip(in))
}

func (c *Caller) limit() string {
	if len(c.Clusters) == 1 {
		return "cluster " + c.Clusters[0]
	}
	return "the clusters " + strings.Join(c.Clusters, ", ")
}

// Sees reports whether something of a cluster may be shown to the caller; "" is what is in no cluster.
func (c *Caller) Sees(in string) bool { return c.Clusters == nil || slices.Contains(c.Clusters, in) }

// Scope names what the caller sees, for what is remembered of answers and shared by those who wait: callers of one
// scope are shown the same. What else a list leaves out for some callers has to be in it.
func (c *Caller) Scope() string {
	scope := "all"
	if c.Clusters != nil { // an empty list is no cluster at all
		scope = "only " + strings.Join(c.Clusters, ",")
	}
	if !c.reads() {
		scope += "#" + masked
	}
	return scope
}

// MayApply returns nil if a caller may make these changes: it reaches their clusters, and only an operator makes or
// changes clusters themselves. A cluster that stays as it is may stand in anybody's manifests.
func (c *Caller) MayApply(changes []api.Change) error {
	for i := range changes {
		change := &changes[i]
		in := change.Cluster
		switch change.Kind {
		case cluster.KindCluster:
			in = change.Name
			if change.Action != api.ActionNone && Rank(c.Role) < Rank(cluster.RoleOperator) {
				return respond.Problemf(http.StatusForbidden,
					"to make or change cluster %s needs the role %s, and %s has the role %s", change.Name,
					cluster.RoleOperator,
					c.Who, c.Role)
			}
		case cluster.KindTaskDefinition:
			continue // they are in no cluster
		}
		if err := c.reach(in); err != nil {
			return err
		}
	}
	return nil
}
