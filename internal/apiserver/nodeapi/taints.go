package nodeapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// taintNode adds taints to a node. Taints that the node has already change nothing.
func (a *API) taintNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.TaintRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	// The taints must follow the rules of a node's taints: no key and effect twice.
	asked := cluster.Host{Name: "n", Taints: ask.Taints}
	asked.SetDefaults()
	faults := cluster.FaultsOf(asked.Validate())
	if len(ask.Taints) == 0 {
		faults = append(faults, cluster.Fault{Path: "taints", Message: "is empty: want at least one taint"})
	}
	if len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return a.changeNode(w, r, func(d *draft.Draft, _ api.NodeView, h *cluster.Host) error {
		return changeSettings(d, h, "tainted "+joined(ask.Taints), func() {
			h.Taints = slices.Clone(h.Taints) // the tables' own value must not change
			for _, t := range ask.Taints {
				at := slices.IndexFunc(h.Taints, func(o cluster.Taint) bool {
					return o.Key == t.Key && o.Effect == t.Effect
				})
				if at < 0 {
					h.Taints = append(h.Taints, t)
				} else {
					h.Taints[at] = t
				}
			}
			d.DateTaints(h)
		})
	})
}

// untaintNode removes taints from a node. Missing taints are no error.
func (a *API) untaintNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.UntaintRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	if faults := untaintFaults(ask.Taints); len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return a.changeNode(w, r, func(d *draft.Draft, _ api.NodeView, h *cluster.Host) error {
		var gone []cluster.Taint
		left := slices.DeleteFunc(slices.Clone(h.Taints), func(t cluster.Taint) bool {
			named := slices.ContainsFunc(ask.Taints, func(k api.TaintKey) bool {
				return k.Key == t.Key && (k.Effect == "" || k.Effect == t.Effect)
			})
			if named {
				gone = append(gone, t)
			}
			return named
		})
		return changeSettings(d, h, "without the taint "+joined(gone), func() {
			if h.Taints = left; len(left) == 0 {
				h.Taints = nil
			}
		})
	})
}

// untaintFaults returns the faults of the keys.
func untaintFaults(keys []api.TaintKey) (faults cluster.Faults) {
	for i, k := range keys {
		one := cluster.Host{Name: "n", Taints: []cluster.Taint{{Key: k.Key, Effect: k.Effect}}}
		for _, f := range cluster.FaultsOf(one.Validate()) {
			faults = append(faults, cluster.Fault{
				Path:    strings.Replace(f.Path, "[0]", fmt.Sprintf("[%d]", i), 1),
				Message: f.Message,
			})
		}
	}
	if len(keys) == 0 {
		faults = append(faults, cluster.Fault{Path: "taints", Message: "is empty: want at least one key"})
	}
	return faults
}

// domainNode gives a node to a domain. Its present domain drains it first; by force the next one takes it at once.
func (a *API) domainNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.NodeDomainRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	return a.changeNode(w, r, func(d *draft.Draft, _ api.NodeView, h *cluster.Host) error {
		if err := d.RequireDomain(ask.Domain); err != nil {
			return draft.AsProblem(err)
		}
		if owner := d.Snap.PoolDomain(h.Pool); ask.Domain == cluster.DefaultDomain && owner != "" {
			return respond.Problemf(http.StatusConflict, "node %s is in the pool %s, which belongs to the domain %s: "+
				"take it out of the pool first (berth node pool %s --none)", h.Name, h.Pool, owner, h.Name)
		}
		return changeSettings(d, h, "given to the domain "+ask.Domain, func() {
			h.Domain = ask.Domain
			if node, ok := d.Snap.Node(h.Name); ok && ask.Force && node.Value.Domain != ask.Domain {
				h.Generation = node.Value.Generation + 1
				d.Require(d.Prefix.Node(h.Name), node.Modified)
			}
		})
	})
}

// poolNode puts a node into a pool, or takes it out of its pool.
func (a *API) poolNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.PoolRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	asked := cluster.Host{Name: "n", Pool: ask.Pool}
	if faults := cluster.FaultsOf(asked.Validate()); len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return a.changeNode(w, r, func(d *draft.Draft, _ api.NodeView, h *cluster.Host) error {
		message := "put into the pool " + ask.Pool
		if ask.Pool == "" {
			message = "taken out of the pool " + h.Pool
		}
		return changeSettings(d, h, message, func() { h.Pool = ask.Pool })
	})
}

// changeSettings changes settings of a node and sets the event's message. It refuses a change after which the settings
// would be invalid.
func changeSettings(d *draft.Draft, h *cluster.Host, message string, change func()) error {
	change()
	h.SetDefaults()
	if faults := cluster.FaultsOf(h.Validate()); len(faults) > 0 {
		return respond.Problemf(http.StatusConflict, "node %s would be invalid: %s", h.Name, faults)
	}
	e := cluster.Event{Type: "node-settings.updated", Node: h.Name, Message: message}
	if _, ok := d.Snap.Host(h.Name); !ok {
		e.Type = "node-settings.created"
	}
	d.Instead[d.Prefix.Host(h.Name)] = e
	return nil
}

func joined(taints []cluster.Taint) string {
	texts := make([]string, len(taints))
	for i, t := range taints {
		texts[i] = t.String()
	}
	return strings.Join(texts, ", ")
}
