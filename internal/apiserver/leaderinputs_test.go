package apiserver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// Views run the leader's functions. These tests check that they pass the leader's inputs.

// TestDaemonViewOfAClusterWithoutADomain counts the nodes of the default domain without drained, silent and foreign
// ones.
func TestDaemonViewOfAClusterWithoutADomain(t *testing.T) {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", definition("agent", 1),
		"Service", map[string]any{"name": "agent", "definition": "agent@1", "mode": "daemon"}))
	node := func(name, domain string, state cluster.NodeState) *cluster.Node {
		return &cluster.Node{Name: name, Domain: domain, State: state}
	}
	w.put(map[string]any{
		"cluster/default": &cluster.Cluster{Name: "default"},
		"node/n1":         node("n1", cluster.DefaultDomain, cluster.NodeReady),
		"node/n2":         node("n2", cluster.DefaultDomain, cluster.NodeReady),
		"node/n3":         node("n3", "other", cluster.NodeReady),
		"node/n4":         node("n4", cluster.DefaultDomain, cluster.NodeSuspect),
		"node/n5":         node("n5", cluster.DefaultDomain, cluster.NodeDraining),
		"host/n5":         &cluster.Host{Name: "n5", Drain: &cluster.Drain{Since: noon}},
	})
	v := read[api.ServiceView](t, w.want(200, "GET", "/v1/clusters/default/services/agent", nil))
	if v.Status.Desired != 2 {
		t.Errorf("%d tasks are wanted, want one on n1 and one on n2: %+v", v.Status.Desired, v.Status)
	}
}

// TestDeadlinesOfViewsBeginWithTheLeader checks that an old task is late only once the leader's term is older than the
// task's deadline.
func TestDeadlinesOfViewsBeginWithTheLeader(t *testing.T) {
	now := noon.Add(time.Hour)
	var jumped time.Time
	w := newWorld(t, func(c *Config) {
		c.Now = func() time.Time { return now }
		c.Leader.Since = func(string) (since, clockSet time.Time) { return jumped, jumped }
	})
	w.want(200, "POST", "/v1/apply",
		manifestsOf("TaskDefinition", definition("web", 1), "Service", service("web", "web@1", 1)))
	e, _ := w.tables.Snapshot().Service("default", "web")
	spec := *e.Value
	spec.Updated = noon
	d := desired("default.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	records := func(since time.Time) map[string]any {
		return map[string]any{
			"service/default/web": &spec,
			"node/n1":             &cluster.Node{Name: "n1", Domain: cluster.DefaultDomain, State: cluster.NodeReady},
			"rollout/default/web": &cluster.Rollout{Version: cluster.Version{
				Generation: 1,
				Definition: d.Definition, State: cluster.RolloutRolling, Started: noon,
			}, Changed: noon},
			"state/n1/" + string(d.Task): &d,
			"leader/default":             &cluster.Leader{Epoch: 2, Holder: "s1", Incarnation: 1, Since: since},
		}
	}
	decided := func() string {
		e, _ := w.tables.Snapshot().Service("default", "web")
		in := w.server.views.At(w.tables.Snapshot()).ServiceInput(e)
		if made := reconciler.Service(in); made.Rollout != nil {
			return string(made.Rollout.Record.State)
		}
		return "no change"
	}
	w.put(records(noon))
	if got := decided(); got != string(cluster.RolloutFailed) {
		t.Errorf("with a leader since noon: got %s, want failed", got)
	}
	w.put(records(now))
	if got := decided(); got == string(cluster.RolloutFailed) {
		t.Error("with a leader since now: the view fails a rollout that the leader gives its whole time")
	}
	w.put(records(noon))
	if jumped = now; decided() == string(cluster.RolloutFailed) {
		t.Error("with a clock that was set just now: the view fails a rollout that the leader gives its whole time")
	}
}

// TestViewsKnowOfARecovery checks that an attempt from before a recovery has ended for views, as for the leader, if its
// node does not know it.
func TestViewsKnowOfARecovery(t *testing.T) {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply",
		manifestsOf("TaskDefinition", definition("web", 1), "Service", service("web", "web@1", 1)))
	d := desired("default.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	d.Token = cluster.Token{Incarnation: 1, Epoch: 1}
	w.put(map[string]any{
		"leader/default":   &cluster.Leader{Epoch: 2, Holder: "s1", Incarnation: 2, Since: noon},
		"recovery/default": &cluster.Recovery{State: cluster.RecoveryStop, Decided: noon},
		"node/n1": &cluster.Node{
			Name: "n1", Domain: cluster.DefaultDomain,
			State: cluster.NodeReady,
		},
		"state/n1/" + string(d.Task): &d,
	})
	snap := w.tables.Snapshot()
	e, _ := snap.Service("default", "web")
	in := w.server.views.At(snap).ServiceInput(e)
	if diff := cmp.Diff(reconciler.Recovery{Incarnation: 2, StopBefore: noon}, in.Recovery); diff != "" {
		t.Errorf("recovery (-want +got):\n%s", diff)
	}
	if made := reconciler.Service(in); len(made.Conclusions) != 1 ||
		made.Conclusions[0].Outcome.Reason != cluster.ReasonRecovery {
		t.Errorf("conclusions: %+v, want one of the attempt that was forgotten", made.Conclusions)
	}
}
