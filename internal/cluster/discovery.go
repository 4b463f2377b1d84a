package cluster

import (
	"maps"
	"slices"
	"strings"
)

// Bounds of a discovery.
const (
	MaxConsulServices = 20 // of a task
	// MaxConsulTags limits the tags of one registration, and MaxConsulTag one tag, in bytes.
	MaxConsulTags = 64
	MaxConsulTag  = 255
	// MaxConsulMeta limits the metadata of one registration; Berth adds some. MaxConsulMetaKey and MaxConsulMetaValue
	// are Consul's limits, in bytes.
	MaxConsulMeta      = 48
	MaxConsulMetaKey   = 128
	MaxConsulMetaValue = 512
)

// LabelDiscovery is the label that nodes have for the scheduler whose agents register tasks. Its value is the system.
const LabelDiscovery = "berth.discovery"

// DiscoveryConsul is the value of LabelDiscovery for nodes whose agents register tasks in Consul.
const DiscoveryConsul = "consul"

// Discovery says where a healthy task is registered for programs outside of Berth.
type Discovery struct {
	// Consul lists the services of Consul as which the task is registered. The task is placed only on nodes whose agent
	// uses Consul (berth agent --discovery).
	Consul []ConsulService `json:"consul,omitempty"`
}

// ConsulService is one registration of a task as a service of Consul.
type ConsulService struct {
	// Name is the name of the service in Consul. The default is the name of the service or job in Berth; in other
	// clusters than "default", "<cluster>-" precedes it.
	Name string `json:"name,omitempty"`
	// Port is the name of the port whose number on the node is registered. The default is the definition's only port.
	Port string `json:"port,omitempty"`
	// Tags are shown with the registration. Consul answers DNS queries for TAG.NAME.service.consul.
	Tags []string `json:"tags,omitempty"`
	// Meta are metadata of the registration. Berth adds keys that begin with "berth-".
	Meta map[string]string `json:"meta,omitempty"`
	// Checks says who tests the registered task. Default ttl.
	Checks ConsulChecks `json:"checks,omitempty"`
}

// ConsulChecks is the choice of who tests a task that is registered in Consul.
type ConsulChecks string

// Kinds of checks in Consul.
const (
	// ConsulTTL is one check of type TTL: the agent reports the health that it finds by the checks of the definition.
	ConsulTTL ConsulChecks = "ttl"
	// ConsulNative has Consul make the readiness checks of the definition itself. They are of type http, tcp or grpc.
	ConsulNative ConsulChecks = "native"
)

// Values returns every ConsulChecks, in the order of the constants.
func (ConsulChecks) Values() []ConsulChecks { return []ConsulChecks{ConsulTTL, ConsulNative} }

// ServiceIn returns the name in Consul for a task of an owner.
func (s *ConsulService) ServiceIn(owner OwnerRef) string {
	switch {
	case s.Name != "":
		return s.Name
	case owner.Cluster != DefaultCluster:
		return owner.Cluster + "-" + owner.Name
	}
	return owner.Name
}

// UsesConsul reports whether tasks of the definition are registered in Consul.
func (d *TaskDefinition) UsesConsul() bool { return len(d.Discovery.Consul) > 0 }

// setDefaults fills in the fields that the user left out.
func (s *ConsulService) setDefaults(d *TaskDefinition) {
	setDefault(&s.Checks, ConsulTTL)
	if len(d.Ports) == 1 {
		setDefault(&s.Port, d.Ports[0].Name)
	}
}

// validateDiscovery checks the registrations of a definition whose defaults are set.
func (d *TaskDefinition) validateDiscovery(k check) {
	all := d.Discovery.Consul
	k.at("consul").must(len(all) <= MaxConsulServices, "holds %d services, at most %d are allowed", len(all),
		MaxConsulServices)
	type address struct{ name, port string }
	first := map[address]int{}
	for i := range all {
		s, at := &all[i], k.index("consul", i)
		s.validate(at, d)
		if j, ok := first[address{s.Name, s.Port}]; ok {
			at.fault("has the name and the port of discovery.consul[%d]: leave one of them out", j)
		} else {
			first[address{s.Name, s.Port}] = i
		}
	}
}

func (s *ConsulService) validate(k check, d *TaskDefinition) {
	if s.Name != "" {
		k.at("name").name(s.Name)
	}
	switch {
	case s.Port == "" && len(d.Ports) > 1:
		k.at("port").fault("is missing: the definition has several ports, so name the one to register")
	case s.Port != "" && d.port(s.Port) == nil:
		k.at("port").fault("%q is not the name of one of the definition's ports", clip(s.Port))
	}
	for i, tag := range bounded(k.at("tags"), s.Tags, MaxConsulTags, "tags") {
		at := k.index("tags", i)
		at.must(tag != "" && len(tag) <= MaxConsulTag && printable(tag),
			"%q is not a tag: want 1 to %d bytes of printable text", clip(tag), MaxConsulTag)
		at.must(!slices.Contains(s.Tags[:i], tag), "%q is repeated: write it once", clip(tag))
	}
	s.validateMeta(k.at("meta"))
	if oneOf(k.at("checks"), s.Checks) && s.Checks == ConsulNative {
		d.validateNativeChecks(k.at("checks"))
	}
}

func (s *ConsulService) validateMeta(k check) {
	k.must(len(s.Meta) <= MaxConsulMeta, "holds %d keys, at most %d are allowed", len(s.Meta), MaxConsulMeta)
	for _, key := range slices.Sorted(maps.Keys(s.Meta)) {
		at := k.key(key)
		at.must(validMetaKey(key),
			"is not a key of Consul's metadata: want 1 to %d of letters, digits, \"-\" and \"_\"", MaxConsulMetaKey)
		for _, reserved := range []string{"berth-", "consul-"} {
			at.must(!strings.HasPrefix(key, reserved), "begins with %s, which is reserved", reserved)
		}
		at.must(len(s.Meta[key]) <= MaxConsulMetaValue && printable(s.Meta[key]),
			"has a value that is longer than %d bytes or not printable text", MaxConsulMetaValue)
	}
}

// validMetaKey reports whether Consul accepts a key of metadata.
func validMetaKey(key string) bool {
	return key != "" && len(key) <= MaxConsulMetaKey && !strings.ContainsFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}

// validateNativeChecks requires readiness checks that Consul can make.
func (d *TaskDefinition) validateNativeChecks(k check) {
	readiness := 0
	for i := range d.Checks {
		c := &d.Checks[i]
		if c.EffectiveMeaning() != MeaningReadiness {
			continue
		}
		readiness++
		k.must(len(c.Statuses) == 0,
			"is native, but Consul accepts the statuses 200 to 299 only, and the check %q has statuses of its own: "+
				"use ttl, with which the agent reports the health", clip(c.Name))
		k.must(c.Type != CheckExec && c.Type != CheckTTL,
			"is native, but Consul cannot make the readiness check %q of type %s: use ttl, with which the agent "+
				"reports the health", clip(c.Name), c.Type)
	}
	k.must(readiness > 0, "is native, but the definition has no readiness check that Consul could make: add one of "+
		"type http, tcp or grpc, or use ttl")
}
