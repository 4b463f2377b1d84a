package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
)

// began notes which route a request took, and what it is about.
func (x *exchange) began(rt *route, r *http.Request) {
	x.route = rt
	var parts []string
	for _, name := range rt.names() {
		parts = append(parts, clip(r.PathValue(name)))
	}
	x.object = strings.Join(parts, "/")
}

// caller is who sent a request.
type caller struct {
	who  string // as AuditLine.Who
	name string // what a token is called
	role cluster.Role
	// clusters, unless nil, are the only ones that the caller reaches.
	clusters []string
	// subject is that of the certificate that the connection showed, where that is what the caller is known by.
	subject pki.Subject
	// local says that the caller is on this machine and may do everything, as admin and as any node.
	local bool
}

// exchange is a request on its way, for those who look at it from outside of its route.
type exchange struct {
	id     string
	caller *caller
	route  *route
	object string
	trace  string // the traceparent that the client sent
}

// name returns what the request's route is called, empty outside of one.
func (x *exchange) name() string {
	if x.route == nil {
		return ""
	}
	return x.route.name
}

type exchangeKey struct{}

// exchangeOf returns what is known of a request; outside of one it returns an empty exchange.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return new(exchange)
}

// callerOf returns who sent a request, a stranger without any role where nobody was let in.
func callerOf(ctx context.Context) *caller {
	if c := exchangeOf(ctx).caller; c != nil {
		return c
	}
	return new(caller)
}

// by names the caller as events do: what it is called, with what it is known by.
func (c *caller) by() string {
	if c.name == "" {
		return c.who
	}
	return c.name + " (" + c.who + ")"
}

// rank orders the roles of people; 0 is not one.
func rank(r cluster.Role) int {
	return 1 +
		slices.Index([]cluster.Role{cluster.RoleViewer, cluster.RoleSubmitter, cluster.RoleOperator,
			cluster.RoleAdmin}, r)
}

// mayUse returns a check: nil if a caller may use the route for what the request names.
//
// Each route names the least role that it needs, and whether a token that is limited to some clusters may use it. Those
// of a cluster, or of a task, are refused for any other cluster here; those that are shared have no cluster, or leave
// out of their answers what is not the caller's to see. All the rest is for callers without a limit.
func mayUse(rt *route) func(*http.Request, *caller) error {
	return func(r *http.Request, c *caller) error { return c.mayUse(rt, r) }
}

func (c *caller) mayUse(rt *route, r *http.Request) error {
	if rt.role == roleMachine {
		if c.subject.Role == "" {
			return problemf(http.StatusForbidden, "this is for machines, with their certificate")
		}
		return nil
	}
	need := rt.role
	if rank(need) == 0 {
		need = cluster.RoleAdmin // a route that nobody thought about is closed
	}
	switch {
	case rank(c.role) == 0:
		return problemf(http.StatusForbidden,
			"the certificate of a %s is good for its own part of the API only; people and programs use tokens", c.role)
	case rank(c.role) < rank(need):
		return problemf(http.StatusForbidden, "this needs the role %s, and %s has the role %s", need, c.who, c.role)
	case c.clusters == nil:
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
	if in == "" && rt.shared {
		return nil
	}
	return c.reach(in)
}

// reach refuses a cluster that a caller's token does not reach; "" is what is in no cluster.
func (c *caller) reach(in string) error {
	switch {
	case c.clusters == nil || slices.Contains(c.clusters, in):
		return nil
	case in == "":
		return problemf(http.StatusForbidden, "%s is limited to %s, and this is about more than that", c.who, c.limit())
	}
	return problemf(http.StatusForbidden, "%s is limited to %s, and this is about cluster %s", c.who, c.limit(),
		clip(in))
}

func (c *caller) limit() string {
	if len(c.clusters) == 1 {
		return "cluster " + c.clusters[0]
	}
	return "the clusters " + strings.Join(c.clusters, ", ")
}

// sees reports whether something of a cluster may be shown to the caller; "" is what is in no cluster.
func (c *caller) sees(in string) bool { return c.clusters == nil || slices.Contains(c.clusters, in) }

// scope names what the caller sees, for what is remembered of answers and shared by those who wait: callers of one
// scope are shown the same. What else a list leaves out for some callers has to be in it.
func (c *caller) scope() string {
	scope := "all"
	if c.clusters != nil { // an empty list is no cluster at all
		scope = "only " + strings.Join(c.clusters, ",")
	}
	if !c.reads() {
		scope += "#" + masked
	}
	return scope
}

// mayApply returns nil if a caller may make these changes: it reaches their clusters, and only an operator makes or
// changes clusters themselves. A cluster that stays as it is may stand in anybody's manifests.
func (c *caller) mayApply(changes []api.Change) error {
	for i := range changes {
		change := &changes[i]
		in := change.Cluster
		switch change.Kind {
		case cluster.KindCluster:
			in = change.Name
			if change.Action != api.ActionNone && rank(c.role) < rank(cluster.RoleOperator) {
				return problemf(http.StatusForbidden,
					"to make or change cluster %s needs the role %s, and %s has the role %s", change.Name,
					cluster.RoleOperator,
					c.who, c.role)
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
