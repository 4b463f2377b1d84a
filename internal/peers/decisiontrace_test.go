package peers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// TestDecisionTraceComesFromTheLeader: a server that did not decide requests the trace from the leader. The leader also
// has the traces of its earlier term.
func TestDecisionTraceComesFromTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		if _, ok := s2.DecisionTrace(t.Context(), cluster.DefaultDomain, "c.web.1.0", 1); ok {
			t.Error("there is a decision trace without a leader")
		}
		g.lead("s1", 1)
		pass(2 * time.Second)
		s1.plane.set(1)
		want := cluster.DecisionTrace{Task: "c.web.1.0", Node: "n1", Best: []cluster.Candidate{{Node: "n1"}}}
		for _, m := range []*member{s1, s2} {
			got, ok := m.DecisionTrace(t.Context(), cluster.DefaultDomain, "c.web.1.0", 1)
			if diff := cmp.Diff(want, got); diff != "" || !ok {
				t.Errorf("of %s: found is %v (-want +got):\n%s", m.id, ok, diff)
			}
			if _, ok := m.DecisionTrace(t.Context(), cluster.DefaultDomain, "c.web.1.0", 2); ok {
				t.Errorf("%s has a decision trace of an attempt that no server kept", m.id)
			}
		}
		s1.stop()
		began := time.Now()
		_, ok := s2.DecisionTrace(t.Context(), cluster.DefaultDomain, "c.web.1.0", 1)
		if ok || time.Since(began) > decisionTraceTimeout {
			t.Errorf("after %s: found is %v, and the leader is dead", time.Since(began), ok)
		}
	})
}
