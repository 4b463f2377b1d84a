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

// undoRollout asks for an earlier version again, as a version of its own. It is not taken back by itself if it fails.
func (a *RolloutsAPI) undoRollout(w http.ResponseWriter, r *http.Request) error {
	var ask api.UndoRequest
	if r.ContentLength != 0 {
		if err := strictjson.ReadBody(w, r, &ask); err != nil {
			return err
		}
	}
	return a.actOnRollout(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
		known := snapshot.VersionsOf(d.Snap, svc)
		if done, err := undone(known, svc, &ask); done || err != nil {
			return false, err
		}
		to, ok := earlier(known, svc, ask.Generation)
		if !ok {
			return false, noVersion(svc, known, ask.Generation)
		}
		return true, goBack(d, svc, to)
	})
}

// undone reports whether an undo was done already: then what it asks for is what the service asks for. One that would
// take back what it was not asked to, such as an undo that is still on its way, is refused.
func undone(known []cluster.Version, svc *cluster.Service, ask *api.UndoRequest) (bool, error) {
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
			"generation %d of service %s/%s is not the newest any more: generation %d with %s was asked for "+
				"meanwhile; look at that, and undo it",
			ask.From, svc.Cluster, svc.Name, svc.Generation, svc.Definition)
	case ask.Generation == 0 && svc.Rollout.Reverted != 0 && now.State != cluster.RolloutComplete:
		return false, respond.Problemf(http.StatusConflict,
			"generation %d of service %s/%s takes back generation %d already, and its rollout is %s, not "+
				"complete: to go somewhere else name the generation, see the rollout's history",
			svc.Generation, svc.Cluster, svc.Name, svc.Rollout.Reverted, now.State)
	}
	return false, nil
}

// earlier returns the version that an undo goes back to, of those that are known: the one of a generation, or with 0
// the newest of which all tasks were healthy and that is not what runs already.
func earlier(known []cluster.Version, svc *cluster.Service, generation uint64) (cluster.Version, bool) {
	done := len(known) > 0 && known[0].State == cluster.RolloutComplete
	for _, v := range known {
		switch {
		case generation != 0 && v.Generation == generation:
			return v, true
		case generation != 0, v.Generation >= svc.Generation, v.State != cluster.RolloutComplete:
		case done && v.Definition == svc.Definition: // there is nothing to go back to
		default:
			return v, true
		}
	}
	return cluster.Version{}, false
}

// undo makes an earlier version what the service asks for. One that was healthy comes back at once, without canaries
// and gates, and is not taken back again; one that never was is tried out like any other.
func goBack(d *draft.Draft, svc *cluster.Service, to cluster.Version) error {
	refused := func(err error) error {
		return draft.Conflictf("generation", "version %d cannot come back: %s", to.Generation,
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
	// The tasks that still run it are kept, also where a restart was to begin all of them anew.
	svc.Restarted = min(svc.Restarted, to.Generation)
	return nil
}

// noVersion is the answer to an undo that has nowhere to go: it names what is known.
func noVersion(svc *cluster.Service, known []cluster.Version, generation uint64) error {
	what := "no earlier version of which all tasks were healthy"
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
