package controlplane_test

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/watcher"
)

// compareViews checks that a view has the same inputs as the leader's decisions, whatever the test did before. It is
// called when nothing moves any more. A server that does not lead has nothing to compare.
func (w *world) compareViews() {
	w.t.Helper()
	time.Sleep(2 * time.Second) // in-bubble: inWorld makes one
	synctest.Wait()
	snap, plane := w.server.tables.Snapshot(), w.server.plane
	leader, fleet := plane.Observed(snap)
	if leader == nil || w.server.ctx.Err() != nil {
		return
	}
	source := views.Source{ // as internal/serve/server configures it
		Tables: w.server.tables, Now: func() time.Time { return leader.Now },
		Leader: views.LeaderOn(views.OnlyDefault(plane)),
	}
	view := source.At(snap)
	options := cmp.Options{
		cmpopts.IgnoreFields(reconciler.ServiceInput{}, "Definitions"),
		cmpopts.IgnoreFields(reconciler.JobInput{}, "Definitions"),
		// The leader knows when it first saw a violation. A view says that the node is silent, and not for how long.
		cmpopts.IgnoreFields(reconciler.Leave{}, "Since"),
		cmp.Comparer(func(a, b watcher.Absence) bool { return (a == watcher.Present) == (b == watcher.Present) }),
		cmpopts.EquateEmpty(),
	}
	for e := range snap.Services("") {
		o := e.Value.Owner()
		if view.Of(o.Cluster) != view { // another leader decides
			continue
		}
		want, got := leader.ServiceInput(o, e, leader.Tasks(o)), view.ServiceInput(e)
		want.Gates, got.Gates = measured(want.Gates), measured(got.Gates)
		if diff := cmp.Diff(want, got, options); diff != "" {
			w.t.Errorf("the view of %s differs from the leader's input (-leader +view):\n%s", o, diff)
		}
	}
	for e := range snap.Jobs("") {
		o := e.Value.Owner()
		if view.Of(o.Cluster) != view {
			continue
		}
		want := leader.JobInput(o, e, leader.Tasks(o))
		if diff := cmp.Diff(want, view.JobInput(e), options); diff != "" {
			w.t.Errorf("the view of %s differs from the leader's input (-leader +view):\n%s", o, diff)
		}
	}
	w.compareFleets(fleet, view.Fleet())
}

// measured leaves out gates without a query: their state is unknown.
func measured(all []cluster.GateResult) []cluster.GateResult {
	return slices.DeleteFunc(slices.Clone(all), func(r cluster.GateResult) bool { return r.At.IsZero() })
}

// compareFleets checks that two fleets have the same nodes with the same tasks on them.
func (w *world) compareFleets(leader, view *scheduler.Fleet) {
	w.t.Helper()
	if diff := cmp.Diff(leader.Nodes(), view.Nodes()); diff != "" {
		w.t.Errorf("nodes of the fleets (-leader +view):\n%s", diff)
		return
	}
	for _, name := range leader.Nodes() {
		want, _, _ := leader.Node(name)
		got, _, _ := view.Node(name)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(scheduler.Node{}), cmpopts.EquateEmpty()); diff != "" {
			w.t.Errorf("node %s (-leader +view):\n%s", name, diff)
		}
	}
	held := func(f *scheduler.Fleet) map[string]scheduler.Reservation {
		all := map[string]scheduler.Reservation{}
		for r := range f.Held { // order-free: a map is filled
			all[r.UUID] = r
		}
		return all
	}
	if diff := cmp.Diff(held(leader), held(view), cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("tasks on the fleets (-leader +view):\n%s", diff)
	}
}
