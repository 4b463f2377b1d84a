package draft

import (
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// SetEndpoint drafts the write of an endpoint. The service and its port must exist when the endpoint is made or
// changed. Later changes of the service are the user's: an endpoint without its service has no addresses. The
// generation counts the writes.
func (d *Draft) SetEndpoint(e *cluster.Endpoint, pre Precondition) (api.Change, error) {
	change := api.Change{Kind: cluster.KindEndpoint, Cluster: e.Cluster, Name: e.Name, Action: api.ActionCreate}
	old, ok := d.Snap.Endpoint(e.Cluster, e.Name)
	if err := pre.Check(old.Modified); err != nil {
		return change, err
	}
	e.Lifespan = cluster.Lifespan{Generation: 1, Created: d.Now, Updated: d.Now, Trace: d.Trace}
	if ok {
		e.Generation, e.Created = old.Value.Generation+1, old.Value.Created
		change.Revision = old.Modified
		change.Action, change.Fields = Compare(plainEndpoint(old.Value), plainEndpoint(e))
		if change.Action == api.ActionNone {
			return change, nil
		}
	}
	var faults cluster.Faults
	conflicts := 0
	for _, err := range []error{d.RequireCluster(e.Cluster), d.requireEndpointName(e, ok)} {
		found, isConflict := faultsOf(err)
		if err != nil && found == nil {
			return change, err
		}
		if isConflict {
			conflicts += len(found)
		}
		faults = append(faults, found...)
	}
	faults = append(faults, d.checkEndpointTarget(e)...)
	if len(faults) > 0 && conflicts == len(faults) {
		p := respond.Problemf(http.StatusConflict, "%s", faults.Error())
		p.Faults = faults
		return change, p
	}
	if len(faults) > 0 {
		return change, faults
	}
	d.Put(d.Prefix.Endpoint(e.Cluster, e.Name), e, old.Modified)
	return change, nil
}

// requireEndpointName adds the precondition that no service has the name of a new endpoint: DNS has one answer for it.
func (d *Draft) requireEndpointName(e *cluster.Endpoint, exists bool) error {
	if exists {
		return nil // no service of the name can have been made since
	}
	if svc := d.service(e.Cluster, e.Name); svc != nil {
		return Conflictf("name", "%s is the name of a service of cluster %s, and DNS answers the names of services "+
			"and endpoints alike: choose another, such as \"%s-%s\"", e.Name, e.Cluster, e.Name, e.Port)
	}
	d.Require(d.Prefix.Service(e.Cluster, e.Name), 0)
	return nil
}

// requireServiceName adds the precondition that no endpoint has the name of a new service.
func (d *Draft) requireServiceName(o cluster.OwnerRef) error {
	if _, exists := d.Snap.Service(o.Cluster, o.Name); exists {
		return nil // no endpoint of the name can have been made since
	}
	if _, taken := d.Snap.Endpoint(o.Cluster, o.Name); taken {
		return Conflictf("name", "%s is the name of an endpoint of cluster %s, and DNS answers the names of services "+
			"and endpoints alike: choose another, or delete the endpoint first", o.Name, o.Cluster)
	}
	d.Require(d.Prefix.Endpoint(o.Cluster, o.Name), 0)
	return nil
}

// checkEndpointTarget returns the faults of the references of an endpoint: its service, and the port of the definition
// that the service requests.
func (d *Draft) checkEndpointTarget(e *cluster.Endpoint) cluster.Faults {
	svc := d.service(e.Cluster, e.Service)
	if svc == nil {
		return cluster.FaultsOf(Faultf("service", "there is no service %s in cluster %s: apply it before the "+
			"endpoint, or together with it", e.Service, e.Cluster))
	}
	if svc.Deleted {
		return cluster.FaultsOf(Faultf("service", "service %s is being deleted: name another, or apply it again first",
			e.Service))
	}
	if def := d.Definition(svc.Definition); def != nil {
		return e.CheckDefinition(def)
	}
	return nil
}

// service returns a service of the draft or the store, nil if there is none.
func (d *Draft) service(in, name string) *cluster.Service {
	if svc, ok := d.writes[d.Prefix.Service(in, name)].(*cluster.Service); ok {
		return svc
	}
	e, _ := d.Snap.Service(in, name)
	return e.Value
}

func plainEndpoint(e *cluster.Endpoint) *cluster.Endpoint {
	plain := *e
	plain.Lifespan = cluster.Lifespan{}
	return &plain
}
