package agent

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// What was told of is known to the next life of the agent: nothing is told of an attempt before its record is durable.
func TestWhatIsHeldIsNotReported(t *testing.T) {
	r := newReports(&Agent{})
	r.hold("u1")
	r.put(&task{}, cluster.Observed{UUID: "u1", State: cluster.StatePreparing}, 0)
	r.put(&task{}, cluster.Observed{UUID: "u1", State: cluster.StateStarting}, 1)
	if tasks, _, _ := r.take(); len(tasks) != 0 {
		t.Errorf("a report holds %+v", tasks)
	}
	if tasks, _ := r.full(); len(tasks) != 0 {
		t.Errorf("a registration holds %+v", tasks)
	}
	r.release("u1")
	if tasks, _, _ := r.take(); len(tasks) != 1 || tasks[0].State != cluster.StateStarting {
		t.Errorf("after the release a report holds %+v", tasks)
	}
}
