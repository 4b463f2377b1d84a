package apiserver

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// domainAPI shows and writes the operator's settings of the domain.
type domainAPI struct {
	backend

	massSilence func(*store.Snapshot) bool
}

// maxReschedule bounds the override of a mass silence: one that is forgotten must not last.
const maxReschedule = 24 * time.Hour

func (a *domainAPI) readDomain(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.reads.forRequest(r)
	if err != nil {
		return err
	}
	return a.answerDomain(w, snap)
}

func (a *domainAPI) answerDomain(w http.ResponseWriter, snap *store.Snapshot) error {
	v := api.DomainView{DomainSettings: cluster.DomainSettings{Name: a.domain}, MassSilence: a.massSilence(snap)}
	if e, ok := snap.Domain(a.domain); ok {
		v.DomainSettings, v.Revision = *e.Value, e.Modified
	}
	tag(w, v.Revision)
	return answer(w, http.StatusOK, v)
}

func (a *domainAPI) writeDomain(w http.ResponseWriter, r *http.Request) error {
	var asked cluster.DomainSettings
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	if err := readBody(w, r, &asked, "revision", "mass_silence"); err != nil {
		return err
	}
	faults := named("name", &asked.Name, a.domain)
	faults = append(faults, cluster.FaultsOf(asked.Validate())...)
	if asked.RescheduleUntil.After(a.now().Add(maxReschedule)) {
		faults = append(faults, cluster.Fault{
			Path:    "reschedule_until",
			Message: "lies more than " + maxReschedule.String() + " ahead",
		})
	}
	if len(faults) > 0 {
		return faulty(faults)
	}
	return a.setDomain(w, r, pre, func(next *cluster.DomainSettings, _ time.Time) { *next = asked })
}

func (a *domainAPI) reschedule(w http.ResponseWriter, r *http.Request) error {
	var asked api.RescheduleRequest
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	if err := readBody(w, r, &asked); err != nil {
		return err
	}
	during := time.Duration(asked.For)
	if during < 0 || during > maxReschedule {
		return faulty(cluster.Faults{
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

// setDomain writes the operator's settings of the domain after a change.
func (a *domainAPI) setDomain(w http.ResponseWriter, r *http.Request, pre precondition,
	change func(next *cluster.DomainSettings, now time.Time),
) error {
	snap, err := a.writer.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Domain(a.domain)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		next := cluster.DomainSettings{Name: a.domain}
		if ok {
			next = *e.Value
		}
		change(&next, d.now)
		told := domainEvents(e.Value, &next, d.now)
		if len(told) == 0 && (ok || !pre.absent) {
			return nil
		}
		d.put(d.prefix.Domain(a.domain), &next, e.Modified)
		d.events = append(d.events, told...)
		return nil
	})
	if err != nil {
		return err
	}
	return a.answerDomain(w, snap)
}

// domainEvents tells what changed of a domain's settings; prev is nil where there were none.
func domainEvents(prev, next *cluster.DomainSettings, now time.Time) (told []cluster.Event) {
	if prev == nil {
		prev = &cluster.DomainSettings{}
	}
	tell := func(message string) {
		told = append(told, cluster.Event{Type: "domain.updated", Message: message})
	}
	switch {
	case next.RescheduleUntil.Equal(prev.RescheduleUntil):
	case next.RescheduleUntil.After(now):
		tell("tasks of silent nodes are replaced until " + next.RescheduleUntil.Format(time.RFC3339) +
			", however many are silent")
	default:
		tell("tasks of silent nodes are held back where many are silent")
	}
	for _, p := range next.Pools {
		if p.Strategy != prev.Pool(p.Name).Strategy {
			tell("the strategy of the pool " + p.Name + " is " + cmp.Or(string(p.Strategy), "that of the cluster"))
		}
	}
	for _, p := range prev.Pools {
		if !slices.ContainsFunc(next.Pools, func(o cluster.PoolSettings) bool { return o.Name == p.Name }) {
			tell("the pool " + p.Name + " has no settings any more")
		}
	}
	return told
}

func (a *domainAPI) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/domain", name: "readDomain", summary: "What the operator set for the domain.",
			role: cluster.RoleViewer, query: []parameter{consistent()}, reply: reflect.TypeFor[api.DomainView](),
			serve: a.readDomain,
		},
		{
			method: "PUT", path: "/v1/domain", name: "writeDomain",
			summary: "Sets what the operator decides of the domain.", role: cluster.RoleOperator, writes: true,
			body: reflect.TypeFor[cluster.DomainSettings](), reply: reflect.TypeFor[api.DomainView](),
			serve: a.writeDomain,
		},
		{
			method: "POST", path: "/v1/domain/reschedule", name: "reschedule",
			summary: "Lets tasks of silent nodes be replaced for a while, however many are silent; for 0 no more.",
			role:    cluster.RoleOperator, writes: true, body: reflect.TypeFor[api.RescheduleRequest](),
			reply: reflect.TypeFor[api.DomainView](),
			serve: a.reschedule,
		},
	}
}
