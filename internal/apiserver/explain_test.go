package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

func (w *world) explain(path string) api.Explanation {
	w.t.Helper()
	return read[api.Explanation](w.t, w.want(200, "GET", path+"/explain", nil))
}

// messages returns the messages of an explanation about a subject.
func messages(x api.Explanation, about api.ReasonSubject) (all []string) {
	for _, b := range x.Because {
		if b.About == about {
			all = append(all, b.Message)
		}
	}
	return all
}

func TestExplainPlaces(t *testing.T) {
	w := busy(t)
	x := w.explain(webPath)
	if x.State != "degraded" || x.Summary == "" || strings.Contains(x.Summary, "degraded") {
		t.Errorf("%s: %s", x.State, x.Summary)
	}
	want := []string{
		"default.web.1.2 is pending: 1 node: memory short by 200 MiB",
		"default.web.1.1 is pending: attempt 1 failed: exit code 3",
	}
	if diff := cmp.Diff(want, messages(x, "place"), sorted()); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	job := w.explain("/v1/clusters/default/jobs/sum")
	if got := messages(job, "place"); len(got) != 1 || !strings.Contains(got[0], "exit code 1") {
		t.Errorf("%q", got)
	}
	task := w.explain("/v1/tasks/default.web.1.2")
	if task.State != "pending" || len(task.Because) != 1 || task.Because[0].Reason != cluster.ReasonShortMemory ||
		!strings.Contains(task.Summary, "200 MiB") {
		t.Errorf("%+v", task)
	}
	if well := w.explain("/v1/tasks/default.web.1.0"); len(well.Because) != 0 ||
		well.Summary != "" {
		t.Errorf("%+v", well)
	}
	for path, status := range map[string]int{
		"/v1/clusters/default/services/none": 404, "/v1/clusters/default/jobs/none": 404,
		"/v1/tasks/default.web.9.9": 404, "/v1/tasks/web": 400,
	} {
		w.want(status, "GET", path+"/explain", nil)
	}
}

// sorted compares texts in any order.
func sorted() cmp.Option {
	return cmp.Transformer("sorted", func(in []string) map[string]bool {
		out := map[string]bool{}
		for _, s := range in {
			out[s] = true
		}
		return out
	})
}

// TestExplainStops checks what each stop waits for (P5.2).
func TestExplainStops(t *testing.T) {
	w := rolled(t)
	stop := func(task cluster.TaskID, class cluster.StopClass, ask, permit string) {
		d := desired(task, 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
		d.Stop = &cluster.Stop{
			Class: class, Reason: cluster.ReasonRollout, Message: "web@2 replaces it",
			Permit: permit,
		}
		o := observed(d, cluster.StateRunning, cluster.HealthHealthy)
		o.Ask = ask
		w.put(map[string]any{"state/n1/" + string(task): d, "status/n1/" + string(task): o})
	}
	stop("default.web.1.0", cluster.StopVoluntary, "", "")
	stop("default.web.1.1", cluster.StopVoluntary, "4.1", "")
	stop("default.web.1.2", cluster.StopVoluntary, "4.2", "4.2")
	stop("default.web.1.3", cluster.StopMandatory, "", "")
	all := strings.Join(messages(w.explain(webPath), "stop"), "\n")
	for _, want := range []string{
		"default.web.1.0 on n1 is to stop: web@2 replaces it; its agent has not requested the permit yet",
		"default.web.1.1 on n1 is to stop: web@2 replaces it; waiting for enough other healthy tasks",
		"default.web.1.2 on n1 is to stop: web@2 replaces it; its agent has the permit",
		"default.web.1.3 on n1 is to stop: web@2 replaces it",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	one := w.explain("/v1/tasks/default.web.1.1")
	for _, b := range one.Because {
		if b.Task != "default.web.1.1" {
			t.Errorf("a reason of another task: %+v", b)
		}
	}
	// The reconciler's reason has the numbers: three of three must stay.
	if text := fmt.Sprint(one.Because); !strings.Contains(text, "min_healthy is 3") {
		t.Errorf("the budget is missing: %s", text)
	}
}

func TestExplainCrashLoop(t *testing.T) {
	w := rolled(t)
	records := map[string]any{}
	for n := 1; n <= 4; n++ {
		d := desired("default.web.2.0", n, cluster.KindService, cluster.Ref{Name: "web", Version: 2})
		o := outcome(d, cluster.StateFailed, "exit code 3")
		o.Ended, o.LogTail = noon.Add(time.Duration(n)*time.Minute),
			strings.Repeat("a line\n", 20)+fmt.Sprintf("panic %d\n", n)
		o.Begun = o.Ended.Add(-time.Second)
		records[fmt.Sprintf("attempt/default.web.2.0/%d", n)] = o
	}
	w.put(records)
	v := read[api.ServiceView](t, w.want(200, "GET", webPath, nil))
	if len(v.Status.Crashing) != 1 {
		t.Fatalf("%+v", v.Status)
	}
	c := v.Status.Crashing[0]
	if c.Task != "default.web.2.0" || c.Times != 4 || c.Node != "n1" || c.Message != "exit code 3" ||
		len(c.Log) != 10 || c.Log[9] != "panic 4" || !c.Last.Equal(noon.Add(4*time.Minute)) {
		t.Errorf("%+v", c)
	}
	for _, path := range []string{webPath, "/v1/tasks/default.web.2.0"} {
		x := w.explain(path)
		if len(x.Because) == 0 || x.Because[0].About != "crash-looping" || x.Because[0].Log[9] != "panic 4" ||
			x.Because[0].Message != "default.web.2.0 is crash-looping on n1: exit code 3 (4 failed attempts)" {
			t.Errorf("%s: %+v", path, x.Because)
		}
	}
	// An attempt that was restarted in place has no outcome, but exits of its containers.
	d := desired("default.web.2.1", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 2})
	o := observed(d, cluster.StateStarting, "")
	o.Restarts, o.LogTail, o.NextStart = 5, "cannot bind\n", noon.Add(8*time.Second)
	o.Containers = []cluster.ContainerStatus{
		{Name: "main", Restarts: 5, Exit: &cluster.Exit{Code: 137, OOM: true, At: noon}},
	}
	w.put(map[string]any{"state/n1/default.web.2.1": d, "status/n1/default.web.2.1": o})
	task := read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.web.2.1", nil))
	if !task.NextStart.Equal(o.NextStart) {
		t.Errorf("it starts again at %v, want %v", task.NextStart, o.NextStart)
	}
	x := w.explain("/v1/tasks/default.web.2.1")
	if len(x.Because) == 0 || !strings.Contains(x.Because[0].Message, "(5 restarts)") ||
		!strings.Contains(x.Because[0].Message, "killed for its memory limit") {
		t.Errorf("%+v", x.Because)
	}
}

// TestPressure checks why a task moves off a node with memory pressure, and who may read that.
func TestPressure(t *testing.T) {
	s, red, _ := limits(t)
	d := desired("blue.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "blue-web", Version: 1})
	s.put(map[string]any{
		"node/n1":               cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"},
		"status/n1":             cluster.NodeStatus{Name: "n1", Session: 1},
		"state/n1/blue.web.1.0": d, "status/n1/blue.web.1.0": observed(d, cluster.StateRunning, cluster.HealthHealthy),
	})
	pressure := &cluster.Pressure{
		Since: noon, Message: "memory: 96% of the machine is used", Victim: d.UUID, Task: d.Task,
		Why: "blue.web.1.0 uses 900 MiB beyond what it reserved",
	}
	stats := &cluster.NodeStats{
		Memory: cluster.GiB, Pressure: pressure,
		Each: []cluster.TaskStats{{Task: d.Task, UUID: d.UUID, Memory: 900 * cluster.MiB, Growth: cluster.MiB}},
	}
	s.tables.SetPulse("n1", cluster.Pulse{Session: 1, Seq: 1, Stats: stats})
	x := s.explain("/v1/clusters/blue/services/web")
	want := []string{"node n1 is short of memory (memory: 96% of the machine is used); blue.web.1.0 will move " +
		"away: blue.web.1.0 uses 900 MiB beyond what it reserved"}
	if diff := cmp.Diff(want, messages(x, "move")); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
	task := read[api.TaskView](t, s.want(200, "GET", "/v1/tasks/blue.web.1.0", nil))
	if task.Pressed != pressure.Why || task.Used == nil || task.Used.Growth != cluster.MiB {
		t.Errorf("%+v", task)
	}
	node := read[api.NodeView](t, s.want(200, "GET", "/v1/nodes/n1", nil))
	if node.Used == nil || node.Used.Pressure == nil || node.Used.Pressure.Task != d.Task {
		t.Errorf("%+v", node.Used)
	}
	for _, path := range []string{"/v1/nodes", "/v1/nodes/n1", "/v1/tasks"} {
		got := s.ask(s.plain, red, "GET", path, nil)
		if got.status != 200 || strings.Contains(string(got.body), "blue") || path != "/v1/tasks" &&
			!strings.Contains(string(got.body), "96%") {
			t.Errorf("%s: status %d: %s", path, got.status, got.body)
		}
	}
	if pressure.Victim == "" || stats.Pressure != pressure {
		t.Error("what was hidden was taken from the tables")
	}
	// The attempt moves: it has its outcome and runs on.
	o := outcome(d, cluster.StateCancelled, "it moves off node n1, which is short of memory")
	o.Reason = cluster.ReasonPressure
	s.put(map[string]any{"attempt/blue.web.1.0/1": o})
	if got := messages(s.explain("/v1/clusters/blue/services/web"), "move"); len(got) != 1 ||
		!strings.Contains(got[0], "it runs until its replacement is healthy") {
		t.Errorf("%q", got)
	}
}

func TestExplainRolloutAndScaling(t *testing.T) {
	w := rolled(t)
	svc := service("web", "web@2", 3)
	svc["scaling"] = map[string]any{
		"min": 2, "max": 5,
		"targets": []any{map[string]any{"metric": "memory", "target": 80}},
	}
	w.want(200, "PUT", webPath, svc)
	w.want(200, "POST", rolloutPath+"/pause", nil)
	w.put(map[string]any{"scale/default/web": cluster.Scale{
		Count: 4, From: 3, Recounted: w.spec().Recounted, At: noon,
		Message: "memory 90% of the target of 80%",
	}})
	x := w.explain(webPath)
	if got := strings.Join(messages(x, "rollout"), "\n"); !strings.Contains(got, "paused") {
		t.Errorf("rollout: %s", got)
	}
	if diff := cmp.Diff([]string{"scaling keeps count 4 (min 2, max 5): memory 90% of the target of 80%"},
		messages(x, "scaling")); diff != "" {
		t.Error(diff)
	}
	w.want(200, "POST", scalePath+"/suspend", nil)
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{Version: func() cluster.Version {
		v := versionOf(2, 2, cluster.RolloutFailed)
		v.Message, v.Ended = "default.web.2.0 did not become healthy within 5m", noon
		return v
	}()}})
	x = w.explain(webPath)
	if got := messages(x, "rollout"); len(got) == 0 ||
		!strings.Contains(strings.Join(got, "\n"),
			"rollout of web@2 failed: default.web.2.0 did not become healthy within 5m") {
		t.Errorf("rollout: %q", got)
	}
	if got := messages(x, "scaling"); len(got) != 1 || got[0] != "scaling is suspended: count stays 4" {
		t.Errorf("scaling: %q", got)
	}
}

// TestExplainWhyARolloutFailed checks the reason codes of failed rollouts.
func TestExplainWhyARolloutFailed(t *testing.T) {
	w := rolled(t)
	for _, reason := range []cluster.ReasonCode{
		cluster.ReasonDeadline, cluster.ReasonGate, cluster.ReasonExit, cluster.ReasonOOM,
	} {
		v := versionOf(2, 2, cluster.RolloutFailed)
		v.Message, v.Reason = "default.web.2.0 failed on n1", reason
		w.put(map[string]any{"rollout/default/web": cluster.Rollout{Version: v}})
		var got []cluster.ReasonCode
		for _, b := range w.explain(webPath).Because {
			if b.About == "rollout" {
				got = append(got, b.Reason)
			}
		}
		if diff := cmp.Diff([]cluster.ReasonCode{reason}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
