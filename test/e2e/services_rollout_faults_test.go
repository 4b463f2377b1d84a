//go:build prove

package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/load"
)

// TestBadBuildUnderFaults rolls out builds whose check fails, while the leader and the agents are killed.
func TestBadBuildUnderFaults(t *testing.T) {
	t.Parallel()
	w := newBadBuilds(t)

	// The leader dies in the middle.
	stop := w.sendRequests("web", 3, nil)
	w.bad(load.Up, 2, shallow())
	leader := w.Leader()
	leader.Kill()
	w.Eventually(2*soon, w.back(2, 1))
	stop()
	w.awaitEvent("service.rolled-back", "web@2", "rolled back to web@1")
	leader.Start()
	w.Voters(3)

	// Agents die again and again, also with a permit that was granted and not used.
	stop = w.sendRequests("web", 3, nil)
	w.bad(load.Up, 3, shallow())
	kills := w.restartAgents(w.back(3, 1))
	w.put(served{name: "web", version: 4, count: 4, update: shallow()})
	kills += w.restartAgents(func() error {
		v, err := w.rollout("web")
		if err == nil && (v.Definition.Version != 4 || v.State != cluster.RolloutComplete) {
			err = fmt.Errorf("%s is %s: %s %v", v.Definition, v.State, v.Message, v.Waits)
		}
		return err
	})
	stop()
	t.Logf("agents were killed %d times", kills)
	if kills < 2 {
		t.Errorf("agents were killed %d times, which proves nothing", kills)
	}
}

// restartAgents kills and restarts agents at random times, until check returns nil. On a busy machine the times are
// longer: an agent does as much between two kills, and the number of kills is the same.
func (w *serviceFleet) restartAgents(check func() error) (kills int) {
	w.t.Helper()
	w.Eventually(3*soon, func() error {
		err := check()
		if err == nil {
			return nil
		}
		a := w.Agents[w.random.IntN(len(w.Agents))]
		pause := func(most int) {
			testkit.Pause(w.t.Context(), testkit.Scaled(time.Duration(w.random.IntN(most))*time.Millisecond))
		}
		pause(400)
		a.Kill()
		kills++
		pause(200)
		a.Begin()
		w.NodeIs(a.Name, cluster.NodeReady)
		pause(700)
		return err
	})
	return kills
}
