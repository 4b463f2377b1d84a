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

// in returns an object with its cluster, for manifests.
func in(name string, object map[string]any) map[string]any {
	object["cluster"] = name
	return object
}

// held is a job that does not begin.
func held(name, definition string) map[string]any {
	j := job(name, definition, 1)
	j["hold"] = true
	return j
}

func nightly(name string, steps any) map[string]any {
	return map[string]any{"name": name, "schedules": []any{"0 3 * * *"}, "job": map[string]any{"steps": steps}}
}

// templateOf is a definition inside of a service or a step.
func templateOf(name string) map[string]any {
	d := definition(name, 1)
	delete(d, "version")
	return d
}

// TestReferencesToHiddenDefinitions checks that a token with a limit cannot refer to a version that only other clusters
// use: its content would become visible. The answers are those about a missing version.
func TestReferencesToHiddenDefinitions(t *testing.T) {
	s, red, _ := limits(t)
	// The faults of a version that the token does not see must not appear either.
	ported := definition("blue-root", 1)
	ported["containers"].([]any)[0].(map[string]any)["user"] = "root"
	s.want(201, "PUT", "/v1/definitions/blue-root/1", ported)
	s.want(200, "POST", "/v1/apply",
		manifestsOf("Cluster", map[string]any{"name": "red", "permissions": []any{}}))
	s.want(201, "PUT", "/v1/clusters/blue/jobs/root", held("root", "blue-root@1"))
	apply := func(kind string, dry bool, object map[string]any) map[string]any {
		return map[string]any{"dry_run": dry, "objects": manifestsOf(kind, in("red", object))["objects"]}
	}
	asks := map[string]func(ref string) reply{
		"job": func(ref string) reply {
			return s.ask(s.plain, red, "PUT", "/v1/clusters/red/jobs/spy", held("spy", ref))
		},
		"service": func(ref string) reply {
			return s.ask(s.plain, red, "PUT", "/v1/clusters/red/services/spy", service("spy", ref, 0))
		},
		"change of a service": func(ref string) reply {
			return s.ask(s.plain, red, "PUT", "/v1/clusters/red/services/web", service("web", ref, 2))
		},
		"cron": func(ref string) reply {
			return s.ask(s.plain, red, "PUT", "/v1/clusters/red/crons/spy", nightly("spy", held("spy", ref)["steps"]))
		},
	}
	for _, dry := range []bool{true, false} {
		for kind, object := range map[string]func(ref string) map[string]any{
			"Job":     func(ref string) map[string]any { return held("spy", ref) },
			"Service": func(ref string) map[string]any { return service("spy", ref, 0) },
			"Cron":    func(ref string) map[string]any { return nightly("spy", held("spy", ref)["steps"]) },
		} {
			asks[fmt.Sprintf("apply of a %s, dry run %t", kind, dry)] = func(ref string) reply {
				return s.ask(s.plain, red, "POST", "/v1/apply", apply(kind, dry, object(ref)))
			}
		}
	}
	for name, ask := range asks {
		for _, ref := range []string{"blue-web@1", "blue-web", "blue-web@7", "blue-root@1", "blue-root"} {
			hidden := ask(ref)
			missing := ask("lost" + strings.TrimPrefix(ref, "blue"))
			if want := strings.ReplaceAll(missing.faults(), "lost", "blue"); missing.status != 422 ||
				hidden.status != 422 || hidden.faults() != want {
				t.Errorf("%s with %s: status %d: %s; with a missing one: status %d: %s", name, ref, hidden.status,
					hidden.faults(), missing.status, missing.faults())
			}
		}
	}
	for _, path := range []string{"blue-web/1", "blue-web", "blue-root/1"} {
		path = "/v1/definitions/" + path
		if got := s.ask(s.plain, red, "GET", path, nil); got.status != 404 {
			t.Errorf("%s: status %d: %s", path, got.status, got.body)
		}
	}
	// A template of the same content does not lead to the version either: it needs a name of its own.
	steps := []any{map[string]any{"name": "work", "template": templateOf("blue-root")}}
	got := s.ask(s.plain, red, "PUT", "/v1/clusters/red/jobs/spy",
		map[string]any{"name": "spy", "hold": true, "steps": steps})
	if got.status != 422 || !strings.Contains(got.faults(), "choose another name") {
		t.Errorf("a template under the name: status %d: %s", got.status, got.body)
	}
	// Tokens without a limit refer to every version.
	s.want(200, "PUT", "/v1/clusters/red", map[string]any{"name": "red", "permissions": []any{"host-network"}})
	s.want(201, "PUT", "/v1/clusters/red/jobs/fine", held("fine", "blue-web@1"))
	if got := s.ask(s.plain, red, "GET", "/v1/definitions/blue-web/1", nil); got.status != 200 {
		t.Errorf("a version that its cluster uses: status %d", got.status)
	}
}

// TestNewestDefinitionOfALimitedToken checks which version a reference without a number is.
func TestNewestDefinitionOfALimitedToken(t *testing.T) {
	s, red, _ := limits(t)
	for v := range 3 {
		s.want(201, "PUT", fmt.Sprintf("/v1/definitions/shared/%d", v+1), definition("shared", v+1))
	}
	s.want(201, "PUT", "/v1/clusters/red/jobs/old", held("old", "shared@1"))
	s.want(201, "PUT", "/v1/clusters/blue/jobs/new", held("new", "shared@2"))
	tests := []struct {
		token string
		want  int
	}{
		{red, 1},
		{s.access(cluster.RoleSubmitter, "blue"), 2},
		{s.access(cluster.RoleSubmitter, "red", "blue"), 2},
		{s.access(cluster.RoleSubmitter), 3},
	}
	for i, test := range tests {
		for _, of := range []string{"red", "blue"} {
			name := fmt.Sprintf("newest-%d", i)
			got := s.ask(s.plain, test.token, "PUT", "/v1/clusters/"+of+"/jobs/"+name, held(name, "shared"))
			if got.status == 403 {
				continue
			}
			if v := read[api.JobView](t, got); got.status != 201 || v.Steps[0].Definition.Version != test.want {
				t.Errorf("token %d in %s: status %d, %s, want version %d", i, of, got.status, v.Steps[0].Definition,
					test.want)
			}
			s.want(202, "DELETE", "/v1/clusters/"+of+"/jobs/"+name, nil)
		}
	}
}

// TestVersionsUnderNamesOfOthers checks that a token with a limit supplies no code to other clusters: a reference
// without a number is the newest version.
func TestVersionsUnderNamesOfOthers(t *testing.T) {
	s, red, _ := limits(t)
	s.want(201, "PUT", "/v1/definitions/shared/1", definition("shared", 1))
	s.want(201, "PUT", "/v1/clusters/red/jobs/mine", held("mine", "shared@1"))
	s.want(201, "PUT", "/v1/clusters/blue/jobs/other", held("other", "shared@1"))
	s.want(201, "PUT", "/v1/definitions/idle/1", definition("idle", 1)) // nobody uses it yet
	s.want(201, "PUT", "/v1/definitions/old/1", definition("old", 1))   // of an attempt, and of an earlier version
	s.put(map[string]any{"state/n1/blue.gone.1.0": desired("blue.gone.1.0", 1, cluster.KindService,
		cluster.Ref{Name: "old", Version: 1})})
	s.want(201, "PUT", "/v1/definitions/former/1", definition("former", 1))
	s.put(map[string]any{"rollout/blue/web": cluster.Rollout{
		Version: cluster.Version{Generation: 1, Definition: cluster.Ref{Name: "blue-web", Version: 1}},
		History: []cluster.Version{{Generation: 0, Definition: cluster.Ref{Name: "former", Version: 1}}},
	}})
	for _, name := range []string{"blue-web", "shared", "idle", "old", "former"} {
		with := func(dry bool) map[string]any {
			return map[string]any{"dry_run": dry, "objects": manifestsOf("TaskDefinition", definition(name, 2),
				"Job", in("red", held("spy", name+"@2")))["objects"]}
		}
		for what, got := range map[string]reply{
			"put":          s.ask(s.plain, red, "PUT", "/v1/definitions/"+name+"/2", definition(name, 2)),
			"skipping one": s.ask(s.plain, red, "PUT", "/v1/definitions/"+name+"/9", definition(name, 9)),
			"apply":        s.ask(s.plain, red, "POST", "/v1/apply", with(false)),
			"dry run":      s.ask(s.plain, red, "POST", "/v1/apply", with(true)),
		} {
			if got.status != 409 || !strings.Contains(string(got.body), "choose another name") {
				t.Errorf("%s under %s: status %d: %s", what, name, got.status, got.body)
			}
		}
		for path, object := range map[string]map[string]any{
			"services/spy": {"name": "spy", "count": 1, "template": templateOf(name)},
			"jobs/spy": {"name": "spy", "steps": []any{map[string]any{
				"name":     "work",
				"template": templateOf(name),
			}}},
			"crons/spy": nightly("spy", []any{map[string]any{"name": "work", "template": templateOf(name)}}),
		} {
			if name == "shared" { // its own version has the same content
				continue
			}
			got := s.ask(s.plain, red, "PUT", "/v1/clusters/red/"+path, object)
			if got.status != 422 || !strings.Contains(got.faults(), "choose another name") {
				t.Errorf("a template of %s under %s: status %d: %s", path, name, got.status, got.body)
			}
		}
	}
	v := read[api.JobView](t, s.want(201, "PUT", "/v1/clusters/blue/jobs/report", held("report", "blue-web")))
	if want := (cluster.Ref{Name: "blue-web", Version: 1}); v.Steps[0].Definition != want {
		t.Errorf("a job of blue without a version runs %s, want %s", v.Steps[0].Definition, want)
	}
	// Tokens without a limit add versions to all names.
	for _, name := range []string{"blue-web", "shared", "idle"} {
		if got := s.ask(s.plain, s.access(cluster.RoleSubmitter), "PUT", "/v1/definitions/"+name+"/2",
			definition(name, 2)); got.status != 201 {
			t.Errorf("%s without a limit: status %d: %s", name, got.status, got.body)
		}
	}
}

// TestDefinitionsOfALimitedToken checks that a token with a limit works with the definitions of its own clusters.
func TestDefinitionsOfALimitedToken(t *testing.T) {
	s, red, _ := limits(t)
	ask := func(want int, method, path string, body any) reply {
		t.Helper()
		got := s.ask(s.plain, red, method, path, body)
		if got.status != want {
			t.Errorf("%s %s: status %d, want %d: %s", method, path, got.status, want, got.body)
		}
		return got
	}
	// A new name, with its first user. A repetition changes nothing.
	fresh := manifestsOf("TaskDefinition", definition("fresh", 1), "Job", in("red", held("first", "fresh@1")))
	ask(200, "POST", "/v1/apply", fresh)
	ask(200, "POST", "/v1/apply", fresh)
	// A name that was written without a user, and then with it. The next versions can be written on their own.
	ask(201, "PUT", "/v1/definitions/apart/1", definition("apart", 1))
	ask(422, "PUT", "/v1/clusters/red/jobs/apart", held("apart", "apart@1"))
	ask(200, "POST", "/v1/apply",
		manifestsOf("TaskDefinition", definition("apart", 1), "Job", in("red", held("apart", "apart"))))
	ask(201, "PUT", "/v1/definitions/apart/2", definition("apart", 2))
	// The next version of its service, and back.
	ask(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", definition("red-web", 2),
		"Service", in("red", service("web", "red-web", 2))))
	rollout := cluster.Version{
		Generation: 1, Definition: cluster.Ref{Name: "red-web", Version: 1}, State: cluster.RolloutComplete,
		Started: time.Now(),
	}
	s.put(map[string]any{"rollout/red/web": cluster.Rollout{
		Version: cluster.Version{
			Generation: 2, Definition: cluster.Ref{Name: "red-web", Version: 2}, State: cluster.RolloutFailed,
		},
		Healthy: &rollout, History: []cluster.Version{rollout},
	}})
	ask(200, "POST", "/v1/clusters/red/services/web/rollout/undo", nil)
	got := read[api.ServiceView](t, ask(200, "GET", "/v1/clusters/red/services/web", nil))
	if diff := cmp.Diff(cluster.Ref{Name: "red-web", Version: 1}, got.Definition); diff != "" {
		t.Errorf("after the undo (-want +got):\n%s", diff)
	}
	// A cron and its jobs.
	ask(201, "PUT", "/v1/clusters/red/crons/nightly", nightly("nightly", held("x", "fresh")["steps"]))
	ask(201, "POST", "/v1/clusters/red/crons/nightly/run", nil)
	// Templates: the same one again, the next one, and one of a name that only ended work has used.
	templates := func(name, image string) map[string]any {
		d := templateOf(name)
		d["containers"].([]any)[0].(map[string]any)["image"] = image
		steps := []any{map[string]any{"name": "work", "template": d}}
		return map[string]any{"name": "run", "hold": true, "steps": steps}
	}
	ask(201, "PUT", "/v1/clusters/red/jobs/run", templates("inline", "app:1"))
	ask(200, "PUT", "/v1/clusters/red/jobs/run", templates("inline", "app:1"))
	ask(200, "PUT", "/v1/clusters/red/jobs/run", templates("inline", "app:2"))
	ask(200, "PUT", "/v1/clusters/red/jobs/run", templates("other", "app:1"))
	v := read[api.JobView](t, ask(200, "PUT", "/v1/clusters/red/jobs/run", templates("inline", "app:3")))
	if want := (cluster.Ref{Name: "inline", Version: 3}); v.Steps[0].Definition != want {
		t.Errorf("the third template is %s, want %s", v.Steps[0].Definition, want)
	}
}
