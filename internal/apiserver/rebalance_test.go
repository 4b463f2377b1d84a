package apiserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// uneven returns a world of three nodes in two zones. All three tasks of a service, one of a daemon and one of a job
// are on the first node.
func uneven(t *testing.T) *world {
	w := newWorld(t, func(c *Config) { c.Now = func() time.Time { return noon.Add(time.Hour) } })
	sizes := func(name string) map[string]any {
		d := sized(name, 1)
		d["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"cpu": "1", "memory": "1GiB"}
		return d
	}
	w.want(200, "POST", "/v1/apply", manifestsOf(
		"TaskDefinition", sizes("web"), "TaskDefinition", sizes("work"), "Service", service("web", "web@1", 3),
		"Service", map[string]any{"name": "probe", "definition": "work@1", "mode": "daemon"}, "Job",
		job("sum", "work@1", 1),
	))
	records := map[string]any{}
	for i, zone := range []string{"a", "b", "b"} {
		name := fmt.Sprintf("n%d", i+1)
		records["node/"+name] = cluster.Node{
			Name: name, State: cluster.NodeReady, Domain: "default", Since: noon,
			Session: 1,
		}
		records["status/"+name] = cluster.NodeStatus{
			Name: name, Session: 1, Synced: true, Registered: noon,
			Facts: cluster.Facts{
				Hostname: name, CPU: 8000, Memory: 16 * cluster.GiB, Disk: 100 * cluster.GiB,
				Labels:    cluster.Labels{"zone": zone},
				Executors: []cluster.ExecutorFact{{Name: "containerd"}},
			},
		}
	}
	place := func(id cluster.TaskID, kind cluster.Kind, ref cluster.Ref) {
		d := desired(id, 1, kind, ref)
		d.Ports = nil
		records["state/n1/"+string(id)] = d
		records["status/n1/"+string(id)] = observed(d, cluster.StateRunning, cluster.HealthHealthy)
	}
	for i := range 3 {
		place(cluster.ServiceTask("default", "web", 1, i), cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	}
	place("default.probe.1.0", cluster.KindService, cluster.Ref{Name: "work", Version: 1})
	place("default.sum.1.work.0", cluster.KindJob, cluster.Ref{Name: "work", Version: 1})
	w.put(records)
	w.rolledOut("web")
	return w
}

// rolledOut writes that the service's newest version is complete.
func (w *world) rolledOut(name string) {
	w.put(map[string]any{"rollout/default/" + name: cluster.Rollout{Version: cluster.Version{
		Generation: 1, Definition: cluster.Ref{Name: name, Version: 1}, State: cluster.RolloutComplete, Started: noon,
		Ended: noon,
	}}})
}

func (w *world) rebalance(query string) api.Rebalance {
	w.t.Helper()
	return read[api.Rebalance](w.t, w.want(200, "GET", "/v1/rebalance"+query, nil))
}

// movesOf returns moves as lines.
func movesOf(v api.Rebalance) []string {
	out := []string{}
	for _, m := range v.Moves {
		out = append(out, fmt.Sprintf("%s: %s → %s: %s", m.Task, m.From, m.To, m.Message))
	}
	return out
}

func TestPlanRebalance(t *testing.T) {
	w := uneven(t)
	v := w.rebalance("")
	want := []string{
		"default.web.1.2: n1 → n2: node n1 has 3 of its tasks, n2 none",
		"default.web.1.1: n1 → n3: node n1 has 2 of its tasks, n3 none",
	}
	if diff := cmp.Diff(want, movesOf(v)); diff != "" {
		t.Fatalf("moves (-want +got):\n%s", diff)
	}
	if v.Considered != 3 || v.After.Uneven >= v.Before.Uneven || v.Moves[0].Gain <= 0 || v.Revision == 0 || v.More {
		t.Errorf("%+v", v)
	}
	stays := []api.RebalanceStay{{Why: "of daemons", Tasks: 1}, {Why: "of jobs", Tasks: 1}}
	if diff := cmp.Diff(stays, v.Stays); diff != "" {
		t.Errorf("those that stay (-want +got):\n%s", diff)
	}
	for query, moves := range map[string]int{
		"?max=1": 1, "?max=0": 2, "?min_gain=100000": 0, "?settle=2h": 0, "?settle=1m": 2, "?cluster=default": 2,
	} {
		if v := w.rebalance(query); len(v.Moves) != moves {
			t.Errorf("%s: got %v, want %d moves", query, movesOf(v), moves)
		}
	}
	w.want(201, "PUT", "/v1/clusters/other", map[string]any{"name": "other"})
	if v := w.rebalance("?cluster=other"); len(v.Moves) > 0 || v.Considered != 0 {
		t.Errorf("got %v of another cluster", movesOf(v))
	}
	for query, status := range map[string]int{
		"?cluster=none": 404, "?max=-1": 400, "?settle=soon": 400,
		"?min_gain=x": 400, "?surprise=1": 400,
	} {
		w.want(status, "GET", "/v1/rebalance"+query, nil)
	}
}

// TestRebalanceKeepsTasksInPlace checks that tasks stay if they are being rolled out, are unhealthy, are moving, or are
// necessary for the minimum.
func TestRebalanceKeepsTasksInPlace(t *testing.T) {
	one, path := desired("default.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1}),
		"n1/default.web.1.0"
	stopped := one
	stopped.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout}
	for name, c := range map[string]struct {
		records map[string]any
		why     string
		tasks   int
	}{
		"a rollout": {map[string]any{"rollout/default/web": cluster.Rollout{Version: cluster.Version{
			Generation: 1, Definition: cluster.Ref{Name: "web", Version: 1}, State: cluster.RolloutRolling,
			Started: noon,
		}}}, "of services in a rollout", 3},
		"a stop": {map[string]any{"state/" + path: stopped}, "already stopping", 1},
		"one that is ill": {map[string]any{"status/" +
			path: observed(one, cluster.StateRunning, cluster.HealthFailing)}, "not healthy", 1},
		"a node that hangs": {map[string]any{"node/n1": cluster.Node{
			Name: "n1", State: cluster.NodeSuspect,
			Domain: "default",
		}}, "on nodes that are not ready", 3},
		"a drain": {map[string]any{"node/n1": cluster.Node{
			Name: "n1", State: cluster.NodeDraining,
			Domain: "default",
		}}, "on nodes that are being drained", 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := uneven(t)
			w.put(c.records)
			v := w.rebalance("")
			got := 0
			for _, s := range v.Stays {
				if s.Why == c.why {
					got = s.Tasks
				}
			}
			if got != c.tasks {
				t.Errorf("got %+v, want %d %q; moves %v", v.Stays, c.tasks, c.why, movesOf(v))
			}
		})
	}
}

// TestRebalanceShowsViolations checks the violations after a changed label or a new taint.
func TestRebalanceShowsViolations(t *testing.T) {
	w := uneven(t)
	w.want(200, "PUT", "/v1/nodes/n1",
		map[string]any{"name": "n1", "taints": []any{map[string]any{"key": "bad", "effect": "evict"}}})
	v := w.rebalance("")
	if len(v.Violations) != 5 || v.Before.Violations != 5 {
		t.Fatalf("got %+v", v.Violations)
	}
	for _, x := range v.Violations {
		if x.Code != cluster.ReasonTaint || x.Message == "" || (x.To != "") != (x.Owner.Name == "web") {
			t.Errorf("got %+v", x)
		}
	}
	for _, m := range v.Moves {
		if m.Cause == "violation" && m.Message != "node n1 has the taint bad:evict" {
			t.Errorf("got %+v", m)
		}
	}
	if kept := w.rebalance("?keep_violations&min_gain=100000"); len(kept.Violations) != 5 ||
		kept.Violations[2].To != "" {
		t.Errorf("got %+v, though violations are to stay", kept.Violations)
	}
}
