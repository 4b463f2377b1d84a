package storeloss

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/planetest"
	"github.com/berthd/berth/internal/store"
)

// After a recovery an attempt that the store does not know proves another loss, unless it belongs to the first one.
func TestAttemptBelongsToOneLoss(t *testing.T) {
	decided := time.Unix(0, 0).Add(time.Hour)
	for name, c := range map[string]struct {
		started time.Time
		plan    uint64
		want    bool
	}{
		"begun before the decision":               {started: decided.Add(-time.Minute), plan: 9},
		"begun after it":                          {started: decided.Add(time.Minute), plan: 3, want: true},
		"not begun, of a plan that was seen then": {plan: 7},
		"not begun, of a later plan":              {plan: 8, want: true},
		"of a plan that the store knows":          {started: decided.Add(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			tables := planetest.NewTables(t)
			p := tables.Prefix()
			tables.Put(p.Node("a"), &cluster.Node{Name: "a", Domain: cluster.DefaultDomain, Generation: 1, Session: 1})
			tables.Put(p.NodeStatus("a"), &cluster.NodeStatus{
				Name: "a", Session: 1,
				Token: cluster.Token{Generation: 1, Incarnation: 5, Epoch: 1},
			})
			tables.Put(p.Recovery(cluster.DefaultDomain),
				&cluster.Recovery{State: cluster.RecoveryAdopt, Plan: 7, Decided: decided})
			task := cluster.ServiceTask("c", "web", 1, 0)
			tables.Put(p.Observed("a", task), &cluster.Observed{
				Task: task, Attempt: 1, UUID: "u", Node: "a", State: cluster.StateStarting, Started: c.started,
				Plan: c.plan,
			})
			s := New(cluster.DefaultDomain, 0, &store.Fence{Incarnation: 5, Epoch: 2}, 0)
			if got := s.Check(tables.Snapshot(), store.Changes{Resync: true}, decided); got != c.want {
				t.Errorf("the alarm is given: %v, want %v", got, c.want)
			}
		})
	}
}

// One detector of a term sees the evidence of a loss. The evidence is gone when the other one reads, because the number
// of the lost plan was used again. Both raise the alarm.
func TestLossDetectorsShareTheAlarm(t *testing.T) {
	tables := planetest.NewTables(t)
	p := tables.Prefix()
	tables.Put(p.Node("a"), &cluster.Node{Name: "a", Domain: cluster.DefaultDomain, Generation: 1, Session: 1})
	tables.Put(p.NodeStatus("a"), &cluster.NodeStatus{
		Name: "a", Session: 1,
		Token: cluster.Token{Generation: 1, Incarnation: 5, Epoch: 1},
	})
	task := cluster.ServiceTask("c", "web", 1, 0)
	tables.Put(p.Observed("a", task),
		&cluster.Observed{Task: task, Attempt: 1, UUID: "u", Node: "a", State: cluster.StateRunning, Plan: 1})
	one := New(cluster.DefaultDomain, 0, &store.Fence{Incarnation: 5, Epoch: 2}, 0)
	other := one.Twin()
	if !one.Check(tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0)) {
		t.Fatal("no alarm is given of a plan that the store does not have")
	}
	tables.Put(p.Plan(1), &cluster.PlanRecord{Seq: 1, Token: cluster.Token{Incarnation: 5, Epoch: 2}})
	if !other.Check(tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0)) || other.alarm != one.alarm {
		t.Errorf("the other detector has the alarm %v, want %v", other.alarm, one.alarm)
	}
}
