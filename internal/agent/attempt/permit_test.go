package attempt

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// serving returns an attempt of a service with a running container, in session 5 with a server that grants permits.
func serving(t *testing.T) (*Record, *cluster.TaskDefinition) {
	t.Helper()
	def := &cluster.TaskDefinition{Containers: []cluster.Container{{Name: "a"}}}
	r := New(cluster.Desired{UUID: "u", Owner: cluster.OwnerRef{Kind: cluster.KindService}}, 1, "boot")
	r.Session = Session{Number: 5, Asks: true}
	r.Next(def, noon)
	r.Admitted("x", def)
	r.WasPrepared(0)
	r.PortsProbed()
	r.Next(def, noon)
	r.WasStarted(0, executor.Process{Pid: 1}, noon)
	return r, def
}

// requestStop gives the record a stop of the class with a permit.
func requestStop(r *Record, class cluster.StopClass, permit string) {
	d := r.Desired
	d.Stop = &cluster.Stop{Class: class, Reason: cluster.ReasonRollout, Permit: permit}
	r.Update(&d, r.Revision+1)
}

func after(d time.Duration) Now { return Now{noon.Boot + d, noon.Wall.Add(d)} }

// reread returns the record that a later run of the agent reads.
func reread(t *testing.T, r *Record) *Record {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again := new(Record)
	if err := json.Unmarshal(b, again); err != nil {
		t.Fatal(err)
	}
	return again
}

func wantAsk(t *testing.T, r *Record, def *cluster.TaskDefinition, want string) {
	t.Helper()
	if o := r.Observed(def); o.Ask != want || o.State != cluster.StateRunning {
		t.Errorf("it is %s and asks %q, want running and %q", o.State, o.Ask, want)
	}
}

func wantStep(t *testing.T, r *Record, def *cluster.TaskDefinition, now Now, want Do) {
	t.Helper()
	if s := r.Next(def, now); s.Do != want {
		t.Errorf("the next step is %+v, want %s", s, want)
	}
}

func TestVoluntaryStopWaitsForItsPermit(t *testing.T) {
	r, def := serving(t)
	requestStop(r, cluster.StopVoluntary, "")
	for _, d := range []time.Duration{0, time.Second, time.Hour} { // it never repeats an ask by itself
		wantStep(t, r, def, after(d), Wait)
		wantAsk(t, r, def, "5.1")
	}
}

func TestPermitIsUsedInTime(t *testing.T) {
	for name, test := range map[string]struct {
		permit string
		late   time.Duration
		want   Do
		ask    string
	}{
		"its own ask":             {permit: "5.1", late: 3 * time.Second, want: Use, ask: "5.1"},
		"at the last moment":      {permit: "5.1", late: PermitAge, want: Use, ask: "5.1"},
		"too late":                {permit: "5.1", late: PermitAge + time.Second, want: Wait, ask: "5.2"},
		"of an earlier session":   {permit: "4.1", want: Wait, ask: "5.1"},
		"one that was never made": {permit: "5.9", want: Wait, ask: "5.1"},
	} {
		t.Run(name, func(t *testing.T) {
			r, def := serving(t)
			requestStop(r, cluster.StopVoluntary, "")
			r.Next(def, noon)
			r.Permit.AskSent("5.1", noon)
			r.Permit.AskSent("5.1", after(20*time.Second)) // sent again: the first time counts
			requestStop(r, cluster.StopVoluntary, test.permit)
			wantStep(t, r, def, after(test.late), test.want)
			wantAsk(t, r, def, test.ask)
		})
	}
}

func TestPermitThatWasVoidIsFollowedByAnother(t *testing.T) {
	r, def := serving(t)
	requestStop(r, cluster.StopVoluntary, "")
	r.Next(def, noon)
	r.Permit.AskSent("5.1", noon)
	requestStop(r, cluster.StopVoluntary, "5.1")
	r.Next(def, after(31*time.Second))
	r.Permit.AskSent("5.2", after(32*time.Second))
	requestStop(r, cluster.StopVoluntary, "5.2")
	wantStep(t, r, def, after(61*time.Second), Use)
	r.PermitKept()
	wantStep(t, r, def, after(time.Hour), Signal)
}

func TestUsedPermitIsCompletedHoweverLate(t *testing.T) {
	r, def := serving(t)
	requestStop(r, cluster.StopVoluntary, "")
	r.Next(def, noon)
	r.Permit.AskSent("5.1", noon)
	requestStop(r, cluster.StopVoluntary, "5.1")
	wantStep(t, r, def, after(time.Second), Use)
	r.Session = Session{Number: 6, Asks: true} // the disk is slow meanwhile
	wantStep(t, r, def, after(time.Hour), Use)
	wantAsk(t, r, def, "5.1")

	later := reread(t, r) // before any session, and in one
	later.Recover(map[executor.ID]executor.Status{"u-0-1": {State: executor.StateRunning}}, "boot", after(2*time.Hour))
	wantStep(t, later, def, after(2*time.Hour), Signal)
	if o := later.Observed(def); o.Ask != "5.1" || o.State != cluster.StateStopping {
		t.Errorf("it is %s and asks %q, want stopping by 5.1", o.State, o.Ask)
	}
}

func TestRestartedAgentRequestsAgain(t *testing.T) {
	r, def := serving(t)
	requestStop(r, cluster.StopVoluntary, "")
	r.Next(def, noon)
	r.Permit.AskSent("5.1", noon)
	requestStop(r, cluster.StopVoluntary, "5.1") // granted, but its use is not durable: the agent dies here
	r = reread(t, r)
	r.Recover(map[executor.ID]executor.Status{"u-0-1": {State: executor.StateRunning}}, "boot", after(time.Second))
	wantStep(t, r, def, after(time.Second), Wait)
	wantAsk(t, r, def, "5.1")
	r.Session = Session{Number: 6, Asks: true}
	wantStep(t, r, def, after(2*time.Second), Wait)
	wantAsk(t, r, def, "6.2")
}

func TestStopsWithoutPermit(t *testing.T) {
	t.Run("a mandatory stop after a voluntary stop", func(t *testing.T) {
		r, def := serving(t)
		requestStop(r, cluster.StopVoluntary, "")
		r.Next(def, noon)
		d := r.Desired
		d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted}
		r.Update(&d, 9)
		requestStop(r, cluster.StopVoluntary, "")
		wantStep(t, r, def, noon, Signal)
		if s := r.Desired.Stop; s.Class != cluster.StopMandatory || s.Reason != cluster.ReasonDeleted {
			t.Errorf("stopped as %+v, want mandatory, for the deletion", s)
		}
	})
	t.Run("a server that knows no permits", func(t *testing.T) {
		r, def := serving(t)
		r.Session = Session{Number: 6}
		requestStop(r, cluster.StopVoluntary, "")
		wantStep(t, r, def, noon, Signal)
		// A used permit is completed, also before a session.
		if again := reread(t, r); again.Next(def, noon).Do != Signal {
			t.Errorf("a stop that began is not completed in a later life: %+v", again.Next(def, noon))
		}
	})
	t.Run("an attempt that has not begun", func(t *testing.T) {
		def := &cluster.TaskDefinition{Containers: []cluster.Container{{Name: "a"}}}
		r := New(cluster.Desired{UUID: "u"}, 1, "boot")
		r.Session = Session{Number: 5, Asks: true}
		r.Next(def, noon)
		r.Admitted("x", def)
		requestStop(r, cluster.StopVoluntary, "")
		r.Next(def, noon)
		if o := r.Observed(def); o.State != cluster.StateCancelled || o.Ask != "" {
			t.Errorf("it is %s and asks %q, want cancelled", o.State, o.Ask)
		}
	})
	t.Run("an attempt that has ended", func(t *testing.T) {
		r, def := serving(t)
		def.Restart.Mode = cluster.RestartNever
		r.HasExited("u-0-1", cluster.Exit{Code: 1}, noon)
		r.Next(def, noon)
		r.Closed("")
		d := r.Desired
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonEnded, Ended: true}
		r.Update(&d, 9)
		wantStep(t, r, def, noon, Clear)
	})
}

// While a voluntary stop waits, the task restarts in place, and its permit may be used in between.
func TestVoluntaryStopDoesNotPreventRestarts(t *testing.T) {
	r, def := serving(t)
	requestStop(r, cluster.StopVoluntary, "")
	r.Next(def, noon)
	r.Permit.AskSent("5.1", noon)
	r.HasExited("u-0-1", cluster.Exit{Code: 1}, noon)
	wantStep(t, r, def, noon, Tail)
	r.Tailed("")
	if r.Phase != PhaseBackoff {
		t.Fatalf("in %s, want back-off", r.Phase)
	}
	waiting := reread(t, r)
	wantStep(t, r, def, after(2*time.Second), Prepare)

	waiting.Session = Session{Number: 5, Asks: true}
	requestStop(waiting, cluster.StopVoluntary, "5.1")
	wantStep(t, waiting, def, after(time.Second), Use)
	waiting.PermitKept()
	waiting.Next(def, after(2*time.Second))
	if o := waiting.Observed(def); o.State != cluster.StateCancelled || o.Reason != cluster.ReasonRollout {
		t.Errorf("it is %s (%s), want cancelled for the rollout", o.State, o.Reason)
	}
}

// A long step does not prevent an ask, and a permit cancels it.
func TestAttendInTheMiddleOfAStep(t *testing.T) {
	r, def := serving(t)
	requestStop(r, cluster.StopVoluntary, "")
	if r.Attend(noon) {
		t.Error("a voluntary stop cancels a step")
	}
	wantAsk(t, r, def, "5.1")
	r.Permit.AskSent("5.1", noon)
	requestStop(r, cluster.StopVoluntary, "5.1")
	if !r.Attend(after(time.Second)) {
		t.Error("a permit does not break a step off")
	}
}
