package controlplane

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Somebody wrote over both records of a task, and the leader does not know the former ones. An earlier report of the
// node may have held the task, and is not sent again. So the record stands until the node has sent a new full report,
// for which the leader asks (P3.5).
func TestForeignRecordStandsUntilItsNodeReportsAnew(t *testing.T) {
	v := newTestWatch(t)
	p, task := v.tables.Prefix(), cluster.ServiceTask("c", "web", 1, 0)
	v.put(p.Service("c", "web"),
		&cluster.Service{Cluster: "c", Name: "web", Count: 1, Lifespan: cluster.Lifespan{Generation: 1}})
	v.settledNode("a")
	v.commit([]store.Group{{Ops: []store.Op{
		{Key: p.Desired("a", task), Value: []byte("no record")},
		{Key: p.Observed("a", task), Value: []byte("neither")},
	}}})
	l := v.newLoop()
	defer l.follow.Close()

	look := func(want string) {
		t.Helper()
		snap := v.tables.Snapshot()
		l.learner.learn(snap, store.Changes{Resync: true}, l.clock.now)
		row, ok := snap.Attempt(task, 0)
		if !ok {
			t.Fatal("nothing hides the task")
		}
		repair := &recordRepair{unitBuilder: l.unitBuilder(snap), nodes: l.nodes, view: l.view, logger: l.config.Logger}
		got := "nothing"
		for _, u := range repair.repairRecord(row) {
			switch op := u.Ops[0]; {
			case op.Key == p.NodeStatus("a"):
				got = "ask anew"
			case op.Key == p.Desired("a", task) && op.Delete:
				got = "remove"
			default:
				got = op.Key
			}
			v.commit([]store.Group{{Compares: u.Compares, Ops: u.Ops}})
		}
		if got != want {
			t.Errorf("what is written: %s, want %s", got, want)
		}
	}
	look("ask anew")
	if e, _ := v.tables.Snapshot().NodeStatus("a"); e.Value.Session != 2 || e.Value.Synced {
		t.Errorf("the session is %d, synced %v, want 2 that has not reported", e.Value.Session, e.Value.Synced)
	}
	v.pulse("a", 1, 200)
	v.advance(time.Second)
	look("nothing")
	v.register("a", 3, true)
	v.pulse("a", 3, 0)
	v.advance(time.Second)
	look("remove")
}
