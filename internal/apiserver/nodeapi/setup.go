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
	return a.changeAnyNode(w, r, func(d *draft.Draft, n api.NodeView, known bool, h *cluster.Host) error {
		if ask.Domain != "" {
			if err := d.RequireDomain(ask.Domain); err != nil {
				return draft.AsProblem(err)
			}
			if known && n.Domain != ask.Domain {
				return respond.Problemf(http.StatusConflict, "node %s is in the domain %s: move it first (berth node "+
					"domain %s %s)", h.Name, n.Domain, h.Name, ask.Domain)
			}
		}
		var was cluster.HostSetup
		if h.Setup != nil {
			was = *h.Setup
		}
		err := changeSettings(d, h, "set up at "+ask.Setup.Address, func() {
			h.Setup = &ask.Setup
			h.Domain, h.Pool = cmp.Or(ask.Domain, h.Domain), cmp.Or(ask.Pool, h.Pool)
			h.Dial = cmp.Or(ask.Dial, h.Dial)
		})
		if e := setupEvent(h.Name, &was, &ask.Setup); err == nil && e.Type != "" {
			d.Instead[d.Prefix.Host(h.Name)] = e
		}
		return err
	})
}

// dialNode sets where the servers dial the agent of a node. The node needs no records: the servers dial it before its
// agent registers.
func (a *API) dialNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.NodeDialRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	message := "its agent dials the servers"
	if ask.Dial != "" {
		if _, err := cluster.ParseDialAddress(ask.Dial); err != nil {
			return respond.Invalid(cluster.Faults{{Path: "dial", Message: err.Error()}})
		}
		message = "the servers dial " + ask.Dial
	}
	return a.changeAnyNode(w, r, func(d *draft.Draft, _ api.NodeView, known bool, h *cluster.Host) error {
		if !known && ask.Dial == "" {
			return respond.NotFound("node", h.Name)
		}
		return changeSettings(d, h, message, func() { h.Dial = ask.Dial })
	})
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
