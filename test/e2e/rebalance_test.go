package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/load"
)

// TestRebalance rebalances a fleet in which one machine has all tasks, during requests. It then undoes the rebalancing
// while the server is killed.
func TestRebalance(t *testing.T) {
	t.Parallel()
	harness.Either(t, harness.Process, func(t *testing.T, executor string) {
		w := newServiceFleet(t, executor, 1, 3)
		full := w.Agents[0].Name
		for _, a := range w.Agents[1:] {
			w.Berth("node", "cordon", a.Name).Want(t, 0)
		}
		w.put(served{name: "keep", version: 1, count: 5})
		w.put(served{
			name: "wait", version: 1, count: 3, update: cluster.Update{MinHealthy: portion(2)},
			more: func(_ *api.TaskDefinition, s *api.Service) {
				s.OnDisconnect = cluster.DisconnectWait
			},
		})
		w.completes("keep", 1)
		w.completes("wait", 1)
		for _, a := range w.Agents[1:] {
			w.Berth("node", "uncordon", a.Name).Want(t, 0)
		}
		before := w.taskNodes()

		var plan api.Rebalance
		shown := w.Berth("rebalance", "--settle", "0s", "-o", "json")
		shown.Want(t, 0)
		if err := json.Unmarshal([]byte(shown.Stdout), &plan); err != nil || len(plan.Moves) < 4 {
			t.Fatalf("%v: got %d moves, want 4 or more: %s", err, len(plan.Moves), shown.Stdout)
		}
		want := slices.Clone(before)
		for _, m := range plan.Moves {
			want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, string(m.Task)+" ") })
			want = append(want, fmt.Sprintf("%s %s", m.Task, m.To))
		}
		slices.Sort(want)
		if got := w.taskNodes(); !slices.Equal(got, before) {
			t.Errorf("tasks moved without being asked to: %v, want %v", got, before)
		}

		stopKeep, stopWait := w.sendRequests("keep", 5, nil), w.sendRequests("wait", 2, nil)
		w.Berth("rebalance", "--settle", "0s", "--apply").Want(t, 0, "is done",
			fmt.Sprintf("%d of %d moves done", len(plan.Moves), len(plan.Moves)))
		stopKeep()
		stopWait()
		w.wantTaskNodes(want)
		w.oneAtATime("wait")
		w.Berth("rebalance", "--settle", "0s").Want(t, 0, "no task has a better node")

		w.Berth("rebalance", "--undo", "-d").Want(t, 0)
		w.Servers[0].Kill()
		w.Servers[0].Begin().Ready()
		w.Eventually(3*soon, func() error {
			v, err := w.client.Rebalancing(t.Context(), 0)
			if err != nil {
				return err
			}
			if v.State != cluster.RebalancingDone || v.Undoes != 1 || v.Counts.Done != len(plan.Moves) {
				return fmt.Errorf("rebalancing %d is %s: %+v %v", v.ID, v.State, v.Counts, v.Waits)
			}
			return nil
		})
		w.wantTaskNodes(before)
		for _, s := range before {
			if !strings.HasSuffix(s, " "+full) {
				t.Errorf("%s was not on %s", s, full)
			}
		}
	})
}

// taskNodes returns the nodes of the healthy tasks, as "task node", ordered.
func (w *serviceFleet) taskNodes() (all []string) {
	w.t.Helper()
	for _, v := range w.Tasks(client.TaskFilter{}) {
		if v.State == cluster.StateRunning {
			all = append(all, fmt.Sprintf("%s %s", v.ID, v.Node))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wantTaskNodes waits until the tasks are where they should be, and nothing else runs.
func (w *serviceFleet) wantTaskNodes(want []string) {
	w.t.Helper()
	w.Eventually(soon, func() error {
		if got := w.taskNodes(); !slices.Equal(got, want) {
			return fmt.Errorf("tasks are on %v, want %v", got, want)
		}
		return nil
	})
}

// oneAtATime demands, from the records of the processes, that no process of a service served before the previous
// process of its task had ended.
func (w *serviceFleet) oneAtATime(service string) {
	w.t.Helper()
	records := slices.DeleteFunc(w.recorder.All(), func(r load.Record) bool { return w.owner(r) != service })
	slices.SortStableFunc(records, func(a, b load.Record) int { return a.At.Compare(b.At) })
	live := map[cluster.TaskID]int{}
	for _, r := range records {
		switch r.What {
		case load.Up:
			if live[r.Task]++; live[r.Task] > 1 {
				w.t.Errorf("attempt %d of %s was up before the last one had ended", r.Attempt, r.Task)
			}
		case load.End:
			live[r.Task]--
		}
	}
}
