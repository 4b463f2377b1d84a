package apiserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// unlike returns a value that compresses badly.
func unlike(i, k int) string {
	sum := sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(k)})
	return hex.EncodeToString(sum[:30])
}

// largeJob returns a job of steps with one template, each of which needs the step before.
func largeJob(name string, steps int) map[string]any {
	all := make([]any, steps)
	for i := range all {
		s := map[string]any{
			"name": fmt.Sprint("s", i),
			"template": map[string]any{
				"containers": []any{map[string]any{"name": "main", "image": "registry.example/work:1"}},
			},
		}
		if i > 0 {
			s["needs"] = []string{fmt.Sprint("s", i-1)}
		}
		all[i] = s
	}
	return map[string]any{"name": name, "steps": all}
}

// A job of 10,000 steps is one record that any store takes, and one definition.
func TestLargeJob(t *testing.T) {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply", manifestsOf("Job", largeJob("large", cluster.MaxSteps)))
	record, err := w.engine.Read(t.Context(), store.Prefix(store.DefaultPrefix).Job(cluster.DefaultCluster, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if most := memory.ConsulLimits().Bytes; len(record.Value) > most {
		t.Errorf("the record has %d bytes, want at most %d", len(record.Value), most)
	}
	v := read[api.JobView](t, w.want(200, "GET", "/v1/clusters/default/jobs/large", nil))
	if len(v.Steps) != cluster.MaxSteps || v.Status.Total != cluster.MaxSteps {
		t.Fatalf("the view has %d steps and %d tasks", len(v.Steps), v.Status.Total)
	}
	// A brief list leaves the steps out, and keeps the counts.
	for path, steps := range map[string]int{"/v1/jobs?brief=true": 0, "/v1/jobs": cluster.MaxSteps} {
		got := read[api.Page[api.JobView]](t, w.want(200, "GET", path, nil)).Items
		if len(got) != 1 || len(got[0].Steps) != steps || len(got[0].Status.Steps) != steps ||
			got[0].Status.Total != cluster.MaxSteps {
			t.Errorf("%s: %d jobs, want one with %d steps and %d tasks", path, len(got), steps, cluster.MaxSteps)
		}
	}
	for i := range v.Steps {
		if got := v.Steps[i].Definition; got != v.Steps[0].Definition {
			t.Fatalf("step %d has the definition %s, want that of step 0, %s", i, got, v.Steps[0].Definition)
		}
	}
	definitions := read[api.Page[api.DefinitionView]](t, w.want(200, "GET", "/v1/definitions", nil))
	if len(definitions.Items) != 1 {
		t.Errorf("the templates became %d definitions, want one", len(definitions.Items))
	}
	// The queue and the explanation name some steps that wait, and count the others.
	q := read[api.Queue](t, w.want(200, "GET", "/v1/queue", nil))
	if n := len(q.Entries); n != 12 {
		t.Fatalf("the queue has %d entries, want the first step, ten others, and one for the rest", n)
	}
	if e := q.Entries[11]; e.Steps != cluster.MaxSteps-11 || e.Tasks != e.Steps || e.Step == "" || e.Message == "" {
		t.Errorf("the rest of the queue: %+v", e)
	}
	x := read[api.Explanation](t, w.want(200, "GET", "/v1/clusters/default/jobs/large/explain", nil))
	if n := len(x.Because); n != 12 {
		t.Fatalf("the explanation has %d reasons, want the first step, ten others, and one for the rest", n)
	}
	const rest = "9989 more tasks are pending for similar reasons, "
	if got := x.Because[11].Message; !strings.HasPrefix(got, rest) {
		t.Errorf("the last reason: got %q, want %q", got, rest)
	}
	again := read[api.ApplyReply](t,
		w.want(200, "POST", "/v1/apply", manifestsOf("Job", largeJob("large", cluster.MaxSteps))))
	if again.Changes[0].Action != api.ActionNone {
		t.Errorf("the same manifest again: %+v", again.Changes[0])
	}
}

// A job whose record no store would take is refused, also by a dry run, and nothing of it is written.
func TestTooLargeJob(t *testing.T) {
	w := newWorld(t)
	large := largeJob("large", 4000)
	for i, s := range large["steps"].([]any) {
		var constraints []any
		for k := range 4 {
			constraints = append(constraints, map[string]any{
				"attribute": "label.rack", "op": "!=", "value": unlike(i, k),
			})
		}
		s.(map[string]any)["placement"] = map[string]any{"constraints": constraints}
	}
	request := manifestsOf("Job", large)
	for _, dry := range []bool{true, false} {
		request["dry_run"] = dry
		got := w.want(422, "POST", "/v1/apply", request)
		want := fmt.Sprintf("KiB in the store, at most %d KiB are allowed", store.MaxJobBytes>>10)
		if text := string(got.body); !strings.Contains(text, want) || !strings.Contains(text, "steps") {
			t.Errorf("dry run %v: got %.600s, want %q for the field steps", dry, got.body, want)
		}
	}
	w.want(404, "GET", "/v1/clusters/default/jobs/large", nil)
	if got := read[api.Page[api.DefinitionView]](t, w.want(200, "GET", "/v1/definitions", nil)); len(got.Items) != 0 {
		t.Errorf("%d definitions were written", len(got.Items))
	}
}
