package nodeapi

import (
	"cmp"
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

// setupNode records how a machine was added, with its domain and its pool. The node needs no records: the settings are
// there before its agent registers. A node of another domain is refused, because its domain has to drain it first.
func (a *API) setupNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.NodeSetupRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	name := r.PathValue("node")
	var written *draft.Draft
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		written = d
		n, ok := a.Views.Node(d.Snap, name)
		if err := pre.Check(n.Revision); err != nil {
			return err
		}
		if ask.Domain != "" {
			if err := d.RequireDomain(ask.Domain); err != nil {
				return draft.AsProblem(err)
			}
			if ok && n.Domain != ask.Domain {
				return respond.Problemf(http.StatusConflict, "node %s is in the domain %s: move it first (berth node "+
					"domain %s %s)", name, n.Domain, name, ask.Domain)
			}
		}
		return changeHost(d, name, func(h *cluster.Host) error {
			var was cluster.HostSetup
			if h.Setup != nil {
				was = *h.Setup
			}
			err := changeSettings(d, h, "set up at "+ask.Setup.Address, func() {
				h.Setup = &ask.Setup
				h.Domain, h.Pool = cmp.Or(ask.Domain, h.Domain), cmp.Or(ask.Pool, h.Pool)
			})
			if e := setupEvent(name, &was, &ask.Setup); err == nil && e.Type != "" {
				d.Instead[d.Prefix.Host(name)] = e
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	v, ok := a.Views.Node(snap, name)
	if !ok {
		return respond.NotFound("node", name)
	}
	v.Revision = written.RevisionOr(v.Revision)
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

// setupEvent returns the event of a setup that tells of an upgrade or of drift; one without a type for any other.
func setupEvent(name string, was, is *cluster.HostSetup) cluster.Event {
	switch f := is.FailedUpgrade; {
	case f != nil && (was.FailedUpgrade == nil || *was.FailedUpgrade != *f):
		return cluster.Event{
			Type: "node.upgrade-failed", Node: name, Message: "the upgrade to " + f.Binary + " failed: " + f.Problem,
		}
	case was.At.Equal(is.At) && was.Binary != is.Binary:
		return cluster.Event{
			Type: "node.upgraded", Node: name, Message: "the agent runs " + is.Binary + ", before " + was.Binary,
		}
	case !slices.Equal(was.Drift, is.Drift):
		return driftEvent(name, is.Drift)
	}
	return cluster.Event{}
}

// driftEvent returns the event of a node that differs from its profile, or does not any more.
func driftEvent(name string, drift []string) cluster.Event {
	if len(drift) == 0 {
		return cluster.Event{Type: "node.repaired", Node: name, Message: "the machine is as its profile says"}
	}
	const most = 5
	text := strings.Join(drift[:min(len(drift), most)], ", ")
	if rest := len(drift) - most; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return cluster.Event{Type: "node.drifted", Node: name, Message: "the machine differs from its profile: " + text}
}
