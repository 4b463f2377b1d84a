package writes

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/planetest"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// P6.7: an attempt is reconnected only if nothing has changed since the decision, and no plan that places the next one
// may be on its way.
func TestReconnectionIsRefusedIfItsReasonsHaveChanged(t *testing.T) {
	task := cluster.ServiceTask("c", "web", 1, 0)
	desired := &cluster.Desired{Task: task, Attempt: 1, UUID: "u", Node: "a"}
	seen := &cluster.Observed{Task: task, Attempt: 1, UUID: "u", Node: "a", State: cluster.StateRunning}
	lost := &cluster.Outcome{
		Task: task, Attempt: 1, UUID: "u", Node: "a", State: cluster.StateLost, Reason: cluster.ReasonNodeDown,
	}
	for name, c := range map[string]struct {
		unknown uint64
		between func(t *planetest.Tables, p store.Prefix)
		want    bool
	}{
		"nothing changed": {want: true, between: func(*planetest.Tables, store.Prefix) {}},
		"the outcome was written again": {between: func(t *planetest.Tables, p store.Prefix) {
			t.Put(p.Outcome(task, 1), lost)
		}},
		"the attempt was stopped": {between: func(t *planetest.Tables, p store.Prefix) {
			stopped := *desired
			stopped.Stop = cluster.EndedStop()
			t.Put(p.Desired("a", task), &stopped)
		}},
		"the status was deleted": {between: func(t *planetest.Tables, p store.Prefix) {
			t.Commit(store.Group{Ops: []store.Op{{Key: p.Observed("a", task), Delete: true}}})
		}},
		"the attempt ended": {between: func(t *planetest.Tables, p store.Prefix) {
			ended := *seen
			ended.State, ended.Reason = cluster.StateFailed, cluster.ReasonExit
			t.Put(p.Observed("a", task), &ended)
		}},
		"the agent registered again": {between: func(t *planetest.Tables, p store.Prefix) {
			t.Put(p.NodeStatus("a"), &cluster.NodeStatus{Name: "a", Session: 3})
		}},
		"the node is suspect": {between: func(t *planetest.Tables, p store.Prefix) {
			t.Put(p.Node("a"), &cluster.Node{Name: "a", State: cluster.NodeSuspect})
		}},
		"a plan of unknown result was written": {unknown: 7, between: func(t *planetest.Tables, p store.Prefix) {
			t.Put(p.Plan(7), &cluster.PlanRecord{Seq: 7})
		}},
		"a plan of unknown result was not written": {
			unknown: 7, want: true, between: func(*planetest.Tables, store.Prefix) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tables := planetest.NewTables(t)
			p := tables.Prefix()
			tables.Put(p.Desired("a", task), desired)
			tables.Put(p.Observed("a", task), seen)
			tables.Put(p.Outcome(task, 1), lost)
			tables.Put(p.NodeStatus("a"), &cluster.NodeStatus{Name: "a", Session: 2})
			tables.Put(p.Node("a"), &cluster.Node{Name: "a", State: cluster.NodeReady})
			b := &Builder{Snap: tables.Snapshot(), Prefix: p, Now: time.Now(), UnknownPlan: c.unknown}
			u, ok := b.reconnectUnit(&reconciler.Reconnect{Task: task, Attempt: 1})
			if !ok {
				t.Fatal("nothing is to be written")
			}
			c.between(tables, p)
			tables.Commit(u.Group)
			row, _ := tables.Snapshot().Attempt(task, 1)
			if reconnected := row.Outcome == nil; reconnected != c.want {
				t.Errorf("the attempt is live: %t, want %t", reconnected, c.want)
			}
		})
	}
}
