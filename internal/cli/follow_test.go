package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// TestFollowedLogsSurviveAnOutage follows the output of a job while the server cannot list tasks for a moment.
func TestFollowedLogsSurviveAnOutage(t *testing.T) {
	t.Parallel()
	job := func(state api.JobState) []api.JobView {
		return []api.JobView{{
			Job:    api.Job{Cluster: "default", Name: "work"},
			Status: api.JobStatus{State: state},
		}}
	}
	task := api.TaskView{
		ID: "default.work.1.all.0", UUID: "a", Attempt: 1, Node: "n1", State: cluster.StateSucceeded,
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "work"},
	}
	f := clitest.NewFakeAt(nil, clitest.State{Jobs: job("running")}, // each read of the job shows the next one
		clitest.State{
			Jobs:   job("running"),
			Refuse: map[string]api.Problem{"GET /v1/tasks": {Title: "Service Unavailable", Status: 503}},
		},
		clitest.State{
			Jobs: job("succeeded"), Tasks: []api.TaskView{task},
			Logs: map[cluster.TaskID][]api.LogLine{task.ID: {{Time: time.Unix(0, 0), Text: "done"}}},
		})
	t.Cleanup(f.Close)
	var stdout, stderr strings.Builder
	a := session.New(strings.NewReader(""), &stdout, &stderr)
	a.Env = func(string) string { return "" }
	code := Run(t.Context(), a, []string{"--addr", f.URL, "logs", "--follow", "job/work"})
	if code != 0 || !strings.Contains(stdout.String(), "work.1.all.0 | done") {
		t.Errorf("exit code %d, output %q, messages:\n%s", code, stdout.String(), stderr.String())
	}
}
