package views

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// TestRolloutDeadline checks that views show the deadline of the control plane.
func TestRolloutDeadline(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	later := noon.Add(time.Hour)
	version := func(state cluster.RolloutState) cluster.Version {
		return cluster.Version{Generation: 1, State: state, Started: noon}
	}
	for _, test := range []struct {
		name   string
		svc    cluster.Service
		record cluster.Rollout
		want   time.Time
	}{
		{
			"from the last progress",
			cluster.Service{Lifespan: cluster.Lifespan{Updated: noon}},
			cluster.Rollout{Version: version(cluster.RolloutRolling), Changed: later},
			later.Add(10 * time.Minute),
		},
		{
			"from the last write",
			cluster.Service{Lifespan: cluster.Lifespan{Updated: later}},
			cluster.Rollout{Version: version(cluster.RolloutRolling), Changed: noon},
			later.Add(10 * time.Minute),
		},
		{
			"after the stagger",
			cluster.Service{Update: cluster.Update{
				Stagger:          cluster.Duration(time.Minute),
				ProgressDeadline: cluster.Duration(time.Hour),
			}},
			cluster.Rollout{Version: version(cluster.RolloutRolling), Changed: noon},
			noon.Add(61 * time.Minute),
		},
		{
			"canaries wait",
			cluster.Service{},
			cluster.Rollout{Version: version(cluster.RolloutCanary), Changed: noon},
			time.Time{},
		},
		{
			"canaries wait for gates",
			cluster.Service{Update: cluster.Update{AutoPromote: true}},
			cluster.Rollout{Version: version(cluster.RolloutCanary), Changed: noon},
			noon.Add(10 * time.Minute),
		},
		{
			"ended",
			cluster.Service{},
			cluster.Rollout{Version: version(cluster.RolloutFailed), Changed: noon},
			time.Time{},
		},
	} {
		if got := deadlineOf(&test.svc, &test.record); !got.Equal(test.want) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
