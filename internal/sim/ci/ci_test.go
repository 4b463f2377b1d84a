package ci_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
)

// TestDay generates a whole day. Each job is valid, the sum of the tasks is as documented, and the busy time is busy.
func TestDay(t *testing.T) {
	config := ci.Config{Seed: 1, Length: 24 * time.Hour, Jobs: 10_000}
	acts := ci.Generate(config)
	jobs, tasks, verbs := 0, 0, map[ci.Verb]int{}
	perHour := make([]int, 24)
	features := map[string]int{}
	for i := range acts {
		a := &acts[i]
		verbs[a.Verb]++
		if a.Verb != ci.Submit {
			continue
		}
		jobs++
		perHour[int(a.At.Hours())]++
		if err := a.Spec.Validate(); err != nil {
			t.Fatal(err)
		}
		for k := range a.Spec.Steps {
			s := &a.Spec.Steps[k]
			tasks += s.Count
			countFeatures(features, s)
		}
	}
	t.Logf("%d jobs, %d tasks, %v, %v, jobs by hour %v", jobs, tasks, verbs, features, perHour)
	if jobs != 10_000 || tasks < 190_000 || tasks > 210_000 {
		t.Errorf("got %d jobs with %d tasks, want 10,000 with about 200,000", jobs, tasks)
	}
	if perHour[10] < 3*perHour[0] {
		t.Errorf("got %d jobs in hour 10 and %d in hour 0, want a daily rhythm", perHour[10], perHour[0])
	}
	for _, verb := range []ci.Verb{ci.Cancel, ci.Hold, ci.Release, ci.Retry, ci.Hurry, ci.Restart} {
		if verbs[verb] < 100 {
			t.Errorf("users %s %d times, want at least 100", verb, verbs[verb])
		}
	}
	for _, name := range []string{
		"needs", "resolved", "gang", "parallelism", "retries", "final", "intermittent",
		"idempotent", "concurrency",
	} {
		if features[name] < 100 {
			t.Errorf("%d steps with %s, want at least 100", features[name], name)
		}
	}
	config = ci.Config{Seed: 2, Length: time.Hour, Jobs: 100}
	if diff := cmp.Diff(ci.Generate(config), ci.Generate(config)); diff != "" {
		t.Errorf("two workloads of one seed differ: %s", diff)
	}
}

func countFeatures(features map[string]int, s *cluster.Step) {
	for name, has := range map[string]bool{
		"needs": len(s.Needs) > 0, "resolved": s.Requires == cluster.RequireResolved, "gang": s.Gang != nil,
		"parallelism": s.Parallelism > 0, "retries": s.Retries > 0, "idempotent": s.Idempotent,
		"final":        s.ExitCodes != nil && len(s.ExitCodes.Final) > 0,
		"intermittent": s.ExitCodes != nil && len(s.ExitCodes.Intermittent) > 0,
		"concurrency":  s.Concurrency != nil,
	} {
		if has {
			features[name]++
		}
	}
}
