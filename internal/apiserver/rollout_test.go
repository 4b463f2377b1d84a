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

const rolloutPath = webPath + "/rollout"

func versionOf(generation uint64, number int, state cluster.RolloutState) cluster.Version {
	return cluster.Version{
		Generation: generation, Definition: cluster.Ref{Name: "web", Version: number}, State: state,
		Started: noon,
	}
}

// rolled returns a world with a service web of three tasks. Its first version is complete, and its second one is
// rolling out.
func rolled(t *testing.T, options ...func(*Config)) *world {
	w := newWorld(t, options...)
	for n := 1; n <= 3; n++ {
		w.want(201, "PUT", fmt.Sprintf("/v1/definitions/web/%d", n), sized("web", n))
	}
	w.want(201, "PUT", webPath, service("web", "web@1", 3))
	w.want(200, "PUT", webPath, service("web", "web@2", 3))
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{
		Version: versionOf(2, 2, cluster.RolloutRolling), Changed: noon, Most: 1,
		Healthy: new(versionOf(1, 1, cluster.RolloutComplete)),
		History: []cluster.Version{versionOf(1, 1, cluster.RolloutComplete)},
	}})
	return w
}

// runs makes a task of web run on a node, healthy or not.
func (w *world) runs(task cluster.TaskID, number int, healthy bool) {
	w.t.Helper()
	d := desired(task, 1, cluster.KindService, cluster.Ref{Name: "web", Version: number})
	health := cluster.HealthUnknown
	if healthy {
		health = cluster.HealthHealthy
	}
	w.put(map[string]any{
		"state/n1/" + string(task):  d,
		"status/n1/" + string(task): observed(d, cluster.StateRunning, health),
	})
}

func rolloutOf(t *testing.T, r reply) api.RolloutView {
	t.Helper()
	return read[api.RolloutView](t, r)
}

func (w *world) spec() cluster.Service {
	w.t.Helper()
	e, ok := w.tables.Snapshot().Service("default", "web")
	if !ok {
		w.t.Fatal("there is no service web")
	}
	return *e.Value
}

func TestRolloutView(t *testing.T) {
	w := rolled(t)
	w.runs("default.web.1.0", 1, true)
	w.runs("default.web.1.1", 1, true)
	w.runs("default.web.1.2", 1, false)
	w.runs("default.web.2.0", 2, true)
	w.runs("default.web.2.1", 2, false)
	v := rolloutOf(t, w.want(200, "GET", rolloutPath, nil))
	want := []api.VersionCount{
		{
			Generation: 2, Definition: cluster.Ref{Name: "web", Version: 2}, Newest: true, Desired: 3, Begun: 2,
			Running: 2, Healthy: 1,
		},
		{Generation: 1, Definition: cluster.Ref{Name: "web", Version: 1}, Begun: 3, Running: 3, Healthy: 2},
	}
	if diff := cmp.Diff(want, v.Versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if v.State != cluster.RolloutRolling || v.Generation != 2 || v.Desired != 3 || v.Surge != 1 || v.Least != 3 ||
		v.Parallelism != 1 {
		t.Errorf("%+v", v)
	}
	if v.LastHealthy == nil || v.LastHealthy.Generation != 1 {
		t.Errorf("last healthy %+v, want generation 1", v.LastHealthy)
	}
	if want := w.spec().Updated.Add(10 * time.Minute); !v.Deadline.Equal(want) { // the spec was written after noon
		t.Errorf("deadline %s, want %s", v.Deadline, want)
	}
	if len(v.Waits) == 0 {
		t.Error("it waits for nothing")
	}
	status := read[api.ServiceView](t, w.want(200, "GET", webPath, nil)).Status
	if diff := cmp.Diff(v.Versions, status.Versions); diff != "" || status.Rollout != cluster.RolloutRolling {
		t.Errorf("the service's status says %q and\n%s", status.Rollout, diff)
	}
	w.want(404, "GET", "/v1/clusters/default/services/none/rollout", nil)
	w.want(404, "GET", "/v1/clusters/default/services/none/rollout/history", nil)
	w.want(400, "GET", rolloutPath+"?generation=1", nil)
}

// A version that the control plane has not seen yet is rolling; the previous one is the target of an undo.
func TestRolloutWithoutARecord(t *testing.T) {
	w := rolled(t)
	w.want(200, "PUT", webPath, service("web", "web@3", 3))
	v := rolloutOf(t, w.want(200, "GET", rolloutPath, nil))
	if v.State != cluster.RolloutRolling || v.Generation != 3 || v.Definition.Version != 3 || v.Message == "" {
		t.Errorf("%+v", v.Version)
	}
	w.want(200, "POST", rolloutPath+"/undo", `{"generation": 2}`)
	if svc := w.spec(); svc.Definition.Version != 2 || svc.Generation != 4 {
		t.Errorf("undone to %s of generation %d", svc.Definition, svc.Generation)
	}
}

// A manifest does not change the user's requests about a rollout. A new version clears them, except the pause.
func TestRolloutRequests(t *testing.T) {
	w := rolled(t)
	v := rolloutOf(t, w.want(200, "POST", rolloutPath+"/pause", nil))
	if !v.Paused || len(v.Waits) != 1 || v.Waits[0].Reason != cluster.ReasonPaused || !v.Deadline.IsZero() {
		t.Errorf("paused %v, waits %+v", v.Paused, v.Waits)
	}
	was := w.want(200, "GET", webPath, nil).header.Get("ETag")
	if again := w.want(200, "POST", rolloutPath+"/pause", nil); again.header.Get("ETag") != was {
		t.Error("to pause twice wrote twice")
	}
	manifest := service("web", "web@2", 3)
	manifest["rollout"] = map[string]any{"paused": false, "promoted": 2, "reverted": 1}
	manifest["restarted"] = 9
	w.want(200, "PUT", webPath, manifest)
	if svc := w.spec(); svc.Rollout != (cluster.RolloutWish{Paused: true}) || svc.Restarted != 0 {
		t.Errorf("a manifest wrote %+v, restarted %d", svc.Rollout, svc.Restarted)
	}
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{
		Version: versionOf(2, 2, cluster.RolloutCanary),
		Changed: noon,
	}})
	w.want(200, "POST", rolloutPath+"/promote", nil)
	if svc := w.spec(); svc.Rollout != (cluster.RolloutWish{Paused: true, Promoted: 2}) || svc.Generation != 2 {
		t.Errorf("promoted: %+v", svc.Rollout)
	}
	w.want(200, "PUT", webPath, service("web", "web@3", 3))
	if svc := w.spec(); svc.Rollout != (cluster.RolloutWish{Paused: true}) || svc.Generation != 3 {
		t.Errorf("another version begins with %+v", svc.Rollout)
	}
	w.want(200, "POST", rolloutPath+"/resume", nil)
	w.want(200, "POST", rolloutPath+"/resume", nil)
	w.want(200, "POST", webPath+"/restart", nil)
	if svc := w.spec(); svc.Rollout != (cluster.RolloutWish{}) || svc.Generation != 4 || svc.Restarted != 4 {
		t.Errorf("restarted: %+v, generation %d, restarted %d", svc.Rollout, svc.Generation, svc.Restarted)
	}
	// A pause has an event of its own.
	events := string(w.want(200, "GET", "/v1/events", nil).body)
	for _, kind := range []string{"service.rollout-paused", "service.rollout-resumed"} {
		if strings.Count(events, `"type":"`+kind+`"`) != 1 {
			t.Errorf("want one event %s: %s", kind, events)
		}
	}
}

func TestPromote(t *testing.T) {
	w := rolled(t)
	tests := []struct {
		name   string
		record *cluster.Rollout
		policy map[string]any
		status int
		why    string
	}{
		{"no record", nil, map[string]any{"canaries": 1}, 409, "has not begun"},
		{
			"a policy without", &cluster.Rollout{Version: versionOf(2, 2, cluster.RolloutRolling)}, nil, 409,
			"its update policy has none",
		},
		{
			"not healthy", &cluster.Rollout{Version: versionOf(2, 2, cluster.RolloutRolling)},
			map[string]any{"canaries": "50%"},
			409, "not all healthy",
		},
		{
			"of an older version", &cluster.Rollout{Version: versionOf(1, 1, cluster.RolloutCanary)},
			map[string]any{"canaries": 1},
			409, "has not begun",
		},
		{
			"failed", &cluster.Rollout{Version: versionOf(2, 2, cluster.RolloutFailed)},
			map[string]any{"canaries": 1},
			409, "failed",
		},
		{
			"complete", &cluster.Rollout{Version: versionOf(2, 2, cluster.RolloutComplete)},
			map[string]any{"canaries": 1},
			409, "complete",
		},
		{
			"waiting", &cluster.Rollout{Version: versionOf(2, 2, cluster.RolloutCanary)},
			map[string]any{"canaries": 1},
			200, "",
		},
		{
			"once more", &cluster.Rollout{Version: versionOf(2, 2, cluster.RolloutRolling)},
			map[string]any{"canaries": 1},
			200, "",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var record any
			if test.record != nil {
				record = *test.record
			}
			w.put(map[string]any{"rollout/default/web": record})
			manifest := service("web", "web@2", 3)
			if test.policy != nil {
				manifest["update"] = test.policy
			}
			w.want(200, "PUT", webPath, manifest)
			got := w.want(test.status, "POST", rolloutPath+"/promote", nil)
			if !strings.Contains(got.problem().Detail, test.why) {
				t.Errorf("%s, want %q", got.body, test.why)
			}
		})
	}
	if svc := w.spec(); svc.Rollout.Promoted != 2 {
		t.Errorf("promoted %d", svc.Rollout.Promoted)
	}
}

func TestUndo(t *testing.T) {
	w := rolled(t)
	got := w.want(200, "POST", rolloutPath+"/undo", nil)
	v := rolloutOf(t, got)
	svc := w.spec()
	if svc.Definition.Version != 1 || svc.Generation != 3 || svc.Rollout.Reverted != 2 || svc.Restarted != 0 {
		t.Errorf("%s, generation %d, restarted %d, %+v", svc.Definition, svc.Generation, svc.Restarted, svc.Rollout)
	}
	if v.Generation != 3 || v.Reverted != 2 || v.Revision == 0 {
		t.Errorf("the answer: %+v", v)
	}
	// Tasks of the first version belong to the newest version again.
	w.runs("default.web.1.0", 1, true)
	if v = rolloutOf(t, w.want(200, "GET", rolloutPath, nil)); v.Versions[0].Healthy != 1 || len(v.Versions) != 1 {
		t.Errorf("versions %+v", v.Versions)
	}
	// The record has the newest version now. No other earlier version was healthy.
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{
		Version: versionOf(3, 1, cluster.RolloutComplete), Changed: noon,
		History: []cluster.Version{versionOf(2, 2, cluster.RolloutFailed), versionOf(1, 1, cluster.RolloutComplete)},
	}})
	got = w.want(409, "POST", rolloutPath+"/undo", nil)
	if want := "its generations are 3 (web@1, complete), 2 (web@2, failed), 1 (web@1, complete)"; !strings.Contains(
		got.problem().Detail, want) {
		t.Errorf("%s, want %s", got.body, want)
	}
	got = w.want(409, "POST", rolloutPath+"/undo", `{"generation": 9}`)
	if !strings.Contains(got.problem().Detail, "no version of generation 9") {
		t.Errorf("%s", got.body)
	}
	w.want(422, "POST", rolloutPath+"/undo", `{"generation": "one"}`)
	w.want(422, "POST", rolloutPath+"/undo", `{"generations": 1}`)
	w.want(400, "POST", rolloutPath+"/undo", `{"generation"`)
	w.want(200, "POST", rolloutPath+"/undo", `{"generation": 3}`)
	if w.spec().Generation != 3 {
		t.Error("to undo to what is there wrote something")
	}
	old := w.want(200, "GET", webPath, nil).header.Get("ETag")
	w.want(412, "POST", rolloutPath+"/undo", `{"generation": 2}`, "If-Match", `"1"`)
	w.want(200, "POST", rolloutPath+"/undo", `{"generation": 2}`, "If-Match", old)
	if svc := w.spec(); svc.Definition.Version != 2 || svc.Generation != 4 {
		t.Errorf("%s of generation %d", svc.Definition, svc.Generation)
	}
	w.want(202, "DELETE", webPath, nil)
	for _, verb := range []string{"undo", "pause", "resume", "promote"} {
		w.want(409, "POST", rolloutPath+"/"+verb, nil)
		w.want(404, "POST", "/v1/clusters/default/services/none/rollout/"+verb, nil)
	}
}

// An undo during a restart keeps the tasks that the restart has not replaced.
func TestUndoOfARestart(t *testing.T) {
	w := rolled(t)
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{
		Version: versionOf(2, 2, cluster.RolloutComplete),
		Changed: noon,
	}})
	w.want(200, "POST", webPath+"/restart", nil)
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{
		Version: versionOf(3, 2, cluster.RolloutFailed), Changed: noon,
		History: []cluster.Version{versionOf(2, 2, cluster.RolloutComplete)},
	}})
	w.runs("default.web.2.0", 2, true)
	v := rolloutOf(t, w.want(200, "POST", rolloutPath+"/undo", nil))
	if svc := w.spec(); svc.Generation != 4 || svc.Restarted != 2 || v.Versions[0].Healthy != 1 {
		t.Errorf("generation %d, restarted %d, versions %+v", svc.Generation, svc.Restarted, v.Versions)
	}
}

// The number of a version is never reused.
func TestGenerationAboveTheRecord(t *testing.T) {
	w := rolled(t)
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{Version: versionOf(7, 2, cluster.RolloutComplete)}})
	w.want(200, "PUT", webPath, service("web", "web@3", 3))
	if got := w.spec().Generation; got != 8 {
		t.Errorf("generation %d, want 8", got)
	}
	w.runs("default.web.11.0", 3, true)
	w.want(200, "POST", webPath+"/restart", nil)
	if got := w.spec().Generation; got != 12 {
		t.Errorf("generation %d, want 12", got)
	}
}

func TestRolloutHistory(t *testing.T) {
	w := rolled(t)
	other := sized("web", 4)
	other["labels"] = map[string]any{"tier": "front"}
	w.want(201, "PUT", "/v1/definitions/web/4", other)
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{
		Version: versionOf(5, 4, cluster.RolloutRolling), Changed: noon,
		History: []cluster.Version{
			versionOf(4, 2, cluster.RolloutComplete), versionOf(3, 2, cluster.RolloutComplete),
			versionOf(2, 9, cluster.RolloutFailed), versionOf(1, 1, cluster.RolloutComplete),
		},
	}})
	w.put(map[string]any{"service/default/web": func() cluster.Service {
		svc := w.spec()
		svc.Generation, svc.Definition.Version = 5, 4
		return svc
	}()})
	h := read[api.RolloutHistory](t, w.want(200, "GET", rolloutPath+"/history", nil))
	got := "\n"
	for _, v := range h.Versions {
		got += fmt.Sprintf("%d %s %s", v.Generation, v.Definition, v.State)
		if v.Current {
			got += " (current)"
		}
		for _, f := range v.Fields {
			got += fmt.Sprintf("; %s: %s -> %s", f.Path, f.Old, f.New)
		}
		if v.Note != "" {
			got += ": " + v.Note
		}
		got += "\n"
	}
	want := `
5 web@4 rolling (current); containers[0].image: "registry.example/web:2" -> "registry.example/web:4"; labels.tier:  -> "front"
4 web@2 complete: the same definition, with restarted tasks
3 web@2 complete: web@9 no longer exists
2 web@9 failed: web@9 no longer exists
1 web@1 complete: the first version that is remembered
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A version without its definition cannot come back.
	if got := w.want(409, "POST", rolloutPath+"/undo", `{"generation": 2}`); !strings.Contains(string(got.body),
		"there is no task definition web@9") {
		t.Errorf("%s", got.body)
	}
}

func TestGates(t *testing.T) {
	results := []cluster.GateResult{
		{Name: "errors", Failures: 2, Message: "value = 0.2: value < 0.1 is false"},
		{Name: "up", Passes: 1},
		{Name: "slow"},
	}
	reports := false
	w := rolled(t, func(c *Config) {
		c.Leader.Gates = func(_ string, o cluster.OwnerRef) []cluster.GateResult {
			if !reports || o.Name != "web" {
				return nil
			}
			return results
		}
	})
	manifest := service("web", "web@2", 3)
	manifest["update"] = map[string]any{"gates": []any{
		map[string]any{
			"name": "errors", "prometheus": "http://prometheus.example", "query": "errors",
			"pass": "value < 0.1",
		},
		map[string]any{"name": "up", "http": "http://web.example/up"},
		map[string]any{"name": "slow", "http": "http://web.example/slow", "passes": 3},
	}}
	w.want(200, "PUT", webPath, manifest)
	w.runs("default.web.2.0", 2, true)
	states := func() (all []api.GateState) {
		for _, g := range rolloutOf(t, w.want(200, "GET", rolloutPath, nil)).Gates {
			all = append(all, g.State)
		}
		return all
	}
	if diff := cmp.Diff([]api.GateState{api.GateUnknown, api.GateUnknown, api.GateUnknown}, states()); diff != "" {
		t.Errorf("without reports (-want +got):\n%s", diff)
	}
	reports = true
	if diff := cmp.Diff([]api.GateState{api.GateFailing, api.GatePassing, api.GateWaiting}, states()); diff != "" {
		t.Errorf("with reports (-want +got):\n%s", diff)
	}
	v := rolloutOf(t, w.want(200, "GET", rolloutPath, nil))
	if text := fmt.Sprint(v.Waits); !strings.Contains(text, "value < 0.1 is false") {
		t.Errorf("it waits for %s", text)
	}
}

// A service that is created while its namesake is being deleted does not inherit versions or counts.
func TestNewServiceWhileTheOldIsDeleted(t *testing.T) {
	w := rolled(t)
	w.put(map[string]any{"scale/default/web": cluster.Scale{Count: 8, From: 3}})
	w.want(202, "DELETE", webPath, nil)
	w.want(201, "PUT", webPath, service("web", "web@3", 3))
	snap := w.tables.Snapshot()
	if e, ok := snap.Rollout("default", "web"); ok {
		t.Errorf("the rollout of the old one: %+v", e.Value)
	}
	if e, ok := snap.Scale("default", "web"); ok {
		t.Errorf("the scale of the old one: %+v", e.Value)
	}
	if svc := w.spec(); svc.Generation != 3 || svc.Restarted != 3 || svc.Deleted {
		t.Errorf("generation %d, restarted %d, deleted %v", svc.Generation, svc.Restarted, svc.Deleted)
	}
	if got := w.want(409, "POST", rolloutPath+"/undo", nil); strings.Contains(string(got.body), "web@1") {
		t.Errorf("it remembers %s", got.body)
	}
	// There is no record to remove, and none may be written concurrently.
	w.want(202, "DELETE", webPath, nil)
	w.want(201, "PUT", webPath, service("web", "web@3", 3))
}

// A repeated undo goes back once.
func TestUndoOnce(t *testing.T) {
	w := rolled(t)
	complete := cluster.Rollout{
		Version: versionOf(2, 2, cluster.RolloutComplete), Changed: noon,
		Healthy: new(versionOf(2, 2, cluster.RolloutComplete)),
		History: []cluster.Version{versionOf(1, 1, cluster.RolloutComplete)},
	}
	w.put(map[string]any{"rollout/default/web": complete})
	for range 2 {
		if v := rolloutOf(t, w.want(200, "POST", rolloutPath+"/undo", `{"from": 2}`)); v.Generation != 3 ||
			v.Definition.Version != 1 || v.Reverted != 2 {
			t.Errorf("undone to %s of generation %d, reverted %d", v.Definition, v.Generation, v.Reverted)
		}
	}
	w.want(200, "POST", rolloutPath+"/undo", `{"from": 2, "generation": 1}`)
	if got := w.spec().Generation; got != 3 {
		t.Errorf("the same again: generation %d, want 3", got)
	}
	for body, why := range map[string]string{
		"":            "takes back generation 2 already, and its rollout is rolling",
		`{"from": 3}`: "takes back generation 2 already, and its rollout is rolling",
		`{"from": 1}`: "generation 1 of service default/web is not the newest any more: " +
			"generation 3 with web@1 is newer: undo that one",
		`{"from": 2, "generation": 2}`: "generation 2 of service default/web is not the newest any more",
	} {
		var ask any
		if body != "" {
			ask = body
		}
		if got := w.want(409, "POST", rolloutPath+"/undo", ask); !strings.Contains(got.problem().Detail, why) {
			t.Errorf("%s: %s, want %s", body, got.body, why)
		}
	}
	w.want(200, "POST", rolloutPath+"/undo", `{"from": 3, "generation": 2}`)
	if svc := w.spec(); svc.Generation != 4 || svc.Definition.Version != 2 || svc.Rollout.Reverted != 3 {
		t.Errorf("%s of generation %d, reverted %d", svc.Definition, svc.Generation, svc.Rollout.Reverted)
	}
}

// An undo to a failed version is a normal rollout, which may be reverted. A version that the permissions forbid does
// not come back.
func TestUndoToWhatFailed(t *testing.T) {
	w := rolled(t)
	w.want(200, "PUT", webPath, service("web", "web@3", 3))
	for _, state := range []cluster.RolloutState{cluster.RolloutFailed, cluster.RolloutRolledBack} {
		generation := w.spec().Generation
		w.put(map[string]any{"rollout/default/web": cluster.Rollout{
			Version: versionOf(generation, 3, cluster.RolloutComplete),
			History: []cluster.Version{versionOf(2, 2, state), versionOf(1, 1, cluster.RolloutComplete)},
		}})
		w.want(200, "POST", rolloutPath+"/undo", `{"generation": 2}`)
		if svc := w.spec(); svc.Definition.Version != 2 || svc.Rollout.Reverted != 0 {
			t.Errorf("%s: %s, reverted %d, want 0", state, svc.Definition, svc.Rollout.Reverted)
		}
		w.want(200, "PUT", webPath, service("web", "web@3", 3))
	}
	d := sized("web", 4)
	d["ports"] = []any{map[string]any{"name": "http", "port": 8080}}
	w.want(201, "PUT", "/v1/definitions/web/4", d)
	generation := w.spec().Generation
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{
		Version: versionOf(generation, 3, cluster.RolloutComplete),
		History: []cluster.Version{versionOf(1, 4, cluster.RolloutComplete)},
	}})
	manifest := service("web", "web@3", 3)
	manifest["update"] = map[string]any{"order": "start-first"}
	w.want(200, "PUT", webPath, manifest)
	if got := w.want(409, "POST", rolloutPath+"/undo", `{"generation": 1}`); !strings.Contains(string(got.body),
		"cannot roll back to generation 1: update.order: is start-first") {
		t.Errorf("%s", got.body)
	}
}

// A promotion is for the canaries that the user saw.
func TestPromoteOneGeneration(t *testing.T) {
	w := rolled(t)
	w.put(map[string]any{"rollout/default/web": cluster.Rollout{Version: versionOf(2, 2, cluster.RolloutCanary)}})
	if got := w.want(409, "POST", rolloutPath+"/promote", `{"generation": 1}`); !strings.Contains(got.problem().Detail,
		"generation 2 with web@2 was requested meanwhile") {
		t.Errorf("%s", got.body)
	}
	w.want(422, "POST", rolloutPath+"/promote", `{"generations": 2}`)
	if svc := w.spec(); svc.Rollout.Promoted != 0 {
		t.Errorf("promoted %d", svc.Rollout.Promoted)
	}
	for range 2 {
		w.want(200, "POST", rolloutPath+"/promote", `{"generation": 2}`)
	}
	w.want(409, "POST", rolloutPath+"/promote", `{"generation": 1}`)
	if svc := w.spec(); svc.Rollout.Promoted != 2 {
		t.Errorf("promoted %d, want 2", svc.Rollout.Promoted)
	}
}
