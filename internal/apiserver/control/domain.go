package control

import (
	"net/http"
	"reflect"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// DomainAPI shows the operator's settings of the domain and overrides its mass silence.
type DomainAPI struct {
	backend.Backend

	MassSilence func(*store.Snapshot) bool
}

// maxReschedule bounds the override of a mass silence, so that a forgotten override ends.
const maxReschedule = 24 * time.Hour

func (a *DomainAPI) readDomain(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	return a.answerDomain(w, snap)
}

func (a *DomainAPI) answerDomain(w http.ResponseWriter, snap *store.Snapshot) error {
	v := api.DomainView{Name: a.Domain, MassSilence: a.MassSilence(snap)}
	if e, ok := snap.Domain(a.Domain); ok {
		v.RescheduleUntil, v.Revision = e.Value.RescheduleUntil, e.Modified
	}
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *DomainAPI) reschedule(w http.ResponseWriter, r *http.Request) error {
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
		e, ok := d.Snap.Domain(a.Domain)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		next, until := cluster.DomainSettings{Name: a.Domain}, time.Time{}
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
		d.Put(d.Prefix.Domain(a.Domain), &next, e.Modified)
		d.Events = append(d.Events, rescheduleEvent(until))
		return nil
	})
	if err != nil {
		return err
	}
	return a.answerDomain(w, snap)
}

// rescheduleEvent returns the event of an override of mass silence, or of its end if until is zero.
func rescheduleEvent(until time.Time) cluster.Event {
	e := cluster.Event{
		Type: "domain.updated", Message: "tasks of silent nodes are held back where many are silent",
	}
	if !until.IsZero() {
		e.Message = "tasks of silent nodes are replaced until " + until.Format(time.RFC3339) +
			", however many are silent"
	}
	return e
}

// Routes returns the operations of the domain.
func (a *DomainAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/domain", Name: "readDomain", Summary: "The operator's settings of the domain.",
			Role: cluster.RoleViewer, Query: []route.Parameter{route.Consistent()},
			Reply: reflect.TypeFor[api.DomainView](),
			Serve: a.readDomain,
		},
		{
			Method: "POST", Path: "/v1/domain/reschedule", Name: "reschedule",
			Summary: "Overrides mass silence for a while: tasks of silent nodes are replaced. 0 ends the override.",
			Role:    cluster.RoleOperator, Writes: true, Body: reflect.TypeFor[api.RescheduleRequest](),
			Reply: reflect.TypeFor[api.DomainView](),
			Serve: a.reschedule,
		},
	}
}
