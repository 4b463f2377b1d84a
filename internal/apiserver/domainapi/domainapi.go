// Package domainapi lists, reads, writes and deletes domains, over HTTP.
package domainapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// API lists, reads, writes and deletes domains, and overrides their mass silence.
type API struct {
	backend.Backend

	Views *views.Source
}

// maxReschedule bounds the override of a mass silence, so that a forgotten override ends.
const maxReschedule = 24 * time.Hour

func (a *API) listDomains(w http.ResponseWriter, r *http.Request) error {
	return lists.Serve(a.Lists, w, r, lists.Source[api.DomainView]{
		List:   "domains",
		Topics: store.TopicDomain | store.TopicLeader | store.TopicNodes | store.TopicClusters | store.TopicPools,
		All: func(snap *store.Snapshot) (all []lists.Item[api.DomainView]) {
			for _, name := range snap.Domains() {
				all = append(all, lists.Item[api.DomainView]{Key: name, Value: a.View(snap, name)})
			}
			return all
		},
	})
}

// View returns the view of a domain that exists.
func (a *API) View(snap *store.Snapshot, name string) api.DomainView {
	v := api.DomainView{Domain: cluster.Domain{Name: name}}
	if e, ok := snap.Domain(name); ok {
		v.Domain, v.Revision = *e.Value, e.Modified
	}
	v.Number, _ = snap.DomainNumber(name)
	v.Status = api.DomainStatus{
		Leader: views.LeaderOf(snap, name), Nodes: views.CountNodes(snap, name),
		MassSilence: a.Views.IsMassSilence(snap, name),
	}
	if e, ok := snap.Recovery(name); ok {
		v.Status.RecoveryNeeded = e.Value.State == cluster.RecoveryNeeded
	}
	for c := range snap.Clusters() {
		if c.Value.InDomain() == name {
			v.Status.Clusters++
		}
	}
	return v
}

func (a *API) readDomain(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	name := r.PathValue("domain")
	if err := a.KnownDomain(snap.Domains(), name); err != nil {
		return err
	}
	return a.answer(w, http.StatusOK, a.View(snap, name))
}

func (a *API) answer(w http.ResponseWriter, status int, v api.DomainView) error {
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, status, v)
}

func (a *API) writeDomain(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("domain")
	snap, written, status, err := draft.WriteNamed(a.Writer, w, r, name,
		func(d *cluster.Domain) *string { return &d.Name }, (*draft.Draft).SetDomain)
	if err != nil {
		return err
	}
	v := a.View(snap, name)
	v.Revision = written.RevisionOr(v.Revision)
	return a.answer(w, status, v)
}

func (a *API) deleteDomain(w http.ResponseWriter, r *http.Request) error {
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		return d.RemoveDomain(r.PathValue("domain"), pre)
	})
}

func (a *API) reschedule(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("domain")
	var asked api.RescheduleRequest
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	if err := strictjson.ReadBody(w, r, &asked); err != nil {
		return err
	}
	during := time.Duration(asked.For)
	if during < 0 || during > maxReschedule {
		return respond.Invalid(cluster.Faults{
			{Path: "for", Message: "is " + during.String() + ", want 0 to " + maxReschedule.String()},
		})
	}
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		if err := a.KnownDomain(d.Snap.Domains(), name); err != nil {
			return err
		}
		e, ok := d.Snap.Domain(name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		next, until := cluster.Domain{Name: name}, time.Time{}
		if ok {
			next = *e.Value
		}
		if during > 0 {
			until = d.Now.Add(during)
		}
		if until.Equal(next.RescheduleUntil) {
			return nil
		}
		next.RescheduleUntil = until
		d.Put(d.Prefix.Domain(name), &next, e.Modified)
		d.Events = append(d.Events, rescheduleEvent(name, until))
		return nil
	})
	if err != nil {
		return err
	}
	return a.answer(w, http.StatusOK, a.View(snap, name))
}

// rescheduleEvent returns the event of an override of mass silence, or of its end if until is zero.
func rescheduleEvent(domain string, until time.Time) cluster.Event {
	e := cluster.Event{
		Type: "domain.updated", Message: "tasks of silent nodes are held back where many are silent",
	}
	if !until.IsZero() {
		e.Message = "tasks of silent nodes are replaced until " + until.Format(time.RFC3339) +
			", however many are silent"
	}
	if domain != cluster.DefaultDomain {
		e.Message = "domain " + domain + ": " + e.Message
	}
	return e
}

// Routes returns the operations of domains.
func (a *API) Routes() []route.Route {
	const all, one = "/v1/domains", "/v1/domains/{domain}"
	view := reflect.TypeFor[api.DomainView]()
	return []route.Route{
		{
			Method: "GET", Path: all, Name: "listDomains", Role: cluster.RoleViewer,
			Summary: "All domains, each with its leader and the numbers of its nodes and clusters.",
			Query:   route.ListParameters(), Reply: reflect.TypeFor[api.Page[api.DomainView]](),
			Stream: route.MediaEventStream, Long: true, Serve: a.listDomains,
		},
		{
			Method: "GET", Path: one, Name: "readDomain", Role: cluster.RoleViewer, Summary: "One domain.",
			Query: []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readDomain,
		},
		{
			Method: "PUT", Path: one, Name: "writeDomain", Role: cluster.RoleOperator, Writes: true,
			Summary: "Makes or changes a domain.", Body: reflect.TypeFor[cluster.Domain](), Reply: view,
			Serve: a.writeDomain,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteDomain", Role: cluster.RoleOperator, Writes: true,
			Summary: "Deletes a domain without clusters and nodes.", Status: http.StatusNoContent,
			Serve: a.deleteDomain,
		},
		{
			Method: "POST", Path: one + "/reschedule", Name: "reschedule",
			Summary: "Overrides mass silence for a while: tasks of silent nodes are replaced. 0 ends the override.",
			Role:    cluster.RoleOperator, Writes: true, Body: reflect.TypeFor[api.RescheduleRequest](), Reply: view,
			Serve: a.reschedule,
		},
	}
}
