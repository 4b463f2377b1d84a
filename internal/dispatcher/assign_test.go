package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// stream runs an assignment stream and collects its messages as words.
type stream struct {
	w   *fixture
	got []string
	// revision and generation are those of the last assignment.
	revision   uint64
	generation uint64
	cancel     context.CancelFunc
	ended      chan error
}

func (f *fixture) assign(session uint64, have map[string]transport.Known) *stream {
	ctx, cancel := context.WithCancel(f.t.Context())
	s := &stream{w: f, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		s.ended <- f.Assign(ctx, transport.AssignmentsRequest{Node: "n1", Session: session, Have: have}, s.take)
	}()
	return s
}

func (s *stream) take(messages []transport.Message) error {
	for _, m := range messages {
		if m.Assignment != nil {
			s.revision, s.generation = m.Assignment.Revision, m.Assignment.Token.Generation
		}
		switch {
		case m.Definition != nil:
			s.got = append(s.got, "definition "+m.Definition.Ref().String())
		case m.Assignment != nil && m.Assignment.Ended():
			s.got = append(s.got, "end "+string(m.Assignment.Task))
		case m.Assignment != nil && m.Assignment.Stop != nil:
			s.got = append(s.got, "stop "+string(m.Assignment.Task))
		case m.Assignment != nil:
			words := "run " + string(m.Assignment.Task)
			if len(m.Assignment.Parameters) > 0 {
				words += " " + fmt.Sprint(m.Assignment.Parameters)
			}
			s.got = append(s.got, words)
		case m.Forget != nil:
			s.got = append(s.got, "forget")
		case m.Synced:
			s.got = append(s.got, "synced")
		}
	}
	return nil
}

// expect compares what was sent since the last call.
func (s *stream) expect(want ...string) {
	s.w.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, s.got); diff != "" {
		s.w.t.Errorf("sent (-want +got):\n%s", diff)
	}
	s.got = nil
}

func (s *stream) end() error {
	s.cancel()
	return <-s.ended
}

func TestAssignmentsFollowTheTables(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		s := f.assign(1, nil)
		s.expect("synced")
		id := f.placeTask("n1")
		s.expect("definition d@1", "run c.j.1.s.0")
		// The projection changes nothing.
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StateStarting)); err != nil {
			t.Fatal(err)
		}
		s.expect()
		row, _ := f.now().Attempt(task, 1)
		d := *row.Desired
		d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled}
		f.put(p.Desired("n1", task), &d)
		s.expect("stop c.j.1.s.0")
		ended := *d.Stop
		ended.Ended = true
		d.Stop = &ended
		f.put(p.Desired("n1", task), &d)
		s.expect("end c.j.1.s.0")
		f.remove(p.Plan(1))
		f.remove(p.Desired("n1", task), p.Observed("n1", task))
		s.expect("forget")
		if err := s.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("end: %v", err)
		}
	})
}

// An attempt ends before its plan record is projected. The outcome alone tells the agent, the agent's last report
// deletes the status, and nothing brings it back.
func TestEndsByTheOutcome(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		s := f.assign(1, nil)
		s.expect("synced")
		id := f.placeTask("n1")
		s.expect("definition d@1", "run c.j.1.s.0")
		done := observed(id, cluster.StateSucceeded)
		for seq, o := range []cluster.Observed{observed(id, cluster.StateStarting), done} {
			if _, err := f.report("n1", 1, uint64(seq)+1, o); err != nil {
				t.Fatal(err)
			}
		}
		row, _ := f.now().Attempt(task, 1)
		known := transport.Known{
			Revision: row.PlanRev, Incarnation: row.Desired.Token.Incarnation, Epoch: row.Desired.Token.Epoch,
		}
		s.expect()
		f.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateSucceeded})
		s.expect("end c.j.1.s.0")
		if s.revision <= known.Revision {
			t.Errorf("the end has revision %d, which is not later than the assignment's %d", s.revision, known.Revision)
		}
		done.Gone = true
		if _, err := f.report("n1", 1, 3, done); err != nil {
			t.Fatal(err)
		}
		row, _ = f.now().Attempt(task, 1)
		if row.Observed != nil || row.ObservedRev != 0 || row.Outcome == nil {
			t.Errorf("after the last report: %+v", row)
		}
		before := f.now().Revision()
		for seq, o := range []cluster.Observed{done, observed(id, cluster.StateSucceeded)} {
			if reply, err := f.report("n1", 1, uint64(seq)+4, o); err != nil || len(reply.Refused) > 0 {
				t.Errorf("report after the last: %+v %v", reply, err)
			}
		}
		if after := f.now().Revision(); after != before {
			t.Errorf("a report after the last was written (revision %d to %d)", before, after)
		}
		s.expect() // it is not told to run it again
		_ = s.end()

		s = f.assign(1, nil) // the agent has forgotten it
		s.expect("synced")
		_ = s.end()
		s = f.assign(1, map[string]transport.Known{id: known}) // the agent's last report got no answer
		s.expect("definition d@1", "end c.j.1.s.0", "synced")
		f.remove(p.Plan(1))
		s.expect("forget")
		_ = s.end()
	})
}

// A write of an attempt's first status seems lost, and arrives after the attempt has ended and its status was deleted.
func TestLateStatusOfAnEndedAttempt(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		id := f.placeTask("n1")
		var late []store.Group
		slow := f.engine.Open(memory.Hooks{Before: func(_ context.Context, groups []store.Group) error {
			for _, g := range groups {
				if len(late) == 0 && slices.ContainsFunc(g.Ops, func(op store.Op) bool {
					return op.Key == p.Observed("n1", task)
				}) {
					late = []store.Group{g}
				}
			}
			return nil
		}})
		d := dispatcher.New(dispatcher.Config{
			Engine: slow, Tables: f.tables, Logger: slog.New(slog.DiscardHandler),
			Clock: f.clock,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if _, err := d.Register(ctx, transport.Registration{Wire: transport.WireVersion, Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		report := func(seq uint64, o cluster.Observed) {
			t.Helper()
			r := transport.Report{Node: "n1", Session: 1, Seq: seq, Tasks: []cluster.Observed{o}}
			if reply, err := d.Report(ctx, r); err != nil || len(reply.Refused) > 0 {
				t.Fatalf("report %d: %+v %v", seq, reply, err)
			}
		}
		done := observed(id, cluster.StateFailed)
		report(1, done)
		f.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: cluster.StateFailed})
		done.Gone = true
		report(2, done)
		res, err := f.engine.Commit(ctx, late)
		if err != nil || len(late) == 0 || res.Applied[0] {
			t.Errorf("the late write: %+v %v (%d groups)", res, err, len(late))
		}
		if row, _ := f.now().Attempt(task, 1); row.ObservedRev != 0 {
			t.Errorf("the status came back: %+v", row)
		}
	})
}

// An attempt of an earlier run of a job gets no assignment, since the values of its parameters are no longer known.
func TestParametersOfAssignments(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		f.placeTask("n1")
		e, _ := f.now().Job("c", "j")
		job := *e.Value
		job.Steps = slices.Clone(job.Steps)
		job.Steps[0].Parameters = &cluster.Parameters{List: []map[string]string{{"SEED": "7"}}}
		f.put(p.Job("c", "j"), &job)
		f.now()
		s := f.assign(1, nil)
		s.expect("definition d@1", "run c.j.1.s.0 map[SEED:7]", "synced")
		_ = s.end()

		job.Generation++
		f.put(p.Job("c", "j"), &job)
		f.now()
		s = f.assign(1, nil)
		s.expect("synced")
		row, _ := f.now().Attempt(task, 1)
		d := *row.Desired
		d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled}
		f.put(p.Desired("n1", task), &d)
		s.expect("definition d@1", "stop c.j.1.s.0")
		_ = s.end()
	})
}

// A version that was deleted and written again is sent again.
func TestDefinitionWrittenAgain(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		s := f.assign(1, nil)
		s.expect("synced")
		f.placeTask("n1")
		s.expect("definition d@1", "run c.j.1.s.0")
		f.remove(p.Definition(cluster.Ref{Name: "d", Version: 1}), p.Plan(1))
		s.expect("forget")
		f.placeTask("n1")
		s.expect("definition d@1", "run c.j.1.s.0")
		_ = s.end()
	})
}

// A stream that is opened again sends changes, and asks the agent to forget attempts without a record. It never says
// that an attempt should not run (P6.6).
func TestAssignmentsResume(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		row, _ := f.now().Attempt(task, 1)
		known := transport.Known{
			Revision: row.PlanRev, Incarnation: row.Desired.Token.Incarnation,
			Epoch: row.Desired.Token.Epoch,
		}
		s := f.assign(1, map[string]transport.Known{id: known, "long gone": {Revision: 5}})
		s.expect("forget", "synced")
		_ = s.end()
		older := known
		older.Revision--
		s = f.assign(1, map[string]transport.Known{id: older})
		s.expect("definition d@1", "run c.j.1.s.0", "synced")
		_ = s.end()
	})
}

// A store that went back uses its revisions again. A record of the same revision from an earlier leader is not the
// present record (P1.7).
func TestRevisionsOfAStoreThatWentBack(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		row, _ := f.now().Attempt(task, 1)
		now := row.Desired.Token
		for _, before := range []transport.Known{
			{Revision: row.PlanRev, Incarnation: now.Incarnation - 1, Epoch: now.Epoch},
			{Revision: row.PlanRev, Incarnation: now.Incarnation, Epoch: now.Epoch - 1},
		} {
			s := f.assign(1, map[string]transport.Known{id: before})
			s.expect("definition d@1", "run c.j.1.s.0", "synced")
			_ = s.end()
		}
	})
}

func TestNewSessionEndsTheOldStream(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		s := f.assign(1, nil)
		s.expect("synced")
		if _, err := f.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}); err != nil {
			t.Fatal(err)
		}
		if err := <-s.ended; !errors.Is(err, transport.ErrSession) {
			t.Errorf("the old stream ended with %v, want ErrSession", err)
		}
		if err := f.assign(1, nil).end(); !errors.Is(err, transport.ErrSession) {
			t.Errorf("a new stream of the old session: got %v, want ErrSession", err)
		}
	})
}
