package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// TestStopThatAwaitsItsPermit: an attempt is shown as running while its agent asks for the permit of a voluntary stop,
// because it may have to go on. With a mandatory stop, one that is permitted, and one for which its agent has not asked
// it is stopping.
func TestStopThatAwaitsItsPermit(t *testing.T) {
	voluntary := cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Message: "replaced"}
	mandatory, permitted := voluntary, voluntary
	mandatory.Class, permitted.Permit = cluster.StopMandatory, "1.1"
	for name, c := range map[string]struct {
		stop  cluster.Stop
		state cluster.State
		ask   string
		want  cluster.State
	}{
		"asks":                      {voluntary, cluster.StateRunning, "1.1", cluster.StateRunning},
		"has not asked":             {voluntary, cluster.StateRunning, "", cluster.StateStopping},
		"is permitted":              {permitted, cluster.StateRunning, "1.1", cluster.StateStopping},
		"a permit that came late":   {permitted, cluster.StateRunning, "1.2", cluster.StateStopping},
		"is mandatory":              {mandatory, cluster.StateRunning, "1.1", cluster.StateStopping},
		"asks before it runs":       {voluntary, cluster.StateStarting, "1.1", cluster.StateStopping},
		"has ended in the meantime": {voluntary, cluster.StateSucceeded, "1.1", cluster.StateSucceeded},
	} {
		o := observed(c.state)
		o.Ask, o.Health = c.ask, cluster.HealthHealthy
		got := lifecycle.Shown(cluster.Attempt{Desired: desired(&c.stop), Observed: o})
		if got.State != c.want {
			t.Errorf("%s: shown as %s, want %s", name, got.State, c.want)
		}
		if (got.State == cluster.StateStopping) != (got.Reason == cluster.ReasonRollout) {
			t.Errorf("%s: the reason is %q", name, got.Reason)
		}
		if (got.State == cluster.StateRunning) != (got.Health == cluster.HealthHealthy) {
			t.Errorf("%s: the health is %q", name, got.Health)
		}
	}
	got := lifecycle.Shown(cluster.Attempt{Desired: desired(&voluntary)})
	if got.State != cluster.StateStopping {
		t.Errorf("not seen by its agent: shown as %s, want stopping", got.State)
	}
}

// TestFreeAttempts: which ends use no retry. For an idempotent task these are also the losses after its start, and the
// ends that the machine or nobody knows of. An end of the program itself always counts. Nothing is free beyond
// MaxDispatches attempts, but what was cancelled.
func TestFreeAttempts(t *testing.T) {
	began := time.Unix(900, 0)
	loss := &lifecycle.Loss{Reason: cluster.ReasonNodeDown}
	end := func(s cluster.State, r cluster.ReasonCode, started bool) *cluster.Observed {
		o := observed(s)
		if o.Reason = r; started {
			o.Started = began
		}
		return o
	}
	for name, c := range map[string]struct {
		observed         *cluster.Observed
		loss             *lifecycle.Loss
		free, idempotent bool // whether it is free, and for an idempotent task
		always           bool // whether it is free after any number of attempts
	}{
		"exit":                {observed: end(cluster.StateFailed, cluster.ReasonExit, true)},
		"out of memory":       {observed: end(cluster.StateFailed, cluster.ReasonOOM, true)},
		"time limit":          {observed: end(cluster.StateFailed, cluster.ReasonTimeLimit, true)},
		"no image":            {observed: end(cluster.StateFailed, cluster.ReasonPrepare, false)},
		"reboot":              {observed: end(cluster.StateFailed, cluster.ReasonBootChanged, true), idempotent: true},
		"unknown exit":        {observed: end(cluster.StateFailed, cluster.ReasonUnknownExit, true), idempotent: true},
		"reboot before start": {observed: end(cluster.StateFailed, cluster.ReasonBootChanged, false)},
		"lost while it ran": {
			observed: end(cluster.StateRunning, "", true), loss: loss, idempotent: true,
		},
		"lost before": {
			observed: end(cluster.StatePreparing, "", false), loss: loss, free: true, idempotent: true,
		},
		"lost unseen": {loss: loss, free: true, idempotent: true},
		"rejected": {
			observed: end(cluster.StateRejected, cluster.ReasonPortTaken, false), free: true, idempotent: true,
		},
		"succeeded": {observed: end(cluster.StateSucceeded, "", true)},
		"cancelled": {
			observed: end(cluster.StateCancelled, cluster.ReasonDrain, true), free: true, idempotent: true,
			always: true,
		},
	} {
		for _, idempotent := range []bool{false, true} {
			want := c.free
			if idempotent {
				want = c.idempotent
			}
			for _, earlier := range []int{0, cluster.MaxDispatches - 1, cluster.MaxDispatches} {
				out, ok := lifecycle.Conclude(lifecycle.Ending{
					Attempt: cluster.Attempt{Desired: desired(nil), Observed: c.observed}, Loss: c.loss,
					FreeLosses: earlier, Idempotent: idempotent, Now: time.Unix(1000, 0),
				})
				want := want && (earlier < cluster.MaxDispatches || c.always)
				if !ok || out.Free != want {
					t.Errorf("%s, idempotent %t, after %d free attempts: ended %t, free %t, want %t", name, idempotent,
						earlier, ok, out.Free, want)
				}
			}
		}
	}
}

// TestOutcomeNamesItsAttempt: an outcome has what the records say of the attempt. The desired record is the better one:
// it knows the owner, the definition and the time of the placement.
func TestOutcomeNamesItsAttempt(t *testing.T) {
	d := desired(nil)
	d.Definition, d.Placed = cluster.Ref{Name: "web", Version: 3}, time.Unix(800, 0)
	o := observed(cluster.StateFailed)
	o.Started, o.Finished, o.LogTail, o.Message = time.Unix(850, 0), time.Unix(900, 0), "bye", "exit code 1"
	o.Reason = cluster.ReasonExit
	want := cluster.Outcome{
		Task: d.Task, Attempt: 2, UUID: "u2", Node: "n1", Owner: d.Owner, Definition: d.Definition, Placed: d.Placed,
		State: cluster.StateFailed, Reason: cluster.ReasonExit, Message: "exit code 1", Started: true,
		Begun: o.Started, Ended: o.Finished, LogTail: "bye",
	}
	out, ok := lifecycle.Conclude(lifecycle.Ending{
		Attempt: cluster.Attempt{Desired: d, Observed: o}, Now: time.Unix(1000, 0),
	})
	if diff := cmp.Diff(want, out); diff != "" || !ok {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Owner, want.Definition, want.Placed = cluster.OwnerRef{}, cluster.Ref{}, time.Time{}
	out, ok = lifecycle.Conclude(lifecycle.Ending{Attempt: cluster.Attempt{Observed: o}, Now: time.Unix(1000, 0)})
	if diff := cmp.Diff(want, out); diff != "" || !ok {
		t.Errorf("without a desired record (-want +got):\n%s", diff)
	}
}

// TestConcludeTwice: for any records an attempt is concluded once, with an end that it can have. With the outcome the
// same is shown as was concluded, and nobody concludes it again. A later leader concludes the same.
func TestConcludeTwice(t *testing.T) {
	ends := map[cluster.State]int{}
	rapid.Check(t, func(t *rapid.T) {
		var a cluster.Attempt
		if rapid.IntRange(0, 4).Draw(t, "desired") > 0 {
			a.Desired = desired(nil)
			if rapid.Bool().Draw(t, "stop") {
				a.Desired.Stop = &cluster.Stop{
					Class: rapid.SampledFrom([]cluster.StopClass{
						cluster.StopVoluntary, cluster.StopMandatory,
					}).Draw(t, "class"),
					Reason: rapid.SampledFrom([]cluster.ReasonCode{
						cluster.ReasonDrain, cluster.ReasonTimeLimit, cluster.ReasonEnded,
					}).Draw(t, "reason"), Message: "stopped",
				}
			}
		}
		if a.Desired == nil || rapid.Bool().Draw(t, "observed") {
			a.Observed = observed(rapid.SampledFrom(states()[2:]).Draw(t, "state"))
			if rapid.Bool().Draw(t, "started") {
				a.Observed.Started = time.Unix(900, 0)
			}
			if rapid.IntRange(0, 4).Draw(t, "foreign") == 0 {
				a.Observed.UUID = "u1"
			}
		}
		e := lifecycle.Ending{Attempt: a, Now: time.Unix(1000, 0), FreeLosses: rapid.IntRange(0, 9).Draw(t, "losses")}
		if rapid.Bool().Draw(t, "lost") {
			e.Loss = &lifecycle.Loss{Reason: cluster.ReasonNodeDown, Message: "gone"}
		}
		out, ok := lifecycle.Conclude(e)
		shown := lifecycle.Shown(a)
		if ok != (shown.State.Terminal() || e.Loss != nil) {
			t.Fatalf("shown as %s, lost %t, and concluded: %t", shown.State, e.Loss != nil, ok)
		}
		if !ok {
			return
		}
		ends[out.State]++
		if shown.State.Terminal() && (out.State != shown.State || out.Reason != shown.Reason) {
			t.Fatalf("shown as %s %s, concluded as %s %s", shown.State, shown.Reason, out.State, out.Reason)
		}
		if !lifecycle.Follows(shown.State, out.State) {
			t.Fatalf("%s after %s", out.State, shown.State)
		}
		if started := lifecycle.Started(a); out.Started != started {
			t.Fatalf("started: %t, concluded as %t", started, out.Started)
		}
		e.Attempt.Outcome = &out
		if _, again := lifecycle.Conclude(e); again {
			t.Fatal("concluded twice")
		}
		if after := lifecycle.Shown(e.Attempt); after.State != out.State || after.Reason != out.Reason {
			t.Fatalf("concluded as %s %s, shown as %s %s", out.State, out.Reason, after.State, after.Reason)
		}
		later := e
		later.Attempt.Outcome, later.Now = nil, e.Now.Add(time.Hour)
		next, _ := lifecycle.Conclude(later)
		out.Ended, next.Ended = time.Time{}, time.Time{}
		if diff := cmp.Diff(out, next); diff != "" {
			t.Fatalf("an hour later it ended in another way:\n%s", diff)
		}
	})
	for _, s := range []cluster.State{
		cluster.StateSucceeded, cluster.StateFailed, cluster.StateRejected, cluster.StateLost, cluster.StateCancelled,
	} {
		if ends[s] == 0 {
			t.Errorf("no attempt was concluded as %s", s)
		}
	}
}

// TestRestartWindow: a task that ran for longer than the window has its restarts forgotten, and a restart counts for as
// long as the window. A run of exactly the window resets nothing, but no earlier restart is within it.
func TestRestartWindow(t *testing.T) {
	p := policy(cluster.RestartAlways)
	now, window := time.Unix(100_000, 0), time.Duration(p.Window)
	for name, c := range map[string]struct {
		ran      time.Duration
		ago      time.Duration // of the last restart
		streak   int
		restarts int
	}{
		"soon":                  {time.Second, time.Second, 4, 2},
		"at the window's end":   {time.Second, window - 1, 4, 2},
		"beyond the window":     {time.Second, window, 4, 1},
		"ran for the window":    {window, window + time.Second, 4, 1},
		"ran longer than it":    {window + 1, window + time.Second, 1, 1},
		"ran longer, restarted": {window + 1, time.Second, 1, 1},
	} {
		prev := lifecycle.Restarts{At: []time.Time{now.Add(-c.ago)}, Streak: 3, Total: 7}
		d := lifecycle.NextRestart(p, prev, false, c.ran, now)
		if !d.Again || d.Next.Streak != c.streak || len(d.Next.At) != c.restarts || d.Next.Total != 8 {
			t.Errorf("%s: %+v, want a streak of %d and %d restarts", name, d, c.streak, c.restarts)
		}
	}
	p.Limit = 1
	if d := lifecycle.NextRestart(p, lifecycle.Restarts{At: []time.Time{now}}, false, 0, now); d.Again || !d.Limit {
		t.Errorf("at the limit: %+v", d)
	}
}
