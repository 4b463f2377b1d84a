package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logs"
)

// writeLog makes the containers of an attempt write a text into their log.
func (w *world) writeLog(uuid, container, text string) {
	w.t.Helper()
	out := logs.NewWriter(logs.Config{Dir: w.agent.node.LogDir(uuid, container)})
	if _, err := out.Stream(logs.Stderr).Write([]byte(text)); err != nil {
		w.t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// A task that restarts in place reports its last end and the end of its output until it is healthy again.
func TestCrashLoopIsReportedWithItsLastLines(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: 500 * time.Millisecond, Code: 3}
		w.service("s1", definition("web", "app"))
		w.writeLog("s1", "app", strings.Repeat("x", 2000)+"\nout of cheese\n")
		w.pass(600 * time.Millisecond)
		o := w.want("s1", cluster.StateStarting, cluster.ReasonExit)
		if !strings.HasSuffix(o.LogTail, "x\nout of cheese\n") || len(o.LogTail) > attempt.MaxCrashTail {
			t.Errorf("the end of its output, of %d bytes: %q", len(o.LogTail), o.LogTail)
		}
		if o.Message != "container app exited with code 3 (1 restart, next in 1s)" {
			t.Errorf("message %q", o.Message)
		}
		if wait := o.NextStart.Sub(o.Since); wait != time.Second {
			t.Errorf("it starts again %v after its end, want 1s", wait)
		}
		w.executor.mu.Lock()
		w.executor.programs["app"] = program{}
		w.executor.mu.Unlock()
		w.pass(time.Second)
		w.restart() // the next run of the agent reports the same
		o = w.want("s1", cluster.StateRunning, cluster.ReasonExit)
		if o.Message != "container app exited with code 3 (1 restart)" || !o.NextStart.IsZero() ||
			!strings.Contains(o.LogTail, "cheese") {
			t.Errorf("message %q, output %q", o.Message, o.LogTail)
		}
		w.pass(2 * time.Second)
		if o := w.want("s1", cluster.StateRunning, ""); o.Health != cluster.HealthHealthy || o.LogTail != "" ||
			o.Message != "" {
			t.Errorf("once healthy it still has %q and %q", o.Message, o.LogTail)
		}
	})
}

func TestKernelsKillsAreDistinguished(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: 500 * time.Millisecond, Code: 137, OOM: true}
		def := definition("web", "app")
		def.Restart.Limit = 2
		w.service("s1", def)
		w.writeLog("s1", "app", "allocating\n")
		w.pass(600 * time.Millisecond)
		o := w.want("s1", cluster.StateStarting, cluster.ReasonOOM)
		if !strings.Contains(o.Message, "killed for its memory limit") || o.Containers[0].OOMs != 1 {
			t.Errorf("message %q, containers %+v", o.Message, o.Containers)
		}
		w.pass(time.Minute)
		o = w.want("s1", cluster.StateFailed, cluster.ReasonRestartLimit)
		if want := "container app was killed for its memory limit; gave up after 2 restarts within 10m; " +
			"killed for its memory limit 3 times"; o.Message != want {
			t.Errorf("message %q\n   want %q", o.Message, want)
		}
		if o.LogTail != "allocating\n" {
			t.Errorf("output %q", o.LogTail)
		}
	})
}

// The reported message follows the answers of a failing check, at a limited pace.
func TestMessageFollowsAFailingCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		answer := "answered 500"
		w.probe = func(context.Context, *cluster.Check, map[string]int) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			return errors.New(answer)
		}
		w.restart()
		def := definition("web", "app")
		def.Checks = []cluster.Check{{Name: "up", Type: cluster.CheckTCP, Interval: cluster.Duration(time.Second)}}
		w.service("s1", def)
		w.pass(5 * time.Second)
		if o := w.want("s1", cluster.StateRunning, ""); o.Health != cluster.HealthFailing ||
			!strings.Contains(o.Message, "answered 500") {
			t.Errorf("%s with %q", o.Health, o.Message)
		}
		w.mu.Lock()
		answer = "answered 503"
		w.mu.Unlock()
		w.pass(10 * time.Second)
		if o := w.want("s1", cluster.StateRunning, ""); o.Health != cluster.HealthFailing ||
			!strings.Contains(o.Message, "answered 503") {
			t.Errorf("after another answer: %s with %q", o.Health, o.Message)
		}
	})
}

// The end after the restart limit does not wait for the next heartbeat.
func TestRestartLimitIsReportedImmediately(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: 2700 * time.Millisecond, Code: 1}
		def := definition("web", "app")
		def.Restart.Limit = 1
		w.service("s1", def)
		w.pass(6500*time.Millisecond - 55*time.Millisecond) // 2.7 s, 1 s of back-off, 2.7 s
		w.want("s1", cluster.StateFailed, cluster.ReasonRestartLimit)
	})
}
