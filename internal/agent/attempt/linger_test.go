package attempt

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// TestLingers: a task of a service with ports continues for its shutdown delay after its permit, and then gets TERM. A
// task with a mandatory stop, or one that ends meanwhile, does not wait.
func TestLingers(t *testing.T) {
	delay := cluster.Duration(3 * time.Second)
	serving := func(t *testing.T) (*Record, *cluster.TaskDefinition, Now) {
		t.Helper()
		def := &cluster.TaskDefinition{Containers: []cluster.Container{{Name: "a"}}, ShutdownDelay: &delay}
		r := New(cluster.Desired{UUID: "u", Owner: cluster.OwnerRef{Kind: cluster.KindService}}, 1, "boot")
		r.Session = Session{Number: 7, Asks: true}
		r.Next(def, noon)
		r.Admitted("x", def)
		r.WasPrepared(0)
		r.PortsProbed()
		if s := r.Next(def, noon); s.Do != Launch {
			t.Fatalf("want the launch, got %+v", s)
		}
		r.WasStarted(0, executor.Process{Pid: 1}, noon)
		r.Next(def, noon)
		permit(t, r, def)
		return r, def, noon
	}

	t.Run("until the delay is over", func(t *testing.T) {
		r, def, now := serving(t)
		if s := r.Next(def, now); s.Do != Wait || s.At != now.Boot+time.Duration(delay) {
			t.Fatalf("after the permit: %+v, want a wait until %v", s, now.Boot+time.Duration(delay))
		}
		now.Boot += time.Duration(delay)
		if s := r.Next(def, now); s.Do != Signal {
			t.Fatalf("after the delay: %+v, want a signal", s)
		}
	})
	t.Run("unless it must stop", func(t *testing.T) {
		r, def, now := serving(t)
		d := r.Desired
		d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted}
		r.Update(&d, 9)
		if s := r.Next(def, now); s.Do != Signal {
			t.Fatalf("stopped without delay: %+v, want a signal", s)
		}
	})
	t.Run("unless it ends", func(t *testing.T) {
		r, def, now := serving(t)
		r.HasExited(r.Containers[0].ID, cluster.Exit{Code: 0}, now)
		r.Next(def, now)
		if o := r.Observed(def); o.State != cluster.StateCancelled {
			t.Errorf("it is %s, want cancelled", o.State)
		}
	})
}

// permit takes the attempt through stop, ask, grant and durable use.
func permit(t *testing.T, r *Record, def *cluster.TaskDefinition) {
	t.Helper()
	stop := func(permit string, rev uint64) {
		d := r.Desired
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Permit: permit}
		r.Update(&d, rev)
	}
	stop("", 2)
	if s := r.Next(def, noon); s.Do != Wait {
		t.Fatalf("after the voluntary stop: %+v, want a wait", s)
	}
	ask := r.Observed(def).Ask
	r.Permit.AskSent(ask, noon)
	stop(ask, 3)
	if s := r.Next(def, noon); s.Do != Use {
		t.Fatalf("after the grant: %+v, want the use to be made durable", s)
	}
	r.PermitKept()
}
