package draft

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// IsBound reports whether a placement binds tasks to one node, by a constraint on its name.
func IsBound(p *cluster.Placement, node string) bool {
	return slices.ContainsFunc(p.Constraints, func(c cluster.Constraint) bool {
		return c.Attribute == "node.name" && (c.Op == "" || c.Op == cluster.OpEqual) && c.Value == node
	})
}

// bind binds tasks to a node. The constraints are a list of the placement's own afterwards.
func bind(p *cluster.Placement, node string) {
	if !IsBound(p, node) {
		p.Constraints = append(slices.Clone(p.Constraints),
			cluster.Constraint{Attribute: "node.name", Op: cluster.OpEqual, Value: node})
	}
}

// AdoptNode drafts the writes that make this store the next owner of a node: the node's settings with a generation
// above all earlier ones, and its objects with their generations and versions (P7.2). Tasks are bound to the node, so
// nothing runs elsewhere while the node is away. The leader adopts the attempts that run, once the node reports them.
// All faults are returned together. A repetition changes nothing.
func (d *Draft) AdoptNode(o *api.NodeObjects, domain string) ([]api.Change, error) {
	a := adoption{Draft: d, objects: o, domain: domain}
	if err := d.RequireDomain(domain); err != nil {
		return nil, err
	}
	a.host()
	for i := range o.Clusters {
		c := o.Clusters[i]
		a.add("clusters", i, func() (api.Change, error) { return a.cluster(&c) })
	}
	for i := range o.Definitions {
		def := o.Definitions[i]
		a.add("definitions", i, func() (api.Change, error) { return d.writeVersion(&def) })
	}
	d.needs.note(a.set())
	for i := range o.Services {
		svc := o.Services[i]
		a.add("services", i, func() (api.Change, error) { return a.service(&svc) })
	}
	for i := range o.Crons {
		c := o.Crons[i]
		a.add("crons", i, func() (api.Change, error) { return a.cron(&c) })
	}
	for i := range o.Endpoints {
		e := o.Endpoints[i]
		a.add("endpoints", i, func() (api.Change, error) { return d.SetEndpoint(&e, Precondition{}) })
	}
	if len(a.faults) > 0 {
		return nil, Conflicts("the node cannot be adopted", a.faults)
	}
	return a.changes, nil
}

// adoption is the draft of one adoption.
type adoption struct {
	*Draft
	objects *api.NodeObjects
	domain  string
	changes []api.Change
	faults  cluster.Faults
}

// add adds the change of the object at an index of a list, or its faults.
func (a *adoption) add(list string, i int, set func() (api.Change, error)) {
	change, err := set()
	if err == nil {
		a.changes = append(a.changes, change)
		return
	}
	found, _ := faultsOf(err)
	if found == nil {
		found = cluster.Faults{{Message: err.Error()}}
	}
	a.faults = append(a.faults, strictjson.PrefixPaths(found, fmt.Sprintf("%s[%d]", list, i))...)
}

// set returns the services and crons as a set, whose needs may refer to each other.
func (a *adoption) set() (set []AppliedObject) {
	for i := range a.objects.Services {
		set = append(set, AppliedObject{Object: &a.objects.Services[i]})
	}
	for i := range a.objects.Crons {
		set = append(set, AppliedObject{Object: &a.objects.Crons[i]})
	}
	return set
}

// host drafts the settings of the node. A node of this store is refused, unless this adoption has written it before.
func (a *adoption) host() {
	name := a.objects.Node
	old, had := a.Snap.Host(name)
	next := cluster.Host{
		Name: name, Labels: a.objects.Labels, Taints: slices.Clone(a.objects.Taints),
		ReservedPorts: a.objects.ReservedPorts, Generation: a.objects.Generation + 1,
	}
	if a.domain != cluster.DefaultDomain {
		next.Domain = a.domain
	}
	refuse := func(format string, args ...any) {
		a.faults = append(a.faults, cluster.Fault{Path: "node", Message: fmt.Sprintf(format, args...)})
	}
	known := a.known(name)
	switch {
	case had && old.Value.Released != 0 && known:
		refuse("%s was released from these servers, which still remove its records: try again in a minute", name)
		return
	case had && old.Value.Released != 0:
		next.Generation = max(next.Generation, old.Value.Released+1)
	case known && (!had || old.Value.Generation != next.Generation || old.Value.Domain != next.Domain):
		refuse("is the name of a node of these servers already: give one of them another name, or, if it is gone, "+
			"forget it (berth node forget %s)", name)
		return
	}
	if had {
		next.Pool, next.Setup, next.Dial = old.Value.Pool, old.Value.Setup, old.Value.Dial
		if old.Value.Generation == next.Generation { // a repetition keeps what the operator has set since
			next = *old.Value
		}
	}
	a.DateTaints(&next)
	a.Require(a.Prefix.Host(name), old.Modified)
	if had {
		if action, _ := Compare(old.Value, &next); action == api.ActionNone {
			return
		}
	}
	a.Put(a.Prefix.Host(name), &next, old.Modified)
	a.Instead[a.Prefix.Host(name)] = cluster.Event{
		Type: "node.adopted", Node: name,
		Message: fmt.Sprintf("the domain %s takes it, with %d services, under the generation %d", a.domain,
			len(a.objects.Services), next.Generation),
	}
}

// known reports whether the store has records of a node or its attempts.
func (a *adoption) known(name string) bool {
	_, judged := a.Snap.Node(name)
	_, registered := a.Snap.NodeStatus(name)
	if judged || registered {
		return true
	}
	for range a.Snap.NodeAttempts(name) {
		return true
	}
	return false
}

// cluster drafts a cluster that the store does not have. One that exists stays as it is, and must be in the domain.
func (a *adoption) cluster(c *cluster.Cluster) (api.Change, error) {
	if old, ok := a.Snap.Cluster(c.Name); ok {
		if in := old.Value.InDomain(); in != a.domain {
			return api.Change{}, Conflictf("domain", "cluster %s is in the domain %s here: a node of the domain %s "+
				"cannot run its tasks", c.Name, in, a.domain)
		}
		return api.Change{Kind: cluster.KindCluster, Name: c.Name, Action: api.ActionNone, Revision: old.Modified},
			a.RequireCluster(c.Name)
	}
	c.Domain = ""
	if a.domain != cluster.DefaultDomain {
		c.Domain = a.domain
	}
	return a.SetCluster(c, Precondition{})
}

// service drafts a service with its generation, so that the ids of its tasks stay. A service of the name is replaced
// only if an earlier try of this adoption has written it: it is bound to the node and has no task.
func (a *adoption) service(svc *cluster.Service) (api.Change, error) {
	wanted := svc.Lifespan
	bind(&svc.Placement, a.objects.Node)
	old, ok := a.Snap.Service(svc.Cluster, svc.Name)
	if ok && old.Value.Deleted || !ok && a.Snap.NextGeneration(svc.Owner()) > wanted.Generation {
		return api.Change{}, Conflictf("name", "service %s/%s was deleted here, and records of it remain: try again "+
			"in a minute", svc.Cluster, svc.Name)
	}
	same := ok && old.Value.Generation == wanted.Generation
	unchanged := same && a.sameService(old.Value, svc)
	replaceable := ok && IsBound(&old.Value.Placement, a.objects.Node) && !a.hasTasks(svc.Owner())
	if ok && !unchanged && !replaceable {
		return api.Change{}, Conflictf("name", "service %s/%s exists already, with other content: delete or rename "+
			"one of them", svc.Cluster, svc.Name)
	}
	change, err := a.SetService(svc, Precondition{})
	if err != nil {
		return change, err
	}
	svc.Generation, svc.Restarted, svc.Inline = wanted.Generation, wanted.Restarted, wanted.Inline
	change.Generation, change.Effect = wanted.Generation, "takes its running tasks over"
	if change.Action == api.ActionNone && !same {
		change.Action = api.ActionUpdate
	}
	if change.Action != api.ActionNone {
		a.Put(a.Prefix.Service(svc.Cluster, svc.Name), svc, old.Modified)
	}
	return change, nil
}

// sameService reports whether a stored service has the content of another one.
func (a *adoption) sameService(old, svc *cluster.Service) bool {
	action, _ := Compare(plainService(old), plainService(svc))
	return action == api.ActionNone
}

// hasTasks reports whether the store has an attempt of an owner.
func (a *adoption) hasTasks(o cluster.OwnerRef) bool {
	for range a.Snap.Attempts(o) {
		return true
	}
	return false
}

// cron drafts a cron. One of the name with other content is refused.
func (a *adoption) cron(c *cluster.Cron) (api.Change, error) {
	c.Job.Steps = slices.Clone(c.Job.Steps)
	for i := range c.Job.Steps {
		bind(&c.Job.Steps[i].Placement, a.objects.Node)
	}
	if old, ok := a.Snap.Cron(c.Cluster, c.Name); ok {
		if action, _ := Compare(plainCron(old.Value), plainCron(c)); action != api.ActionNone {
			return api.Change{}, Conflictf("name", "cron %s/%s exists already, with other content: delete or rename "+
				"one of them", c.Cluster, c.Name)
		}
	}
	return a.SetCron(c, Precondition{})
}

// Conflicts returns the answer 409 with all faults.
func Conflicts(what string, faults cluster.Faults) *respond.Problem {
	p := respond.Problemf(http.StatusConflict, "%s: %s", what, respond.Plural(len(faults), "conflict"))
	p.Faults = faults
	return p
}
