package client_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// put writes records as the control plane would.
func put(t *testing.T, engine *memory.Engine, records map[string]any) {
	t.Helper()
	var g store.Group
	for key, record := range records {
		value, err := store.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		g.Ops = append(g.Ops, store.Op{Key: store.DefaultPrefix + key, Value: value})
	}
	if _, err := engine.Commit(t.Context(), []store.Group{g}); err != nil {
		t.Fatal(err)
	}
}

// TestOperatorsAgainstServer checks that the server understands the calls for operators.
func TestOperatorsAgainstServer(t *testing.T) {
	ctx := t.Context()
	c, engine := newServer(t)
	put(t, engine, map[string]any{
		"leader/default":   cluster.Leader{Epoch: 2, Holder: "s1", Incarnation: 5},
		"server/s1":        cluster.Server{ID: "s1", Name: "one"},
		"server/s2":        cluster.Server{ID: "s2", Name: "two"},
		"node/n1":          cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"},
		"recovery/default": cluster.Recovery{State: cluster.RecoveryNeeded, Cause: "a snapshot was restored"},
	})
	status := func(what string, err error, want int) {
		t.Helper()
		if client.StatusOf(err) != want || want == 0 && err != nil {
			t.Errorf("%s: got %v, want status %d", what, err, want)
		}
	}
	c = c.Consistent() // the tables follow what was written past the server
	_, err := c.Cluster(ctx, "default")
	status("a cluster", err, http.StatusNotFound)

	st, err := c.Status(ctx)
	status("the status", err, 0)
	if st.Leader == nil || st.Leader.Name != "one" || st.Recovery == nil || st.Nodes[cluster.NodeReady] != 1 ||
		len(st.Alarms) == 0 {
		t.Errorf("status: %+v", st)
	}
	servers, err := c.Servers(ctx, client.ListOptions{})
	status("servers", err, 0)
	if len(servers.Items) != 2 || servers.Items[1].State != api.ServerUnknown {
		t.Errorf("servers: %+v", servers.Items)
	}
	_, err = c.PromoteServer(ctx, "s2")
	status("to promote", err, http.StatusConflict)
	status("to remove", c.RemoveServer(ctx, "s2", true), 0)
	status("to remove what is gone", c.RemoveServer(ctx, "s2", true), http.StatusNotFound)

	v, err := c.Recovery(ctx)
	status("the recovery", err, 0)
	if !v.Needed {
		t.Errorf("recovery: %+v", v)
	}
	v, err = c.Recover(ctx, api.RecoverStop)
	status("to recover", err, 0)
	if v.Needed || v.Recovery.State != cluster.RecoveryStop || v.Incarnation <= 5 {
		t.Errorf("recovered: %+v", v)
	}
	_, err = c.Recover(ctx, api.RecoverAdopt)
	status("to decide otherwise", err, http.StatusConflict)

	d, err := c.Reschedule(ctx, "default", time.Hour)
	status("to reschedule", err, 0)
	same, err := c.Domain(ctx, "default")
	status("the domain", err, 0)
	if same.Revision != d.Revision || d.RescheduleUntil.IsZero() || !same.RescheduleUntil.Equal(d.RescheduleUntil) {
		t.Errorf("domain: %+v, rescheduled %+v", same, d)
	}

	rev, err := c.PutPool(ctx, api.Pool{Name: "gpu", Strategy: cluster.StrategyWhole}, client.Condition{Absent: true})
	status("to put a pool", err, 0)
	p, err := c.Pool(ctx, "gpu")
	status("the pool", err, 0)
	if p.Revision != rev || p.Strategy != cluster.StrategyWhole {
		t.Errorf("pool: %+v at %d", p, rev)
	}
	pools, err := c.Pools(ctx, client.ListOptions{})
	status("pools", err, 0)
	if len(pools.Items) != 1 || pools.Items[0] != p {
		t.Errorf("pools: %+v", pools.Items)
	}
	status("to delete the pool", c.DeletePool(ctx, "gpu", client.Condition{Revision: rev}), 0)
	status("to delete what is gone", c.DeletePool(ctx, "gpu", client.Condition{}), http.StatusNotFound)

	n, err := c.CordonNode(ctx, "n1", client.Condition{})
	status("to cordon", err, 0)
	_, err = c.UncordonNode(ctx, "n1", client.Condition{Revision: n.Revision})
	status("to uncordon", err, 0)
	_, err = c.CordonNode(ctx, "n1", client.Condition{Revision: n.Revision})
	status("a stale cordon", err, http.StatusPreconditionFailed)
	n, err = c.DrainNode(ctx, "n1", api.NodeAction{Deadline: cluster.Duration(time.Hour)}, client.Condition{})
	status("to drain", err, 0)
	if n.Drain == nil || n.Drain.Deadline.IsZero() {
		t.Errorf("drained: %+v", n)
	}
	n, err = c.UndrainNode(ctx, "n1", client.Condition{})
	status("to undrain", err, 0)
	if n.Drain != nil {
		t.Errorf("undrained: %+v", n)
	}
	_, err = c.TaintNode(ctx, "n1", []cluster.Taint{{Key: "a"}, {Key: "b"}}, client.Condition{})
	status("to taint", err, 0)
	_, err = c.UntaintNode(ctx, "n1", []api.TaintKey{{Key: "a"}}, client.Condition{})
	status("to untaint", err, 0)
	_, err = c.PoolNode(ctx, "n1", "gpu", client.Condition{Revision: n.Revision})
	status("a stale pool", err, http.StatusPreconditionFailed)
	n, err = c.PoolNode(ctx, "n1", "gpu", client.Condition{})
	status("to put into a pool", err, 0)
	if len(n.Taints) != 1 || n.Taints[0].Key != "b" || n.Pool != "gpu" {
		t.Errorf("tainted, in a pool: %+v", n)
	}
	n, err = c.PoolNode(ctx, "n1", "", client.Condition{Revision: n.Revision})
	status("to take out of the pool", err, 0)
	if n.Pool != "" {
		t.Errorf("in no pool: %+v", n)
	}
	_, err = c.ForgetNode(ctx, "n1", false, client.Condition{})
	status("to forget a live node", err, http.StatusConflict)
	n, err = c.ForgetNode(ctx, "n1", true, client.Condition{})
	status("to forget", err, 0)
	if !n.Gone {
		t.Errorf("forgotten: %+v", n)
	}

	_, err = c.Settings(ctx)
	status("settings", err, 0)
	ready, err := c.Ready(ctx)
	status("readiness", err, 0)
	if ready.Ready || ready.Parts["leader"] == "ok" { // the recovery ended the leadership term
		t.Errorf("readiness: %+v", ready)
	}
	var out bytes.Buffer
	status("metrics", c.Metrics(ctx, &out), 0)
	if !strings.Contains(out.String(), "berth_domain_nodes") {
		t.Errorf("metrics: %.200s", out.String())
	}
	out.Reset()
	status("goroutines", c.Goroutines(ctx, &out), 0)
	if !strings.HasPrefix(out.String(), "goroutine ") {
		t.Errorf("goroutines: %.200s", out.String())
	}
	out.Reset()
	status("a profile", c.Profile(ctx, "heap", 0, &out), 0)
	out.Reset()
	rev, err = c.Snapshot(ctx, &out)
	status("a snapshot", err, 0)
	other := memory.New(memory.Options{})
	defer other.Close()
	if err := other.Restore(&out); err != nil || rev == 0 {
		t.Errorf("a snapshot at %d: %v", rev, err)
	}
}
