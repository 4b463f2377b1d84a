package control

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// RecoveryAPI shows that the store went back, and takes the operator's decision about it.
type RecoveryAPI struct{ backend.Backend }

func (a *RecoveryAPI) readRecovery(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	return a.answerRecovery(w, snap)
}

// domainOf returns the domain whose recovery is shown: the first one in which the decision is awaited, else the default
// domain.
func domainOf(snap *store.Snapshot) string {
	for _, name := range snap.Domains() {
		if e, ok := snap.Recovery(name); ok && e.Value.State == cluster.RecoveryNeeded {
			return name
		}
	}
	return cluster.DefaultDomain
}

func (a *RecoveryAPI) answerRecovery(w http.ResponseWriter, snap *store.Snapshot) error {
	domain := domainOf(snap)
	v := api.RecoveryView{Domain: domain}
	if l, ok := snap.Leader(domain); ok {
		v.Incarnation = l.Value.Incarnation
	}
	if e, ok := snap.Recovery(domain); ok {
		v.Recovery, v.Needed, v.Revision = e.Value, e.Value.State == cluster.RecoveryNeeded, e.Modified
	}
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

// recover takes the operator's decision about a store that went back (P1.7), in all domains that await it. One
// transaction writes the decision and
// raises the store's incarnation above every incarnation that an agent has seen. It also ends the leader's epoch, so
// that the next leader starts with the decision.
func (a *RecoveryAPI) recover(w http.ResponseWriter, r *http.Request) error {
	var asked api.RecoveryRequest
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	if err := strictjson.ReadBody(w, r, &asked); err != nil {
		return err
	}
	decided, ok := map[api.RecoveryAction]cluster.RecoveryState{
		api.RecoverAdopt: cluster.RecoveryAdopt, api.RecoverStop: cluster.RecoveryStop,
	}[asked.Action]
	if !ok {
		return respond.Invalid(cluster.Faults{
			{Path: "action", Message: "want \"adopt\" (keep what nodes run and the store does not know, " +
				"where its owner wants it) or \"stop\""},
		})
	}
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := d.Snap.Recovery(domainOf(d.Snap))
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		switch {
		case !ok:
			return respond.Problemf(http.StatusConflict,
				"the store did not go back: there is nothing to recover")
		case e.Value.State == decided:
			return nil
		case e.Value.State != cluster.RecoveryNeeded:
			return respond.Problemf(http.StatusConflict, "it was decided already, at %s: %s",
				e.Value.Decided.Format("2006-01-02 15:04:05"), e.Value.State)
		}
		for _, name := range d.Snap.Domains() { // the decision holds for the whole store
			if e, ok := d.Snap.Recovery(name); ok && e.Value.State == cluster.RecoveryNeeded {
				recoverStore(d, name, e, decided)
			}
		}
		d.Events = append(d.Events, cluster.Event{
			Type:    "recovery.decided",
			Message: "the operator decided on tasks that nodes run and the store does not know: " + string(decided),
		})
		return nil
	})
	if err != nil {
		return err
	}
	return a.answerRecovery(w, snap)
}

// recoverStore adds the decision to a draft, and ends the present leadership term.
func recoverStore(d *draft.Draft, domain string, e store.Entry[cluster.Recovery], decided cluster.RecoveryState) {
	next := *e.Value
	next.State, next.Decided, next.By = decided, d.Now, d.By
	leader := &cluster.Leader{}
	l, ok := d.Snap.Leader(domain)
	if ok {
		*leader = *l.Value
	}
	leader.Incarnation = max(uint64(d.Now.UnixMilli()), next.Shown.Incarnation+1, leader.Incarnation+1)
	leader.Epoch++
	leader.Holder, leader.Member, leader.Since = "", "", d.Now
	d.Put(d.Prefix.Recovery(domain), &next, e.Modified)
	d.Put(d.Prefix.Leader(domain), leader, l.Modified)
}

// Routes returns the operations of recovery.
func (a *RecoveryAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/recovery", Name: "readRecovery",
			Summary: "Whether the store went back behind the agents, and the operator's decision.",
			Role:    cluster.RoleViewer,
			Query:   []route.Parameter{route.Consistent()}, Reply: reflect.TypeFor[api.RecoveryView](),
			Serve: a.readRecovery,
		},
		{
			Method: "POST", Path: "/v1/recovery", Name: "recover",
			Summary: "Decides about tasks that run on nodes and that a store which went back does not know.",
			Role:    cluster.RoleAdmin, Writes: true, Body: reflect.TypeFor[api.RecoveryRequest](),
			Reply: reflect.TypeFor[api.RecoveryView](), Serve: a.recover,
		},
	}
}
