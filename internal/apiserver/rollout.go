package apiserver

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/catalog"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// rolloutsAPI shows rollouts of services, pauses and promotes them, and goes back to earlier versions.
type rolloutsAPI struct{ workloads }

func (a *rolloutsAPI) routes() []route.Route {
	const one = "/v1/clusters/{cluster}/services/{service}/rollout"
	view := reflect.TypeFor[api.RolloutView]()
	return []route.Route{
		{
			Method: "GET", Path: one, Name: "readRollout", Role: cluster.RoleViewer,
			Summary: "Where the rollout of a service's newest version stands, and what it waits for.",
			Query:   []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readRollout,
		},
		{
			Method: "GET", Path: one + "/history", Name: "readRolloutHistory", Role: cluster.RoleViewer,
			Summary: "The versions of a service that are remembered, with what each changed.",
			Query:   []route.Parameter{route.Consistent()}, Reply: reflect.TypeFor[api.RolloutHistory](),
			Serve: a.readRolloutHistory,
		},
		{
			Method: "POST", Path: one + "/pause", Name: "pauseRollout", Role: cluster.RoleSubmitter,
			Summary: "Holds the rollout where it is. Later versions wait as well, until it is resumed.", Writes: true,
			Reply: view, Serve: a.pauseRollout(true),
		},
		{
			Method: "POST", Path: one + "/resume", Name: "resumeRollout", Role: cluster.RoleSubmitter,
			Summary: "Lets a paused rollout go on.", Writes: true, Reply: view, Serve: a.pauseRollout(false),
		},
		{
			Method: "POST", Path: one + "/promote", Name: "promoteRollout", Role: cluster.RoleSubmitter,
			Summary: "Goes on with a rollout whose canaries wait. Refused with 409 where none do, or those " +
				"of another generation than the one named.", Writes: true, Body: reflect.TypeFor[api.PromoteRequest](),
			Optional: true, Reply: view, Serve: a.promoteRollout,
		},
		{
			Method: "POST", Path: one + "/undo", Name: "undoRollout", Role: cluster.RoleSubmitter,
			Summary: "Asks for an earlier version again: one of a generation, or the last one before of " +
				"which all tasks were healthy.", Writes: true, Body: reflect.TypeFor[api.UndoRequest](), Optional: true,
			Reply: view, Serve: a.undoRollout,
		},
	}
}

func (a *rolloutsAPI) readRollout(w http.ResponseWriter, r *http.Request) error {
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
	return respond.JSON(w, http.StatusOK, a.look(snap).rolloutView(e))
}

func (a *rolloutsAPI) readRolloutHistory(w http.ResponseWriter, r *http.Request) error {
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
	for i := range h.Versions {
		h.Versions[i].Fields = access.CallerOf(r.Context()).ShowFields(h.Versions[i].Fields)
	}
	return respond.JSON(w, http.StatusOK, h)
}

// actOnRollout changes what the user asks of a service's rollout, and answers with where that stands.
func (a *rolloutsAPI) actOnRollout(w http.ResponseWriter, r *http.Request,
	do func(*draft.Draft, *cluster.Service) (bool, error),
) error {
	snap, mine, err := a.services().changed(r, do)
	if err != nil {
		return err
	}
	e, err := a.services().after(r, snap, mine)
	if err != nil {
		return err
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, http.StatusOK, a.look(snap).rolloutView(e))
}

func (a *rolloutsAPI) pauseRollout(pause bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		return a.actOnRollout(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
			if svc.Rollout.Paused == pause {
				return false, nil
			}
			svc.Rollout.Paused = pause
			kind, about := "service.rollout-paused", "no task is begun or given up for a rollout"
			if !pause {
				kind, about = "service.rollout-resumed", "rollouts go on"
			}
			tellOfRollout(d, svc, kind, about)
			return true, nil
		})
	}
}

// tell adds an event about what the user asked of a service's rollout.
func tellOfRollout(d *draft.Draft, svc *cluster.Service, kind, message string) {
	owner := svc.Owner()
	d.Instead[d.Prefix.Service(svc.Cluster, svc.Name)] = cluster.Event{
		Type: kind, Cluster: svc.Cluster, Owner: &owner,
		Message: message,
	}
}

func (a *rolloutsAPI) promoteRollout(w http.ResponseWriter, r *http.Request) error {
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
					"with %s was asked for meanwhile; look at that, and promote it",
				ask.Generation, svc.Cluster, svc.Name, svc.Generation, svc.Definition)
		}
		if svc.Rollout.Promoted == svc.Generation {
			return false, nil
		}
		e, ok := d.Snap.Rollout(svc.Cluster, svc.Name)
		if why := unpromotable(svc, e.Value); why != "" {
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

// unpromotable says why no canaries wait, or nothing if they do. The record may be nil.
func unpromotable(svc *cluster.Service, record *cluster.Rollout) string {
	switch {
	case svc.Stopped:
		return "the service is stopped"
	case record != nil && record.Generation == svc.Generation && record.State == cluster.RolloutCanary:
		return ""
	case record != nil && record.Generation == svc.Generation && record.State.Ended():
		return fmt.Sprintf("the rollout of %s is %s%s", svc.Definition, record.State, suffix(record.Message))
	case svc.Update.Canaries == nil || svc.Update.Canaries.N == 0:
		return "its update policy has none"
	case record == nil || record.Generation != svc.Generation:
		return fmt.Sprintf("the rollout of %s has not begun yet", svc.Definition)
	}
	return fmt.Sprintf("those of %s are not all healthy yet", svc.Definition)
}

// undoRollout asks for an earlier version again, as a version of its own. It is not taken back by itself if it fails.
func (a *rolloutsAPI) undoRollout(w http.ResponseWriter, r *http.Request) error {
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

// historyView shows the versions of a service that are remembered.
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

// rolloutView shows where the rollout of a service's newest version stands.
func (l *look) rolloutView(e store.Entry[cluster.Service]) api.RolloutView {
	svc, in := e.Value, l.service(e)
	count := l.desired(&in)
	def := l.observed.Definition(svc.Definition)
	limits := svc.Update.Limits(count, def != nil && def.Pinned())
	known := l.remembered(svc)
	v := api.RolloutView{
		Cluster: svc.Cluster, Service: svc.Name, Version: known[0], Paused: svc.Rollout.Paused,
		Reverted: svc.Rollout.Reverted,
		Desired:  count, Surge: limits.Surge, Least: limits.MinHealthy, Parallelism: limits.Parallelism,
		Versions: l.versions(svc, count), Gates: gateViews(svc, in.Gates), Revision: e.Modified,
	}
	if r := in.Rollout; r != nil && r.Generation == svc.Generation {
		v.Changed = r.Changed
		if !v.Paused {
			v.Deadline = deadlineOf(svc, r)
		}
	}
	for i := range known {
		if known[i].Generation < svc.Generation && known[i].State == cluster.RolloutComplete {
			v.LastHealthy = &known[i]
			break
		}
	}
	if limits.Canaries > 0 {
		newest := v.Versions[0]
		v.Canaries = &api.CanaryView{
			Count: limits.Canaries, Begun: min(limits.Canaries, newest.Begun),
			Healthy: min(limits.Canaries, newest.Healthy),
			Waiting: v.State == cluster.RolloutCanary, Auto: svc.Update.AutoPromote,
			Promoted: svc.Rollout.Promoted == svc.Generation,
		}
	}
	v.Waits = l.rolloutWaits(&in, &v)
	return v
}

// deadlineOf returns until when a rollout has to make progress, as the reconciler counts it but for what a new leader
// grants; zero where there is no deadline.
func deadlineOf(svc *cluster.Service, r *cluster.Rollout) time.Time {
	if r.State.Ended() || r.Changed.IsZero() || r.State == cluster.RolloutCanary && !svc.Update.AutoPromote {
		return time.Time{}
	}
	since := r.Changed
	if svc.Updated.After(since) {
		since = svc.Updated
	}
	return since.Add(time.Duration(cmp.Or(svc.Update.ProgressDeadline, cluster.DefaultProgressDeadline) +
		svc.Update.Stagger))
}

// gateViews shows the gates of a service with what the leader last saw of them; no results are those that nobody told.
func gateViews(svc *cluster.Service, results []cluster.GateResult) (all []api.GateView) {
	for i := range svc.Update.Gates {
		g := api.GateView{Gate: svc.Update.Gates[i], State: api.GateUnknown}
		if i < len(results) && results[i].Name == g.Name {
			g.State, g.Result = api.GateWaiting, &results[i]
			switch {
			case results[i].Failures > 0:
				g.State = api.GateFailing
			case results[i].Passes >= max(1, g.Passes):
				g.State = api.GatePassing
			}
		}
		all = append(all, g)
	}
	return all
}

// rolloutWaits says what a rollout waits for: in the words of who decides, and what that leaves out. Nothing once it
// has ended.
func (l *look) rolloutWaits(in *reconciler.ServiceInput, v *api.RolloutView) (waits []api.Because) {
	if v.State.Ended() || in.Spec.Stopped || in.Spec.Deleted {
		return nil
	}
	told := map[cluster.ReasonCode]bool{}
	for _, w := range reconciler.Waits(*in) {
		if w.Task != "" || w.Code == cluster.ReasonGate && len(in.Gates) == 0 {
			continue
		}
		told[w.Code] = true
		waits = append(waits, because(w))
	}
	add := func(code cluster.ReasonCode, format string, args ...any) {
		if !told[code] {
			waits = append(waits, api.Because{About: aboutRollout, Reason: code, Message: fmt.Sprintf(format, args...)})
		}
	}
	newest := v.Versions[0]
	switch {
	case v.Paused:
		add(cluster.ReasonPaused, "it is paused: nothing is begun or given up for it until it is resumed")
		return waits
	case v.State == cluster.RolloutCanary && v.Canaries != nil && v.Canaries.Auto:
		add(cluster.ReasonPromotion, "%s healthy, and promoted once all gates pass",
			areAll(newest.Healthy, "canary", "canaries"))
	case v.State == cluster.RolloutCanary:
		add(cluster.ReasonPromotion, "%s healthy, and to be promoted by somebody",
			areAll(newest.Healthy, "canary", "canaries"))
	}
	if missing := newest.Begun - newest.Healthy; missing > 0 {
		add(cluster.ReasonWaitForHealth, "%s of the newest version not healthy yet", areAll(missing, "task", "tasks"))
	}
	for i := range v.Gates {
		g := &v.Gates[i]
		if g.State == api.GatePassing || newest.Healthy == 0 || told[cluster.ReasonGate] {
			continue
		}
		text := "gate " + g.Name + " was not looked at often enough yet"
		switch {
		case g.State == api.GateUnknown:
			text = "gate " + g.Name + ": what was seen of it, only the leader tells" + l.leaderName()
		case g.Result.Message != "":
			text = "gate " + g.Name + suffix(g.Result.Message)
		}
		waits = append(waits, api.Because{About: aboutGate, Reason: cluster.ReasonGate, Message: text})
	}
	return waits
}

// leaderName names the server that leads, as the end of a sentence.
func (l *look) leaderName() string {
	for e := range l.snap.Servers() {
		if leader, ok := l.snap.Leader(l.domain); ok && leader.Value.Holder == e.Value.ID && e.Value.Name != "" {
			return ": server " + e.Value.Name
		}
	}
	return ""
}

func areAll(n int, one, many string) string {
	if n == 1 {
		return "1 " + one + " is"
	}
	return fmt.Sprintf("%d %s are", n, many)
}
