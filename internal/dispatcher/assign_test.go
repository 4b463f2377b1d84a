package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// stream runs an assignment stream and collects its messages as words.
type stream struct {
	w      *fixture
	got    []string
	cancel context.CancelFunc
	ended  chan error
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
