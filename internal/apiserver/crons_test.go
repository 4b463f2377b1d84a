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

const cronPath = "/v1/clusters/default/crons/backup"

// cronOf returns a cron with a step of the definition work@1.
func cronOf(name string, schedules ...any) map[string]any {
	return map[string]any{
		"name": name, "schedules": schedules,
		"job": map[string]any{"steps": []any{map[string]any{"name": "copy", "definition": "work", "count": 2}}},
	}
}

// at returns a world with the given clock, which starts at noon.
func at(t *testing.T, now *time.Time) *world {
	w := newWorld(t, func(c *Config) { c.Now = func() time.Time { return *now } })
	w.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", definition("work", 1)))
	return w
}

func cronView(t *testing.T, r reply) api.CronView {
	t.Helper()
	return read[api.CronView](t, r)
}

func TestCronLife(t *testing.T) {
	now := noon.Add(30 * time.Second)
	w := at(t, &now)
	v := cronView(t, w.want(201, "PUT", cronPath, cronOf("backup", "0 3 * * *", "30 12 * * *")))
	if v.Generation != 1 || v.Job.Steps[0].Definition.Version != 1 || v.Status.State != "waiting" ||
		v.Concurrency != cluster.CronForbid {
		t.Errorf("%+v", v)
	}
	want := []time.Time{
		noon.Add(30 * time.Minute), noon.Add(15 * time.Hour), noon.Add(24*time.Hour + 30*time.Minute),
		noon.Add(39 * time.Hour), noon.Add(48*time.Hour + 30*time.Minute),
	}
	if diff := cmp.Diff(want, v.Status.Next); diff != "" {
		t.Errorf("next moments (-want +got):\n%s", diff)
	}
	again := w.want(200, "PUT", cronPath, cronOf("backup", "0 3 * * *", "30 12 * * *"))
	if cronView(t, again).Revision != v.Revision {
		t.Error("the same again wrote")
	}
	zoned := cronOf("backup", "0 3 * * *")
	zoned["zone"] = "Europe/Paris"
	w.want(412, "PUT", cronPath, zoned, "If-Match", `"1"`)
	v = cronView(t, w.want(200, "PUT", cronPath, zoned, "If-Match", again.header.Get("ETag")))
	if got := v.Status.Next[0].Format(time.RFC3339); got != "2026-11-21T03:00:00+01:00" || v.Generation != 2 {
		t.Errorf("next %s, generation %d", got, v.Generation)
	}
	was := w.want(200, "GET", cronPath, nil)
	w.want(200, "PUT", cronPath, string(was.body), "If-Match", was.header.Get("ETag"))
	if got := w.want(200, "GET", cronPath, nil); string(got.body) != string(was.body) {
		t.Errorf("what was read, written again, changed %s to %s", was.body, got.body)
	}
	v = cronView(t, w.want(200, "POST", cronPath+"/suspend", nil))
	if again := cronView(t, w.want(200, "POST", cronPath+"/suspend", nil)); v.Status.State != "suspended" ||
		v.Status.Next != nil || again.Revision != v.Revision {
		t.Errorf("%+v", v.Status)
	}
	if v = cronView(t, w.want(200, "POST", cronPath+"/resume", nil)); v.Status.State != "waiting" {
		t.Errorf("%+v", v.Status)
	}
	for path, n := range map[string]int{"/v1/crons": 1, "/v1/clusters/default/crons": 1} {
		if got := read[api.Page[api.CronView]](t, w.want(200, "GET", path, nil)); len(got.Items) != n {
			t.Errorf("%s lists %d", path, len(got.Items))
		}
	}
	w.want(404, "GET", "/v1/clusters/none/crons", nil)
	w.want(412, "DELETE", cronPath, nil, "If-Match", `"1"`)
	w.want(204, "DELETE", cronPath, nil)
	w.want(404, "DELETE", cronPath, nil)
	for _, verb := range []string{"run", "suspend", "resume"} {
		w.want(404, "POST", cronPath+"/"+verb, nil)
	}
	events := string(w.want(200, "GET", "/v1/events", nil).body)
	for _, kind := range []string{"cron.created", "cron.updated", "cron.deleted"} {
		if !strings.Contains(events, `"type":"`+kind+`"`) {
			t.Errorf("there is no event %s: %s", kind, events)
		}
	}
}

// All faults of a cron are returned together, with their paths.
func TestCronFaults(t *testing.T) {
	now := noon
	w := at(t, &now)
	bad := cronOf("backup", "0 3 * *", "@daily", "61 * * * *")
	bad["concurrency"] = "never"
	bad["job"].(map[string]any)["priority"] = 5000
	got := w.want(422, "PUT", cronPath, bad).problem()
	paths := map[string]bool{}
	for _, f := range got.Faults {
		paths[f.Path] = true
	}
	for _, path := range []string{"schedules[0]", "schedules[2]", "concurrency", "job.priority"} {
		if !paths[path] {
			t.Errorf("no fault at %s: %+v", path, got.Faults)
		}
	}
	if paths["schedules[1]"] {
		t.Errorf("a fault at what is right: %+v", got.Faults)
	}
	zone := cronOf("backup", "@daily")
	zone["zone"] = "Europe/Atlantis"
	if got := w.want(422, "PUT", cronPath, zone).problem().Faults; len(got) != 1 || got[0].Path != "zone" {
		t.Errorf("%+v", got)
	}
	missing := cronOf("backup", "@daily")
	missing["job"].(map[string]any)["steps"].([]any)[0].(map[string]any)["definition"] = "none"
	if got := w.want(422, "PUT", cronPath,
		missing).faults(); got != "job.steps[0].definition: there is no task definition none" {
		t.Error(got)
	}
	for body, status := range map[string]int{
		`{"schedules"`: 400, `{"schedules": "@daily"}`: 422,
		`{"schedule": ["@daily"]}`: 422, `{}`: 422, `[]`: 422,
	} {
		w.want(status, "PUT", cronPath, body)
	}
	w.want(422, "PUT", cronPath, cronOf("other", "@daily"))
	w.want(422, "PUT", "/v1/clusters/none/crons/backup", cronOf("backup", "@daily"))
	w.want(404, "GET", cronPath, nil)
	// Schedules and gates of a service are checked, too.
	svc := service("web", "work@1", 2)
	svc["scaling"] = map[string]any{
		"min": 1, "max": 3,
		"schedules": []any{map[string]any{"cron": "61 * * * *", "min": 2}},
	}
	svc["update"] = map[string]any{
		"gates": []any{map[string]any{"name": "up", "http": "http://web.example", "pass": "status <"}},
	}
	text := w.want(422, "PUT", webPath, svc).faults()
	for _, path := range []string{"scaling.schedules[0].cron: ", "update.gates[0].pass: "} {
		if !strings.Contains(text, path) {
			t.Errorf("no fault at %s in %s", path, text)
		}
	}
}

func TestCronApply(t *testing.T) {
	now := noon
	w := at(t, &now)
	set := manifestsOf("Cron", cronOf("backup", "@hourly"), "TaskDefinition", definition("work", 2))
	set["dry_run"] = true
	change := func(r reply) api.Change {
		t.Helper()
		all := read[api.ApplyReply](t, r).Changes
		return all[len(all)-1]
	}
	c := change(w.want(200, "POST", "/v1/apply", set))
	if c.Kind != cluster.KindCron || c.Action != api.ActionCreate ||
		c.Effect != "makes the next job at 2026-11-20T13:00:00Z" {
		t.Errorf("%+v", c)
	}
	w.want(404, "GET", cronPath, nil)
	delete(set, "dry_run")
	w.want(200, "POST", "/v1/apply", set)
	if v := cronView(t, w.want(200, "GET", cronPath, nil)); v.Job.Steps[0].Definition.Version != 2 {
		t.Errorf("it takes %s, want what the set brings", v.Job.Steps[0].Definition)
	}
	if c = change(w.want(200, "POST", "/v1/apply", set)); c.Action != api.ActionNone {
		t.Errorf("%+v", c)
	}
	other := cronOf("backup", "@daily")
	other["suspended"] = true
	c = change(w.want(200, "POST", "/v1/apply", manifestsOf("Cron", other)))
	want := []api.FieldChange{
		{Path: "schedules[0]", Old: `"@hourly"`, New: `"@daily"`},
		{Path: "suspended", New: "true"},
	}
	if diff := cmp.Diff(want, c.Fields); diff != "" || c.Effect != "makes no jobs while it is suspended" {
		t.Errorf("%s\n%s", c.Effect, diff)
	}
	if got := w.want(422, "POST", "/v1/apply",
		manifestsOf("Cron", cronOf("backup", "never"), "Cron",
			cronOf("Backup", "@daily"))).faults(); !strings.Contains(got, "objects[0].spec") &&
		!strings.Contains(got, "objects[0].schedules[0]") {
		t.Error(got)
	}
}

func TestRunCron(t *testing.T) {
	now := noon
	w := at(t, &now)
	body := cronOf("backup", "@daily")
	body["suspended"] = true
	body["job"].(map[string]any)["labels"] = map[string]any{"for": "tapes"}
	w.want(201, "PUT", cronPath, body)
	run := func() api.JobView {
		t.Helper()
		return read[api.JobView](t, w.want(201, "POST", cronPath+"/run", nil))
	}
	first := run()
	if first.Name != "backup-202611201200" || first.Cron != "backup" || !first.At.Equal(noon) ||
		first.Generation != 1 || first.Labels["for"] != "tapes" || first.Revision == 0 {
		t.Errorf("%+v", first.Job)
	}
	now = noon.Add(20 * time.Second)
	if second := run(); second.Name != "backup-20261120120020" {
		t.Errorf("the minute is taken: %s", second.Name)
	}
	if got := w.want(409, "POST", cronPath+"/run", nil); !strings.Contains(got.problem().Detail,
		"in this second") {
		t.Errorf("%s", got.body)
	}
	now = noon.Add(time.Minute)
	w.want(412, "POST", cronPath+"/run", nil, "If-Match", `"1"`)
	third := run()
	// The server ignores a client's values for the cron of a job.
	job := "/v1/clusters/default/jobs/" + third.Name
	text := strings.Replace(string(w.want(200, "GET", job, nil).body), `"cron":"backup"`, `"cron":"other"`, 1)
	w.want(200, "PUT", job, text)
	if v := read[api.JobView](t, w.want(200, "GET", job, nil)); v.Cron != "backup" || !v.At.Equal(now) {
		t.Errorf("%+v", v.Job)
	}
	own := map[string]any{
		"name": "mine", "cron": "backup",
		"steps": []any{map[string]any{"name": "copy", "definition": "work"}},
	}
	if v := read[api.JobView](t, w.want(201, "PUT", "/v1/clusters/default/jobs/mine", own)); v.Cron != "" {
		t.Errorf("a client made a job of cron %s", v.Cron)
	}
	w.want(200, "POST", job+"/stop", nil)
	v := cronView(t, w.want(200, "GET", cronPath, nil))
	if diff := cmp.Diff([]string{"backup-202611201200", "backup-20261120120020"}, v.Status.Running); diff != "" ||
		v.Status.Failed != 1 {
		t.Errorf("%+v\n%s", v.Status, diff)
	}
	// The view shows the last job of the schedule and why the next was not made.
	w.put(map[string]any{"fired/default/backup": cluster.CronStatus{
		Last: noon, Job: "backup-202611201200", Made: noon,
		Message: "the job of the moment before still runs",
	}})
	if v = cronView(t, w.want(200, "GET", cronPath, nil)); !v.Status.Last.Equal(noon) || v.Status.Job == "" ||
		v.Status.Message == "" {
		t.Errorf("%+v", v.Status)
	}
	long := strings.Repeat("b", cluster.MaxCronName)
	w.want(201, "PUT", "/v1/clusters/default/crons/"+long, cronOf(long, "@daily"))
	for range 2 {
		v := read[api.JobView](t, w.want(201, "POST", "/v1/clusters/default/crons/"+long+"/run", nil))
		if !cluster.ValidName(v.Name) {
			t.Errorf("%s is no name", v.Name)
		}
	}
}

func TestClusterWithCrons(t *testing.T) {
	now := noon
	w := at(t, &now)
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	w.want(201, "PUT", "/v1/clusters/blue/crons/backup", cronOf("backup", "@daily"))
	if got := w.want(409, "DELETE", "/v1/clusters/blue", nil); !strings.Contains(got.problem().Detail,
		"still has cron backup") {
		t.Errorf("%s", got.body)
	}
	w.want(204, "DELETE", "/v1/clusters/blue/crons/backup", nil)
	w.want(204, "DELETE", "/v1/clusters/blue", nil)
}

// A token with a limit sees and runs the crons of its clusters, and their definitions.
func TestCronsOfOtherClusters(t *testing.T) {
	s, red, blue := limits(t)
	for _, in := range []string{"red", "blue"} {
		s.want(201, "PUT", "/v1/definitions/"+in+"-work/1", definition(in+"-work", 1))
		c := cronOf("backup", "@daily")
		c["job"].(map[string]any)["steps"].([]any)[0].(map[string]any)["definition"] = in + "-work"
		s.want(201, "PUT", "/v1/clusters/"+in+"/crons/backup", c)
	}
	tests := []struct {
		token, method, path string
		want                int
	}{
		{red, "POST", "/v1/clusters/red/crons/backup/run", 201},
		{red, "POST", "/v1/clusters/red/crons/backup/suspend", 200},
		{red, "POST", "/v1/clusters/blue/crons/backup/run", 403},
		{red, "GET", "/v1/clusters/blue/crons/backup", 403},
		{red, "GET", "/v1/clusters/blue/services/web/rollout", 403},
		{red, "POST", "/v1/clusters/blue/services/web/rollout/pause", 403},
		{red, "POST", "/v1/clusters/red/services/web/rollout/pause", 200},
		{red, "GET", "/v1/clusters/blue/services/web/explain", 403},
		{red, "GET", "/v1/tasks/blue.web.1.0/explain", 403},
		{red, "GET", "/v1/tasks/red.web.1.0/explain", 200},
		{red, "GET", "/v1/clusters/blue/services/web/scale", 403},
		{red, "GET", "/v1/definitions/red-work/1", 200},
		{red, "GET", "/v1/definitions/blue-work/1", 404},
		{blue, "GET", "/v1/clusters/blue/services/web/rollout/history", 200},
		{blue, "POST", "/v1/clusters/blue/crons/backup/run", 403},
		{blue, "POST", "/v1/clusters/blue/services/web/rollout/undo", 403},
		{blue, "POST", "/v1/clusters/blue/services/web/scale/suspend", 403},
	}
	for _, test := range tests {
		if got := s.ask(s.plain, test.token, test.method, test.path, nil); got.status != test.want {
			t.Errorf("%s %s: status %d, want %d: %s", test.method, test.path, got.status, test.want, got.body)
		}
	}
	got := s.ask(s.plain, red, "GET", "/v1/crons", nil)
	if page := read[api.Page[api.CronView]](t, got); len(page.Items) != 1 || page.Items[0].Cluster != "red" {
		t.Errorf("%s", got.body)
	}
	if got := s.ask(s.plain, red, "POST", "/v1/apply", manifestsOf("Cron", func() map[string]any {
		c := cronOf("more", "@daily")
		c["cluster"] = "blue"
		return c
	}())); got.status != 422 && got.status != 403 {
		t.Errorf("apply to another cluster: status %d: %s", got.status, got.body)
	}
}

// A cluster's token sees the remembered versions of its services.
func TestRememberedVersionsAreSeen(t *testing.T) {
	s, red, _ := limits(t)
	s.want(201, "PUT", "/v1/definitions/red-web/2", definition("red-web", 2))
	s.want(200, "PUT", "/v1/clusters/red/services/web", service("web", "red-web@2", 2))
	old := "/v1/definitions/red-web/1"
	if got := s.ask(s.plain, red, "GET", old, nil); got.status != 404 {
		t.Errorf("nothing remembers it: status %d", got.status)
	}
	s.put(map[string]any{"rollout/red/web": cluster.Rollout{
		Version: cluster.Version{
			Generation: 2, Definition: cluster.Ref{Name: "red-web", Version: 2},
			State: cluster.RolloutRolling,
		},
		History: []cluster.Version{
			{Generation: 1, Definition: cluster.Ref{Name: "red-web", Version: 1}, State: cluster.RolloutComplete},
		},
	}})
	if got := s.ask(s.plain, red, "GET", old, nil); got.status != 200 {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	h := read[api.RolloutHistory](t, s.ask(s.plain, red, "GET", "/v1/clusters/red/services/web/rollout/history", nil))
	if text := fmt.Sprint(h.Versions[0].Fields); !strings.Contains(text, "red-secret") {
		t.Errorf("the difference of its own versions: %s", text)
	}
}
