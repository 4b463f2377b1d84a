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

// restore makes what a restored snapshot is marked with: a decision is needed, and another incarnation has begun.
func (w *world) restore() {
	w.put(p.Recovery(cluster.DefaultDomain),
		&cluster.Recovery{State: cluster.RecoveryNeeded, Cause: "a snapshot was restored"})
	w.put(p.Leader(cluster.DefaultDomain), &cluster.Leader{Epoch: 4, Incarnation: 9})
	e, _ := w.now().Leader(cluster.DefaultDomain)
	w.leader = store.NewWriter(w.engine, p, &store.Fence{Key: e.Key, Modified: e.Modified, Incarnation: 9, Epoch: 4},
		nil)
}

// begins reports a start barrier and whether it passed; what is refused is to be asked for again.
func (w *world) begins(session, seq uint64, id string) bool {
	w.t.Helper()
	reply, err := w.report("n1", session, seq, observed(id, cluster.StateStarting))
	if err != nil {
		w.t.Fatal(err)
	}
	why, refused := reply.Refused[id]
	if refused && (!why.Retry || why.Reason != cluster.ReasonRecovery) {
		w.t.Errorf("refused with %+v, want to be asked again", why)
	}
	return !refused
}

// P1.7, P4.4: an attempt that the restored store knows as placed has run since, and the agent forgot it. It is neither
// sent nor does it pass the barrier, before the operator's decision and after it.
func TestRestoredPlacementIsNotBegunAgain(t *testing.T) {
	for name, decided := range map[string]bool{"while the decision is awaited": false, "after the decision": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				id := w.place("n1")
				if w.restore(); decided {
					w.remove(p.Recovery(cluster.DefaultDomain))
				}
				w.register("n1")
				s := w.assign(1, nil)
				s.expect("synced")
				if w.begins(1, 1, id) {
					t.Error("the barrier passed")
				}
				if row, _ := w.now().Attempt(task, 1); row.Observed != nil {
					t.Errorf("a status was written: %+v", row.Observed)
				}
				// Its end is told: nothing of it is on the node then.
				row, _ := w.now().Attempt(task, 1)
				d := *row.Desired
				d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonRecovery}
				w.put(p.Desired("n1", task), &d)
				s.expect("definition d@1", "stop c.j.1.s.0")
				_ = s.end()
			})
		})
	}
}

// An attempt on a node that had not begun waits for the decision and then goes on. A registration reports it all the
// same.
func TestAttemptThatTheNodeHasWaitsForTheDecision(t *testing.T) {
	for name, state := range map[string]cluster.State{
		"preparing":       cluster.StatePreparing,
		"asking to begin": cluster.StateStarting,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				id := w.place("n1")
				w.restore()
				w.register("n1", observed(id, state))
				row, _ := w.now().Attempt(task, 1)
				if row.Observed == nil || row.Observed.State != state {
					t.Errorf("status: got %+v, want what the registration told", row.Observed)
				}
				if row.DesiredRev != 0 {
					t.Error("the task was projected while the decision is awaited")
				}
				s := w.assign(1, map[string]transport.Known{id: {
					Revision:    row.PlanRev,
					Incarnation: row.Desired.Token.Incarnation, Epoch: row.Desired.Token.Epoch,
				}})
				s.expect("synced")
				_ = s.end()
				if w.begins(1, 1, id) {
					t.Error("the barrier passed before the decision")
				}
				w.put(p.Recovery(cluster.DefaultDomain), &cluster.Recovery{State: cluster.RecoveryAdopt})
				if !w.begins(1, 2, id) {
					t.Error("the barrier did not pass after the decision")
				}
			})
		})
	}
}

// A service's attempt of this incarnation is sent also while the decision is awaited: to run it twice does no harm that
// a restart would not do. A job's is not.
func TestServicesGoOnWhileTheDecisionIsAwaited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		w.place("n1")
		w.put(p.Recovery(cluster.DefaultDomain), &cluster.Recovery{State: cluster.RecoveryNeeded})
		w.put(p.Desired("n1", "c.web.1.0"), &cluster.Desired{
			Task: "c.web.1.0", Attempt: 1, UUID: "u-web", Node: "n1", Definition: cluster.Ref{Name: "d", Version: 1},
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"},
			Token: cluster.Token{Incarnation: 7, Epoch: 3},
		})
		s := w.assign(1, nil)
		s.expect("definition d@1", "run c.web.1.0", "synced")
		_ = s.end()
	})
}

// A node has seen a later store than this one, and the leader gave no alarm yet.
func TestNoBatchBeginsBeforeTheAlarm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Node("n1"), &cluster.Node{Name: "n1", Domain: cluster.DefaultDomain, Generation: 1})
		id := w.place("n1")
		welcome, err := w.Register(t.Context(), transport.Registration{
			Node: "n1", Previous: 4, Token: cluster.Token{Generation: 1, Incarnation: 7, Epoch: 9},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := w.assign(welcome.Session, nil)
		s.expect("synced")
		_ = s.end()
		if w.begins(welcome.Session, 1, id) {
			t.Error("the barrier passed")
		}
	})
}

// A node of another, newer store is claimed above what it knew, and then gets what is placed on it.
func TestNodeOfAnotherStoreGetsBatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		welcome, err := w.Register(t.Context(), transport.Registration{
			Node: "n1", Previous: 4, Token: cluster.Token{Generation: 1, Incarnation: 8, Epoch: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.put(p.Node("n1"), &cluster.Node{Name: "n1", Domain: cluster.DefaultDomain, Generation: 2})
		s := w.assign(welcome.Session, nil)
		s.expect("synced")
		id := w.place("n1")
		s.expect("definition d@1", "run c.j.1.s.0")
		_ = s.end()
		if !w.begins(welcome.Session, 1, id) {
			t.Error("the barrier did not pass")
		}
	})
}

// The alarm is written between the dispatcher's read of its tables and its own write.
func TestBarrierLosesTheRaceToTheAlarm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.place("n1")
		raced := false
		slow := w.engine.Open(memory.Hooks{Before: func(_ context.Context, groups []store.Group) error {
			for _, g := range groups {
				for _, op := range g.Ops {
					if op.Key == p.Observed("n1", task) && !raced {
						raced = true
						w.put(p.Recovery(cluster.DefaultDomain), &cluster.Recovery{State: cluster.RecoveryNeeded})
					}
				}
			}
			return nil
		}})
		d := dispatcher.New(dispatcher.Config{
			Engine: slow, Tables: w.tables, Domain: cluster.DefaultDomain, Logger: slog.New(slog.DiscardHandler),
			Clock: func() time.Duration { return time.Second },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		defer func() {
			cancel()
			<-ended
		}()
		if _, err := d.Register(ctx, transport.Registration{Node: "n1"}); err != nil {
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
