package writes

import (
	"log/slog"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/fleetview"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/controlplane/planetest"
	"github.com/berthd/berth/internal/store"
)

// A foreign writer replaced both records of a task, and the leader does not know the former ones. An earlier report of
// the node may have contained the task, and is not sent again. So the record stays until the node has sent a new full
// report, which the leader requests (P3.5).
func TestForeignRecordStaysUntilItsNodeReportsAgain(t *testing.T) {
	tables, now := planetest.NewTables(t), time.Hour
	p, task := tables.Prefix(), cluster.ServiceTask("c", "web", 1, 0)
	log := slog.New(slog.DiscardHandler)
	watch := nodewatch.New(nodewatch.Config{
		Tables: tables.Tables, Domain: cluster.DefaultDomain, Logger: log, Clock: func() time.Duration { return now },
	}, 1, func() bool { return false })
	view := fleetview.New(cluster.DefaultDomain, watch)
	// judge lets a second pass after a sign of life of the node, and writes the verdict.
	judge := func(session, seq uint64) {
		tables.SetPulse("a", cluster.Pulse{Session: session, Seq: seq, At: now, Next: 5 * time.Second})
		now += time.Second
		out, _ := watch.Judge(tables.Snapshot(), store.Changes{Resync: true}, time.Unix(0, 0).Add(now))
		for _, u := range out.Units {
			tables.Commit(u.Group)
		}
	}
	register := func(session uint64) {
		tables.Put(p.NodeStatus("a"), &cluster.NodeStatus{
			Name: "a", Session: session, Synced: true, Registered: time.Unix(0, 0).Add(now),
		})
	}
	tables.Put(p.Service("c", "web"),
		&cluster.Service{Cluster: "c", Name: "web", Count: 1, Lifespan: cluster.Lifespan{Generation: 1}})
	register(1)
	for seq := range uint64(120) {
		judge(1, seq)
	}
	if !watch.HasReported("a") {
		t.Fatal("the node is not ready")
	}
	tables.Commit(store.Group{Ops: []store.Op{
		{Key: p.Desired("a", task), Value: []byte("no record")},
		{Key: p.Observed("a", task), Value: []byte("neither")},
	}})
	repairs := func(want string) {
		t.Helper()
		snap := tables.Snapshot()
		for row := range snap.AllAttempts() {
			view.Charge(snap, store.AttemptKey{Task: row.Task, Number: row.Number})
		}
		row, ok := snap.Attempt(task, 0)
		if !ok {
			t.Fatal("nothing hides the task")
		}
		repair := &Repair{
			Builder: Builder{Snap: snap, Prefix: p, Token: cluster.Token{Incarnation: 5, Epoch: 2}},
			config:  RepairConfig{Nodes: watch, View: view, Logger: log},
		}
		got := "nothing"
		for _, u := range repair.repairRecord(row, "") {
			switch op := u.Ops[0]; {
			case op.Key == p.NodeStatus("a"):
				got = "request a full report"
			case op.Key == p.Desired("a", task) && op.Delete:
				got = "remove"
			default:
				got = op.Key
			}
			tables.Commit(u.Group)
		}
		if got != want {
			t.Errorf("what is written: %s, want %s", got, want)
		}
	}
	repairs("request a full report")
	if e, _ := tables.Snapshot().NodeStatus("a"); e.Value.Session != 2 || e.Value.Synced {
		t.Errorf("the session is %d, synced %v, want 2 that has not reported", e.Value.Session, e.Value.Synced)
	}
	judge(1, 200)
	repairs("nothing")
	register(3)
	judge(3, 0)
	repairs("remove")
}
