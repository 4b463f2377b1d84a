package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// Each route names the least role that it needs, and whether a token that is limited to some clusters may use it. Those
// of a cluster, or of a task, are refused for any other cluster here; those that are shared have no cluster, or leave
// out of their answers what is not the caller's to see. All the rest is for callers without a limit.

// Roles of people, as the table of routes has them, the greater last.
const (
	viewer    = cluster.RoleViewer
	submitter = cluster.RoleSubmitter
	operator  = cluster.RoleOperator
	admin     = cluster.RoleAdmin
	// machine is whoever shows a certificate, for itself.
	machine cluster.Role = "machine"
)

// rank orders the roles of people; 0 is not one.
func rank(r cluster.Role) int {
	return 1 + slices.Index([]cluster.Role{viewer, submitter, operator, admin}, r)
}

// may returns nil if a caller may use a route for what the request names.
func (rt *route) may(r *http.Request, c *caller) error {
	if rt.role == machine {
		if c.subject.Role == "" {
			return problemf(http.StatusForbidden, "this is for machines, with their certificate")
		}
		return nil
	}
	need := rt.role
	if rank(need) == 0 {
		need = admin // a route that nobody thought about is closed
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
			if change.Action != api.ActionNone && rank(c.role) < rank(operator) {
				return problemf(http.StatusForbidden,
					"to make or change cluster %s needs the role %s, and %s has the role %s", change.Name, operator,
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

// changed names the objects of an apply for the audit log.
func changed(changes []api.Change) string {
	const most = 20
	var names []string
	for i := range changes {
		c := &changes[i]
		if c.Action == api.ActionNone {
			continue
		}
		if len(names) == most {
			names = append(names, fmt.Sprintf("and more of %d", len(changes)))
			break
		}
		name := c.Name
		if c.Cluster != "" {
			name = c.Cluster + "/" + c.Name
		}
		names = append(names, string(c.Kind)+" "+name)
	}
	return strings.Join(names, ", ")
}

// clusterOf returns the cluster that an event is about, "" for none.
func clusterOf(e *cluster.Event) string {
	if e.Cluster != "" {
		return e.Cluster
	}
	if e.Owner != nil {
		return e.Owner.Cluster
	}
	parts, _ := e.Task.Parts()
	return parts.Cluster
}
