package dispatcher_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// An agent that lost its memory, or runs twice, never starts again what was reported as ended (P4.4).
func TestEndedAttemptDoesNotBeginTwice(t *testing.T) {
	for _, state := range []cluster.State{cluster.StatePreparing, cluster.StateStarting, cluster.StateRunning} {
		t.Run(string(state), func(t *testing.T) {
			withFixture(t, func(t *testing.T, f *fixture) {
				f.register("n1")
				id := f.placeTask("n1")
				if _, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
					t.Fatal(err)
				}
				f.now()
				// The data directory is gone: the task is not in the full report.
				if _, err := f.Register(t.Context(),
					transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}); err != nil {
					t.Fatal(err)
				}
				reply, err := f.report("n1", 2, 1, observed(id, state))
				if err != nil || reply.Refused[id].Message == "" || reply.Refused[id].Retry {
					t.Errorf("%s after the end: got %+v %v, want a permanent refusal", state, reply, err)
				}
				row, _ := f.now().Attempt(task, 1)
				if row.Observed == nil || row.Observed.State != cluster.StateLost || !row.Observed.Gone {
					t.Errorf("status: got %+v, want it lost and gone", row.Observed)
				}
				ctx, cancel := context.WithCancel(t.Context())
				_ = f.Assign(ctx, transport.AssignmentsRequest{Node: "n1", Session: 2},
					func(ms []transport.Message) error {
						for _, m := range ms {
							if m.Assignment != nil {
								t.Errorf("what is gone was assigned again: %+v", m.Assignment)
							}
							if m.Synced {
								cancel()
							}
						}
						return nil
					})
			})
		})
	}
}

// T1 with tables that lag: a repeated request for a barrier is committed again, so that an outcome that this server has
// not seen refuses it (P4.3).
func TestBarrierAskedAgainIsCommittedAgain(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		for seq := range uint64(2) {
			if _, err := f.report("n1", 1, seq+1, observed(id, cluster.StateStarting)); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := f.now().Attempt(task, 1)
		if _, err := f.report("n1", 1, 3, observed(id, cluster.StateStarting)); err != nil {
			t.Fatal(err)
		}
		after, _ := f.now().Attempt(task, 1)
		if after.ObservedRev == before.ObservedRev {
			t.Error("the barrier was passed without a write that compares the outcome")
		}
	})
}

// An agent whose report waits for the disk is not silent: its pulse continues meanwhile.
func TestWaitingReportKeepsTheNodeAlive(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		f.engine.Crash() // calls wait for the restart
		answered := make(chan error, 1)
		go func() {
			_, err := f.report("n1", 1, 1, observed(id, cluster.StatePreparing))
			answered <- err
		}()
		time.Sleep(2 * time.Minute) // in-bubble: inWorld makes one
		p, ok := f.tables.Pulse("n1")
		late := f.clock() - p.At - p.Next
		f.engine.Restart()
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if !ok || late > 0 {
			t.Errorf("the node is late by %v while its report waits", late)
		}
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if p, _ := f.tables.Pulse("n1"); f.clock()-p.At < 50*time.Second {
			t.Error("the pulse continues after the report")
		}
	})
}

// A report that can never be written affects neither other agents nor the rest of the report.
func TestUnwritableReportAffectsNoOther(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		huge := cluster.Observed{Task: "c.other.1.s.0", Attempt: 1, UUID: "u", State: cluster.StateRunning}
		for range 60_000 {
			huge.Containers = append(huge.Containers, cluster.ContainerStatus{Name: strings.Repeat("x", 60)})
		}
		reply, err := f.report("n1", 1, 1, huge, observed(id, cluster.StatePreparing))
		if err != nil || reply.Refused["u"].Message == "" || reply.Refused[id].Message != "" {
			t.Errorf("report: got %+v %v, want the huge task refused alone", reply, err)
		}
		if row, _ := f.now().Attempt(task, 1); row.Observed == nil {
			t.Error("the other task of the report was not taken")
		}
	})
}

// Two attempts of a task in one report write one key: the call is not refused as a whole.
func TestTwoAttemptsInOneReport(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		second := cluster.Observed{Task: task, Attempt: 2, UUID: "u2", State: cluster.StateRunning}
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StatePreparing), second); err != nil {
			t.Errorf("report: %v", err)
		}
		if row, _ := f.now().Attempt(task, 1); row.Observed == nil {
			t.Error("the first attempt was not taken")
		}
	})
}

// Long texts are cut before they are stored. An equal report is not written again.
func TestLongTextsAreCut(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		o := observed(f.placeTask("n1"), cluster.StatePreparing)
		o.Message = strings.Repeat("é", 1<<20)
		if _, err := f.report("n1", 1, 1, o); err != nil {
			t.Fatal(err)
		}
		row, _ := f.now().Attempt(task, 1)
		if row.Observed == nil || len(row.Observed.Message) > 16<<10 {
			t.Fatalf("status: got %v, want a short message", row.Observed != nil)
		}
		if _, err := f.report("n1", 1, 2, o); err != nil {
			t.Fatal(err)
		}
		if again, _ := f.now().Attempt(task, 1); again.ObservedRev != row.ObservedRev {
			t.Error("the same report was written twice")
		}
	})
}

// The agent's report overwrites a foreign record under its status key.
func TestForeignStatusIsOverwritten(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		raw := func(key string) {
			t.Helper()
			if _, err := f.engine.Commit(t.Context(),
				[]store.Group{{Ops: []store.Op{{Key: key, Value: []byte("?")}}}}); err != nil {
				t.Fatal(err)
			}
			f.now()
		}
		raw(p.NodeStatus("n1"))
		f.register("n1")
		id := f.placeTask("n1")
		raw(p.Observed("n1", task))
		for seq, state := range []cluster.State{cluster.StatePreparing, cluster.StateStarting} {
			reply, err := f.report("n1", 1, uint64(seq+1), observed(id, state))
			if err != nil || len(reply.Refused) > 0 {
				t.Fatalf("%s: got %+v %v, want it taken", state, reply, err)
			}
			if row, _ := f.now().Attempt(task, 1); row.Observed == nil || row.Observed.State != state {
				t.Errorf("status: got %+v, want %s", row.Observed, state)
			}
			raw(p.Observed("n1", task))
		}
	})
}

// If a foreign record is in the place of a status, and the agent does not know the task, the task may have run.
func TestObscuredAttemptDoesNotBeginTwice(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		if _, err := f.engine.Commit(t.Context(),
			[]store.Group{{Ops: []store.Op{{Key: p.Observed("n1", task), Value: []byte("?")}}}}); err != nil {
			t.Fatal(err)
		}
		f.now()
		if _, err := f.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}); err != nil {
			t.Fatal(err)
		}
		if row, _ := f.now().Attempt(task, 1); row.Observed == nil || row.Observed.State != cluster.StateLost ||
			row.Observed.UUID != id {
			t.Errorf("status: got %+v, want it lost", row.Observed)
		}
		reply, err := f.report("n1", 2, 1, observed(id, cluster.StateStarting))
		if err != nil || reply.Refused[id].Message == "" {
			t.Errorf("barrier: got %+v %v, want it refused", reply, err)
		}
	})
}

// A second stream of a session replaces the first, which may be broken.
func TestNewStreamEndsTheOld(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				ended <- f.Assign(ctx, transport.AssignmentsRequest{Node: "n1", Session: 1},
					func([]transport.Message) error { return nil })
			}()
			synctest.Wait()
		}
		if len(ended) != 1 {
			t.Errorf("streams that ended: got %d, want 1", len(ended))
		}
		cancel()
		<-ended
		<-ended
	})
}

// A call that comes while the server goes away ends.
func TestCallsEndWithTheServer(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		f.stop()
		_, err := f.report("n1", 1, 1, observed(id, cluster.StatePreparing))
		if err == nil {
			t.Error("a report was taken by a server that ended")
		}
		if _, err := f.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}); err == nil ||
			errors.Is(err, context.Canceled) {
			t.Errorf("a registration at a server that ended: got %v", err)
		}
	})
}

// Requested streams end with their caller, with the session, or with the server; none is left waiting.
func TestStreamsEnd(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		ids := make(chan string, 10)
		assigned := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			assigned <- f.Assign(ctx, transport.AssignmentsRequest{Node: "n1", Session: 1},
				func(ms []transport.Message) error {
					for _, m := range ms {
						if m.Open != nil {
							ids <- m.Open.ID
						}
					}
					return nil
				})
		}()
		// The agent is too late: the request for the stream has ended.
		if _, err := f.OpenStream(ctx, "n1", transport.StreamRequest{}); err == nil {
			t.Fatal("a stream was opened that no agent carries")
		}
		if err := f.Carry(ctx, <-ids, nil); err == nil {
			t.Error("a stream is carried that no request waits for")
		}
		// The server goes away while one is open.
		carried := make(chan error, 1)
		go func() { carried <- f.Carry(ctx, <-ids, nil) }()
		if _, err := f.OpenStream(ctx, "n1", transport.StreamRequest{}); err != nil {
			t.Fatal(err)
		}
		f.stop()
		if len(carried) != 1 || len(assigned) != 1 {
			t.Errorf("after the server's end: %d stream and %d assignments ended, want both", len(carried),
				len(assigned))
		}
	})
}
