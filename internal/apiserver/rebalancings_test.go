package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// startRebalancing starts a rebalancing with the moves that the server finds.
func (w *world) startRebalancing() api.RebalancingView {
	w.t.Helper()
	return read[api.RebalancingView](w.t,
		w.want(201, "POST", "/v1/rebalance", api.RebalanceRequest{Moves: w.rebalance("").Moves}))
}

// carryOut writes what the control plane would: the first moves are done, and their tasks are on the new nodes.
func (w *world) carryOut(v api.RebalancingView, done int) {
	w.t.Helper()
	rec := v.Rebalancing
	rec.State = cluster.RebalancingDone
	for i := range rec.Moves {
		m := &rec.Moves[i]
		if i >= done {
			m.Pass(cluster.ReasonPermit, "its service could not spare it", noon)
			continue
		}
		m.Enter(cluster.MoveDone, noon)
		d := desired(m.Task, m.Attempt+1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
		d.Ports, d.Node = nil, m.To
		w.put(map[string]any{
			"state/" + m.To + "/" + string(m.Task):  d,
			"status/" + m.To + "/" + string(m.Task): observed(d, cluster.StateRunning, cluster.HealthHealthy),
			fmt.Sprintf("attempt/%s/%d", m.Task, m.Attempt): cluster.Outcome{
				Task: m.Task, Attempt: m.Attempt, UUID: m.UUID, Node: m.From, State: cluster.StateCancelled,
				Reason: cluster.ReasonRebalance,
				Owner:  d.Owner, Definition: d.Definition,
			},
			"state/" + m.From + "/" + string(m.Task): nil, "status/" + m.From + "/" + string(m.Task): nil,
		})
	}
	w.put(map[string]any{fmt.Sprintf("rebalance/%020d", rec.ID): rec})
}

// refused sends a request and requires a problem.
func (w *world) refused(status int, method, path string, body any) api.Problem {
	w.t.Helper()
	return w.want(status, method, path, body).problem()
}

// lastEvent returns the newest event.
func (w *world) lastEvent() api.EventView {
	w.t.Helper()
	all := read[api.Page[api.EventView]](w.t, w.want(200, "GET", "/v1/events", nil)).Items
	if len(all) == 0 {
		return api.EventView{}
	}
	return all[len(all)-1]
}

// steps returns the moves of a rebalancing as lines.
func steps(v api.RebalancingView) (out []string) {
	for _, m := range v.Moves {
		out = append(out, fmt.Sprintf("%s/%d: %s → %s %s %d", m.Task, m.Attempt, m.From, m.To, m.State, m.Gain))
	}
	return out
}

// TestRebalanceIsHandedIn checks that a rebalancing carries out the moves that were found, and that only one runs at a
// time.
func TestRebalanceIsHandedIn(t *testing.T) {
	w := uneven(t)
	found := w.rebalance("")
	v := w.startRebalancing()
	if v.ID != 1 || v.State != cluster.RebalancingRunning || v.Parallel != 5 || v.Domain != "default" || v.By == "" ||
		v.Revision == 0 || v.Counts.Waiting != 2 {
		t.Errorf("got %+v", v)
	}
	for i, m := range v.Moves {
		want := cluster.RebalancingMove{
			Task: found.Moves[i].Task, Attempt: 1, UUID: m.UUID, From: "n1", To: found.Moves[i].To, Cause: "even",
			Gain:    found.Moves[i].Gain,
			Message: found.Moves[i].Message, State: cluster.MoveWaiting,
		}
		if diff := cmp.Diff(want, m); diff != "" || m.UUID == "" {
			t.Errorf("move %d (-want +got):\n%s", i, diff)
		}
	}
	p := w.refused(409, "POST", "/v1/rebalance", api.RebalanceRequest{Moves: found.Moves})
	if p.Detail != "rebalancing 1 runs, and one runs at a time: wait for its end, or cancel it" {
		t.Errorf("got %+v", p)
	}
	w.want(409, "POST", "/v1/rebalancings/1/undo", nil)
	list := read[api.Page[api.RebalancingBrief]](t, w.want(200, "GET", "/v1/rebalancings", nil))
	if len(list.Items) != 1 || list.Items[0].ID != 1 || list.Items[0].Moves != 2 || list.Items[0].Counts.Waiting != 2 {
		t.Errorf("got %+v", list.Items)
	}
	for _, name := range []string{"1", "last"} {
		if got := read[api.RebalancingView](t, w.want(200, "GET", "/v1/rebalancings/"+name, nil)); got.ID != 1 ||
			got.Revision != v.Revision {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	w.want(404, "GET", "/v1/rebalancings/2", nil)
	w.want(400, "GET", "/v1/rebalancings/first", nil)
	if e := w.lastEvent(); e.Type != "rebalance.started" || e.Message != "rebalancing 1 carries out 2 moves" ||
		e.By == "" {
		t.Errorf("got event %+v", e)
	}
}

// TestRebalanceWithFaults checks that all faults of a list are returned together, and nothing is written.
func TestRebalanceWithFaults(t *testing.T) {
	w := uneven(t)
	stopped := desired("default.web.1.1", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	stopped.Ports, stopped.Stop = nil, &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout}
	w.put(map[string]any{"state/n1/default.web.1.1": stopped})
	move := func(task, from, to string) api.RebalanceMove {
		return api.RebalanceMove{Task: cluster.TaskID(task), From: from, To: to}
	}
	late := move("default.web.1.2", "n2", "n3")
	late.Attempt = 2
	p := w.refused(422, "POST", "/v1/rebalance", api.RebalanceRequest{Parallel: 51, Moves: []api.RebalanceMove{
		late, move("default.web.1.2", "n1", "n3"), move("default.web.1.1", "n1", "n2"),
		move("default.web.1.9", "n1", "n2"),
		move("default.gone.1.0", "n1", "n2"), move("default.probe.1.0", "n1", "n2"),
		move("default.sum.1.work.0", "n1", "n2"),
		move("default.web.1.0", "n1", "n1"), move("what", "N 1", "n9"),
	}})
	var got []string
	for _, f := range p.Faults {
		got = append(got, f.String())
	}
	want := []string{
		"parallel: is 51, want a number from 1 to 50",
		"moves[1].task: default.web.1.2 is moved by moves[0] already: a task moves once",
		"moves[7].to: is n1, where the task is already",
		"moves[8].task: \"what\" is no task id, want one such as default.web.1.0",
		"moves[8].from: is \"N 1\", want the name of a node",
		"moves[0].attempt: is 2, and attempt 1 of the task runs: request the list again",
		"moves[0].from: is n2, and the task is on node n1: request the list again",
		"moves[2].task: default.web.1.1 is already stopping",
		"moves[3].task: default.web.1.9 does not exist",
		"moves[4].task: default.gone.1.0 does not exist: there is no such service",
		"moves[5].task: default.probe.1.0 belongs to a daemon, which has one task on each node",
		"moves[6].task: default.sum.1.work.0 belongs to a job, whose work would be lost",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	for body, path := range map[string]string{
		`{"moves":[]}`: "moves", `{"moves":[{"task":"default.web.1.0","from":"n1","to":"n7"}]}`: "moves[0].to",
	} {
		p := w.refused(422, "POST", "/v1/rebalance", body)
		if len(p.Faults) != 1 || p.Faults[0].Path != path {
			t.Errorf("%s: got %+v", body, p.Faults)
		}
	}
	many := api.RebalanceRequest{Moves: make([]api.RebalanceMove, cluster.MaxRebalanceMoves+1)}
	if p := w.refused(422, "POST", "/v1/rebalance", many); len(p.Faults) == 0 ||
		!strings.Contains(p.Faults[0].Message, "501 moves, at most 500") {
		t.Errorf("got %+v", p)
	}
	if list := read[api.Page[api.RebalancingBrief]](t,
		w.want(200, "GET", "/v1/rebalancings", nil)); len(list.Items) != 0 {
		t.Errorf("%d were written", len(list.Items))
	}
}

// TestRebalancingIsCancelled checks that a cancellation only stops further moves; the control plane writes the end.
func TestRebalancingIsCancelled(t *testing.T) {
	w := uneven(t)
	w.want(404, "POST", "/v1/rebalancings/last/cancel", nil)
	w.startRebalancing()
	v := read[api.RebalancingView](t, w.want(200, "POST", "/v1/rebalancings/last/cancel", nil))
	if !v.Cancelled || v.CancelledBy == "" || v.State != cluster.RebalancingRunning {
		t.Errorf("got %+v", v)
	}
	w.want(200, "POST", "/v1/rebalancings/1/cancel", nil)
	w.carryOut(v, 0)
	w.want(200, "POST", "/v1/rebalancings/1/cancel", nil)
	ended := w.startRebalancing()
	ended.State = cluster.RebalancingDone
	w.carryOut(ended, 0)
	w.want(409, "POST", "/v1/rebalancings/2/cancel", nil)
}

// TestUndoRebalancing checks that moves are reversed, the last one first, and that tasks with a later attempt are left
// out.
func TestUndoRebalancing(t *testing.T) {
	w := uneven(t)
	if p := w.refused(409, "POST", "/v1/rebalancings/last/undo", nil); !strings.HasPrefix(p.Detail,
		"there is nothing to undo") {
		t.Errorf("got %+v", p)
	}
	first := w.startRebalancing()
	w.carryOut(first, 2)
	v := read[api.RebalancingView](t,
		w.want(200, "POST", "/v1/rebalancings/last/undo", api.UndoRebalanceRequest{DryRun: true}))
	gain := first.Moves
	want := []string{
		fmt.Sprintf("%s/2: %s → n1 waiting %d", gain[1].Task, gain[1].To, -gain[1].Gain),
		fmt.Sprintf("%s/2: %s → n1 waiting %d", gain[0].Task, gain[0].To, -gain[0].Gain),
	}
	if diff := cmp.Diff(want, steps(v)); diff != "" || v.ID != 0 || v.Undoes != 1 || v.Revision != 0 {
		t.Errorf("%+v; moves (-want +got):\n%s", v, diff)
	}
	// One of the two tasks has another attempt by now: it stays.
	d := desired(gain[0].Task, 2, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	d.Ports, d.Node, d.Stop = nil, gain[0].To,
		&cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonScaleDown}
	w.put(map[string]any{"state/" + gain[0].To + "/" + string(gain[0].Task): d})
	v = read[api.RebalancingView](t, w.want(201, "POST", "/v1/rebalancings/1/undo", nil))
	if diff := cmp.Diff(want[:1], steps(v)); diff != "" || v.ID != 2 || v.Undoes != 1 {
		t.Errorf("%+v; moves (-want +got):\n%s", v, diff)
	}
	if diff := cmp.Diff([]api.RebalanceLeft{{Task: gain[0].Task, Why: "is already stopping"}},
		v.Left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	w.carryOut(v, 1)
	// "last" does not name an undo; by its id an undo can be undone.
	w.want(409, "POST", "/v1/rebalancings/last/undo", nil)
	v = read[api.RebalancingView](t, w.want(201, "POST", "/v1/rebalancings/2/undo", nil))
	if v.ID != 3 || v.Undoes != 2 || len(v.Moves) != 1 || v.Moves[0].To != gain[1].To {
		t.Errorf("got %+v", v)
	}
	if e := w.lastEvent(); e.Message != "rebalancing 3 undoes 1 move of rebalancing 2" {
		t.Errorf("got event %+v", e)
	}
}
