package taskview_test

import (
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
)

// TestStateOfBackOff: an attempt that waits for its next start in place is backing off, whatever its records call it.
func TestStateOfBackOff(t *testing.T) {
	soon := time.Date(2026, 11, 20, 12, 0, 8, 0, time.UTC)
	for name, test := range map[string]struct {
		task api.TaskView
		want string
	}{
		"starts for the first time": {api.TaskView{State: cluster.StateStarting}, "starting"},
		"waits after its end":       {api.TaskView{State: cluster.StateStarting, NextStart: soon}, "backing-off"},
		"waits after a failed preparation": {
			api.TaskView{State: cluster.StatePreparing, NextStart: soon}, "backing-off",
		},
		"waits on a silent node": {
			api.TaskView{State: cluster.StateStarting, NextStart: soon, Reason: cluster.ReasonNodeDown}, "unreachable",
		},
	} {
		if got := taskview.State(test.task); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestCrashText counts ends and restarts, unless the message of the agent has the number already.
func TestCrashText(t *testing.T) {
	for want, loop := range map[string]api.CrashLoop{
		"c.web.1.0 is crash-looping on n1: exit code 2 (7 failed attempts, 1 restart)": {
			Task: "c.web.1.0", Node: "n1", Message: "exit code 2", Times: 7, Restarts: 1,
		},
		"c.web.1.0 is crash-looping on n1: exit code 2 (4 restarts, next in 8s)": {
			Task: "c.web.1.0", Node: "n1", Message: "exit code 2 (4 restarts, next in 8s)", Restarts: 4,
		},
	} {
		if got := taskview.CrashText(loop); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLastLinesOfTheFailedContainer: a container that prints much does not crowd out the one that failed.
func TestLastLinesOfTheFailedContainer(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	task := api.TaskView{Containers: []cluster.ContainerStatus{
		{Name: "app", Exit: &cluster.Exit{Code: 1, At: at.Add(time.Second)}},
		{Name: "init", Exit: &cluster.Exit{At: at.Add(2 * time.Second)}},
		{Name: "chatty", Exit: &cluster.Exit{Code: 2, At: at}},
	}}
	failed := taskview.FailedContainer(task)
	if failed != "app" {
		t.Errorf("the failed container is %q, want app", failed)
	}
	var all []api.LogLine
	for i, container := range []string{"chatty", "app", "chatty", "app", "chatty", "chatty", "chatty"} {
		all = append(all, api.LogLine{Container: container, Text: string(rune('a' + i))})
	}
	var got []string
	for _, l := range taskview.LastLines(all, failed, 4) {
		got = append(got, l.Text)
	}
	if want := []string{"b", "d", "f", "g"}; !slices.Equal(got, want) {
		t.Errorf("the last lines are %q, want %q", got, want)
	}
}
