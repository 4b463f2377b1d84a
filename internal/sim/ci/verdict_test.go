package ci_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
)

// noon is when the attempts of the tests were placed.
var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// outcome returns the outcome that a word stands for: ok, exit N, killed, unknown, lost, lost-started, rejected, limit
// or cancelled.
func outcome(word string) *cluster.Outcome {
	o := &cluster.Outcome{State: cluster.StateFailed, Started: true, Placed: noon}
	code := 0
	switch _, err := fmt.Sscanf(word, "exit-%d", &code); {
	case err == nil:
		o.Reason, o.Exit = cluster.ReasonExit, &cluster.Exit{Code: code}
	case word == "ok":
		o.State = cluster.StateSucceeded
	case word == "killed":
		o.Reason, o.Exit = cluster.ReasonExit, &cluster.Exit{Code: 137, Signal: 9}
	case word == "unknown":
		o.Reason = cluster.ReasonUnknownExit
	case word == "lost", word == "lost-started":
		o.State, o.Started = cluster.StateLost, word == "lost-started"
	case word == "rejected":
		o.State, o.Started = cluster.StateRejected, false
	case word == "limit":
		o.Reason = cluster.ReasonTimeLimit
	case word == "cancelled":
		o.State = cluster.StateCancelled
	default:
		panic("no outcome " + word)
	}
	return o
}

// TestJudgeTask judges a job of one task by its attempts.
func TestJudgeTask(t *testing.T) {
	step := cluster.Step{Name: "a", Count: 1, Retries: 1}
	idempotent, final, flaky := step, step, step
	idempotent.Idempotent = true
	final.ExitCodes = &cluster.ExitCodes{Final: []int{2}}
	flaky.ExitCodes = &cluster.ExitCodes{Intermittent: []int{75}}
	for _, tt := range []struct {
		attempts string // a last "live" has no outcome
		step     cluster.Step
		want     cluster.JobState
		waits    bool
		retried  time.Time
	}{
		{"", step, cluster.JobPending, true, time.Time{}},
		{"live", step, cluster.JobRunning, false, time.Time{}},
		{"ok", step, cluster.JobSucceeded, false, time.Time{}},
		{"exit-1", step, cluster.JobRunning, true, time.Time{}},
		{"exit-1 live", step, cluster.JobRunning, false, time.Time{}},
		{"exit-1 exit-1", step, cluster.JobFailed, false, time.Time{}},
		{"exit-1 ok", step, cluster.JobSucceeded, false, time.Time{}},
		{"limit killed", step, cluster.JobFailed, false, time.Time{}},
		{"exit-1 exit-1", step, cluster.JobRunning, true, noon},
		{"exit-1 exit-1", step, cluster.JobFailed, false, noon.Add(-time.Second)},
		{"lost rejected cancelled lost exit-1", step, cluster.JobRunning, true, time.Time{}},
		{"lost-started unknown", step, cluster.JobFailed, false, time.Time{}},
		{"lost-started unknown exit-1", idempotent, cluster.JobRunning, true, time.Time{}},
		{"exit-1 limit", idempotent, cluster.JobFailed, false, time.Time{}},
		{"exit-2", final, cluster.JobFailed, false, time.Time{}},
		{"exit-2", final, cluster.JobRunning, true, noon},
		{"exit-75", final, cluster.JobRunning, true, time.Time{}},
		{"exit-2", flaky, cluster.JobFailed, false, time.Time{}},
		{"exit-75", flaky, cluster.JobRunning, true, time.Time{}},
		{"limit", flaky, cluster.JobRunning, true, time.Time{}},
		{"killed", flaky, cluster.JobRunning, true, time.Time{}},
	} {
		job := &cluster.Job{Cluster: "c", Name: "j", Steps: []cluster.Step{tt.step}}
		job.Retried.All = tt.retried
		got := ci.Judge(job, func(cluster.TaskID) (outcomes []*cluster.Outcome, live bool) {
			return history(tt.attempts)
		})
		if got.State != tt.want || len(got.Waiting) > 0 != tt.waits {
			t.Errorf("%q (%+v): got %+v, want %s, waiting %t", tt.attempts, tt.step, got, tt.want, tt.waits)
		}
	}
}

func history(attempts string) (outcomes []*cluster.Outcome, live bool) {
	for word := range strings.FieldsSeq(attempts) {
		if word == "live" {
			live = true
			continue
		}
		outcomes = append(outcomes, outcome(word))
	}
	return outcomes, live
}

// TestJudgeSteps judges a pipeline with a step that cleans up.
func TestJudgeSteps(t *testing.T) {
	pipeline := []cluster.Step{
		{Name: "clean", Count: 1, Needs: []string{"deploy", "test"}, Requires: cluster.RequireResolved},
		{Name: "deploy", Count: 1, Needs: []string{"test"}},
		{Name: "test", Count: 2, Needs: []string{"build"}},
		{Name: "build", Count: 1},
	}
	for _, tt := range []struct {
		attempts map[string]string // by step and index
		over     bool
		want     string // state, counts of waiting, running, succeeded, failed and cancelled tasks
	}{
		{nil, false, "pending 5 0 0 0 0"},
		{nil, true, "cancelled 0 0 0 0 5"},
		{map[string]string{"build.0": "ok", "test.1": "live"}, false, "running 3 1 1 0 0"},
		{map[string]string{"build.0": "exit-1"}, false, "running 1 0 0 1 3"},
		{map[string]string{"build.0": "exit-1", "clean.0": "ok"}, false, "failed 0 0 1 1 3"},
		{map[string]string{"build.0": "ok", "test.0": "exit-1", "test.1": "live"}, false, "running 2 1 1 1 0"},
		{map[string]string{"build.0": "ok", "test.0": "exit-1", "test.1": "ok"}, false, "running 1 0 2 1 1"},
		{map[string]string{"build.0": "ok", "test.0": "exit-1"}, true, "cancelled 0 0 1 1 3"},
		{
			map[string]string{"build.0": "ok", "test.0": "ok", "test.1": "ok", "deploy.0": "ok", "clean.0": "ok"},
			true, "succeeded 0 0 5 0 0",
		},
	} {
		job := &cluster.Job{Cluster: "c", Name: "j", Steps: pipeline, Cancelled: tt.over}
		v := ci.Judge(job, func(task cluster.TaskID) (outcomes []*cluster.Outcome, live bool) {
			parts, _ := task.Parts()
			return history(tt.attempts[fmt.Sprintf("%s.%d", parts.Step, parts.Index)])
		})
		got := fmt.Sprint(v.State, " ", v.Counts.Waiting, v.Running, v.Succeeded, v.Failed, v.Cancelled)
		if diff := cmp.Diff(tt.want, got); diff != "" || v.Total != 5 {
			t.Errorf("%v, over %t (-want +got):\n%s", tt.attempts, tt.over, diff)
		}
	}
}

// TestPrograms draws the programs of many attempts: most succeed, some fail once, and a few hang.
func TestPrograms(t *testing.T) {
	counts := map[string]int{}
	for i := range 20_000 {
		id := cluster.JobTask(ci.Cluster, "j", 1, "test", i)
		words := ci.Program(1, id, "1")
		if diff := cmp.Diff(words, ci.Program(1, id, "1")); diff != "" {
			t.Fatalf("one attempt has two programs: %s", diff)
		}
		switch words[0] {
		case "exit":
			counts[words[1]]++
		default:
			counts[words[0]]++
		}
	}
	if counts["0"] < 19_000 || counts["75"] < 300 || counts["1"] < 20 || counts["run"] < 20 {
		t.Errorf("of 20,000 programs, by exit code: %v", counts)
	}
	if words := ci.Program(1, cluster.ServiceTask("c", "web", 1, 0), "1"); words != nil {
		t.Errorf("a task of a service has the program %v", words)
	}
}
