package dispatcher_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// A voluntary stop, its permit and a mandatory stop that overrides both reach the agent. Its request is durable when
// its report is answered (P5.2). Other fields of a stop are not sent.
func TestPermitsTravelBothWays(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		welcome, err := f.Register(t.Context(), transport.Registration{Node: "n1", Wire: transport.WireVersion})
		if err != nil || welcome.Wire != transport.WireVersion {
			t.Fatalf("register: got %+v %v, want a session in which the agent asks", welcome, err)
		}
		s := f.assign(1, nil)
		s.expect("synced")
		id := f.placeTask("n1")
		s.expect("definition d@1", "run c.j.1.s.0")
		running := observed(id, cluster.StateRunning)
		if _, err := f.report("n1", 1, 1, running); err != nil {
			t.Fatal(err)
		}
		row, _ := f.now().Attempt(task, 1)
		d := *row.Desired
		stop := func(c cluster.Stop) {
			d.Stop = &c
			f.put(p.Desired("n1", task), &d)
		}
		stop(cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout})
		s.expect("stop c.j.1.s.0")

		running.Ask = "1.1"
		if _, err := f.report("n1", 1, 2, running); err != nil {
			t.Fatal(err)
		}
		if row, _ := f.now().Attempt(task, 1); row.Observed.Ask != "1.1" || row.Observed.Session != 1 {
			t.Errorf("the ask is not durable: %+v", row.Observed)
		}
		stop(cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Permit: "1.1"})
		s.expect("stop c.j.1.s.0")
		stop(cluster.Stop{
			Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Permit: "1.1",
			Message: "another sentence",
		})
		s.expect()
		stop(cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Permit: "1.1"})
		s.expect("stop c.j.1.s.0")
		_ = s.end() // it is cancelled
	})
}
