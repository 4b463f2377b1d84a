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

// TestFactsDuringARegistrationAreReported has facts change while a registration is on its way. The server does not know
// them from the registration, so a report has them. Facts that the registration has are not reported again.
func TestFactsDuringARegistrationAreReported(t *testing.T) {
	r := &Reports{Node: &node.Node{}}
	r.Begin(nil)
	r.NewFacts(cluster.Facts{Hostname: "before"})
	_, versions := r.All()
	r.Registered(versions, nil)
	if _, _, facts := r.takeReport(); facts != nil {
		t.Errorf("the facts of the registration are reported again: %+v", facts)
	}
	_, versions = r.All()
	r.NewFacts(cluster.Facts{Hostname: "meanwhile"})
	r.Registered(versions, nil)
	if _, _, facts := r.takeReport(); facts == nil || facts.Hostname != "meanwhile" {
		t.Errorf("the report has the facts %+v, want those that changed meanwhile", facts)
	}
}

// silent is an attempt that takes no answers.
type silent struct{}

func (silent) AskSent(string)              {}
func (silent) BarrierPassed(time.Duration) {}
func (silent) BarrierRefused(string)       {}
