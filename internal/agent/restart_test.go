package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

func TestRestartInPlaceBacksOffWithoutServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: 500 * time.Millisecond, Code: 1}
		def := definition("web", "app")
		def.Restart.Limit = 3
		w.service("s1", def)
		w.server.cut(false)
		var counts []int
		// Runs of 0.5 s, between them 1, 2 and 4 s.
		for range 10 {
			w.pass(time.Second)
			w.executor.mu.Lock()
			counts = append(counts, len(w.executor.effects))
			w.executor.mu.Unlock()
		}
		want := []int{1, 2, 2, 3, 3, 3, 3, 3, 4, 4}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("starts after each second (-want +got):\n%s", diff)
		}
		w.server.cut(true)
		w.pass(time.Minute)
		o := w.want("s1", cluster.StateFailed, cluster.ReasonRestartLimit)
		if o.Restarts != 3 || o.Containers[0].Restarts != 3 || o.Message == "" {
			t.Errorf("after the limit: %+v", o)
		}
		w.wantEffects("app s1", "app s1", "app s1", "app s1")
	})
}

func TestRestartPolicy(t *testing.T) {
	for _, test := range []struct {
		kind   cluster.Kind
		mode   cluster.RestartMode
		code   int
		starts int // within a minute, with a limit of 2
		state  cluster.State
		reason cluster.ReasonCode
	}{
		{cluster.KindService, "", 0, 3, cluster.StateFailed, cluster.ReasonRestartLimit},
		{cluster.KindService, cluster.RestartAlways, 1, 3, cluster.StateFailed, cluster.ReasonRestartLimit},
		{cluster.KindService, cluster.RestartOnFailure, 0, 1, cluster.StateSucceeded, ""},
		{cluster.KindService, cluster.RestartOnFailure, 1, 3, cluster.StateFailed, cluster.ReasonRestartLimit},
		{cluster.KindService, cluster.RestartNever, 1, 1, cluster.StateFailed, cluster.ReasonExit},
		{cluster.KindJob, "", 1, 1, cluster.StateFailed, cluster.ReasonExit},
		{cluster.KindJob, "", 0, 1, cluster.StateSucceeded, ""},
		{cluster.KindJob, cluster.RestartOnFailure, 1, 3, cluster.StateFailed, cluster.ReasonRestartLimit},
		{cluster.KindJob, cluster.RestartOnFailure, 0, 1, cluster.StateSucceeded, ""},
	} {
		t.Run(fmt.Sprintf("%s %s %d", test.kind, test.mode, test.code), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.executor.programs["app"] = program{Runs: time.Second, Code: test.code}
				def := definition("web", "app")
				def.Restart = cluster.Restart{Mode: test.mode, Limit: 2}
				w.assign(w.desired("u1", def, test.kind), def)
				w.pass(time.Minute)
				w.want("u1", test.state, test.reason)
				if n := len(w.executor.effects); n != test.starts {
					t.Errorf("started %d times, want %d", n, test.starts)
				}
			})
		})
	}
}

func TestStopBeatsRestart(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"while it runs":       200 * time.Millisecond,
		"during back-off":     time.Second,
		"while it runs again": 1600 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.executor.programs["app"] = program{Runs: 500 * time.Millisecond, Code: 1}
				d := w.service("s1", definition("web", "app"))
				w.pass(after - 50*time.Millisecond)
				before := len(w.executor.effects)
				w.stopTask(d, false)
				w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
				w.restart()
				d.Stop = nil // a server that forgot the stop
				w.sendAgain(d)
				w.pass(time.Hour)
				w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
				if n := len(w.executor.effects); n != before {
					t.Errorf("started %d times after the stop", n-before)
				}
			})
		})
	}
}

func TestRebootEndsBatchAndRestartsServices(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		w.batch("b1", definition("work", "app"))
		w.stop()
		w.executor.reboot()
		w.boot = "boot-2"
		w.began = time.Now().Add(-30 * time.Minute) // the clock of this boot is behind that of the last
		w.start()
		w.pass(10 * time.Second)
		w.want("b1", cluster.StateFailed, cluster.ReasonBootChanged)
		o := w.want("s1", cluster.StateRunning, "")
		if o.Restarts != 1 {
			t.Errorf("the service was restarted %d times, want 1", o.Restarts)
		}
		w.wantEffects("app s1", "app b1", "app s1")
	})
}

func TestUnknownExit(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "app")
		def.Restart.Mode = cluster.RestartAlways // not even then (P4.4)
		w.batch("b1", def)
		w.service("s1", definition("web", "app"))
		w.stop()
		w.executor.reboot() // the containers disappear without a reboot
		w.start()
		w.pass(10 * time.Second)
		w.want("b1", cluster.StateFailed, cluster.ReasonUnknownExit)
		w.want("s1", cluster.StateRunning, "")
		w.wantEffects("app b1", "app s1", "app s1")
	})
}

func TestPrepareFailures(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs[""] = program{Prepare: fmt.Errorf("no such image")}
		def := definition("web", "app")
		def.Restart.Limit = 2
		w.service("s1", def)
		w.batch("b1", definition("work", "app"))
		w.want("b1", cluster.StateRejected, cluster.ReasonPrepare)
		w.want("s1", cluster.StatePreparing, cluster.ReasonPrepare)
		w.pass(time.Minute)
		w.want("s1", cluster.StateFailed, cluster.ReasonRestartLimit)
		w.wantEffects()
	})
}

func TestStartRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs[""] = program{Start: executor.NotStarted(fmt.Errorf("no such program"))}
		w.batch("b1", definition("work", "app"))
		o := w.want("b1", cluster.StateFailed, cluster.ReasonStartFailed)
		if o.Message != "container app could not be started: no such program" {
			t.Errorf("message %q", o.Message)
		}
		again := definition("again", "app")
		again.Restart.Mode, again.Restart.Limit = cluster.RestartOnFailure, 2
		w.batch("b2", again)
		w.pass(time.Minute)
		if o := w.want("b2", cluster.StateFailed, cluster.ReasonRestartLimit); o.Restarts != 2 {
			t.Errorf("%d restarts of what certainly did not run, want 2", o.Restarts)
		}
		w.wantEffects()
	})
}

// A program that does not exist ends the attempt at once, whatever the restart policy: the next round would not find it
// either. The executor says so when it prepares the container, or when it starts it.
func TestNoProgram(t *testing.T) {
	missing := executor.NoProgram(fmt.Errorf("no program %q in PATH /bin", "run"))
	for name, p := range map[string]program{"prepare": {Prepare: missing}, "start": {Start: missing}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.executor.programs["app"] = p
				def := definition("work", "side", "app")
				def.Restart.Mode, def.Restart.Limit = cluster.RestartOnFailure, 5
				w.batch("b1", def)
				always := definition("web", "side", "app")
				always.Restart.Mode = cluster.RestartAlways
				w.service("s1", always)
				w.pass(time.Second)
				for _, id := range []cluster.TaskID{"b1", "s1"} {
					o := w.want(string(id), cluster.StateFailed, cluster.ReasonNoProgram)
					want := `container app cannot run on node n1: no program "run" in PATH /bin`
					if o.Message != want || o.Restarts != 0 {
						t.Errorf("%s: %d restarts, message %q, want none and %q", id, o.Restarts, o.Message, want)
					}
				}
				w.stop() // the end is durable
				w.start()
				w.pass(time.Hour)
				w.want("b1", cluster.StateFailed, cluster.ReasonNoProgram)
				w.want("s1", cluster.StateFailed, cluster.ReasonNoProgram)
				if n := w.executor.running(); n != 0 {
					t.Errorf("%d programs of ended attempts run", n)
				}
			})
		})
	}
}

// A start with an unknown result may have run the program: a batch task does not run it again (T16).
func TestStartInDoubt(t *testing.T) {
	for _, doubt := range []error{fmt.Errorf("an odd answer"), executor.ErrNotFound} {
		inWorld(t, func(w *world) {
			w.executor.programs[""] = program{Doubt: doubt, Runs: time.Hour}
			def := definition("work", "app")
			def.Restart.Mode, def.Restart.Limit = cluster.RestartOnFailure, 3
			w.batch("b1", def)
			o := w.want("b1", cluster.StateFailed, cluster.ReasonStartFailed)
			want := "container app failed to start, and may have run: " + doubt.Error()
			if o.Message != want || o.Started.IsZero() {
				t.Errorf("message %q, started %v, want %q and when", o.Message, o.Started, want)
			}
			w.pass(time.Minute)
			w.wantEffects("app b1")
		})
	}
}
