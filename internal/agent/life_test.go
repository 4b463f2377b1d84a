package agent

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

func TestServiceLife(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		w.want("s1", cluster.StateRunning, "")
		w.pass(2 * time.Second)
		o := w.want("s1", cluster.StateRunning, "")
		if o.Health != cluster.HealthHealthy {
			t.Errorf("health is %s after the minimum time, want healthy", o.Health)
		}
		w.stopTask(d, false)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.stopTask(d, true)
		o = w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		if !o.Gone || len(w.executor.runs) != 0 {
			t.Errorf("gone %v with %d containers left", o.Gone, len(w.executor.runs))
		}
		w.wantEffects("app s1")
	})
}

func TestBatchLife(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Minute}
		d := w.batch("b1", definition("work", "app"))
		w.pass(2 * time.Minute)
		w.want("b1", cluster.StateSucceeded, "")
		w.wantStates("b1", "starting", "running", "running/healthy", "succeeded")
		w.stopTask(d, true)
		w.wantStates("b1", "starting", "running", "running/healthy", "succeeded", "succeeded gone")
		w.wantEffects("app b1")
	})
}
