package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// limits returns a server with the clusters red and blue, each with a service whose definition holds a secret, and a
// token for each cluster.
func limits(t *testing.T) (s *secure, red, blue string) {
	s = newSecure(t)
	s.want(200, "POST", "/v1/apply",
		manifestsOf("Cluster", map[string]any{"name": "red"}, "Cluster", map[string]any{"name": "blue"}))
	for _, in := range []string{"red", "blue"} {
		d := definition(in+"-web", 1)
		d["containers"].([]any)[0].(map[string]any)["env"] = map[string]any{"PASSWORD": in + "-secret"}
		s.want(201, "PUT", "/v1/definitions/"+in+"-web/1", d)
		s.want(201, "PUT", "/v1/clusters/"+in+"/services/web", service("web", in+"-web@1", 2))
		s.early.Add(int64(time.Millisecond)) // the services have different times
	}
	return s, s.access(cluster.RoleSubmitter, "red"), s.access(cluster.RoleViewer, "blue")
}

func TestDefinitionsOfOtherClusters(t *testing.T) {
	s, red, blue := limits(t)
	s.want(201, "PUT", "/v1/definitions/batch/1", definition("batch", 1))
	s.want(201, "PUT", "/v1/definitions/batch/2", definition("batch", 2))
	s.want(201, "PUT", "/v1/clusters/blue/jobs/sum", job("sum", "batch@2", 1))
	// An attempt still runs the service's previous version.
	s.want(201, "PUT", "/v1/definitions/old/1", definition("old", 1))
	running := desired("blue.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "old", Version: 1})
	s.put(map[string]any{"state/n1/blue.web.1.0": running})

	names := func(token, path string) (all []string) {
		t.Helper()
		got := s.ask(s.plain, token, "GET", path, nil)
		if got.status != 200 {
			t.Fatalf("%s: status %d: %s", path, got.status, got.body)
		}
		for _, v := range read[api.Page[api.DefinitionView]](t, got).Items {
			all = append(all, v.Ref().String())
		}
		return all
	}
	for token, want := range map[string][]string{
		red: {"red-web@1"}, blue: {"batch@2", "blue-web@1", "old@1"},
		s.access(cluster.RoleViewer): {"batch@1", "batch@2", "blue-web@1", "old@1", "red-web@1"},
	} {
		if diff := cmp.Diff(want, names(token, "/v1/definitions")); diff != "" {
			t.Errorf("definitions (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"batch@2"}, names(blue, "/v1/definitions/batch")); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	for path, want := range map[string]int{
		"/v1/definitions/red-web": 200, "/v1/definitions/red-web/1": 200,
		"/v1/definitions/blue-web": 404, "/v1/definitions/blue-web/1": 404, "/v1/definitions/batch/1": 404,
	} {
		if got := s.ask(s.plain, red, "GET", path, nil); got.status != want ||
			strings.Contains(string(got.body), "blue-secret") {
			t.Errorf("%s: status %d, want %d: %s", path, got.status, want, got.body)
		}
	}
}

// A conflict with a version that the token does not see must not reveal its content.
func TestConflictHidesTheStoredVersion(t *testing.T) {
	s, red, _ := limits(t)
	other := definition("blue-web", 1)
	for name, got := range map[string]reply{
		"put":   s.ask(s.plain, red, "PUT", "/v1/definitions/blue-web/1", other),
		"apply": s.ask(s.plain, red, "POST", "/v1/apply", manifestsOf("TaskDefinition", other)),
		"dry run": s.ask(s.plain, red, "POST", "/v1/apply",
			map[string]any{"dry_run": true, "objects": manifestsOf("TaskDefinition", other)["objects"]}),
	} {
		if got.status != 409 || strings.Contains(string(got.body), "blue-secret") ||
			strings.Contains(string(got.body), "PASSWORD") {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
	}
	if got := s.ask(s.plain, red, "PUT", "/v1/definitions/red-web/1", definition("red-web", 1)); got.status != 409 ||
		!strings.Contains(string(got.body), "red-secret") {
		t.Errorf("its own: status %d: %s", got.status, got.body)
	}
}

func TestNodesHideTasksOfOtherClusters(t *testing.T) {
	s, red, _ := limits(t)
	on := func(task cluster.TaskID) *cluster.Desired {
		d := desired(task, 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
		d.Node, d.Devices = "n1", []cluster.DeviceUse{{ID: "gpu-" + string(task[:1])}}
		return &d
	}
	s.put(map[string]any{
		"host/n1":               cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}},
		"state/n1/red.web.1.0":  on("red.web.1.0"),
		"state/n1/blue.web.1.0": on("blue.web.1.0"),
		"status/n1":             cluster.NodeStatus{Name: "n1"},
		"recovery/default": cluster.Recovery{
			State: cluster.RecoveryNeeded,
			Cause: "the store lost writes: node n1 runs blue.web.1.7, which plan 9 placed",
		},
	})
	for state, reason := range map[cluster.NodeState]string{
		cluster.NodeDraining: "blue.web.1.0 still running after SIGKILL: its tasks are moving away; 1 of them has " +
			"nowhere to go: no node has the label blue",
		cluster.NodeSuspect: "blue.web.1.0 of a job blue.sum.1.add.0, and red.web.1.0, on 10.0.0.1",
	} {
		s.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: state, Domain: "default", Reason: reason}})
		for _, path := range []string{"/v1/nodes", "/v1/nodes/n1", "/v1/status", "/v1/troubles"} {
			got := s.ask(s.plain, red, "GET", path, nil)
			if got.status != 200 || strings.Contains(string(got.body), "blue") {
				t.Errorf("%s, %s: status %d: %s", state, path, got.status, got.body)
			}
			if whole := s.want(200, "GET", path, nil); !strings.Contains(string(whole.body), "blue") {
				t.Errorf("%s, %s without a limit: %s", state, path, whole.body)
			}
		}
		v := read[api.NodeView](t, s.ask(s.plain, red, "GET", "/v1/nodes/n1", nil))
		if len(v.Drain.Left) != 1 || v.Drain.Left[0].ID != "red.web.1.0" || v.Tasks != 2 {
			t.Errorf("%s: left %+v of %d tasks, want its own of two", state, v.Drain.Left, v.Tasks)
		}
		want := "its tasks are moving away or stopped"
		if state == cluster.NodeSuspect {
			want = "a task of a job a task, and red.web.1.0, on 10.0.0.1"
		}
		if v.Reason != want {
			t.Errorf("%s: reason %q, want %q", state, v.Reason, want)
		}
	}
	// The stored record still holds what the answer leaves out.
	if got := s.want(200, "GET", "/v1/recovery", nil); !strings.Contains(string(got.body), "blue.web.1.7") {
		t.Errorf("the record was changed: %s", got.body)
	}
}

// TestForecastsHideNodes checks that only callers without a limit see the nodes of a forecast, which follow from tasks
// of all clusters.
func TestForecastsHideNodes(t *testing.T) {
	for _, limited := range []bool{false, true} {
		caller := access.Caller{}
		if limited {
			caller.Clusters = []string{"red"}
		}
		queued, explained := expectedOn("n1", "n2"), expectedOn("n1", "n2")
		caller.ShowExpected(queued)
		caller.ShowExplanation(&api.Explanation{Because: []api.Because{{}, {Expected: explained}}})
		for _, v := range []*api.Expected{queued, explained} {
			if hidden := len(v.Nodes) == 0 && !v.Gang; hidden != limited || v.From.IsZero() {
				t.Errorf("limited %t: %+v", limited, v)
			}
		}
	}
}

func expectedOn(nodes ...string) *api.Expected {
	return &api.Expected{From: noon, Nodes: nodes, Gang: true}
}

// TestDeleteDefinition checks that only an unused version is deleted, and that concurrent references to it are refused.
func TestDeleteDefinition(t *testing.T) {
	s, red, _ := limits(t)
	for v := range 3 {
		s.want(201, "PUT", fmt.Sprintf("/v1/definitions/batch/%d", v+1), definition("batch", v+1))
	}
	path := func(ref string) string { return "/v1/definitions/" + strings.ReplaceAll(ref, "@", "/") }
	remove := func(token, ref string, want int, words string) {
		t.Helper()
		if got := s.ask(s.plain, token, "DELETE", path(ref), nil); got.status != want ||
			!strings.Contains(string(got.body), words) {
			t.Errorf("delete %s: status %d: %s, want %d and %q", ref, got.status, got.body, want, words)
		}
	}
	all := s.access(cluster.RoleSubmitter)
	s.want(201, "PUT", "/v1/clusters/blue/jobs/sum", job("sum", "batch@2", 1))
	remove(all, "batch@2", 409, "in use by job blue/sum")
	remove(all, "red-web@1", 409, "in use by service red/web")
	remove(red, "red-web@1", 409, "in use by service red/web")
	remove(red, "batch@1", 404, "batch@1") // a token with a limit sees what its clusters use
	remove(s.access(cluster.RoleViewer), "batch@1", 403, "viewer")
	remove(all, "batch@9", 404, "batch@9")
	// A cron without a version uses the newest.
	s.want(201, "PUT", "/v1/clusters/blue/crons/nightly", map[string]any{
		"name": "nightly", "schedules": []any{"0 3 * * *"},
		"job": map[string]any{"steps": []any{map[string]any{"name": "all", "definition": "batch"}}},
	})
	remove(all, "batch@3", 409, "in use by cron blue/nightly")
	s.want(204, "DELETE", "/v1/clusters/blue/crons/nightly", nil)
	// After the deletion of the newest version, the previous one is the newest.
	testkit.Eventually(t, time.Minute, func() error {
		got := s.ask(s.plain, all, "DELETE", path("batch@3"), nil)
		if got.status != 204 {
			return fmt.Errorf("status %d: %s", got.status, got.body)
		}
		return nil
	})
	s.want(404, "GET", path("batch@3"), nil)
	s.want(201, "PUT", "/v1/clusters/blue/jobs/newest", job("newest", "batch", 1))
	if v := read[api.JobView](t,
		s.want(200, "GET", "/v1/clusters/blue/jobs/newest",
			nil)); v.Steps[0].Definition != (cluster.Ref{Name: "batch", Version: 2}) {
		t.Errorf("the newest is %s, want batch@2", v.Steps[0].Definition)
	}
	remove(all, "batch@1", 204, "")
	type published struct{ Type, Message string }
	var got []published
	for _, e := range read[api.Page[api.EventView]](t,
		s.want(200, "GET", "/v1/events?types=definition.created,definition.deleted,definition.removed", nil)).Items {
		if strings.HasPrefix(e.Message, "batch@1") {
			got = append(got, published{e.Type, e.Message})
		}
	}
	want := []published{
		{"definition.created", "batch@1"},
		{"definition.deleted", "batch@1: the user deleted it"},
		{"definition.removed", "batch@1: nothing refers to it"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// A version with the mark of an unfinished deletion accepts no references until it is written again.
	s.want(201, "PUT", "/v1/definitions/left/1", definition("left", 1))
	marked := read[api.DefinitionView](t, s.want(200, "GET", path("left@1"), nil)).TaskDefinition
	marked.Deleted = true
	s.put(map[string]any{"task/left/1": marked})
	s.want(422, "PUT", "/v1/clusters/blue/jobs/late", job("late", "left@1", 1))
	s.want(200, "PUT", "/v1/definitions/left/1", definition("left", 1))
	s.want(201, "PUT", "/v1/clusters/blue/jobs/late", job("late", "left@1", 1))
}

// TestApplyTellsNothingOfOtherClusters checks that the answer about an object of another cluster is the same whether or
// not the object, what it needs, or the cluster exists.
func TestApplyTellsNothingOfOtherClusters(t *testing.T) {
	s, red, _ := limits(t)
	s.want(201, "PUT", "/v1/clusters/blue/jobs/sum", job("sum", "blue-web@1", 1))
	steps := job("x", "red-web@1", 1)["steps"]
	jobOf := func(in, name string, needs ...any) map[string]any {
		return manifestsOf("Job", map[string]any{"cluster": in, "name": name, "needs": needs, "steps": steps})
	}
	cron := func(name string) map[string]any {
		return manifestsOf("Cron", in("blue", nightly(name, steps)))
	}
	endpointOf := func(name, service string) map[string]any {
		e := endpoint(name, service)
		e["cluster"] = "blue"
		return manifestsOf("Endpoint", e)
	}
	serviceOf := func(in, name, definition string) map[string]any {
		o := service(name, definition, 1)
		o["cluster"] = in
		return manifestsOf("Service", o)
	}
	for name, pair := range map[string][2]map[string]any{
		"name of a service": {jobOf("blue", "web"), jobOf("blue", "nothing")},
		"need":              {jobOf("blue", "x", "service/web"), jobOf("blue", "x", "service/nothing")},
		"job":               {jobOf("blue", "sum"), jobOf("blue", "nothing")},
		"service":           {serviceOf("blue", "web", "red-web@1"), serviceOf("blue", "sum", "red-web@1")},
		"definition":        {serviceOf("blue", "x", "blue-web@1"), serviceOf("blue", "x", "nothing@1")},
		"cron":              {cron("sum"), cron("nothing")},
		"endpoint":          {endpointOf("x", "web"), endpointOf("x", "nothing")},
	} {
		for _, dry := range []bool{false, true} {
			var answers []string
			for _, manifests := range pair {
				manifests["dry_run"] = dry
				got := s.ask(s.plain, red, "POST", "/v1/apply", manifests)
				answers = append(answers, fmt.Sprintf("%d %s", got.status, got.problem().Detail))
			}
			if answers[0] != answers[1] || !strings.HasPrefix(answers[0], "403 ") {
				t.Errorf("%s, dry run %t: %q if it exists, %q if not", name, dry, answers[0], answers[1])
			}
		}
	}
	for name, objectOf := range map[string]func(in string) map[string]any{
		"cluster": func(in string) map[string]any {
			return manifestsOf("Cluster", map[string]any{"name": in})
		},
		"job in a cluster": func(in string) map[string]any { return jobOf(in, "x") },
	} {
		there, missing := s.ask(s.plain, red, "POST", "/v1/apply", objectOf("blue")), s.ask(s.plain, red, "POST",
			"/v1/apply", objectOf("lost"))
		if want := strings.ReplaceAll(there.problem().Detail, "blue", "lost"); there.status != 403 ||
			missing.status != 403 || missing.problem().Detail != want {
			t.Errorf("%s: %d %s if it exists, %d %s if not", name, there.status, there.problem().Detail, missing.status,
				missing.problem().Detail)
		}
	}
	if got := s.ask(s.plain, red, "POST", "/v1/apply", jobOf("red", "fine")); got.status != 200 {
		t.Errorf("a job of its own cluster: status %d: %s", got.status, got.body)
	}
	for _, kind := range []string{"Pool", "Domain"} { // they are in no cluster
		got := s.ask(s.plain, red, "POST", "/v1/apply", manifestsOf(kind, map[string]any{"name": "default"}))
		if got.status != 403 {
			t.Errorf("%s: status %d: %s", kind, got.status, got.body)
		}
	}
}
