package views

import (
	"net"
	"strconv"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Endpoint shows an endpoint with the number of its addresses.
func (b *Builder) Endpoint(e store.Entry[cluster.Endpoint]) api.EndpointView {
	v := api.EndpointView{Endpoint: *e.Value, Revision: e.Modified}
	all := *e.Value
	all.HealthyOnly = new(false)
	for _, a := range b.Snapshot.EndpointAddresses(&all) {
		if a.Health == cluster.HealthHealthy {
			v.Status.Healthy++
		} else {
			v.Status.Failing++
		}
	}
	v.Status.DNS = e.Value.DNSName()
	v.Status.Addresses = len(b.Snapshot.EndpointAddresses(e.Value))
	v.Status.Message = b.whyNoAddress(&v)
	return v
}

// whyNoAddress returns why an endpoint has no address, "" if it has one.
func (b *Builder) whyNoAddress(v *api.EndpointView) string {
	if v.Status.Addresses > 0 {
		return ""
	}
	if _, ok := b.Snapshot.Service(v.Cluster, v.Service); !ok {
		return "there is no service " + v.Service
	}
	if v.Status.Failing > 0 {
		return "no task of service " + v.Service + " is healthy"
	}
	anyTags := v.Endpoint
	anyTags.Tags, anyTags.HealthyOnly = nil, new(false)
	switch {
	case len(v.Tags) > 0 && len(b.Snapshot.EndpointAddresses(&anyTags)) > 0:
		return "the definitions of the tasks of service " + v.Service + " do not have the tags as labels"
	case b.hasTasks(anyTags.Target()):
		return "no running task of service " + v.Service + " has the port " + v.Port
	}
	return "service " + v.Service + " has no running task"
}

// hasTasks reports whether a task of a service runs.
func (b *Builder) hasTasks(o cluster.OwnerRef) bool {
	for row := range b.Snapshot.Attempts(o) {
		if row.Observed != nil && row.Observed.State == cluster.StateRunning {
			return true
		}
	}
	return false
}

// EndpointAddress shows an address of an endpoint's port. Canary is the generation of the tasks that wait to be
// promoted, 0 for none.
func EndpointAddress(a *store.Address, port string, canary uint64) api.EndpointAddress {
	parts, _ := a.Task.Parts()
	number := a.Ports[port]
	return api.EndpointAddress{
		Address: net.JoinHostPort(a.Address, strconv.Itoa(number)), Host: a.Address, Port: number,
		Node: a.Node, Task: a.Task, Attempt: a.Attempt, Health: a.Health, Definition: a.Definition,
		Generation: parts.Generation, Canary: canary != 0 && parts.Generation == canary,
	}
}
