package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/memory"
)

// TestAgeOfDefinitionsBeginsAgain names and writes again versions that nothing named. Their age begins again, in the
// write itself and without an event of the definition. Other writes leave it.
func TestAgeOfDefinitionsBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ref := cluster.Ref{Name: "web", Version: 1}
	w.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", definition("web", 1)))
	for _, tt := range []struct {
		name    string
		body    map[string]any
		unused  bool
		changes int // events of definitions
	}{
		{"a definition of another name", manifestsOf("TaskDefinition", definition("other", 1)), true, 1},
		{"the same version", manifestsOf("TaskDefinition", definition("web", 1)), false, 0},
		{"a job of the version", manifestsOf("Job", job("one", "web@1", 2)), false, 0},
		{"a job of the newest version", manifestsOf("Job", job("two", "web", 2)), false, 0},
		{"a template of the same content", manifestsOf("Service", map[string]any{
			"name": "web", "count": 1, "template": map[string]any{"containers": definition("web", 1)["containers"]},
		}), false, 0},
	} {
		e, _ := w.tables.Snapshot().Definition(ref)
		old := *e.Value
		old.Unused = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		w.put(map[string]any{"task/web/1": old})
		before := w.tables.Snapshot().EventCount()
		w.want(200, "POST", "/v1/apply", tt.body)
		snap := w.tables.Snapshot()
		if e, _ = snap.Definition(ref); e.Value.Unused.IsZero() == tt.unused {
			t.Errorf("%s: the version is unused since %v", tt.name, e.Value.Unused)
		}
		n, seen := 0, 0
		for b := range snap.EventBatches() {
			if seen++; seen <= before {
				continue
			}
			for _, event := range b.Value.Events {
				if strings.HasPrefix(event.Type, "definition.") {
					n++
				}
			}
		}
		if n != tt.changes {
			t.Errorf("%s: %d events of definitions, want %d", tt.name, n, tt.changes)
		}
	}
}

func TestDefinitionIsWrittenOnce(t *testing.T) {
	w := newWorld(t)
	first := w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	again := w.want(200, "PUT", "/v1/definitions/web/1", definition("web", 1))
	if first.header.Get("ETag") == "" || first.header.Get("ETag") != again.header.Get("ETag") {
		t.Errorf("an identical put changed the ETag from %s to %s", first.header.Get("ETag"), again.header.Get("ETag"))
	}
	if diff := cmp.Diff(string(first.body), string(again.body)); diff != "" {
		t.Error(diff)
	}
	other := definition("web", 1)
	other["containers"] = []any{map[string]any{"name": "main", "image": "registry.example/web:1", "args": []any{"-v"}}}
	other["labels"] = map[string]any{"tier": "front"}
	got := w.want(409, "PUT", "/v1/definitions/web/1", other)
	want := `containers[0].args[0]: is "-v" here and not set in the stored web@1; labels.tier: is "front" here and not set in the stored web@1`
	if got.faults() != want {
		t.Errorf("got  %s\nwant %s", got.faults(), want)
	}
	// Versions are ordered as numbers: 10 is newer than 9.
	w.want(201, "PUT", "/v1/definitions/web/10", definition("web", 10))
	w.want(201, "PUT", "/v1/definitions/web/9", definition("web", 9))
	w.want(201, "PUT", "/v1/clusters/default/services/web", service("web", "web", 1))
	if v := read[api.ServiceView](t,
		w.want(200, "GET", "/v1/clusters/default/services/web", nil)); v.Definition.Version != 10 {
		t.Errorf("the newest version is %s, want web@10", v.Definition)
	}
	versions := read[api.Page[api.DefinitionView]](t, w.want(200, "GET", "/v1/definitions/web", nil))
	if n := len(versions.Items); n != 3 || versions.Items[2].Version != 10 {
		t.Errorf("%d versions, the last %d", n, versions.Items[n-1].Version)
	}
	w.want(404, "GET", "/v1/definitions/api", nil)
	w.want(412, "PUT", "/v1/definitions/web/1", definition("web", 1), "If-None-Match", "*")
}

func TestServiceGenerations(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	w.want(201, "PUT", "/v1/definitions/web/2", definition("web", 2))
	const path = "/v1/clusters/default/services/web"
	steps := []struct {
		name, method, path string
		body               any
		status             int
		generation         uint64
	}{
		{"made", "PUT", path, service("web", "web@1", 3), 201, 1},
		{"the same again", "PUT", path, service("web", "web@1", 3), 200, 1},
		{"another count", "PUT", path, service("web", "web@1", 5), 200, 1},
		{"scaled", "POST", path + "/scale", map[string]any{"count": 2}, 200, 1},
		{"stopped", "POST", path + "/stop", nil, 200, 1},
		{"restart of a stopped one", "POST", path + "/restart", nil, 409, 1},
		{"started", "POST", path + "/start", nil, 200, 1},
		{"restarted", "POST", path + "/restart", nil, 200, 2},
		{"another definition", "PUT", path, service("web", "web@2", 2), 200, 3},
		{"back to the first", "PUT", path, service("web", "web@1", 2), 200, 4},
		{
			"a generation from outside", "PUT", path,
			map[string]any{"definition": "web@1", "count": 2, "generation": 99, "deleted": true},
			200, 4,
		},
		{"deleted", "DELETE", path, nil, 202, 4},
		{"deleted again", "DELETE", path, nil, 202, 4},
		{"scaled while deleted", "POST", path + "/scale", map[string]any{"count": 2}, 409, 4},
		{"created again", "PUT", path, service("web", "web@1", 1), 201, 5},
	}
	for _, step := range steps {
		w.want(step.status, step.method, step.path, step.body)
		v := read[api.ServiceView](t, w.want(200, "GET", path, nil))
		if v.Generation != step.generation {
			t.Errorf("%s: generation %d, want %d", step.name, v.Generation, step.generation)
		}
		if deleted := strings.HasPrefix(step.name, "deleted") || step.status == 409 &&
			step.generation == 4; v.Deleted != deleted {
			t.Errorf("%s: deleted is %v", step.name, v.Deleted)
		}
	}
}

func TestGenerationAboveWhatIsLeft(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	w.put(map[string]any{"attempt/default.web.7.0/1": cluster.Outcome{
		Task: "default.web.7.0", Attempt: 1, UUID: "u",
		Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
		State: cluster.StateCancelled,
	}})
	v := read[api.ServiceView](t, w.want(201, "PUT", "/v1/clusters/default/services/web", service("web", "web@1", 1)))
	if v.Generation != 8 {
		t.Errorf("generation %d, want 8: an attempt of generation 7 is left", v.Generation)
	}
}

func TestJobGenerations(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
	const path = "/v1/clusters/default/jobs/sum"
	other := job("sum", "adder@1", 2)
	other["priority"] = 700
	steps := []struct {
		name, method, path string
		body               any
		status             int
		generation         uint64
		cancelled          bool
	}{
		{"made", "PUT", path, job("sum", "adder@1", 2), 201, 1, false},
		{"the same again", "PUT", path, job("sum", "adder", 2), 200, 1, false},
		{"another priority", "PUT", path, other, 200, 1, false},
		{"another count", "PUT", path, job("sum", "adder@1", 3), 200, 2, false},
		{"stopped", "POST", path + "/stop", nil, 200, 2, true},
		{"stopped again", "POST", path + "/stop", nil, 200, 2, true},
		{"applied again", "PUT", path, job("sum", "adder@1", 3), 200, 3, false},
		{"restarted", "POST", path + "/restart", nil, 200, 4, false},
	}
	for _, step := range steps {
		v := read[api.JobView](t, w.want(step.status, step.method, step.path, step.body))
		if v.Generation != step.generation || v.Cancelled != step.cancelled {
			t.Errorf("%s: generation %d, want %d; cancelled %v", step.name, v.Generation, step.generation, v.Cancelled)
		}
	}
	w.want(202, "DELETE", path, nil)
	w.want(409, "POST", path+"/restart", nil)
	w.want(404, "DELETE", "/v1/clusters/default/jobs/none", nil)
}

func TestNamesAreDistinct(t *testing.T) {
	w := newWorld(t)
	w.web()
	got := w.want(409, "PUT", "/v1/clusters/default/jobs/web", job("web", "web@1", 1))
	if !strings.Contains(got.faults(), "is the name of a service") {
		t.Errorf("%s", got.body)
	}
	got = w.want(409, "POST", "/v1/apply",
		manifestsOf("Service", service("both", "web@1", 1), "Job", job("both", "web@1", 1)))
	if !strings.Contains(got.faults(), "objects[1].name") {
		t.Errorf("%s", got.body)
	}
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	w.want(201, "PUT", "/v1/clusters/blue/jobs/web", job("web", "web@1", 1))
}

func TestPreconditions(t *testing.T) {
	w := newWorld(t)
	w.web()
	const path = "/v1/clusters/default/services/web"
	old := w.want(200, "GET", path, nil).header.Get("ETag")
	w.want(200, "POST", path+"/scale", `{"count": 4}`, "If-Match", old)
	now := w.want(200, "GET", path, nil).header.Get("ETag")
	if old == now {
		t.Fatal("the ETag did not change")
	}
	tests := []struct {
		name, method, path string
		body               any
		header, value      string
		want               int
	}{
		{"an old revision", "PUT", path, service("web", "web@1", 5), "If-Match", old, 412},
		{"an old revision, scale", "POST", path + "/scale", `{"count": 5}`, "If-Match", old, 412},
		{"an old revision, delete", "DELETE", path, nil, "If-Match", old, 412},
		{"one of several", "PUT", path, service("web", "web@1", 4), "If-Match", old + ", " + now, 200},
		{"any revision", "PUT", path, service("web", "web@1", 4), "If-Match", "*", 200},
		{"none may exist", "PUT", path, service("web", "web@1", 4), "If-None-Match", "*", 412},
		{
			"any revision of nothing", "PUT", "/v1/clusters/default/services/api", service("api", "web@1", 1),
			"If-Match",
			"*", 412,
		},
		{
			"a revision of nothing", "PUT", "/v1/clusters/default/services/api", service("api", "web@1", 1), "If-Match",
			now, 412,
		},
		{
			"none exists", "PUT", "/v1/clusters/default/services/api", service("api", "web@1", 1), "If-None-Match", "*",
			201,
		},
		{
			"an old revision of a cluster", "PUT", "/v1/clusters/default", `{"labels": {"a": "b"}}`, "If-Match",
			`"1000000"`, 412,
		},
		{"an old revision of a node", "PUT", "/v1/nodes/n1", `{"cordon": true}`, "If-Match", `"1000000"`, 412},
		{"a new node", "PUT", "/v1/nodes/n1", `{"cordon": true}`, "If-None-Match", "*", 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := w.call(test.method, test.path, test.body, test.header, test.value)
			if got.status != test.want {
				t.Errorf("status %d, want %d: %s", got.status, test.want, got.body)
			}
		})
	}
}

// TestIfMatchRaces increments a count concurrently by reads and conditional writes. Each increment must count once.
func TestIfMatchRaces(t *testing.T) {
	w := newWorld(t)
	w.web()
	const path, writers, each = "/v1/clusters/default/services/web", 8, 5
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for done := 0; done < each; {
				now := w.call("GET", path, nil)
				v := read[api.ServiceView](t, now)
				got := w.call("POST", path+"/scale", fmt.Sprintf(`{"count": %d}`, v.Count+1), "If-Match",
					now.header.Get("ETag"))
				switch got.status {
				case 200:
					done++
				case 412:
				default:
					t.Errorf("status %d: %s", got.status, got.body)
					return
				}
			}
		})
	}
	all.Wait()
	if v := read[api.ServiceView](t, w.want(200, "GET", path, nil)); v.Count != 3+writers*each {
		t.Errorf("count %d, want %d", v.Count, 3+writers*each)
	}
}

// TestWritersWithoutIfMatch checks that concurrent writes of different fields do not lose changes.
func TestWritersWithoutIfMatch(t *testing.T) {
	w := newWorld(t)
	w.web()
	const path, restarts = "/v1/clusters/default/services/web", 12
	var all sync.WaitGroup
	for i := range restarts {
		all.Go(func() { w.call("POST", path+"/scale", fmt.Sprintf(`{"count": %d}`, i)) })
		all.Go(func() {
			for w.call("POST", path+"/restart", nil).status == http.StatusConflict {
			}
		})
	}
	all.Wait()
	if v := read[api.ServiceView](t, w.want(200, "GET", path, nil)); v.Generation != 1+restarts {
		t.Errorf("generation %d, want %d", v.Generation, 1+restarts)
	}
}

func TestClusters(t *testing.T) {
	w := newWorld(t)
	w.want(404, "GET", "/v1/clusters/default", nil)
	w.want(200, "GET", "/v1/clusters/default/services", nil)
	w.want(404, "GET", "/v1/clusters/blue/services", nil)
	w.web()
	w.want(200, "GET", "/v1/clusters/default", nil)
	w.want(201, "PUT", "/v1/clusters/blue", `{"labels": {"a": "b"}}`)
	w.want(200, "PUT", "/v1/clusters/blue", `{"labels": {"a": "c"}}`)
	got := w.want(409, "DELETE", "/v1/clusters/default", nil)
	if !strings.Contains(got.problem().Detail, "still has service web") {
		t.Errorf("%s", got.body)
	}
	if v := read[api.ClusterView](t, w.want(200, "GET", "/v1/clusters/default", nil)); v.Deleted {
		t.Error("a refused deletion left its mark")
	}
	w.want(412, "DELETE", "/v1/clusters/blue", nil, "If-Match", `"1"`)
	w.want(204, "DELETE", "/v1/clusters/blue", nil)
	w.want(404, "DELETE", "/v1/clusters/blue", nil)
	w.want(404, "GET", "/v1/clusters/blue", nil)
}

// TestClusterDeletionAgainstNewServices deletes clusters while services are created. No service may be left without a
// cluster.
func TestClusterDeletionAgainstNewServices(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	for i := range 30 {
		name := fmt.Sprintf("c%d", i)
		w.want(201, "PUT", "/v1/clusters/"+name, `{}`)
		var made, deleted reply
		var both sync.WaitGroup
		both.Go(func() { made = w.call("PUT", "/v1/clusters/"+name+"/services/web", service("web", "web@1", 1)) })
		both.Go(func() { deleted = w.call("DELETE", "/v1/clusters/"+name, nil) })
		both.Wait()
		if made.status == 201 && deleted.status == 204 {
			t.Fatalf("round %d: both the service was made and the cluster deleted", i)
		}
		if made.status != 201 && deleted.status != 204 {
			t.Errorf("round %d: neither: %s; %s", i, made.body, deleted.body)
		}
	}
}

func TestApply(t *testing.T) {
	w := newWorld(t)
	set := manifestsOf(
		"Job", job("sum", "adder", 2),
		"Service", map[string]any{"cluster": "blue", "name": "web", "definition": "web", "count": 3},
		"TaskDefinition", definition("web", 1),
		"TaskDefinition", definition("adder", 4),
		"TaskDefinition", definition("web", 2),
		"Cluster", map[string]any{"name": "blue"},
	)
	dry := map[string]any{"objects": set["objects"], "dry_run": true}
	planned := read[api.ApplyReply](t, w.want(200, "POST", "/v1/apply", dry))
	w.want(404, "GET", "/v1/definitions/web/1", nil)
	reply := read[api.ApplyReply](t, w.want(200, "POST", "/v1/apply", set))
	var got, plan []string
	for i, c := range reply.Changes {
		got = append(got, fmt.Sprintf("%s %s %s/%s: %s", c.Action, c.Kind, c.Cluster, c.Name, c.Effect))
		if c.Revision == 0 {
			t.Errorf("%s has no revision", c.Name)
		}
		p := planned.Changes[i]
		plan = append(plan, fmt.Sprintf("%s %s %s/%s: %s", p.Action, p.Kind, p.Cluster, p.Name, p.Effect))
	}
	want := []string{
		"create Cluster /blue: ",
		"create TaskDefinition /web@1: ",
		"create TaskDefinition /adder@4: ",
		"create TaskDefinition /web@2: ",
		"create Service blue/web: starts 3 tasks of web@2",
		"create Job default/sum: runs 2 tasks",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(plan, got); diff != "" {
		t.Errorf("the plan was another (-plan +done):\n%s", diff)
	}

	// The next version rolls out; the rest stays.
	next := manifestsOf(
		"TaskDefinition", definition("web", 3),
		"Service", map[string]any{"cluster": "blue", "name": "web", "definition": "web@3", "count": 5},
		"Job", job("sum", "adder", 2),
	)
	reply = read[api.ApplyReply](t, w.want(200, "POST", "/v1/apply", next))
	svc := reply.Changes[1]
	if svc.Action != api.ActionUpdate ||
		svc.Effect != "rolls out web@3 over web@2, one task at a time, and starts 2 more" {
		t.Errorf("%+v", svc)
	}
	wantFields := []api.FieldChange{
		{Path: "count", Old: "3", New: "5"},
		{Path: "definition", Old: `"web@2"`, New: `"web@3"`},
	}
	if diff := cmp.Diff(wantFields, svc.Fields); diff != "" {
		t.Error(diff)
	}
	if reply.Changes[2].Action != api.ActionNone {
		t.Errorf("%+v", reply.Changes[2])
	}
}

func TestApplyIsAllOrNone(t *testing.T) {
	w := newWorld(t)
	w.web()
	before, err := w.engine.List(t.Context(), "berth/")
	if err != nil {
		t.Fatal(err)
	}
	changed := definition("web", 1)
	changed["labels"] = map[string]any{"a": "b"}
	tests := []struct {
		name   string
		set    map[string]any
		status int
		faults string
	}{
		{
			"a reference to nothing",
			manifestsOf("Service", service("ok", "web@1", 1), "Service", service("bad", "none@1", 1), "Job",
				job("worse", "web@3", 1)),
			422, "objects[1].definition: there is no task definition none@1; " +
				"objects[2].steps[0].definition: there is no task definition web@3; the newest is web@1",
		},
		{
			"a changed version", manifestsOf("Service", service("ok", "web@1", 1), "TaskDefinition", changed), 409,
			`objects[1].labels.a: is "b" here and not set in the stored web@1`,
		},
		{
			"an object twice", manifestsOf("Service", service("ok", "web@1", 1), "Service", service("ok", "web@1", 2)),
			422, "objects[1]: is Service default/ok again, as objects[0]",
		},
		{
			"a cluster that is not there",
			manifestsOf("Service", map[string]any{"cluster": "blue", "name": "ok", "definition": "web@1"}), 422,
			"objects[0].cluster: there is no cluster blue",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := w.want(test.status, "POST", "/v1/apply", test.set)
			if got.faults() != test.faults {
				t.Errorf("got  %s\nwant %s", got.faults(), test.faults)
			}
		})
	}
	after, err := w.engine.List(t.Context(), "berth/")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Records, after.Records); diff != "" {
		t.Errorf("something was stored:\n%s", diff)
	}
	w.want(200, "POST", "/v1/apply", `{"objects": []}`)
}

// TestApplyTooLarge applies more than one transaction of the engine can hold.
func TestApplyTooLarge(t *testing.T) {
	w := newWorld(t)
	var pairs []any
	for i := range 6000 {
		pairs = append(pairs, "TaskDefinition", definition(fmt.Sprintf("d%d", i), 1))
	}
	got := w.want(413, "POST", "/v1/apply", manifestsOf(pairs...))
	if !strings.Contains(got.problem().Detail, "in parts") {
		t.Errorf("%s", got.body)
	}
	var most int
	_, text, _ := strings.Cut(got.problem().Detail, "the first ")
	if _, err := fmt.Sscanf(text, "%d", &most); err != nil || most < 2 || most >= 6000 {
		t.Fatalf("the number of objects that fit: %d, %v: %s", most, err, got.body)
	}
	dry := func(n int) map[string]any {
		request := manifestsOf(pairs[:2*n]...)
		request["dry_run"] = true
		return request
	}
	w.want(200, "POST", "/v1/apply", dry(most))
	w.want(413, "POST", "/v1/apply", dry(most+1))
	page := read[api.Page[api.DefinitionView]](t, w.want(200, "GET", "/v1/definitions", nil))
	if len(page.Items) != 0 {
		t.Errorf("%d definitions were stored", len(page.Items))
	}
	w.want(200, "POST", "/v1/apply", manifestsOf(pairs[:2*most]...))
}

// TestApplyOnConsul applies objects to a store with the limits of Consul in the parts that the refusal names.
func TestApplyOnConsul(t *testing.T) {
	w := newWorldOn(t, memory.New(memory.Options{Consul: true}))
	pairs := []any{"TaskDefinition", definition("web", 1)}
	for i := range 80 {
		pairs = append(pairs, "Service", service(fmt.Sprintf("s%02d", i), "web@1", 1))
	}
	requests := 0
	for len(pairs) > 0 {
		if requests++; requests > 20 {
			t.Fatal("the parts do not end")
		}
		n := len(pairs) / 2
		if got := w.call("POST", "/v1/apply", manifestsOf(pairs...)); got.status != 200 {
			_, text, _ := strings.Cut(got.problem().Detail, "the first ")
			if _, err := fmt.Sscanf(text, "%d", &n); got.status != 413 || err != nil || n == 0 {
				t.Fatalf("status %d, %s", got.status, got.body)
			}
			w.want(200, "POST", "/v1/apply", manifestsOf(pairs[:2*n]...))
		}
		pairs = pairs[2*n:]
	}
	page := read[api.Page[api.ServiceView]](t, w.want(200, "GET", "/v1/services", nil))
	if len(page.Items) != 80 || requests < 2 {
		t.Errorf("%d services after %d requests", len(page.Items), requests)
	}
}

// TestReadObjectsCanBeWritten writes back answers of reads: nothing changes.
func TestReadObjectsCanBeWritten(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.want(201, "PUT", "/v1/clusters/default/jobs/sum", job("sum", "web@1", 2))
	for _, path := range []string{
		"/v1/clusters/default", "/v1/definitions/web/1", "/v1/clusters/default/services/web",
		"/v1/clusters/default/jobs/sum",
	} {
		was := w.want(200, "GET", path, nil)
		w.want(200, "PUT", path, string(was.body), "If-Match", was.header.Get("ETag"))
		if now := w.want(200, "GET", path, nil); string(now.body) != string(was.body) {
			t.Errorf("%s changed from %s to %s", path, was.body, now.body)
		}
	}
}
