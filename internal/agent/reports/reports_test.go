package reports

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
)

// A reported attempt is known to the next run of the agent: no report precedes the durable record.
func TestUnsavedAttemptsAreNotReported(t *testing.T) {
	r := &Reports{Node: &node.Node{}}
	r.Begin(nil)
	r.Hold("u1")
	r.Put(silent{}, cluster.Observed{UUID: "u1", State: cluster.StatePreparing}, 0)
	r.Put(silent{}, cluster.Observed{UUID: "u1", State: cluster.StateStarting}, 1)
	if tasks, _, _ := r.takeReport(); len(tasks) != 0 {
		t.Errorf("a report contains %+v", tasks)
	}
	if tasks, _ := r.All(); len(tasks) != 0 {
		t.Errorf("a registration contains %+v", tasks)
	}
	r.Release("u1")
	if tasks, _, _ := r.takeReport(); len(tasks) != 1 || tasks[0].State != cluster.StateStarting {
		t.Errorf("after the release a report contains %+v", tasks)
	}
}

// silent is an attempt that takes no answers.
type silent struct{}

func (silent) AskSent(string)              {}
func (silent) BarrierPassed(time.Duration) {}
func (silent) BarrierRefused(string)       {}
