package attempt

import (
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// runs moves the record until all its containers run.
func runs(t *testing.T, r *Record, def *cluster.TaskDefinition, now *Now) {
	t.Helper()
	for range 20 {
		switch s := r.Next(def, *now); s.Do {
		case Admit:
			r.Admitted("x", def)
		case Prepare:
			r.WasPrepared(s.Container)
		case ProbePorts:
			r.PortsProbed()
		case Launch:
			r.WasStarted(s.Container, executor.Process{Pid: 1}, *now)
		case Tail:
			r.Tailed("")
		default:
			if r.IsUp() {
				return
			}
			now.Boot = max(now.Boot, s.At)
		}
	}
	t.Fatalf("it does not run: %+v", r)
}

// An attempt with changed content begins another round without delay, however often, because it did not fail.
func TestRenew(t *testing.T) {
	def := &cluster.TaskDefinition{
		Containers: []cluster.Container{{Name: "a"}},
		Restart:    cluster.Restart{Mode: cluster.RestartNever, Limit: 1},
	}
	r := New(cluster.Desired{UUID: "u", Owner: cluster.OwnerRef{Kind: cluster.KindService}}, 1, "boot")
	now := noon
	runs(t, r, def, &now)
	for n := range 5 {
		if r.Renew(r.Round-1, "late") {
			t.Fatal("a round that is over was ended")
		}
		round := r.Round
		if !r.Renew(round, "the addresses of service db changed") {
			t.Fatalf("refused in %s", r.Phase)
		}
		if s := r.Next(def, now); s.Do != Signal || s.Signal != syscall.SIGTERM {
			t.Fatalf("want TERM, got %+v", s)
		}
		if o := r.Observed(def); o.State != cluster.StateRunning || o.Reason != cluster.ReasonAddresses {
			t.Errorf("shown as %s (%s) while it ends", o.State, o.Reason)
		}
		r.Signalled(syscall.SIGTERM, now)
		r.HasExited(RunID("u", 0, round), cluster.Exit{Code: 143, Signal: 15}, now)
		before := now.Boot
		runs(t, r, def, &now)
		if r.Round != round+1 || now.Boot != before {
			t.Errorf("round %d after %v, want %d without delay", r.Round, now.Boot-before, round+1)
		}
		if o := r.Observed(def); o.Restarts != 0 || o.Containers[0].Restarts != 0 ||
			o.Message != "restarted: the addresses of service db changed" {
			t.Errorf("after %d: %d and %d restarts, %q", n+1, o.Restarts, o.Containers[0].Restarts, o.Message)
		}
		now.Boot += time.Minute
		r.Next(def, now)
		if o := r.Observed(def); o.Health != cluster.HealthHealthy || o.Message != "" || o.Reason != "" {
			t.Errorf("healthy again it says %q (%s), %s", o.Message, o.Reason, o.Health)
		}
	}
	stop := r.Desired
	stop.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted}
	r.Renew(r.Round, "again")
	r.Update(&stop, 2)
	r.HasExited(RunID("u", 0, r.Round), cluster.Exit{Code: 143, Signal: 15}, now)
	if r.Next(def, now); r.Result == nil || r.Result.State != cluster.StateCancelled ||
		r.Result.Reason != cluster.ReasonDeleted {
		t.Errorf("stopped meanwhile, it ended as %+v", r.Result)
	}
	if r.Renew(r.Round, "over") {
		t.Error("an ended attempt began again")
	}
}

// A batch attempt is not renewed.
func TestRenewOfAJob(t *testing.T) {
	r, def := running(t, "")
	r.Next(def, noon)
	if !r.IsUp() || r.Renew(r.Round, "other") {
		t.Errorf("in %s, want it to continue", r.Phase)
	}
}
