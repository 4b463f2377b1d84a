package dispatcher_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// restore writes the marks of a restored snapshot: a needed decision and a new incarnation.
func (f *fixture) restore() {
	f.put(p.Recovery(cluster.DefaultDomain),
		&cluster.Recovery{State: cluster.RecoveryNeeded, Cause: "a snapshot was restored"})
	f.put(p.Leader(cluster.DefaultDomain), &cluster.Leader{Epoch: 4, Incarnation: 9})
	e, _ := f.now().Leader(cluster.DefaultDomain)
	f.leader = store.NewWriter(f.engine, p, &store.Fence{Key: e.Key, Modified: e.Modified, Incarnation: 9, Epoch: 4},
		nil)
}

// begins reports a start barrier, and returns whether it passed. A refused barrier may be reported again.
func (f *fixture) begins(session, seq uint64, id string) bool {
	f.t.Helper()
	reply, err := f.report("n1", session, seq, observed(id, cluster.StateStarting))
	if err != nil {
		f.t.Fatal(err)
	}
	why, refused := reply.Refused[id]
	if refused && (!why.Retry || why.Reason != cluster.ReasonRecovery) {
		f.t.Errorf("refused with %+v, want to be asked again", why)
	}
	return !refused
}

// P1.7, P4.4: the restored store shows an attempt as placed that has run since, and that the agent forgot. The attempt
// is not sent and passes no barrier, before the operator's decision and after it.
func TestRestoredPlacementDoesNotBeginTwice(t *testing.T) {
	for name, decided := range map[string]bool{"while the decision is awaited": false, "after the decision": true} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture) {
				id := f.placeTask("n1")
				if f.restore(); decided {
					f.remove(p.Recovery(cluster.DefaultDomain))
				}
				f.register("n1")
				s := f.assign(1, nil)
				s.expect("synced")
				if f.begins(1, 1, id) {
					t.Error("the barrier passed")
				}
				if row, _ := f.now().Attempt(task, 1); row.Observed != nil {
					t.Errorf("a status was written: %+v", row.Observed)
				}
				// Its end is reported: no trace of it is on the node then.
				row, _ := f.now().Attempt(task, 1)
				d := *row.Desired
				d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonRecovery}
				f.put(p.Desired("n1", task), &d)
				s.expect("definition d@1", "stop c.j.1.s.0")
				_ = s.end()
			})
		})
	}
}

// An attempt that had not begun on its node waits for the decision and then continues. A registration reports it all
// the same.
func TestAttemptThatTheNodeHasWaitsForTheDecision(t *testing.T) {
	for name, state := range map[string]cluster.State{
		"preparing":       cluster.StatePreparing,
		"asking to begin": cluster.StateStarting,
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture) {
				id := f.placeTask("n1")
				f.restore()
				f.register("n1", observed(id, state))
				row, _ := f.now().Attempt(task, 1)
				if row.Observed == nil || row.Observed.State != state {
					t.Errorf("status: got %+v, want the status of the registration", row.Observed)
				}
				if row.DesiredRev != 0 {
					t.Error("the task was projected while the decision is awaited")
				}
				s := f.assign(1, map[string]transport.Known{id: {
					Revision:    row.PlanRev,
					Incarnation: row.Desired.Token.Incarnation, Epoch: row.Desired.Token.Epoch,
				}})
				s.expect("synced")
				_ = s.end()
				if f.begins(1, 1, id) {
					t.Error("the barrier passed before the decision")
				}
				f.put(p.Recovery(cluster.DefaultDomain), &cluster.Recovery{State: cluster.RecoveryAdopt})
				if !f.begins(1, 2, id) {
					t.Error("the barrier did not pass after the decision")
				}
			})
		})
	}
}

// A service's attempt of this incarnation is sent also while the decision is awaited: to run it twice does no harm that
// a restart would not do. A job's is not.
func TestServicesContinueBeforeTheDecision(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		f.placeTask("n1")
		f.put(p.Recovery(cluster.DefaultDomain), &cluster.Recovery{State: cluster.RecoveryNeeded})
		f.put(p.Desired("n1", "c.web.1.0"), &cluster.Desired{
			Task: "c.web.1.0", Attempt: 1, UUID: "u-web", Node: "n1", Definition: cluster.Ref{Name: "d", Version: 1},
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"},
			Token: cluster.Token{Incarnation: 7, Epoch: 3},
		})
		s := f.assign(1, nil)
		s.expect("definition d@1", "run c.web.1.0", "synced")
		_ = s.end()
	})
}

// A node has seen a later store than this one, and the leader gave no alarm yet.
func TestNoBatchBeginsBeforeTheAlarm(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.put(p.Node("n1"), &cluster.Node{Name: "n1", Domain: cluster.DefaultDomain, Generation: 1})
		id := f.placeTask("n1")
		welcome, err := f.Register(t.Context(), transport.Registration{
			Wire: transport.WireVersion,
			Node: "n1", Previous: 4, Token: cluster.Token{Generation: 1, Incarnation: 7, Epoch: 9},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := f.assign(welcome.Session, nil)
		s.expect("synced")
		_ = s.end()
		if f.begins(welcome.Session, 1, id) {
			t.Error("the barrier passed")
		}
	})
}

// A node of another, newer store is claimed with a token above its own, and then gets its placements.
func TestNodeOfAnotherStoreGetsBatch(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		welcome, err := f.Register(t.Context(), transport.Registration{
			Wire: transport.WireVersion,
			Node: "n1", Previous: 4, Token: cluster.Token{Generation: 1, Incarnation: 8, Epoch: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.put(p.Node("n1"), &cluster.Node{Name: "n1", Domain: cluster.DefaultDomain, Generation: 2})
		s := f.assign(welcome.Session, nil)
		s.expect("synced")
		id := f.placeTask("n1")
		s.expect("definition d@1", "run c.j.1.s.0")
		_ = s.end()
		if !f.begins(welcome.Session, 1, id) {
			t.Error("the barrier did not pass")
		}
	})
}

// The alarm is written between the dispatcher's read of its tables and its own write.
func TestBarrierLosesTheRaceToTheAlarm(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		id := f.placeTask("n1")
		raced := false
		slow := f.engine.Open(memory.Hooks{Before: func(_ context.Context, groups []store.Group) error {
			for _, g := range groups {
				for _, op := range g.Ops {
					if op.Key == p.Observed("n1", task) && !raced {
						raced = true
						f.put(p.Recovery(cluster.DefaultDomain), &cluster.Recovery{State: cluster.RecoveryNeeded})
					}
				}
			}
			return nil
		}})
		d := dispatcher.New(dispatcher.Config{
			Engine: slow, Tables: f.tables, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Duration { return time.Second },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		defer func() {
			cancel()
			<-ended
		}()
		if _, err := d.Register(ctx, transport.Registration{Wire: transport.WireVersion, Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		reply, err := d.Report(ctx, transport.Report{
			Node: "n1", Session: 1, Seq: 1, Tasks: []cluster.Observed{observed(id, cluster.StateStarting)},
		})
		if why, refused := reply.Refused[id]; err != nil || !raced || !refused || !why.Retry {
			t.Errorf("barrier (raced: %v): got %+v %v, want it refused for now", raced, reply, err)
		}
	})
}
