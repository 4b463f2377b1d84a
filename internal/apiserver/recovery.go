package apiserver

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// recoveryAPI shows that the store went back, and takes the operator's decision on it.
type recoveryAPI struct{ backend }

func (a *recoveryAPI) readRecovery(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.reads.forRequest(r)
	if err != nil {
		return err
	}
	return a.answerRecovery(w, snap)
}

func (a *recoveryAPI) answerRecovery(w http.ResponseWriter, snap *store.Snapshot) error {
	v := api.RecoveryView{Domain: a.domain}
	if l, ok := snap.Leader(a.domain); ok {
		v.Incarnation = l.Value.Incarnation
	}
	if e, ok := snap.Recovery(a.domain); ok {
		v.Recovery, v.Needed, v.Revision = e.Value, e.Value.State == cluster.RecoveryNeeded, e.Modified
	}
	tag(w, v.Revision)
	return answer(w, http.StatusOK, v)
}

// recover takes the operator's decision on a store that went back (P1.7). In one transaction it is written down and the
// store's incarnation rises above whatever an agent has seen; the leader's epoch ends with it, so that the next leader
// begins with the decision.
func (a *recoveryAPI) recover(w http.ResponseWriter, r *http.Request) error {
	var asked api.RecoveryRequest
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	if err := readBody(w, r, &asked); err != nil {
		return err
	}
	decided, ok := map[api.RecoveryAction]cluster.RecoveryState{
		api.RecoverAdopt: cluster.RecoveryAdopt, api.RecoverStop: cluster.RecoveryStop,
	}[asked.Action]
	if !ok {
		return faulty(cluster.Faults{
			{Path: "action", Message: "want \"adopt\" (keep what nodes run and the store does not know, " +
				"where its owner wants it) or \"stop\""},
		})
	}
	snap, err := a.writer.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Recovery(a.domain)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		switch {
		case !ok:
			return problemf(http.StatusConflict, "the store of domain %s did not go back: there is nothing to recover",
				a.domain)
		case e.Value.State == decided:
			return nil
		case e.Value.State != cluster.RecoveryNeeded:
			return problemf(http.StatusConflict, "it was decided already, at %s: %s",
				e.Value.Decided.Format("2006-01-02 15:04:05"), e.Value.State)
		}
		recoverStore(d, a.domain, e, decided)
		return nil
	})
	if err != nil {
		return err
	}
	return a.answerRecovery(w, snap)
}

// recover draws the decision, and the end of the reign that it was taken in.
func recoverStore(d *draft, domain string, e store.Entry[cluster.Recovery], decided cluster.RecoveryState) {
	next := *e.Value
	next.State, next.Decided, next.By = decided, d.now, d.by
	leader := &cluster.Leader{}
	l, ok := d.snap.Leader(domain)
	if ok {
		*leader = *l.Value
	}
	leader.Incarnation = max(uint64(d.now.UnixMilli()), next.Shown.Incarnation+1, leader.Incarnation+1)
	leader.Epoch++
	leader.Holder, leader.Member, leader.Since = "", "", d.now
	d.put(d.prefix.Recovery(domain), &next, e.Modified)
	d.put(d.prefix.Leader(domain), leader, l.Modified)
	d.events = append(d.events, cluster.Event{
		Type:    "recovery.decided",
		Message: "the operator decided on tasks that nodes run and the store does not know: " + string(decided),
	})
}

func (a *recoveryAPI) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/recovery", name: "readRecovery",
			summary: "Whether the store went back behind the agents, and what was decided about it.",
			role:    cluster.RoleViewer,
			query:   []parameter{consistent()}, reply: reflect.TypeFor[api.RecoveryView](), serve: a.readRecovery,
		},
		{
			method: "POST", path: "/v1/recovery", name: "recover",
			summary: "Decides what becomes of tasks that nodes run and a store that went back does not know.",
			role:    cluster.RoleAdmin, writes: true, body: reflect.TypeFor[api.RecoveryRequest](),
			reply: reflect.TypeFor[api.RecoveryView](), serve: a.recover,
		},
	}
}
