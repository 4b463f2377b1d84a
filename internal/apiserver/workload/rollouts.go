package workload

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/catalog"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// RolloutsAPI shows rollouts of services, pauses and promotes them, and goes back to earlier versions.
type RolloutsAPI struct{ Common }

// Routes returns the operations of rollouts.
func (a *RolloutsAPI) Routes() []route.Route {
	const one = "/v1/clusters/{cluster}/services/{service}/rollout"
	view := reflect.TypeFor[api.RolloutView]()
	return []route.Route{
		{
			Method: "GET", Path: one, Name: "readRollout", Role: cluster.RoleViewer,
			Summary: "The rollout of a service's newest version, and what it waits for.",
			Query:   []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readRollout,
		},
		{
			Method: "GET", Path: one + "/history", Name: "readRolloutHistory", Role: cluster.RoleViewer,
			Summary: "The remembered versions of a service, with the changes of each.",
			Query:   []route.Parameter{route.Consistent()}, Reply: reflect.TypeFor[api.RolloutHistory](),
			Serve: a.readRolloutHistory,
		},
		{
			Method: "POST", Path: one + "/pause", Name: "pauseRollout", Role: cluster.RoleSubmitter,
			Summary: "Pauses the rollout. Later versions wait, too, until it is resumed.", Writes: true,
			Reply: view, Serve: a.pauseRollout(true),
		},
		{
			Method: "POST", Path: one + "/resume", Name: "resumeRollout", Role: cluster.RoleSubmitter,
			Summary: "Resumes a paused rollout.", Writes: true, Reply: view, Serve: a.pauseRollout(false),
		},
		{
			Method: "POST", Path: one + "/promote", Name: "promoteRollout", Role: cluster.RoleSubmitter,
			Summary: "Continues a rollout whose canaries wait. Refused with 409 if none wait, or only those of " +
				"another generation.", Writes: true, Body: reflect.TypeFor[api.PromoteRequest](),
			Optional: true, Reply: view, Serve: a.promoteRollout,
		},
		{
			Method: "POST", Path: one + "/undo", Name: "undoRollout", Role: cluster.RoleSubmitter,
			Summary: "Requests an earlier version again: that of a generation, or the newest one that completed.",
			Writes:  true, Body: reflect.TypeFor[api.UndoRequest](), Optional: true,
			Reply: view, Serve: a.undoRollout,
		},
	}
}

func (a *RolloutsAPI) readRollout(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	in, name := a.services().named(r)
	e, ok := snap.Service(in, name)
	if !ok {
		return respond.NotFound("service", in+"/"+name)
	}
	return a.answerRollout(w, r, snap, e)
}

func (a *RolloutsAPI) answerRollout(w http.ResponseWriter, r *http.Request, snap *store.Snapshot,
	e store.Entry[cluster.Service],
) error {
	respond.SetETag(w, e.Modified)
	v := a.Views.At(snap).Rollout(e)
	access.CallerOf(r.Context()).ShowRollout(&v)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *RolloutsAPI) readRolloutHistory(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	in, name := a.services().named(r)
	e, ok := snap.Service(in, name)
	if !ok {
		return respond.NotFound("service", in+"/"+name)
	}
	respond.SetETag(w, e.Modified)
	h := historyView(snap, e)
	access.CallerOf(r.Context()).ShowHistory(&h)
	return respond.JSON(w, http.StatusOK, h)
}

// actOnRollout changes the user's requests about a service's rollout, and answers with the rollout.
func (a *RolloutsAPI) actOnRollout(w http.ResponseWriter, r *http.Request,
	do func(*draft.Draft, *cluster.Service) (bool, error),
) error {
	snap, mine, err := a.services().applyChange(r, do)
	if err != nil {
		return err
	}
	e, err := a.services().afterWrite(r, snap, mine)
	if err != nil {
		return err
	}
	return a.answerRollout(w, r, snap, e)
}

func (a *RolloutsAPI) pauseRollout(pause bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		return a.actOnRollout(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
			if svc.Rollout.Paused == pause {
				return false, nil
			}
			svc.Rollout.Paused = pause
			kind, about := "service.rollout-paused", "no task starts or fails for a rollout"
			if !pause {
				kind, about = "service.rollout-resumed", "rollouts continue"
			}
			setRolloutEvent(d, svc, kind, about)
			return true, nil
		})
	}
}

// setRolloutEvent sets the event of a request about a service's rollout.
func setRolloutEvent(d *draft.Draft, svc *cluster.Service, kind, message string) {
	owner := svc.Owner()
	d.Instead[d.Prefix.Service(svc.Cluster, svc.Name)] = cluster.Event{
		Type: kind, Cluster: svc.Cluster, Owner: &owner,
		Message: message,
	}
}

func (a *RolloutsAPI) promoteRollout(w http.ResponseWriter, r *http.Request) error {
	var ask api.PromoteRequest
	if r.ContentLength != 0 {
		if err := strictjson.ReadBody(w, r, &ask); err != nil {
			return err
		}
	}
	return a.actOnRollout(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
		if ask.Generation != 0 && ask.Generation != svc.Generation {
			return false, respond.Problemf(http.StatusConflict,
				"the canaries of generation %d of service %s/%s are not the newest any more: generation %d "+
					"with %s was requested meanwhile; check it, and promote it",
				ask.Generation, svc.Cluster, svc.Name, svc.Generation, svc.Definition)
		}
		if svc.Rollout.Promoted == svc.Generation {
			return false, nil
		}
		e, ok := d.Snap.Rollout(svc.Cluster, svc.Name)
		if why := notPromotable(svc, e.Value); why != "" {
			return false,
				respond.Problemf(http.StatusConflict, "no canaries of service %s/%s wait: %s", svc.Cluster, svc.Name,
					why)
		}
		if ok { // a rollout that fails meanwhile is not promoted
			d.Require(d.Prefix.Rollout(svc.Cluster, svc.Name), e.Modified)
		}
		svc.Rollout.Promoted = svc.Generation
		return true, nil
	})
}

// notPromotable returns why no canaries wait, or "" if some do. The record may be nil.
func notPromotable(svc *cluster.Service, record *cluster.Rollout) string {
	switch {
	case svc.Stopped:
		return "the service is stopped"
	case record != nil && record.Generation == svc.Generation && record.State == cluster.RolloutCanary:
		return ""
	case record != nil && record.Generation == svc.Generation && record.State.Ended():
		return fmt.Sprintf("the rollout of %s is %s%s", svc.Definition, record.State, respond.Suffix(record.Message))
	case svc.Update.Canaries == nil || svc.Update.Canaries.N == 0:
		return "its update policy has none"
	case record == nil || record.Generation != svc.Generation:
		return fmt.Sprintf("the rollout of %s has not begun yet", svc.Definition)
	}
	return fmt.Sprintf("those of %s are not all healthy yet", svc.Definition)
}

// historyView shows the remembered versions of a service.
func historyView(snap *store.Snapshot, e store.Entry[cluster.Service]) api.RolloutHistory {
	svc := e.Value
	h := api.RolloutHistory{
		Cluster: svc.Cluster, Service: svc.Name, Revision: e.Modified,
		Versions: []api.VersionView{},
	}
	known := snapshot.VersionsOf(snap, svc)
	for i, v := range known {
		view := api.VersionView{Version: v, Current: v.Generation == svc.Generation}
		if i+1 < len(known) {
			view.Fields, view.Note = catalog.ChangedBy(snap, known[i+1].Definition, v.Definition)
		} else {
			view.Note = "the first version that is remembered"
		}
		h.Versions = append(h.Versions, view)
	}
	return h
}
