package agent

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// A session ends with every restart of the server. Its tasks continue without one and into the next.
func TestTasksOutliveTheirSession(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: 30 * time.Second}
		def := definition("web", "app")
		d := w.service("s1", def)

		w.server.mu.Lock()
		w.server.live = 0 // the server has forgotten the session
		w.server.mu.Unlock()
		w.server.cut(false)
		w.pass(time.Minute)
		w.wantEffects("app s1", "app s1") // it ended, and restarted without a server

		w.server.cut(true)
		w.pass(5 * time.Second)
		w.stopTask(d, false)
		w.pass(time.Second)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		if n := w.executor.running(); n != 0 {
			t.Errorf("%d programs run after the stop", n)
		}
	})
}

// A report repeats the part of a registration that the server did not accept.
func TestReportsThatARegistrationDoesNotTakeAreSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		w.pass(time.Minute)
		w.server.mu.Lock()
		w.server.puts = map[string]bool{"s1": true}
		w.server.mu.Unlock()
		w.restart()
		w.server.mu.Lock()
		before := len(w.server.reports)
		w.server.mu.Unlock()
		w.pass(time.Minute)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		reported := 0
		for _, r := range w.server.reports[before:] {
			for _, o := range r.Tasks {
				if o.UUID == "s1" && o.State == cluster.StateRunning {
					reported++
				}
			}
		}
		if reported != 1 {
			t.Errorf("the attempt was reported %d times, want once", reported)
		}
	})
}
