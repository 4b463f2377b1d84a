package cluster

import (
	"slices"
	"strings"
)

// Endpoint is a name for the addresses of one port of a service: the record endpoint/<cluster>/<name>. Agents answer
// the name over DNS as they answer the name of a service, so a service and an endpoint of a cluster have distinct
// names. Writer: the user, Lifespan by the API server.
type Endpoint struct {
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"`
	Labels  Labels `json:"labels,omitempty"`
	// Service is the name of a service of the same cluster.
	Service string `json:"service"`
	// Port is the name of a port of the service's task definition. Tasks without the port have no address.
	Port string `json:"port"`
	// Tags select tasks by the labels of their task definition: a definition needs all of them. Default: all tasks.
	Tags Labels `json:"tags,omitempty"`
	// HealthyOnly says that only healthy tasks have an address. Default true. Otherwise each task has one that runs, or
	// that its node starts again after a failure, whatever its health.
	HealthyOnly *bool `json:"healthy_only,omitempty"`

	Lifespan
}

// SetDefaults fills in the fields that the user left out. It is idempotent.
func (e *Endpoint) SetDefaults() {
	setDefault(&e.Cluster, DefaultCluster)
	if e.HealthyOnly == nil {
		e.HealthyOnly = new(true)
	}
}

// Validate returns all faults of the endpoint as Faults, or nil. Omitted fields count with their defaults. References
// are not checked.
func (e *Endpoint) Validate() error {
	k := newCheck()
	if e.Cluster != "" {
		k.at("cluster").name(e.Cluster)
	}
	k.at("name").name(e.Name)
	k.at("name").must(e.Service == "" || e.Name != e.Service,
		"is the name of the service, too, which DNS answers already: choose another, such as \"%s-%s\"", clip(e.Name),
		clip(e.Port))
	k.at("labels").labels(e.Labels)
	switch e.Service {
	case "":
		k.at("service").fault("is missing: want the name of a service of the cluster")
	default:
		k.at("service").name(e.Service)
	}
	switch e.Port {
	case "":
		k.at("port").fault("is missing: want the name of a port of the service's task definition")
	default:
		k.at("port").name(e.Port)
	}
	k.at("tags").labels(e.Tags)
	return k.err()
}

// Owner returns the reference of this endpoint, for its events.
func (e *Endpoint) Owner() OwnerRef { return OwnerRef{KindEndpoint, e.Cluster, e.Name} }

// DNSName returns the name that agents answer with the addresses: "<endpoint>.<cluster>.berth".
func (e *Endpoint) DNSName() string { return e.Name + "." + e.Cluster + ".berth" }

// Target returns the service whose addresses the endpoint names.
func (e *Endpoint) Target() OwnerRef { return OwnerRef{KindService, e.Cluster, e.Service} }

// IncludesUnhealthy reports whether tasks that are not healthy have an address, too.
func (e *Endpoint) IncludesUnhealthy() bool { return e.HealthyOnly != nil && !*e.HealthyOnly }

// Selects reports whether the labels of a task definition hold all tags of the endpoint.
func (e *Endpoint) Selects(definition Labels) bool {
	for key, value := range e.Tags { // order-free: all must match
		if have, ok := definition[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// CheckDefinition returns the faults of the port and the tags against the task definition that the service requests
// now.
func (e *Endpoint) CheckDefinition(d *TaskDefinition) (faults Faults) {
	if !slices.ContainsFunc(d.Ports, func(p Port) bool { return p.Name == e.Port }) {
		names := make([]string, len(d.Ports))
		for i := range d.Ports {
			names[i] = d.Ports[i].Name
		}
		text := "it has no ports: add one to the definition"
		if len(names) > 0 {
			text = "want one of " + strings.Join(names, ", ")
		}
		faults = append(faults, Fault{Path: "port", Message: "is " + clip(e.Port) + ", and the definition " +
			d.Ref().String() + " of service " + e.Service + " has no port of this name: " + text})
	}
	return faults
}
