package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// applySpec returns an apply of one object.
func applySpec(kind cluster.Kind, spec string, dryRun bool) string {
	return fmt.Sprintf(`{"dry_run": %v, "objects": [{"kind": %q, "spec": %s}]}`, dryRun, kind, spec)
}

// templated returns a service with a template that runs a command.
func templated(in, name, command string, count int) string {
	return fmt.Sprintf(`{"cluster": %q, "name": %q, "count": %d, "template": {"containers": [{"name": "main",
		"command": [%q], "resources": {"cpu": "10m", "memory": "8MiB"}}]}}`, in, name, count, command)
}

// change applies one object and returns what changed.
func (w *world) change(kind cluster.Kind, spec string) api.Change {
	w.t.Helper()
	var reply api.ApplyReply
	if err := json.Unmarshal(w.want(200, "POST", "/v1/apply", applySpec(kind, spec, false)).body, &reply); err != nil ||
		len(reply.Changes) != 1 {
		w.t.Fatalf("%v changes: %v", len(reply.Changes), err)
	}
	return reply.Changes[0]
}

// definitionOf returns the version that a service of the cluster default requests.
func (w *world) definitionOf(name string) string {
	w.t.Helper()
	svc, ok := w.tables.Snapshot().Service("default", name)
	if !ok || svc.Value.Template != nil {
		w.t.Fatalf("service %s: %+v", name, svc.Value)
	}
	return svc.Value.Definition.String()
}

// TestTemplate checks that a service with its definition inside gets a version of it: the next one for new content,
// and an earlier one for its content.
func TestTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if c := w.change(cluster.KindService, templated("default", "web", "a", 1)); c.Action != api.ActionCreate ||
		!strings.Contains(c.Effect, "web@1") {
		t.Errorf("the first: %+v", c)
	}
	if c := w.change(cluster.KindService, templated("default", "web", "a", 1)); c.Action != api.ActionNone {
		t.Errorf("again: %+v", c)
	}
	c := w.change(cluster.KindService, templated("default", "web", "b", 1))
	var fields []string
	for _, f := range c.Fields {
		fields = append(fields, fmt.Sprintf("%s: %s → %s", f.Path, f.Old, f.New))
	}
	want := []string{`definition: "web@1" → "web@2"`, `template.containers[0].command[0]: "a" → "b"`}
	if fmt.Sprint(fields) != fmt.Sprint(want) {
		t.Errorf("the changes are %q, want %q", fields, want)
	}
	if got := w.definitionOf("web"); got != "web@2" {
		t.Errorf("the service runs %s", got)
	}
	w.change(cluster.KindService, templated("default", "web", "b", 3)) // another count is no other content
	if got := w.definitionOf("web"); got != "web@2" {
		t.Errorf("after a change of the count: %s", got)
	}
	w.change(cluster.KindService, templated("default", "web", "a", 3))
	if got := w.definitionOf("web"); got != "web@1" {
		t.Errorf("the content of the first version: %s", got)
	}
}

// TestTemplateDryRun checks that a dry run names the version that an apply makes, and writes nothing.
func TestTemplateDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change(cluster.KindService, templated("default", "web", "a", 1))
	var reply api.ApplyReply
	got := w.want(200, "POST", "/v1/apply", applySpec(cluster.KindService, templated("default", "web", "b", 1), true))
	if err := json.Unmarshal(got.body, &reply); err != nil || !strings.Contains(reply.Changes[0].Effect,
		"rolls out web@2 over web@1") {
		t.Errorf("%s: %v", got.body, err)
	}
	if _, there := w.tables.Snapshot().Definition(cluster.Ref{Name: "web", Version: 2}); there {
		t.Error("the dry run wrote the version")
	}
}

// TestTemplatesOfSteps checks the names of definitions in jobs and crons, also of other clusters. Steps of equal
// content that name one definition share a version.
func TestTemplatesOfSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(201, "PUT", "/v1/clusters/shop", `{"name": "shop"}`)
	step := func(name, more string) string {
		return fmt.Sprintf(`{"name": %q, "template": {%s "containers": [{"name": "main", "command": ["true"]}]}}`,
			name, more)
	}
	w.change(cluster.KindJob, `{"name": "train", "steps": [`+step("fetch", "")+", "+step("learn", "")+`]}`)
	w.change(cluster.KindJob, `{"cluster": "shop", "name": "train", "steps": [`+
		step("one", `"name": "shared",`)+", "+step("two", `"name": "shared",`)+`]}`)
	w.change(cluster.KindCron, `{"cluster": "shop", "name": "nightly", "schedules": ["@daily"], "job": {"steps": [`+
		step("all", "")+`]}}`)
	snap := w.tables.Snapshot()
	here, _ := snap.Job("default", "train")
	there, _ := snap.Job("shop", "train")
	cron, _ := snap.Cron("shop", "nightly")
	var got []string
	for _, steps := range [][]cluster.Step{here.Value.Steps, there.Value.Steps, cron.Value.Job.Steps} {
		for i := range steps {
			got = append(got, steps[i].Definition.String())
		}
	}
	want := []string{"train-fetch@1", "train-learn@1", "shared@1", "shared@1", "shop-nightly-all@1"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	generation := here.Value.Generation
	if c := w.change(cluster.KindJob, `{"name": "train", "steps": [`+step("fetch", "")+", "+step("learn", "")+
		`]}`); c.Action != api.ActionNone {
		t.Errorf("the same job again: %+v", c)
	}
	if again, _ := w.tables.Snapshot().Job("default", "train"); again.Value.Generation != generation {
		t.Error("the same job runs again")
	}
}

// TestInlineNames checks the mark of owners whose definitions are templates: a change of the count keeps it, and a
// reference to another version removes it.
func TestInlineNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inline := func() string {
		svc, _ := w.tables.Snapshot().Service("default", "web")
		return fmt.Sprint(svc.Value.Inline)
	}
	w.change(cluster.KindService, templated("default", "web", "a", 1))
	w.change(cluster.KindService, templated("default", "web", "b", 1))
	if got := inline(); got != "[web]" {
		t.Errorf("a service with a template: got %s, want [web]", got)
	}
	w.change(cluster.KindService, `{"name": "web", "definition": "web@2", "count": 2}`)
	if got := inline(); got != "[web]" {
		t.Errorf("the same version with another count: got %s, want [web]", got)
	}
	w.change(cluster.KindService, `{"name": "web", "definition": "web@1", "count": 2}`)
	if got := inline(); got != "[]" {
		t.Errorf("another version by name: got %s, want []", got)
	}
	w.change(cluster.KindJob, `{"name": "train", "steps": [{"name": "fetch", "definition": "web@1"}, {"name": "learn",
		"template": {"containers": [{"name": "main", "command": ["true"]}]}}]}`)
	if job, _ := w.tables.Snapshot().Job("default", "train"); fmt.Sprint(job.Value.Inline) != "[train-learn]" {
		t.Errorf("a job: got %s, want [train-learn]", job.Value.Inline)
	}
}

// TestTemplateOfASingleWrite checks the operation that writes one service.
func TestTemplateOfASingleWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(201, "PUT", "/v1/clusters/default/services/web", templated("default", "web", "a", 1))
	if got := w.definitionOf("web"); got != "web@1" {
		t.Errorf("the service runs %s", got)
	}
}

// TestTemplateFaults checks that all faults of a template are returned together, with their paths.
func TestTemplateFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.want(422, "POST", "/v1/apply", applySpec(cluster.KindService, `{"name": "web", "count": 1,
		"definition": "other@1", "template": {"version": 3, "grace": "2h", "containers": [{"name": "main",
		"command": ["true"]}, {"name": "main", "command": ["true"]}]}}`, false))
	var p api.Problem
	if err := json.Unmarshal(got.body, &p); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range p.Faults {
		paths = append(paths, strings.TrimPrefix(f.Path, "objects[0]."))
	}
	want := []string{"definition", "template.version", "template.containers[1].name", "template.grace"}
	if fmt.Sprint(paths) != fmt.Sprint(want) {
		t.Errorf("the faults are at %q, want %q: %s", paths, want, got.body)
	}
}

// TestTemplateWithoutPermission checks that a template needs the permissions of the cluster, with the fault at its
// field.
func TestTemplateWithoutPermission(t *testing.T) {
	t.Parallel()
	s := newSecure(t, func(c *Config) { c.Permissions = nil })
	s.want(201, "PUT", "/v1/clusters/shop", `{"name": "shop"}`)
	got := s.ask(s.plain, s.access(cluster.RoleSubmitter, "shop"), "POST", "/v1/apply", applySpec(cluster.KindService,
		`{"cluster": "shop", "name": "web", "count": 1, "template": {"network": "none", "containers": [{"name": "main",
		"command": ["true"], "user": "root"}]}}`, false))
	if got.status != 422 || !strings.Contains(string(got.body), "template.containers[0].user") {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if _, there := s.tables.Snapshot().Definition(cluster.Ref{Name: "shop-web", Version: 1}); there {
		t.Error("the definition was written")
	}
}

// TestTemplateOfAnotherCluster checks that a caller with a limit gets no version under a name that another cluster
// uses, and is not told whether that has equal content. Another name is the way out.
func TestTemplateOfAnotherCluster(t *testing.T) {
	t.Parallel()
	s := newSecure(t)
	s.want(201, "PUT", "/v1/clusters/shop", `{"name": "shop"}`)
	s.want(200, "POST", "/v1/apply", applySpec(cluster.KindService, templated("default", "shop-web", "a", 1), false))
	submitter := s.access(cluster.RoleSubmitter, "shop")
	for _, command := range []string{"a", "b"} {
		got := s.ask(s.plain, submitter, "POST", "/v1/apply",
			applySpec(cluster.KindService, templated("shop", "web", command, 1), false))
		want := "objects[0].template.name: the name shop-web is taken, and a token that is limited to clusters adds " +
			"versions only to names that these clusters alone use: choose another name"
		if got.status != 422 || got.faults() != want {
			t.Errorf("the command %s: status %d: %s", command, got.status, got.faults())
		}
	}
	named := strings.Replace(templated("shop", "web", "a", 1), `"template": {`, `"template": {"name": "own-name", `, 1)
	got := s.ask(s.plain, submitter, "POST", "/v1/apply", applySpec(cluster.KindService, named, false))
	if got.status != 200 || !strings.Contains(string(got.body), "own-name@1") {
		t.Errorf("with another name: status %d: %s", got.status, got.body)
	}
}

// TestTemplateOfAnotherClusterIsPinned checks that a caller's own version is pinned although a version of another
// cluster, which the caller does not see, had the same content.
func TestTemplateOfAnotherClusterIsPinned(t *testing.T) {
	t.Parallel()
	s := newSecure(t)
	n := &imageNode{digests: map[string]string{"docker.io/library/web:1": digestOf("a")}}
	s.addImageNode(n)
	s.want(201, "PUT", "/v1/clusters/shop", `{"name": "shop"}`)
	with := func(in, name string) string {
		return applySpec(cluster.KindService, fmt.Sprintf(`{"cluster": %q, "name": %q, "count": 1, "template":
			{"network": "none", "containers": [{"name": "main", "image": "web:1"}]}}`, in, name), false)
	}
	s.want(200, "POST", "/v1/apply", with("default", "shop-web"))
	s.put(map[string]any{"service/default/shop-web": nil}) // its version is left
	n.mu.Lock()
	n.digests["docker.io/library/web:1"] = digestOf("b")
	n.mu.Unlock()
	got := s.ask(s.plain, s.access(cluster.RoleSubmitter, "shop"), "POST", "/v1/apply", with("shop", "web"))
	if got.status != 200 || !strings.Contains(string(got.body), "shop-web@2") {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	e, ok := s.tables.Snapshot().Definition(cluster.Ref{Name: "shop-web", Version: 2})
	if !ok || e.Value.Containers[0].Digest != digestOf("b") {
		t.Errorf("the version is not pinned: %+v", e.Value)
	}
}

// TestHighVersions checks a template whose name has the highest version.
func TestHighVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply", applySpec(cluster.KindTaskDefinition, `{"name": "web", "version": 2147483647,
		"containers": [{"name": "main", "command": ["true"]}]}`, false))
	got := w.want(422, "POST", "/v1/apply", applySpec(cluster.KindService, templated("default", "web", "a", 1), false))
	if !strings.Contains(string(got.body), "template.name") {
		t.Errorf("%s", got.body)
	}
}

// TestVersionsFromTemplatesAreMarked checks that a version knows that it came from a template, until a user writes it.
func TestVersionsFromTemplatesAreMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change(cluster.KindService, templated("default", "web", "a", 1))
	inline := func() bool {
		e, _ := w.tables.Snapshot().Definition(cluster.Ref{Name: "web", Version: 1})
		return e.Value.Inline
	}
	if !inline() {
		t.Error("the version of the template is not marked")
	}
	w.change(cluster.KindService, templated("default", "web", "a", 2))
	if !inline() {
		t.Error("the mark went with another write of the service")
	}
	const own = `{"name": "web", "version": 1, "inline": true, "containers": [{"name": "main", "command": ["a"],
		"resources": {"cpu": "10m", "memory": "8MiB"}}]}`
	if c := w.change(cluster.KindTaskDefinition, own); c.Action != api.ActionNone {
		t.Errorf("the same content as a definition: %+v", c)
	}
	if inline() {
		t.Error("the version that a user wrote is marked")
	}
}
