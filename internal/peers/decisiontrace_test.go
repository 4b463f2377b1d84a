package peers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// TestGroundsComeFromTheLeader: a server that did not decide asks the leader, which also has the traces of its earlier
// leadership term.
func TestGroundsComeFromTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s1, s2 := w.start("s1", 0), w.start("s2", 0)
		if _, ok := s2.DecisionTrace(t.Context(), "c.web.1.0", 1); ok {
			t.Error("there are grounds, and nobody leads")
		}
		w.lead("s1", 1)
		pass(2 * time.Second)
		s1.plane.set(1)
		want := cluster.DecisionTrace{Task: "c.web.1.0", Node: "n1", Best: []cluster.Candidate{{Node: "n1"}}}
		for _, m := range []*member{s1, s2} {
			got, ok := m.DecisionTrace(t.Context(), "c.web.1.0", 1)
			if diff := cmp.Diff(want, got); diff != "" || !ok {
				t.Errorf("of %s: found is %v (-want +got):\n%s", m.id, ok, diff)
			}
			if _, ok := m.DecisionTrace(t.Context(), "c.web.1.0", 2); ok {
				t.Errorf("%s has grounds of an attempt that nobody kept", m.id)
			}
		}
		s1.stop()
		began := time.Now()
		if _, ok := s2.DecisionTrace(t.Context(), "c.web.1.0", 1); ok || time.Since(began) > decisionTraceTimeout {
			t.Errorf("after %s: found is %v, and the leader is dead", time.Since(began), ok)
		}
	})
}
