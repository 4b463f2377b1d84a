package planning

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

const (
	// defaultMoves is the maximum number of moves by default.
	defaultMoves = 100
	// defaultSettleTime is how long a task must have run by default before it moves for others.
	defaultSettleTime = 5 * time.Minute
)

// RebalancePlanAPI finds moves of tasks to better nodes.
type RebalancePlanAPI struct {
	backend.Backend

	Views *views.Source
}

// Routes returns the operation that finds moves.
func (a *RebalancePlanAPI) Routes() []route.Route {
	query := []route.Parameter{
		route.QueryParam("cluster", "string", "move tasks of this cluster only"),
		route.QueryParam("max", "integer", "the maximum number of moves, 0 for all; default 100"),
		route.QueryParam("min_gain", "integer", "the minimum gain of a move, in points; default 20"),
		route.QueryParam("settle", "duration", "how long a task must have run to be moved; default 5m"),
		route.QueryParam(
			"keep_violations", "boolean",
			"keep tasks whose only fault is that their nodes do not meet their constraints",
		),
		route.Consistent(),
	}
	return []route.Route{{
		Method: "GET", Path: "/v1/rebalance", Name: "planRebalance", Role: cluster.RoleViewer, Query: query,
		Reply: reflect.TypeFor[api.Rebalance](), Serve: a.planRebalance,
		Summary: "Moves of tasks to better nodes, in their order. Nothing is changed.",
	}}
}

// planRebalance answers with useful moves in the present state of the tables.
func (a *RebalancePlanAPI) planRebalance(w http.ResponseWriter, r *http.Request) error {
	most, err := route.Number(r, "max", defaultMoves)
	if err != nil {
		return err
	}
	gain, err := route.Number(r, "min_gain", rebalance.DefaultMinGain)
	if err != nil {
		return err
	}
	settle, err := route.Duration(r, "settle")
	if err != nil {
		return err
	}
	if r.URL.Query().Get("settle") == "" {
		settle = defaultSettleTime
	}
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	in := r.URL.Query().Get("cluster")
	if in != "" {
		if _, ok := snap.Cluster(in); !ok {
			return respond.NotFound("cluster", in)
		}
	}
	const bound = 1 << 30
	b := &rebalanceInput{
		Builder: a.Views.At(snap).Of(in), cluster: in, settle: settle,
		input: rebalance.Input{Spare: map[cluster.OwnerRef]int{}},
	}
	b.collect()
	found := rebalance.Rebalance(b.input, rebalance.Options{
		MinGain: int(max(1, min(gain, bound))), MaxMoves: int(min(most, bound)),
		KeepViolations: route.Flag(r, "keep_violations"),
		Scheduler:      scheduler.Options{Now: b.Domain.Now},
	})
	return respond.JSON(w, http.StatusOK, rebalanceView(snap.Revision(), &b.input, &found))
}

func rebalanceView(revision uint64, in *rebalance.Input, found *rebalance.Result) api.Rebalance {
	v := api.Rebalance{
		Revision: revision, Moves: []api.RebalanceMove{}, Violations: []api.RebalanceViolation{},
		Before: api.RebalanceScore(found.Before), After: api.RebalanceScore(found.After), Considered: len(in.Tasks),
		More: found.Bounded,
	}
	attempts := make(map[string]int, len(in.Tasks)) // numbers of the running attempts, by UUID
	for i := range in.Tasks {
		attempts[in.Tasks[i].UUID] = in.Tasks[i].Attempt - 1
	}
	for _, m := range found.Moves {
		v.Moves = append(v.Moves, api.RebalanceMove{
			Task: m.Task, Attempt: attempts[m.UUID], Owner: m.Owner, From: m.From, To: m.To, Cause: m.Cause,
			Gain: m.Gain, Message: m.Message, StopFirst: m.StopFirst,
		})
	}
	for _, x := range found.Violations {
		v.Violations = append(v.Violations, api.RebalanceViolation{
			Task: x.Task, Owner: x.Owner, Node: x.Node, Code: x.Refusal.Code, To: x.To, Message: x.Message,
		})
	}
	for why, n := range found.Stays { // order-free: sorted below
		v.Stays = append(v.Stays, api.RebalanceStay{Why: why, Tasks: n})
		v.Considered -= n
	}
	slices.SortFunc(v.Stays, func(a, b api.RebalanceStay) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Why, b.Why))
	})
	return v
}

// rebalanceInput collects the input of a rebalancing from records.
type rebalanceInput struct {
	*views.Builder

	cluster string // tasks of this cluster may move; empty for all
	settle  time.Duration
	input   rebalance.Input
}

// collect builds the fleet of the domain and lists the tasks.
func (b *rebalanceInput) collect() {
	b.input.Fleet = b.Fleet()
	for e := range b.Snapshot.Services("") {
		if b.Of(e.Value.Cluster) == b.Builder {
			b.addService(e)
		}
	}
	for e := range b.Snapshot.Jobs("") {
		if b.Of(e.Value.Cluster) == b.Builder {
			b.addJob(e)
		}
	}
}

// addService adds the tasks of a service, and how many of them it can spare.
func (b *rebalanceInput) addService(e store.Entry[cluster.Service]) {
	o := e.Value.Owner()
	in := b.ServiceInput(e)
	st := reconciler.StatusOfService(in)
	def := b.Domain.Definition(e.Value.Definition)
	limits := e.Value.Update.Limits(in.Spec.Desired(), def != nil && def.Pinned())
	b.input.Spare[o] = st.Healthy - limits.MinHealthy
	var stay string
	switch {
	case b.cluster != "" && o.Cluster != b.cluster:
		stay = "of other clusters"
	case in.Spec.Mode == cluster.ModeDaemon:
		stay = "of daemons"
	case in.Spec.Deleted || in.Spec.Stopped:
		stay = "of services that are stopped"
	case st.Rollout != "" && !st.Rollout.Ended():
		stay = "of services in a rollout"
	}
	nextAttempts := reconciler.NextAttempts(in)
	for row := range b.Snapshot.Attempts(o) {
		if t, ok := b.task(row, nextAttempts); ok {
			t.StopFirst = row.Desired.OnDisconnect == cluster.DisconnectWait || t.OnDisconnect == cluster.DisconnectWait
			t.Unmovable = cmp.Or(stay, t.Unmovable)
			b.input.Tasks = append(b.input.Tasks, t)
		}
	}
}

// addJob adds the tasks of a job. They stay, because a move would lose their work.
func (b *rebalanceInput) addJob(e store.Entry[cluster.Job]) {
	o := e.Value.Owner()
	nextAttempts := b.Domain.NextAttempts(o)
	for row := range b.Snapshot.Attempts(o) {
		if t, ok := b.task(row, nextAttempts); ok {
			t.Unmovable = "of jobs"
			b.input.Tasks = append(b.input.Tasks, t)
		}
	}
}

// task returns the request of a live attempt's next one, and why the attempt must not move if that follows from the
// attempt itself.
func (b *rebalanceInput) task(row *store.AttemptRow, nextAttempts map[cluster.TaskID]cluster.Pending,
) (rebalance.Task, bool) {
	d := row.Desired
	if !row.Live() || !observe.HoldsRoom(row) || d == nil {
		return rebalance.Task{}, false
	}
	next, known := nextAttempts[row.Task]
	def := b.Domain.Definition(next.Definition)
	t := rebalance.Task{UUID: d.UUID, Node: row.Node, Pending: next}
	if !known || def == nil {
		t.Pending = cluster.Pending{
			Task: row.Task, Attempt: row.Number + 1, Owner: d.Owner, Definition: d.Definition,
			Priority: d.Priority,
		}
		t.Unmovable = "whose task definition does not exist"
		return t, true
	}
	t.Pending = b.Domain.OnSameNode(next, row.Node)
	node, _ := b.Snapshot.Node(row.Node)
	switch {
	case d.Stop != nil:
		t.Unmovable = "already stopping"
	case node.Value == nil || node.Value.State == cluster.NodeSuspect || node.Value.State == cluster.NodeDown ||
		node.Value.State == cluster.NodeJoining:
		t.Unmovable = "on nodes that are not ready"
	case node.Value.State != cluster.NodeReady:
		t.Unmovable = "on nodes that are being drained"
	case len(t.Volumes) > 0:
		t.Unmovable = "bound to a node by their volumes"
	case len(def.Volumes) > 0:
		t.Unmovable = "with volumes"
	case !row.Observed.Healthy():
		t.Unmovable = "not healthy"
	case len(t.ExcludedNodes) > 0:
		t.Unmovable = "already moving"
	case b.Domain.Now.Sub(row.Observed.Started) < b.settle:
		t.Unmovable = "younger than " + cluster.Duration(b.settle).String()
	}
	return t, true
}
