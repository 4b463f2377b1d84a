package whatif

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// checkDomain refuses a change of a node or an owner of another domain: the simulation shows nothing of it.
func (w *World) checkDomain(c *api.SimulateChange) error {
	for _, n := range nodeFields(c) {
		e, ok := w.Snapshot().Node(n.name)
		if ok && e.Value.Domain != "" && e.Value.Domain != w.config.Domain {
			return w.otherDomain(n.field, "node "+n.name, e.Value.Domain)
		}
	}
	var field, in string
	switch {
	case c.Scale != nil:
		field, in = "scale", c.Scale.Cluster
	case c.Restart != nil:
		field, in = "restart", c.Restart.Cluster
	case c.Delete != nil:
		field, in = "delete", c.Delete.Cluster
	default:
		return nil
	}
	return w.checkCluster(field, cmp.Or(in, defaultCluster))
}

// checkObjectDomains refuses objects with tasks in clusters of another domain.
func (w *World) checkObjectDomains(objects []api.Object) error {
	for i, o := range objects {
		switch o.Kind {
		case cluster.KindService, cluster.KindJob, cluster.KindCron:
		default:
			continue
		}
		var of struct {
			Cluster string `json:"cluster"`
		}
		if err := json.Unmarshal(o.Spec, &of); err != nil {
			return err
		}
		if err := w.checkCluster(fmt.Sprintf("run[%d]", i), cmp.Or(of.Cluster, defaultCluster)); err != nil {
			return err
		}
	}
	return nil
}

// checkCluster refuses a change of an owner in a cluster of another domain.
func (w *World) checkCluster(field, in string) error {
	if domain := domainOf(w.Snapshot(), in); domain != w.config.Domain {
		return w.otherDomain(field, "cluster "+in, domain)
	}
	return nil
}

func (w *World) otherDomain(field, what, domain string) error {
	return cluster.Faults{{
		Path: field, Message: fmt.Sprintf("%s is in the domain %s, and this is a simulation of the domain %s: "+
			"simulate the other one (--domain %[2]s)", what, domain, w.config.Domain),
	}}
}

// nodeField is a field of a change that names a node.
type nodeField struct{ field, name string }

// nodeFields returns the nodes that a change names.
func nodeFields(c *api.SimulateChange) (set []nodeField) {
	all := []nodeField{
		{"remove_node", c.RemoveNode},
		{"drain_node", c.DrainNode},
		{"undrain_node", c.UndrainNode},
		{"cordon_node", c.CordonNode},
		{"uncordon_node", c.UncordonNode},
	}
	if c.Taint != nil {
		all = append(all, nodeField{"taint.node", c.Taint.Node})
	}
	if c.Untaint != nil {
		all = append(all, nodeField{"untaint.node", c.Untaint.Node})
	}
	for _, n := range all {
		if n.name != "" {
			set = append(set, n)
		}
	}
	return set
}
