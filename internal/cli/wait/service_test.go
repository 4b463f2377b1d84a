package wait

import (
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestHealthAfterARestartIsNotTrustedAtOnce checks how long a healthy service with restarts is not reported.
func TestHealthAfterARestartIsNotTrustedAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	started := func(ago time.Duration, restarts int) []api.TaskView {
		return []api.TaskView{
			{ID: "default.web.1.0", State: cluster.StateRunning},
			{
				ID: "default.web.1.1", State: cluster.StateRunning, Restarts: restarts,
				Containers: []cluster.ContainerStatus{{Started: now.Add(-ago)}},
			},
		}
	}
	const afterLimit = steadyTime + time.Second
	tests := []struct {
		name  string
		tasks []api.TaskView
		after time.Duration // until a second read
		then  []api.TaskView
		want  [2]bool
	}{
		{"never restarted", started(0, 0), 0, started(0, 0), [2]bool{true, true}},
		{"restarted long ago", started(time.Hour, 9), 0, started(time.Hour, 9), [2]bool{true, true}},
		{"just restarted", started(time.Second, 1), time.Second, started(time.Second, 1), [2]bool{false, false}},
		{"ran since", started(time.Second, 1), steadyTime, started(time.Second, 1), [2]bool{false, true}},
		{"restarted again", started(0, 1), afterLimit, started(-afterLimit, 2), [2]bool{false, false}},
		{"clock ahead", started(-time.Hour, 1), afterLimit, started(-time.Hour, 1), [2]bool{false, true}},
		{"clock behind", started(time.Hour, 1), time.Second, started(time.Hour, 2), [2]bool{true, true}},
	}
	for _, test := range tests {
		target := &Target{}
		first := target.justRestarted(test.tasks, now) == nil
		second := target.justRestarted(test.then, now.Add(test.after)) == nil
		if got := [2]bool{first, second}; got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestWhenAServiceKeepsFailing checks when a failing service ends the wait.
func TestWhenAServiceKeepsFailing(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name    string
		state   cluster.ServiceState
		running int
		after   time.Duration
		want    bool
	}{
		{"crashed just now", cluster.ServiceFailing, 0, failingTimeout - 1, false},
		{"crashes", cluster.ServiceCrashLooping, 0, failingTimeout, true},
		{"fails its checks", cluster.ServiceFailing, 1, failingTimeout, false},
		{"fails its checks for long", cluster.ServiceFailing, 1, checksTimeout, true},
		{"healthy again", cluster.ServiceHealthy, 1, checksTimeout, false},
	}
	for _, test := range tests {
		target := &Target{history: history{failingSince: now}, service: &api.ServiceView{}}
		target.service.Status = api.ServiceStatus{State: test.state, Running: test.running, Desired: 1}
		if got := target.keepsFailing(now.Add(test.after)); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
