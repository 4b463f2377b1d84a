package control

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
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

// DomainAPI shows and writes the operator's settings of the domain.
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
	v := api.DomainView{DomainSettings: cluster.DomainSettings{Name: a.Domain}, MassSilence: a.MassSilence(snap)}
	if e, ok := snap.Domain(a.Domain); ok {
		v.DomainSettings, v.Revision = *e.Value, e.Modified
	}
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *DomainAPI) writeDomain(w http.ResponseWriter, r *http.Request) error {
	var asked cluster.DomainSettings
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	if err := strictjson.ReadBody(w, r, &asked, "revision", "mass_silence"); err != nil {
		return err
	}
	faults := draft.FillName("name", &asked.Name, a.Domain)
	faults = append(faults, cluster.FaultsOf(asked.Validate())...)
	if asked.RescheduleUntil.After(a.Now().Add(maxReschedule)) {
		faults = append(faults, cluster.Fault{
			Path:    "reschedule_until",
			Message: "lies more than " + maxReschedule.String() + " ahead",
		})
	}
	if len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return a.setDomain(w, r, pre, func(next *cluster.DomainSettings, _ time.Time) { *next = asked })
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
	return a.setDomain(w, r, pre, func(next *cluster.DomainSettings, now time.Time) {
		next.RescheduleUntil = time.Time{}
		if during > 0 {
			next.RescheduleUntil = now.Add(during)
		}
	})
}

// setDomain changes and writes the operator's settings of the domain.
func (a *DomainAPI) setDomain(w http.ResponseWriter, r *http.Request, pre draft.Precondition,
	change func(next *cluster.DomainSettings, now time.Time),
) error {
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := d.Snap.Domain(a.Domain)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		next := cluster.DomainSettings{Name: a.Domain}
		if ok {
			next = *e.Value
		}
		change(&next, d.Now)
		events := domainEvents(e.Value, &next, d.Now)
		if len(events) == 0 && (ok || !pre.Absent) {
			return nil
		}
		d.Put(d.Prefix.Domain(a.Domain), &next, e.Modified)
		d.Events = append(d.Events, events...)
		return nil
	})
	if err != nil {
		return err
	}
	return a.answerDomain(w, snap)
}

// domainEvents returns the events of changed settings; prev is nil if there were none.
func domainEvents(prev, next *cluster.DomainSettings, now time.Time) (events []cluster.Event) {
	if prev == nil {
		prev = &cluster.DomainSettings{}
	}
	add := func(message string) {
		events = append(events, cluster.Event{Type: "domain.updated", Message: message})
	}
	switch {
	case next.RescheduleUntil.Equal(prev.RescheduleUntil):
	case next.RescheduleUntil.After(now):
		add("tasks of silent nodes are replaced until " + next.RescheduleUntil.Format(time.RFC3339) +
			", however many are silent")
	default:
		add("tasks of silent nodes are held back where many are silent")
	}
	for _, p := range next.Pools {
		if p.Strategy != prev.Pool(p.Name).Strategy {
			add("the strategy of the pool " + p.Name + " is " + cmp.Or(string(p.Strategy), "that of the cluster"))
		}
	}
	for _, p := range prev.Pools {
		if !slices.ContainsFunc(next.Pools, func(o cluster.PoolSettings) bool { return o.Name == p.Name }) {
			add("the pool " + p.Name + " has no settings any more")
		}
	}
	return events
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
			Method: "PUT", Path: "/v1/domain", Name: "writeDomain",
			Summary: "Sets the operator's settings of the domain.", Role: cluster.RoleOperator, Writes: true,
			Body: reflect.TypeFor[cluster.DomainSettings](), Reply: reflect.TypeFor[api.DomainView](),
			Serve: a.writeDomain,
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
