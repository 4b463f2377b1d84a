package apiserver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestMisplacedTasks checks the text of violations and their consequences.
func TestMisplacedTasks(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	svc := service("web", "web@1", 1)
	svc["placement"] = map[string]any{
		"constraints": []any{map[string]any{"attribute": "label.zone", "op": "=", "value": "a"}},
		"tolerations": []any{map[string]any{"key": "soon", "effect": "evict", "for": "10m"}},
	}
	w.want(201, "PUT", webPath, svc)
	d := desired("default.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	host := func(zone string, taints ...cluster.Taint) map[string]any {
		return map[string]any{"host/n1": cluster.Host{
			Name: "n1", Domain: "default",
			Labels: cluster.Labels{"zone": zone}, Taints: taints,
		}}
	}
	w.put(map[string]any{
		"node/n1":                   cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"},
		"status/n1":                 cluster.NodeStatus{Name: "n1", Session: 1},
		"state/n1/default.web.1.0":  d,
		"status/n1/default.web.1.0": observed(d, cluster.StateRunning, cluster.HealthHealthy),
	})
	const task = "/v1/tasks/default.web.1.0"
	for _, tt := range []struct {
		name, policy string
		host         map[string]any
		about        api.ReasonSubject
		want         string
	}{
		{"it fits", "keep", host("a"), "place", ""},
		{
			"its service keeps it", "keep", host("b"), "place",
			"node n1 no longer meets label.zone = a: it stays (on_violation: keep)",
		},
		{
			"its service moves it", "move", host("b"), "move",
			"node n1 no longer meets label.zone = a: it moves",
		},
		{
			"a taint evicts", "keep", host("a", cluster.Taint{Key: "out", Effect: cluster.TaintEvict, Since: noon}),
			"move",
			"node n1 has the taint out:evict: it moves",
		},
		{
			"a taint evicts in time", "keep",
			host("a", cluster.Taint{
				Key: "soon", Effect: cluster.TaintEvict,
				Since: time.Now().Add(-4*time.Minute + 400*time.Millisecond),
			}), "move",
			"node n1 has the taint soon:evict: it may stay for 6m more",
		},
		{
			"a taint keeps new tasks away", "keep",
			host("a", cluster.Taint{Key: "out", Effect: cluster.TaintNoSchedule, Since: noon}), "place", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc["on_violation"] = tt.policy
			w.want(200, "PUT", webPath, svc)
			w.put(tt.host)
			if v := read[api.TaskView](t, w.want(200, "GET", task, nil)); v.Misplaced != tt.want {
				t.Errorf("the task says %q, want %q", v.Misplaced, tt.want)
			}
			var want []string
			if tt.want != "" {
				want = []string{"default.web.1.0: " + tt.want}
			}
			if diff := cmp.Diff(want, messages(w.explain(task), tt.about)); diff != "" {
				t.Errorf("explained (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGangsThatAreTooLarge checks that a gang too large for one record is refused.
func TestGangsThatAreTooLarge(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	job := func(count int) map[string]any {
		return map[string]any{"steps": []any{
			map[string]any{"name": "a", "definition": "web", "count": count, "gang": map[string]any{}},
		}}
	}
	w.want(201, "PUT", "/v1/clusters/default/jobs/fits", job(cluster.MaxGang))
	got := w.want(422, "PUT", "/v1/clusters/default/jobs/large", job(cluster.MaxGang+1))
	if !strings.Contains(string(got.body), "at most 1000 can be placed together") {
		t.Errorf("%s", got.body)
	}
}
