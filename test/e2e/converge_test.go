package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/test/harness"
)

// converged is the result of berth converge -o json.
type converged struct {
	Name    string
	Changed bool
	Objects []struct {
		Object, Action string
		Diff           []struct{ Path, Old, New string }
	}
	Failure *struct {
		Message string
		Faults  []struct {
			File         string
			Line, Column int
			Path         string
		}
		Unhealthy []struct{ Object, Why, Next string }
	}
}

// actions returns what happened to the objects, without those that did not change.
func (c *converged) actions() []string {
	all := []string{}
	for _, o := range c.Objects {
		if o.Action != "none" {
			all = append(all, o.Action+" "+o.Object)
		}
	}
	slices.Sort(all)
	return all
}

// converge runs berth converge and returns its result. The exit code must be the wanted one.
func converge(t *testing.T, s *harness.Site, code int, args ...string) converged {
	t.Helper()
	r := s.Berth(slices.Concat([]string{"converge", "-o", "json"}, args)...)
	r.Want(t, code)
	var c converged
	if err := json.Unmarshal([]byte(r.Stdout), &c); err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	return c
}

// quiet is a service that a directory holds.
const quiet = `
kind: Service
name: %[1]s
count: %[2]d
template:
  containers:
    - name: main
      command: [sh, -c, "exec sleep 100000"]
      env: {COLOUR: %[3]s}
      resources: {cpu: 10m, memory: 16MiB}
  min_healthy_time: 100ms
  grace: 1s
`

// writeQuiet writes a manifest of a service into a directory.
func writeQuiet(t *testing.T, dir, name string, count int, colour string) {
	t.Helper()
	text := fmt.Sprintf(quiet, name, count, colour)
	if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A converge brings a standalone node to a directory. A second run changes nothing, a check changes nothing at any
// time, and --prune deletes what the directory no longer has, and nothing else. A broken manifest changes nothing.
func TestConverge(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Standalone()
	dir := filepath.Join(s.Dir, "shop")
	mkdir(t, dir)
	writeQuiet(t, dir, "web", 1, "red")
	writeQuiet(t, dir, "api", 1, "red")
	check := func(code int, want ...string) {
		t.Helper()
		got := converge(t, s, code, dir, "--prune", "--check")
		if diff := cmp.Diff(append([]string{}, want...), got.actions()); diff != "" {
			t.Errorf("what the check finds (-want +got):\n%s", diff)
		}
	}
	// 1. All is new, then nothing is.
	check(2, "create default/service/api", "create default/service/web")
	if left := s.Berth("status", "-o", "json").Stdout; strings.Contains(left, `"web"`) {
		t.Errorf("the check made objects:\n%s", left)
	}
	got := converge(t, s, 2, dir)
	made := []string{"create default/service/api", "create default/service/web"}
	if diff := cmp.Diff(made, got.actions()); diff != "" ||
		!got.Changed || got.Name != "shop" {
		t.Errorf("first run: %+v; actions (-want +got):\n%s", got, diff)
	}
	before := running(t, s, "web", 1)
	if got := converge(t, s, 0, dir, "--prune"); got.Changed || len(got.actions()) > 0 || len(got.Objects) != 2 {
		t.Errorf("second run: %+v", got)
	}
	check(0)
	samePids(t, before, running(t, s, "web", 1))
	// 2. Objects of others stay: those of a user, and those of another directory.
	s.Berth("run", s.Write("mine.yaml", fmt.Sprintf(quiet, "mine", 1, "red"))).Want(t, 0)
	other := filepath.Join(s.Dir, "bank")
	mkdir(t, other)
	writeQuiet(t, other, "other", 1, "red")
	converge(t, s, 2, other, "--prune")
	// 3. One object changes and one is no longer there. Without --prune it stays.
	writeQuiet(t, dir, "web", 1, "blue")
	if err := os.Remove(filepath.Join(dir, "api.yaml")); err != nil {
		t.Fatal(err)
	}
	check(2, "delete default/service/api", "update default/service/web")
	if got := converge(t, s, 2, dir); !slices.Equal(got.actions(), []string{"update default/service/web"}) {
		t.Errorf("without --prune: %+v", got)
	}
	running(t, s, "api", 1)
	if got := converge(t, s, 2, dir, "--prune"); !slices.Equal(got.actions(), []string{"delete default/service/api"}) {
		t.Errorf("with --prune: %+v", got)
	}
	s.Berth("inspect", "service/api").Want(t, 2)
	running(t, s, "mine", 1)
	running(t, s, "other", 1)
	if got := converge(t, s, 0, dir, "--prune"); got.Changed {
		t.Errorf("run after --prune: %+v", got)
	}
	// 4. A broken manifest changes nothing, and every fault has its place.
	writeQuiet(t, dir, "web", 3, "green")
	broken := "kind: Service\nname: worse\ncount: -1\ncolour: red\ntemplate: {containers: [{name: main}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "worse.yaml"), []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	got = converge(t, s, 1, dir, "--prune")
	if got.Changed || got.Failure == nil || len(got.Failure.Faults) < 3 {
		t.Fatalf("with a broken manifest: %+v", got)
	}
	for _, f := range got.Failure.Faults {
		if f.File != filepath.Join(dir, "worse.yaml") || f.Line == 0 || f.Column == 0 {
			t.Errorf("a fault has the place %s:%d:%d", f.File, f.Line, f.Column)
		}
	}
	running(t, s, "web", 1)
}

// A converge whose service does not become healthy fails, tells that it changed something, and why.
func TestConvergeOfAnUnhealthyService(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Standalone()
	dir := filepath.Join(s.Dir, "shop")
	mkdir(t, dir)
	// The service is healthy at no time, however slowly its program ends.
	text := strings.NewReplacer("exec sleep 100000", "echo it is broken; exit 3", "min_healthy_time: 100ms",
		"min_healthy_time: 10m").Replace(fmt.Sprintf(quiet, "web", 1, "red"))
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, changed := range []bool{true, false} {
		got := converge(t, s, 1, dir, "--timeout", "5s")
		if got.Changed != changed || got.Failure == nil || len(got.Failure.Unhealthy) != 1 ||
			got.Failure.Unhealthy[0].Object != "default/service/web" ||
			!strings.Contains(got.Failure.Message, "service/web") {
			t.Errorf("got %+v, want changed %v and the failure of service/web", got, changed)
		}
	}
	s.Berth("converge", dir, "--timeout", "1s").Want(t, 1, "service/web", "it is broken")
}
