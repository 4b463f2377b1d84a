package wait

import (
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cluster"
)

func TestHealthyOf(t *testing.T) {
	web := func(version int) cluster.Ref { return cluster.Ref{Name: "web", Version: version} }
	tests := []struct {
		name     string
		versions []api.VersionCount
		want     string
	}{
		{
			"one",
			[]api.VersionCount{{Definition: web(2), Newest: true, Desired: 3, Healthy: 1}},
			"web@2: 1 of 3 healthy",
		},
		{"old ones of one definition", []api.VersionCount{
			{Definition: web(2), Newest: true, Desired: 3, Healthy: 1},
			{Definition: web(1), Generation: 4, Healthy: 1},
			{Definition: web(1), Generation: 1, Healthy: 2},
		}, "web@2: 1 of 3 healthy, web@1: 3 healthy"},
		{"restart", []api.VersionCount{
			{Definition: web(1), Newest: true, Desired: 3, Healthy: 1}, {Definition: web(1), Healthy: 2},
		}, "new: 1 of 3 healthy, old: 2 healthy"},
		{
			"fewer than begun",
			[]api.VersionCount{{Definition: web(1), Newest: true, Desired: 1, Begun: 3, Healthy: 3}},
			"web@1: 3 of 3 healthy",
		},
	}
	for _, test := range tests {
		if got := tables.HealthyByVersion(test.versions); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestRollingIsLeftToItsDeadlines checks who gives up a rollout. With an older version it is the control plane, unless
// that is long overdue. Otherwise it is the client.
func TestRollingIsLeftToItsDeadlines(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	view := func(deadline time.Duration, state cluster.RolloutState, older bool) *api.RolloutView {
		v := &api.RolloutView{Version: cluster.Version{State: state}, Deadline: now.Add(deadline)}
		if older {
			v.LastHealthy = &cluster.Version{}
		}
		return v
	}
	tests := []struct {
		name   string
		target Target
		want   bool
	}{
		{"nothing is known", Target{}, false},
		{"first version", Target{rollout: view(time.Minute, cluster.RolloutRolling, false)}, false},
		{"something to go back to", Target{rollout: view(time.Minute, cluster.RolloutRolling, true)}, true},
		{"just overdue", Target{rollout: view(-time.Minute, cluster.RolloutRolling, true)}, true},
		{"long overdue", Target{rollout: view(-progressTimeout-time.Second, cluster.RolloutRolling, true)}, false},
		{"ended", Target{rollout: view(time.Minute, cluster.RolloutFailed, true)}, false},
		{"watched", Target{Watch: true, rollout: view(-time.Hour, cluster.RolloutRolling, false)}, true},
	}
	for _, test := range tests {
		if got := test.target.isRolling(now); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
