package agent

import (
	"context"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// other is an executor with another name than the box.
type other struct{ *box }

// Probe implements executor.Executor.
func (other) Probe(context.Context) (cluster.ExecutorFact, error) {
	return cluster.ExecutorFact{Name: "other", Version: "1"}, nil
}

// What an agent began with an executor that its operator then switched off goes on in the next agent's hands, and can
// be stopped; what comes new runs elsewhere, and servers hear of the executor no more.
func TestRetiredExecutor(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		d := w.service("s1", def)
		w.want("s1", cluster.StateRunning, "")
		old, next := w.box, newBox()
		w.attach = func() executor.Executor { return other{next} }
		w.retired = []executor.Executor{old}
		w.restart()
		w.pass(lookSoon)
		w.want("s1", cluster.StateRunning, "")
		if facts := w.agent.machine.facts(); len(facts.Executors) != 1 || facts.Executors[0].Name != "other" {
			t.Errorf("told of executors %+v", facts.Executors)
		}
		second := w.desired("s2", def, cluster.KindService)
		second.Task = "default.web.1.1"
		w.assign(second, def)
		w.want("s2", cluster.StateRunning, "")
		if len(old.effects) != 1 || len(next.effects) != 1 {
			t.Errorf("the retired executor began %q, the other %q; want one each", old.effects, next.effects)
		}
		w.stopTask(d, true)
		w.pass(lookSoon)
		old.mu.Lock()
		defer old.mu.Unlock()
		if len(old.runs) != 0 {
			t.Errorf("the retired executor still holds %d containers", len(old.runs))
		}
	})
}
