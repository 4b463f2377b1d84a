package agent

import (
	"context"
	"testing"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// renamedExecutor is a test executor with another name.
type renamedExecutor struct{ *testExecutor }

// Probe implements executor.Executor.
func (renamedExecutor) Probe(context.Context) (cluster.ExecutorFact, error) {
	return cluster.ExecutorFact{Name: "other", Version: "1"}, nil
}

// Tasks of an executor that the operator switched off continue under the next agent and can be stopped. New tasks use
// another executor, and servers no longer see the old one.
func TestRetiredExecutor(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		d := w.service("s1", def)
		w.want("s1", cluster.StateRunning, "")
		old, next := w.executor, newTestExecutor()
		w.attach = func() executor.Executor { return renamedExecutor{next} }
		w.retired = []executor.Executor{old}
		w.restart()
		w.pass(node.FastProbeInterval)
		w.want("s1", cluster.StateRunning, "")
		if facts := w.agent.machine.Facts(); len(facts.Executors) != 1 || facts.Executors[0].Name != "other" {
			t.Errorf("reported executors %+v", facts.Executors)
		}
		second := w.desired("s2", def, cluster.KindService)
		second.Task = "default.web.1.1"
		w.assign(second, def)
		w.want("s2", cluster.StateRunning, "")
		if len(old.effects) != 1 || len(next.effects) != 1 {
			t.Errorf("the retired executor began %q, the other %q; want one each", old.effects, next.effects)
		}
		w.stopTask(d, true)
		w.pass(node.FastProbeInterval)
		old.mu.Lock()
		defer old.mu.Unlock()
		if len(old.runs) != 0 {
			t.Errorf("the retired executor still has %d containers", len(old.runs))
		}
	})
}
