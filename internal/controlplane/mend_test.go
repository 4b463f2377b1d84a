package controlplane

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Somebody wrote over both records of a task, and the leader does not know what stood there. What its node reported
// before may have been of the task, and is not told again: the record stands until the node has reported anew, which it
// is asked to (P3.5).
func TestForeignRecordStandsUntilItsNodeReportsAnew(t *testing.T) {
	v := newView(t)
	p, task := v.tables.Prefix(), cluster.ServiceTask("c", "web", 1, 0)
	v.put(p.Service("c", "web"),
		&cluster.Service{Cluster: "c", Name: "web", Count: 1, Lifespan: cluster.Lifespan{Generation: 1}})
	v.well("a")
	v.commit([]store.Group{{Ops: []store.Op{
		{Key: p.Desired("a", task), Value: []byte("no record")},
		{Key: p.Observed("a", task), Value: []byte("neither")},
	}}})
	l := newLoop(&Plane{config: v.config})
	l.watch, l.fence = v.watch, &store.Fence{Incarnation: 5, Epoch: 2}
	defer l.follow.Close()

	look := func(want string) {
		t.Helper()
		snap := v.tables.Snapshot()
		l.learn(snap, store.Changes{Resync: true})
		row, ok := snap.Attempt(task, 0)
		if !ok {
			t.Fatal("nothing hides the task")
		}
		got := "nothing"
		for _, u := range l.mend(snap, row) {
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
	v.heard("a", 1, 200)
	v.pass(time.Second)
	look("nothing")
	v.registered("a", 3, true)
	v.heard("a", 3, 0)
	v.pass(time.Second)
	look("remove")
}
