package dispatcher_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// A node is forgotten and registers anew. Its sessions are counted from 1 again, and so are its reports, at a server
// that knows of as many sessions and of more reports from before: it is heard all the same (P6.1).
func TestForgottenNodeIsHeardAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		for seq := range uint64(9) {
			if _, err := w.report("n1", 1, seq+1); err != nil {
				t.Fatal(err)
			}
		}
		w.remove(p.NodeStatus("n1"))
		time.Sleep(time.Minute) // in-bubble: the machine is replaced
		if again := w.register("n1"); again.Session != 1 {
			t.Fatalf("got session %d, want them counted anew", again.Session)
		}
		if _, err := w.report("n1", 1, 1); err != nil {
			t.Fatal(err)
		}
		if pulse, ok := w.tables.Pulse("n1"); !ok || pulse.Seq != 1 || w.clock()-pulse.At > time.Second {
			t.Errorf("the last sign of life is %+v at %v, want report 1 of now", pulse, w.clock())
		}
	})
}

// The store went back to when an earlier attempt stood on the node, which has a later one: its status takes the place
// of the earlier one's, as the two have one key (P1.7). Nothing of it is put off until the place is taken by a further
// attempt.
func TestLaterAttemptTakesThePlaceOfAForgottenOne(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		id := w.place("n1")
		if _, err := w.report("n1", 1, 1, observed(id, cluster.StateRunning)); err != nil {
			t.Fatal(err)
		}
		later := cluster.Observed{Task: task, Attempt: 3, UUID: "u3", State: cluster.StateRunning}
		welcome, err := w.Register(t.Context(),
			transport.Registration{Node: "n1", Previous: 1, Tasks: []cluster.Observed{later}})
		if err != nil || len(welcome.Again) != 0 {
			t.Fatalf("got %+v %v, want all taken", welcome, err)
		}
		if row, ok := w.now().Attempt(task, 3); !ok || row.Observed == nil ||
			row.Observed.State != cluster.StateRunning {
			t.Errorf("the later attempt: got %+v, want it running", row)
		}
		if row, ok := w.now().Attempt(task, 1); !ok || row.Observed != nil {
			t.Errorf("the forgotten attempt: got %+v, want its status replaced", row)
		}
	})
}

// Of two attempts of a task in one report the second cannot be written while the first stands. The agent is told so,
// and tells it again.
func TestWhatARegistrationDoesNotTakeIsToldAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.register("n1")
		id := w.place("n1")
		both := []cluster.Observed{
			observed(id, cluster.StateFailed),
			{Task: task, Attempt: 3, UUID: "u3", State: cluster.StateRunning},
		}
		welcome, err := w.Register(t.Context(), transport.Registration{Node: "n1", Previous: 1, Tasks: both})
		if diff := cmp.Diff([]string{"u3"}, welcome.Again); err != nil || diff != "" {
			t.Errorf("to be told again (-want +got):\n%s%v", diff, err)
		}
		if row, ok := w.now().Attempt(task, 1); !ok || row.Observed == nil ||
			row.Observed.State != cluster.StateFailed {
			t.Errorf("the first attempt: got %+v, want it failed", row)
		}
	})
}
