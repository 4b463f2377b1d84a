package workload

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// undoRollout requests an earlier version again, as a new version. If that fails, it is not undone automatically.
func (a *RolloutsAPI) undoRollout(w http.ResponseWriter, r *http.Request) error {
	var ask api.UndoRequest
	if r.ContentLength != 0 {
		if err := strictjson.ReadBody(w, r, &ask); err != nil {
			return err
		}
	}
	return a.actOnRollout(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
		known := snapshot.VersionsOf(d.Snap, svc)
		if done, err := isUndone(known, svc, &ask); done || err != nil {
			return false, err
		}
		to, ok := undoTarget(known, svc, ask.Generation)
		if !ok {
			return false, errNoVersion(svc, known, ask.Generation)
		}
		return true, goBack(d, svc, to)
	})
}

// isUndone reports whether an undo is already done: the service already has the requested version. It refuses an undo
// that would undo another change than the client saw, such as an undo that is still rolling out.
func isUndone(known []cluster.Version, svc *cluster.Service, ask *api.UndoRequest) (bool, error) {
	now := known[0]
	switch {
	case ask.Generation == svc.Generation:
		return true, nil
	case ask.From != 0 && ask.From != svc.Generation:
		i := slices.IndexFunc(known, func(v cluster.Version) bool { return v.Generation == ask.Generation })
		if ask.Generation == 0 && svc.Rollout.Reverted == ask.From || i >= 0 && known[i].Definition == svc.Definition {
			return true, nil
		}
		return false, respond.Problemf(http.StatusConflict,
			"generation %d of service %s/%s is not the newest any more: generation %d with %s is newer: undo that one",
			ask.From, svc.Cluster, svc.Name, svc.Generation, svc.Definition)
	case ask.Generation == 0 && svc.Rollout.Reverted != 0 && now.State != cluster.RolloutComplete:
		return false, respond.Problemf(http.StatusConflict,
			"generation %d of service %s/%s takes back generation %d already, and its rollout is %s, not "+
				"complete: to go somewhere else name the generation, see the rollout's history",
			svc.Generation, svc.Cluster, svc.Name, svc.Rollout.Reverted, now.State)
	}
	return false, nil
}

// undoTarget returns the version that an undo goes back to: the one of the generation or, with 0, the newest complete
// version that differs from the running one.
func undoTarget(known []cluster.Version, svc *cluster.Service, generation uint64) (cluster.Version, bool) {
	done := len(known) > 0 && known[0].State == cluster.RolloutComplete
	for _, v := range known {
		switch {
		case generation != 0 && v.Generation == generation:
			return v, true
		case generation != 0, v.Generation >= svc.Generation, v.State != cluster.RolloutComplete:
		case done && v.Definition == svc.Definition: // the running version is no target
		default:
			return v, true
		}
	}
	return cluster.Version{}, false
}

// goBack makes the service request an earlier version. A version that was healthy comes back immediately, without
// canaries and gates, and is not reverted automatically. A failed version is rolled out as a new one.
func goBack(d *draft.Draft, svc *cluster.Service, to cluster.Version) error {
	refused := func(err error) error {
		return draft.Conflictf("generation", "cannot roll back to generation %d: %s", to.Generation,
			cluster.FaultsOf(err).Error())
	}
	if err := d.Resolve(&to.Definition, "definition"); err != nil {
		return refused(err)
	}
	if def := d.Definition(to.Definition); def != nil {
		if err := svc.CheckDefinition(def); err != nil {
			return refused(err)
		}
	}
	if err := d.RequirePermissions(svc.Cluster,
		d.CheckPermissions(svc.Cluster, to.Definition, "definition")); err != nil {
		return refused(err)
	}
	from := svc.Generation
	d.NextVersion(svc)
	svc.Definition = to.Definition
	if to.State != cluster.RolloutFailed && to.State != cluster.RolloutRolledBack {
		svc.Rollout.Reverted = from
	}
	// Tasks that still run the version are kept, even if a restart was to replace all tasks.
	svc.Restarted = min(svc.Restarted, to.Generation)
	return nil
}

// errNoVersion returns the answer to an undo without a target. It lists the remembered versions.
func errNoVersion(svc *cluster.Service, known []cluster.Version, generation uint64) error {
	what := "no earlier version with all tasks healthy"
	if generation != 0 {
		what = fmt.Sprintf("no version of generation %d", generation)
	}
	var names []string
	for _, v := range known {
		names = append(names, fmt.Sprintf("%d (%s, %s)", v.Generation, v.Definition, v.State))
	}
	return respond.Problemf(http.StatusConflict, "service %s/%s remembers %s; its generations are %s", svc.Cluster,
		svc.Name,
		what, strings.Join(names, ", "))
}
