package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// A forgotten node registers again, with numbers of sessions and reports from 1 on. The server remembers as many
// sessions and more reports from before, and still accepts its pulse (P6.1).
func TestForgottenNodeRegistersAgain(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		for seq := range uint64(9) {
			if _, err := f.report("n1", 1, seq+1); err != nil {
				t.Fatal(err)
			}
		}
		f.remove(p.NodeStatus("n1"))
		time.Sleep(time.Minute) // in-bubble: the machine is replaced
		if again := f.register("n1"); again.Session != 1 {
			t.Fatalf("got session %d, want the count to start again", again.Session)
		}
		if _, err := f.report("n1", 1, 1); err != nil {
			t.Fatal(err)
		}
		if pulse, ok := f.tables.Pulse("n1"); !ok || pulse.Seq != 1 || f.clock()-pulse.At > time.Second {
			t.Errorf("the last sign of life is %+v at %v, want report 1 of now", pulse, f.clock())
		}
	})
}

// The store went back to the time of an earlier attempt, and the node has a later one. The later status replaces the
// earlier one, since the two have one key (P1.7). The replacement does not wait for a further attempt.
func TestLaterAttemptTakesThePlaceOfAForgottenOne(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		later := cluster.Observed{Task: task, Attempt: 3, UUID: "u3", State: cluster.StateRunning}
		welcome, err := f.Register(t.Context(),
			transport.Registration{
				Wire: transport.WireVersion, Node: "n1", Previous: 1, Tasks: []cluster.Observed{later},
			})
		if err != nil || len(welcome.Again) != 0 {
			t.Fatalf("got %+v %v, want all taken", welcome, err)
		}
		if row, ok := f.now().Attempt(task, 3); !ok || row.Observed == nil ||
			row.Observed.State != cluster.StateRunning {
			t.Errorf("the later attempt: got %+v, want it running", row)
		}
		if row, ok := f.now().Attempt(task, 1); !ok || row.Observed != nil {
			t.Errorf("the forgotten attempt: got %+v, want its status replaced", row)
		}
	})
}

// The second of two attempts of a task in one report cannot be written while the first exists. The reply names it, and
// the agent reports it again.
func TestUnwrittenStatusIsReportedAgain(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		both := []cluster.Observed{
			observed(id, cluster.StateFailed),
			{Task: task, Attempt: 3, UUID: "u3", State: cluster.StateRunning},
		}
		welcome, err := f.Register(t.Context(),
			transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1, Tasks: both})
		if diff := cmp.Diff([]string{"u3"}, welcome.Again); err != nil || diff != "" {
			t.Errorf("expected again (-want +got):\n%s%v", diff, err)
		}
		if row, ok := f.now().Attempt(task, 1); !ok || row.Observed == nil ||
			row.Observed.State != cluster.StateFailed {
			t.Errorf("the first attempt: got %+v, want it failed", row)
		}
	})
}

// The node was forgotten while it had an attempt, and returns. The stop of the attempt is written before the leader
// writes the node's record again. The agent gets the stop once that record gives it a generation.
func TestForgottenNodeGetsItsStops(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		f.remove(p.Node("n1"), p.NodeStatus("n1"))
		again, err := f.Register(t.Context(), transport.Registration{
			Wire: transport.WireVersion, Node: "n1", Previous: 1,
			Tasks: []cluster.Observed{observed(id, cluster.StateRunning)},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := f.assign(again.Session, map[string]transport.Known{id: {Revision: 1}})
		s.expect("synced")
		row, _ := f.now().Attempt(task, 1)
		d := *row.Desired
		d.Stop = cluster.EndedStop()
		f.put(p.Desired("n1", task), &d)
		s.expect()
		f.claim("n1")
		s.expect("definition d@1", "end c.j.1.s.0")
		if s.generation != 1 {
			t.Errorf("the stop has generation %d, want that of the node's record", s.generation)
		}
		if err := s.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("end: %v", err)
		}
	})
}

// The store goes back while a node has a session, and lost its report. The record of the session is the same as before,
// so only the end of the session lets the node report again (P1.7).
func TestSessionsEndWhenTheStoreWentBack(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		id := f.placeTask("n1")
		var saved bytes.Buffer
		if err := f.engine.Snapshot(t.Context(), "", &saved); err != nil {
			t.Fatal(err)
		}
		running := observed(id, cluster.StateRunning)
		if _, err := f.report("n1", 1, 1, running); err != nil {
			t.Fatal(err)
		}
		if err := f.engine.Restore(&saved); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := f.report("n1", 1, 2); !errors.Is(err, transport.ErrSession) {
			t.Errorf("a report in the session of before: got error %v, want the end of the session", err)
		}
		if _, err := f.Register(t.Context(), transport.Registration{
			Wire: transport.WireVersion, Node: "n1", Previous: 1, Tasks: []cluster.Observed{running},
		}); err != nil {
			t.Fatal(err)
		}
		row, ok := f.now().Attempt(task, 1)
		if !ok || row.Observed == nil || row.Observed.State != cluster.StateRunning {
			t.Errorf("the attempt is %+v, want it running", row)
		}
		if _, err := f.report("n1", 2, 1); err != nil {
			t.Errorf("a report in the next session: %v", err)
		}
	})
}

// A node that was released to another owner gets nothing, and its agent is refused. The stop that follows from the
// release of its objects never reaches it (T17, P7.2).
func TestReleasedNodeGetsNothing(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		f.claim("n1")
		f.placeTask("n1")
		var sent []transport.Message
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- f.Assign(ctx, transport.AssignmentsRequest{Node: "n1", Session: 1},
				func(m []transport.Message) error { sent = append(sent, m...); return nil })
		}()
		synctest.Wait()
		before := len(sent)
		if before == 0 {
			t.Fatal("nothing was sent before the release")
		}
		f.put(p.Host("n1"), &cluster.Host{Name: "n1", Gone: true, Released: 1})
		row, ok := f.now().Attempt(task, 1)
		if !ok || row.Desired == nil {
			t.Fatal("the attempt has no record")
		}
		stopped := *row.Desired
		stopped.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted}
		f.put(p.Desired("n1", task), &stopped)
		synctest.Wait()
		if len(sent) != before {
			t.Errorf("after the release the node was sent %+v", sent[before:])
		}
		if err := <-ended; !errors.Is(err, transport.ErrRefused) {
			t.Errorf("the stream ended with %v, want %v", err, transport.ErrRefused)
		}
		again := transport.Registration{Wire: transport.WireVersion, Node: "n1", Previous: 1}
		if _, err := f.Register(t.Context(), again); !errors.Is(err, transport.ErrRefused) {
			t.Errorf("the next registration: got %v, want %v", err, transport.ErrRefused)
		}
		f.put(p.Host("n1"), &cluster.Host{Name: "n1", Generation: 2}) // it is adopted again
		if _, err := f.Register(t.Context(), again); err != nil {
			t.Errorf("the registration after an adoption: %v", err)
		}
	})
}
