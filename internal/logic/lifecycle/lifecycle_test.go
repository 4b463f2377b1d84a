package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

func states() []cluster.State {
	return []cluster.State{
		cluster.StatePending, cluster.StateAssigned, cluster.StatePreparing, cluster.StateStarting,
		cluster.StateRunning,
		cluster.StateStopping, cluster.StateSucceeded, cluster.StateFailed, cluster.StateRejected, cluster.StateLost,
		cluster.StateCancelled,
	}
}

// isLegal reports whether an attempt may go from one state to another in a single step.
func isLegal(from, to cluster.State) bool {
	return slices.ContainsFunc(lifecycle.Moves(), func(m lifecycle.Move) bool { return m.From == from && m.To == to })
}

// TestMoves prints the table of a task's life: a row for each state, with the states that may follow it.
func TestMoves(t *testing.T) {
	const want = `
pending: assigned cancelled
assigned: preparing stopping rejected lost
preparing: starting stopping failed rejected lost
starting: running stopping failed lost
running: starting stopping succeeded failed lost
stopping: succeeded failed rejected lost cancelled
succeeded:
failed:
rejected:
lost:
cancelled:
`
	var b strings.Builder
	b.WriteString("\n")
	for _, from := range states() {
		fmt.Fprintf(&b, "%s:", from)
		for _, to := range states() {
			if isLegal(from, to) {
				fmt.Fprintf(&b, " %s", to)
			}
		}
		b.WriteString("\n")
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("legal moves (-want +got):\n%s", diff)
	}
}

func TestMovesAreSound(t *testing.T) {
	seen := map[[2]cluster.State]bool{}
	for _, m := range lifecycle.Moves() {
		pair := [2]cluster.State{m.From, m.To}
		if seen[pair] || m.Cause == "" || m.From.Terminal() {
			t.Errorf("move %+v is listed twice, has no cause, or leads out of an end", m)
		}
		seen[pair] = true
	}
	for _, s := range states() {
		ends := slices.ContainsFunc(states(), func(to cluster.State) bool {
			return to.Terminal() && lifecycle.Follows(s, to)
		})
		if !ends {
			t.Errorf("no end follows %s", s)
		}
		if s.Terminal() {
			for _, to := range states() {
				if to != s && lifecycle.Follows(s, to) {
					t.Errorf("%s follows %s, which is an end", to, s)
				}
			}
		}
	}
	moves := lifecycle.Moves()
	moves[0].Cause = "changed"
	if lifecycle.Moves()[0].Cause == "changed" {
		t.Error("the caller can change the table")
	}
}

// TestLifecycleIsMonotonicAndEnds walks the table at random. Except for restarts in place, no state is entered twice.
// Every walk without endless restarts ends in at most as many steps as there are states.
func TestLifecycleIsMonotonicAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := cluster.StatePending
		visited := []cluster.State{state}
		for range len(states()) {
			var next []cluster.State
			for _, to := range states() {
				restart := state == cluster.StateRunning && to == cluster.StateStarting
				if isLegal(state, to) && !restart {
					next = append(next, to)
				}
			}
			if len(next) == 0 {
				if !state.Terminal() {
					t.Fatalf("no way out of %s", state)
				}
				return
			}
			state = rapid.SampledFrom(next).Draw(t, "next")
			if slices.Contains(visited, state) {
				t.Fatalf("%s is entered twice: %v", state, visited)
			}
			visited = append(visited, state)
		}
		t.Fatalf("the walk does not end: %v", visited)
	})
}

func desired(stop *cluster.Stop) *cluster.Desired {
	return &cluster.Desired{
		Task: "default.web.1.0", Attempt: 2, UUID: "u2", Node: "n1", Stop: stop,
		Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
	}
}

func observed(s cluster.State) *cluster.Observed {
	return &cluster.Observed{Task: "default.web.1.0", Attempt: 2, UUID: "u2", Node: "n1", State: s}
}

func TestShown(t *testing.T) {
	rollout := &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Message: "replaced"}
	limit := &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonTimeLimit, Message: "too long"}
	ended := &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true}
	running := observed(cluster.StateRunning)
	running.Health, running.Message = cluster.HealthFailing, "http: 500"
	cancelled := observed(cluster.StateCancelled)
	cancelled.Reason, cancelled.Message = cluster.ReasonCancelled, "it was stopped"
	failed := observed(cluster.StateFailed)
	failed.Reason = cluster.ReasonExit
	foreign := observed(cluster.StateFailed)
	foreign.UUID = "u1"
	for _, tt := range []struct {
		name string
		in   cluster.Attempt
		want lifecycle.View
	}{
		{"no records", cluster.Attempt{}, lifecycle.View{State: cluster.StatePending}},
		{"placed", cluster.Attempt{Desired: desired(nil)}, lifecycle.View{State: cluster.StateAssigned}},
		{
			"seen by an earlier attempt only",
			cluster.Attempt{Desired: desired(nil), Observed: foreign},
			lifecycle.View{State: cluster.StateAssigned},
		},
		{
			"stopped before it was seen",
			cluster.Attempt{Desired: desired(rollout)},
			lifecycle.View{State: cluster.StateStopping, Reason: cluster.ReasonRollout, Message: "replaced"},
		},
		{
			"preparing",
			cluster.Attempt{Desired: desired(nil), Observed: observed(cluster.StatePreparing)},
			lifecycle.View{State: cluster.StatePreparing},
		},
		{
			"running",
			cluster.Attempt{Desired: desired(nil), Observed: running},
			lifecycle.View{State: cluster.StateRunning, Health: cluster.HealthFailing, Message: "http: 500"},
		},
		{
			"running without checks",
			cluster.Attempt{Observed: observed(cluster.StateRunning)},
			lifecycle.View{State: cluster.StateRunning, Health: cluster.HealthUnknown},
		},
		{
			"running with a stop",
			cluster.Attempt{Desired: desired(rollout), Observed: running},
			lifecycle.View{State: cluster.StateStopping, Reason: cluster.ReasonRollout, Message: "replaced"},
		},
		{
			"stopped: the cause is the stop's",
			cluster.Attempt{Desired: desired(rollout), Observed: cancelled},
			lifecycle.View{State: cluster.StateCancelled, Reason: cluster.ReasonRollout, Message: "replaced"},
		},
		{
			"stopped for its time limit has failed",
			cluster.Attempt{Desired: desired(limit), Observed: cancelled},
			lifecycle.View{State: cluster.StateFailed, Reason: cluster.ReasonTimeLimit, Message: "too long"},
		},
		{
			"failed before the stop came",
			cluster.Attempt{Desired: desired(rollout), Observed: failed},
			lifecycle.View{State: cluster.StateFailed, Reason: cluster.ReasonExit},
		},
		{
			"the outcome goes before all",
			cluster.Attempt{
				Desired: desired(ended), Observed: running,
				Outcome: &cluster.Outcome{State: cluster.StateLost, Reason: cluster.ReasonNodeDown, Message: "gone"},
			},
			lifecycle.View{State: cluster.StateLost, Reason: cluster.ReasonNodeDown, Message: "gone"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, lifecycle.Shown(tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestShownStatesFollow grows the records of an attempt as their writers do, in every possible order. Each state that
// is shown may follow the one before.
func TestShownStatesFollow(t *testing.T) {
	agent := []cluster.State{
		cluster.StatePreparing, cluster.StateStarting, cluster.StateRunning, cluster.StateStopping,
		cluster.StateSucceeded, cluster.StateFailed, cluster.StateRejected, cluster.StateCancelled,
	}
	rapid.Check(t, func(t *rapid.T) {
		var a cluster.Attempt
		last := lifecycle.Shown(a).State
		var sawStop bool
		for range 12 {
			switch rapid.IntRange(0, 4).Draw(t, "writer") {
			case 0: // the scheduler
				if a.Desired == nil {
					a.Desired = desired(nil)
				}
			case 1: // the reconciler stops it
				if a.Desired != nil && a.Desired.Stop == nil {
					reason := rapid.SampledFrom(
						[]cluster.ReasonCode{cluster.ReasonRollout, cluster.ReasonTimeLimit}).Draw(t, "reason")
					a.Desired = desired(&cluster.Stop{Reason: reason})
				}
			case 2, 3: // the agent takes a step
				if a.Desired == nil {
					break
				}
				sawStop = sawStop || a.Desired.Stop != nil && rapid.Bool().Draw(t, "stop arrives")
				from := cluster.StateAssigned
				if a.Observed != nil {
					from = a.Observed.State
				}
				to := rapid.SampledFrom(agent).Draw(t, "state")
				stops := to == cluster.StateStopping || to == cluster.StateCancelled
				if !lifecycle.Follows(from, to) || stops && !sawStop {
					break
				}
				a.Observed = observed(to)
			case 4: // the reconciler writes the outcome
				var loss *lifecycle.Loss
				if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
					loss = &lifecycle.Loss{Reason: cluster.ReasonNodeDown}
				}
				if out, ok := lifecycle.Conclude(lifecycle.Ending{Attempt: a, Loss: loss}); ok {
					a.Outcome = &out
				}
			}
			now := lifecycle.Shown(a).State
			// An agent that does not know of a stop yet continues with its own order of states.
			if !lifecycle.Follows(last, now) {
				t.Fatalf("%s is shown after %s: %+v", now, last, a)
			}
			last = now
		}
	})
}

func TestConclude(t *testing.T) {
	now, began, finished := time.Unix(1000, 0), time.Unix(900, 0), time.Unix(990, 0)
	loss := &lifecycle.Loss{Reason: cluster.ReasonNodeDown, Message: "node n1 fell silent"}
	with := func(s cluster.State, change func(*cluster.Observed)) *cluster.Observed {
		o := observed(s)
		if change != nil {
			change(o)
		}
		return o
	}
	ran := func(o *cluster.Observed) { o.Started, o.Finished = began, finished }
	for _, tt := range []struct {
		name     string
		attempt  cluster.Attempt
		loss     *lifecycle.Loss
		freed    int
		ok       bool
		state    cluster.State
		started  bool
		free     bool
		endedNow bool
	}{
		{name: "nothing"},
		{name: "placed", attempt: cluster.Attempt{Desired: desired(nil)}},
		{name: "runs", attempt: cluster.Attempt{Desired: desired(nil), Observed: observed(cluster.StateRunning)}},
		{
			name: "has an outcome", loss: loss,
			attempt: cluster.Attempt{Desired: desired(nil), Outcome: &cluster.Outcome{State: cluster.StateFailed}},
		},
		{
			name: "succeeded", attempt: cluster.Attempt{
				Desired:  desired(nil),
				Observed: with(cluster.StateSucceeded, ran),
			},
			ok: true, state: cluster.StateSucceeded, started: true,
		},
		{
			name: "an end that is reported goes before a loss", loss: loss,
			attempt: cluster.Attempt{Desired: desired(nil), Observed: with(cluster.StateSucceeded, ran)},
			ok:      true, state: cluster.StateSucceeded, started: true,
		},
		{
			name: "failed", attempt: cluster.Attempt{Desired: desired(nil), Observed: with(cluster.StateFailed, ran)},
			ok: true, state: cluster.StateFailed, started: true,
		},
		{
			name: "image missing", attempt: cluster.Attempt{
				Desired: desired(nil),
				Observed: with(cluster.StateFailed, func(o *cluster.Observed) {
					o.Reason = cluster.ReasonPrepare
				}),
			}, ok: true, state: cluster.StateFailed, endedNow: true,
		},
		{
			name: "unknown exit", attempt: cluster.Attempt{
				Desired: desired(nil),
				Observed: with(cluster.StateFailed, func(o *cluster.Observed) {
					o.Reason = cluster.ReasonUnknownExit
				}),
			}, ok: true, state: cluster.StateFailed, started: true, endedNow: true,
		},
		{
			name: "rejected", attempt: cluster.Attempt{
				Desired:  desired(nil),
				Observed: observed(cluster.StateRejected),
			},
			ok: true, state: cluster.StateRejected, free: true, endedNow: true,
		},
		{
			name: "lost before it was seen", loss: loss, attempt: cluster.Attempt{Desired: desired(nil)},
			ok: true, state: cluster.StateLost, free: true, endedNow: true,
		},
		{
			name: "lost while preparing", loss: loss, freed: cluster.MaxDispatches - 1,
			attempt: cluster.Attempt{Desired: desired(nil), Observed: observed(cluster.StatePreparing)},
			ok:      true, state: cluster.StateLost, free: true, endedNow: true,
		},
		{
			name: "lost once too often", loss: loss, freed: cluster.MaxDispatches,
			attempt: cluster.Attempt{Desired: desired(nil), Observed: observed(cluster.StatePreparing)},
			ok:      true, state: cluster.StateLost, endedNow: true,
		},
		{
			name: "lost at its barrier", loss: loss,
			attempt: cluster.Attempt{Desired: desired(nil), Observed: observed(cluster.StateStarting)},
			ok:      true, state: cluster.StateLost, started: true, endedNow: true,
		},
		{
			name: "cancelled",
			attempt: cluster.Attempt{
				Desired:  desired(&cluster.Stop{Reason: cluster.ReasonDeleted}),
				Observed: with(cluster.StateCancelled, ran),
			},
			ok: true, state: cluster.StateCancelled, started: true, free: true,
		},
		{
			name:    "without a desired record",
			attempt: cluster.Attempt{Observed: with(cluster.StateCancelled, nil)},
			ok:      true, state: cluster.StateCancelled, free: true, endedNow: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, ok := lifecycle.Conclude(
				lifecycle.Ending{Attempt: tt.attempt, Loss: tt.loss, FreeLosses: tt.freed, Now: now})
			if ok != tt.ok {
				t.Fatalf("ended: %v, want %v", ok, tt.ok)
			}
			if !ok {
				return
			}
			ended := finished
			if tt.endedNow {
				ended = now
			}
			if out.State != tt.state || out.Started != tt.started || out.Free != tt.free || !out.Ended.Equal(ended) {
				t.Errorf("got %+v", out)
			}
			if out.UUID != "u2" || out.Node != "n1" || out.Attempt != 2 || out.Task != "default.web.1.0" {
				t.Errorf("the outcome does not name its attempt: %+v", out)
			}
		})
	}
}

func TestConcludeKeepsTheExitThatMatters(t *testing.T) {
	o := observed(cluster.StateFailed)
	o.Containers = []cluster.ContainerStatus{
		{Name: "init", Exit: &cluster.Exit{Code: 0, At: time.Unix(5, 0)}},
		{Name: "bad", Exit: &cluster.Exit{Code: 3, At: time.Unix(7, 0)}},
		{Name: "side", Exit: &cluster.Exit{Code: 0, At: time.Unix(8, 0)}},
		{Name: "none"},
	}
	out, _ := lifecycle.Conclude(lifecycle.Ending{Attempt: cluster.Attempt{Observed: o}})
	if out.Exit == nil || out.Exit.Code != 3 {
		t.Errorf("exit %+v, want code 3", out.Exit)
	}
}

func TestClassify(t *testing.T) {
	stop := &cluster.Stop{Reason: cluster.ReasonRollout, Message: "the new one is healthy"}
	exit := func(x cluster.Exit) *lifecycle.BadEnd { return &lifecycle.BadEnd{Container: "app", Exit: x} }
	term := exit(cluster.Exit{Code: 143, Signal: 15})
	unseen := exit(cluster.Exit{Code: -1, Unknown: true})
	for _, tt := range []struct {
		name  string
		end   lifecycle.End
		want  string
		final bool
	}{
		{"job succeeds", lifecycle.End{Cause: lifecycle.CauseExit, Batch: true}, "succeeded", false},
		{
			"job succeeds in spite of a stop",
			lifecycle.End{Cause: lifecycle.CauseExit, Batch: true, Stop: stop},
			"succeeded", true,
		},
		{
			"job fails in spite of a stop",
			lifecycle.End{Cause: lifecycle.CauseExit, Batch: true, Stop: stop, Bad: exit(cluster.Exit{Code: 3})},
			"failed exit: container app exited with code 3", true,
		},
		{
			"job stopped",
			lifecycle.End{Cause: lifecycle.CauseStop, Batch: true, Stop: stop, Bad: term},
			"cancelled rollout: the new one is healthy", true,
		},
		{
			"service stopped",
			lifecycle.End{Cause: lifecycle.CauseStop, Stop: stop, Bad: term},
			"cancelled rollout: the new one is healthy", true,
		},
		{
			"service stopped as it ended",
			lifecycle.End{Cause: lifecycle.CauseExit, Stop: stop},
			"cancelled rollout: the new one is healthy", true,
		},
		{"service exits with 0", lifecycle.End{Cause: lifecycle.CauseExit}, "succeeded", false},
		{
			"code",
			lifecycle.End{Cause: lifecycle.CauseExit, Bad: exit(cluster.Exit{Code: 3})},
			"failed exit: container app exited with code 3", false,
		},
		{
			"signal",
			lifecycle.End{Cause: lifecycle.CauseExit, Bad: exit(cluster.Exit{Code: 139, Signal: 11})},
			"failed exit: container app was ended by signal 11", false,
		},
		{
			"memory",
			lifecycle.End{Cause: lifecycle.CauseExit, Bad: exit(cluster.Exit{Code: 137, Signal: 9, OOM: true})},
			"failed oom: container app was killed for its memory limit", false,
		},
		{
			"unseen of a service",
			lifecycle.End{Cause: lifecycle.CauseExit, Unseen: true, Bad: unseen},
			"failed unknown-exit: the end of container app is unknown", false,
		},
		{
			"unseen of a job",
			lifecycle.End{Cause: lifecycle.CauseExit, Batch: true, Unseen: true, Bad: unseen},
			"failed unknown-exit: the end of container app is unknown", true,
		},
		{
			"refused after another",
			lifecycle.End{
				Cause: lifecycle.CauseExit,
				Bad:   &lifecycle.BadEnd{Container: "b", Refused: "no file", After: "a"},
			},
			"failed start-failed: container b could not be started: no file, after container a ended", false,
		},
		{
			"start in doubt of a service",
			lifecycle.End{
				Cause: lifecycle.CauseExit, Unseen: true,
				Bad: &lifecycle.BadEnd{Container: "b", Refused: "an odd answer", Exit: unseen.Exit},
			},
			"failed start-failed: container b failed to start, and may have run: an odd answer", false,
		},
		{
			"start in doubt of a job",
			lifecycle.End{
				Cause: lifecycle.CauseExit, Batch: true, Unseen: true,
				Bad: &lifecycle.BadEnd{Container: "b", Refused: "an odd answer", Exit: unseen.Exit},
			},
			"failed start-failed: container b failed to start, and may have run: an odd answer", true,
		},
		{
			"time limit",
			lifecycle.End{Cause: lifecycle.CauseTimeLimit, Batch: true, TimeLimit: time.Minute, Bad: term},
			"failed time-limit: exceeded its time_limit of 1m", true,
		},
		{
			"barrier",
			lifecycle.End{Cause: lifecycle.CauseBarrier, Batch: true, Problem: "it was replaced"},
			"rejected barrier: it was replaced", true,
		},
		{
			"prepare",
			lifecycle.End{Cause: lifecycle.CausePrepare, Problem: "no image"},
			"failed prepare: no image",
			false,
		},
		{
			"reboot of a service",
			lifecycle.End{Cause: lifecycle.CauseExit, Rebooted: true},
			"failed reboot: the machine restarted while the task ran", false,
		},
		{
			"reboot of a job",
			lifecycle.End{Cause: lifecycle.CauseExit, Batch: true, Rebooted: true, Unseen: true},
			"failed reboot: the machine restarted while the task ran", true,
		},
		{
			"reboot of a stopped job",
			lifecycle.End{Cause: lifecycle.CauseExit, Batch: true, Rebooted: true, Stop: stop},
			"cancelled rollout: the new one is healthy", true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, final := lifecycle.Classify(tt.end)
			got := strings.TrimSpace(string(v.State) + " " + string(v.Reason))
			if v.Message != "" {
				got += ": " + v.Message
			}
			if got != tt.want || final != tt.final {
				t.Errorf("got %q, final %v; want %q, %v", got, final, tt.want, tt.final)
			}
		})
	}
}

// A node whose clock is ahead of the leader's reports ends in the leader's future. The outcome ends now, and the run
// time stays as it was.
func TestEndByAClockThatIsAhead(t *testing.T) {
	now := time.Unix(1000, 0).UTC()
	for _, ahead := range []time.Duration{-time.Minute, 0, 10 * time.Minute} {
		o := &cluster.Observed{
			Task: "c.j.1.s.0", Attempt: 1, UUID: "u", State: cluster.StateFailed,
			Started: now.Add(ahead - 5*time.Second), Finished: now.Add(ahead),
		}
		out, ok := lifecycle.Conclude(lifecycle.Ending{Attempt: cluster.Attempt{Observed: o}, Now: now})
		want := now
		if ahead < 0 {
			want = now.Add(ahead)
		}
		if !ok || !out.Ended.Equal(want) || out.Ended.Sub(out.Begun) != 5*time.Second {
			t.Errorf("ahead by %v: the outcome is from %v to %v, want 5s until %v", ahead, out.Begun, out.Ended, want)
		}
	}
}
