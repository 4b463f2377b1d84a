package services

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/cluster"
)

// lookup is the current state of the services that a container uses.
type lookup struct {
	services map[cluster.ServicePort][]cluster.TemplateAddress
	// stale lists services whose addresses may be out of date; empty lists required services without an address.
	stale, empty []cluster.ServicePort
	// waits says why the services in empty have no address, in one sentence.
	waits string
}

// lookUp collects the state of all services that a container uses.
func (s *Follower) lookUp(c *cluster.Container, own string) lookup {
	l := lookup{services: map[cluster.ServicePort][]cluster.TemplateAddress{}}
	var why []string
	for _, need := range c.Needs() {
		at := s.following.Now(addresses.ServiceName(need.In(own)))
		var list []cluster.TemplateAddress
		for i := range at.Addresses {
			a := &at.Addresses[i]
			if port := a.Ports[need.Port]; port != 0 || need.Port == "" {
				list = append(list, cluster.TemplateAddress{Address: a.Address, Port: port, Node: a.Node, Task: a.Task})
			}
		}
		l.services[need.ServicePort] = list
		if !at.Known || at.Stale {
			l.stale = append(l.stale, need.ServicePort)
		}
		if len(list) == 0 && !need.Optional {
			l.empty = append(l.empty, need.ServicePort)
			why = append(why, missingReason(need.ServicePort, at, own))
		}
	}
	l.waits = strings.Join(why, "; ")
	return l
}

// missingReason says why a service has no address.
func missingReason(p cluster.ServicePort, at addresses.Service, own string) string {
	name := p.String()
	switch {
	case !at.Known:
		return fmt.Sprintf("no server has sent the addresses of service %s yet", name)
	case at.Missing:
		return fmt.Sprintf("there is no service %s in cluster %s", p.Service, cmp.Or(p.Cluster, own))
	case len(at.Addresses) == 0:
		return fmt.Sprintf("service %s has no healthy task", name)
	}
	ports := map[string]bool{}
	for i := range at.Addresses {
		for port := range at.Addresses[i].Ports { // order-free: sorted below
			ports[port] = true
		}
	}
	if len(ports) == 0 {
		return fmt.Sprintf("service %s has no port %q: it has none", name, p.Port)
	}
	return fmt.Sprintf("service %s has no port %q: it has %s", name, p.Port,
		strings.Join(slices.Sorted(maps.Keys(ports)), ", "))
}

// with returns the lookup with the container's last addresses in place of those of some services.
func (l lookup) with(last *lastContent, instead []cluster.ServicePort) lookup {
	if last == nil || len(instead) == 0 {
		return l
	}
	l.services = maps.Clone(l.services)
	for _, p := range instead {
		if list := last.addresses(p); len(list) > 0 {
			l.services[p] = list
			l.empty = slices.DeleteFunc(slices.Clone(l.empty), func(e cluster.ServicePort) bool { return e == p })
		}
	}
	return l
}

// variables returns the environment variables with the addresses of a container's services.
func (l lookup) variables(c *cluster.Container) map[string]string {
	env := map[string]string{}
	for _, u := range c.Services {
		if u.Env == "" {
			continue
		}
		var words []string
		name := cluster.ServiceName{Cluster: u.Cluster, Service: u.Service}
		for _, a := range l.services[cluster.ServicePort{ServiceName: name, Port: u.Port}] {
			words = append(words, a.String())
		}
		env[u.Env] = strings.Join(words, ",")
	}
	return env
}
