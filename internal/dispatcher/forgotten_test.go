package dispatcher_test

import (
	"testing"
	"time"
)

// A node is forgotten and registers anew. Its sessions are counted from 1 again, and so are its reports, at a server that knows of as
// many sessions and of more reports from before: it is heard all the same (P6.1).
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
