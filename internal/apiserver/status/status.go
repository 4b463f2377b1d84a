// Package status shows the state of the whole: leader, servers, nodes, store and alarms, over HTTP and as gauges.
package status

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/version"
)

// API shows the state of the domain as a whole.
type API struct {
	backend.Backend

	// ServerID is this server's own id.
	ServerID   string
	Engine     *control.EngineState
	Servers    *control.ServersAPI
	MasterKeys *credentials.MasterKeysAPI
	Views      *views.Source
	// Backups returns immediately the fault of the scheduled backups of this server. It may be nil.
	Backups func() error
}

func (a *API) readStatus(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	domain, err := a.DomainOf(snap.Domains(), r)
	if err != nil {
		return err
	}
	engine := a.Engine.Ask(r.Context())
	v := a.status(snap, &engine, domain)
	caller := access.CallerOf(r.Context())
	if caller.Clusters == nil {
		v.Alarms = append(v.Alarms, a.domainAlarms(snap, domain)...)
		v.Alarms = append(v.Alarms, foreignRecords(snap)...)
	}
	caller.ShowStatus(&v)
	return respond.JSON(w, http.StatusOK, v)
}

// status returns the state of a domain.
func (a *API) status(snap *store.Snapshot, engine *control.EngineAnswer, domain string) api.Status {
	v := api.Status{
		Server: a.ServerID, Version: version.Current().Version, Domain: domain, Index: snap.Revision(),
		Nodes: views.CountNodes(snap, domain), MassSilence: a.Views.IsMassSilence(snap, domain),
		Store: control.StoreView(engine), Leader: views.LeaderOf(snap, domain),
	}
	if e, ok := snap.Recovery(domain); ok && e.Value.State == cluster.RecoveryNeeded {
		v.Recovery = e.Value
	}
	if e, ok := snap.Domain(domain); ok && e.Value.RescheduleUntil.After(a.Now()) {
		v.RescheduleUntil = e.Value.RescheduleUntil
	}
	if e, ok := snap.RunningRebalancing(domain); ok {
		brief := planning.BriefOf(e.Value)
		v.Rebalancing = &brief
	}
	servers := a.Servers.Views(snap, engine)
	for i := range servers {
		v.Servers.Total++
		if servers[i].State == api.ServerUp {
			v.Servers.Up++
		}
		if m := servers[i].Engine; m != nil && m.Learner {
			v.Servers.Learners++
		}
	}
	if v.Servers.Total == 0 { // a single server may have no record yet
		v.Servers.Total, v.Servers.Up = 1, 1
	}
	if voters, _ := engine.Votes(""); voters > 0 {
		v.Servers.Quorum = control.Quorum(voters)
	}
	v.Alarms = append(a.alarms(&v, servers, engine), a.MasterKeys.LackingKeys(snap)...)
	v.Alarms = append(v.Alarms, publisherAlarms(snap, a.Now())...)
	return v
}

// Routes returns the operation of the status.
func (a *API) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/status", Name: "readStatus",
			Summary: "The state of a domain: leader, servers, nodes, store, and alarms.",
			Role:    cluster.RoleViewer, Shared: true,
			Query: []route.Parameter{route.DomainParameter(), route.Consistent()},
			Reply: reflect.TypeFor[api.Status](),
			Serve: a.readStatus,
		},
	}
}
