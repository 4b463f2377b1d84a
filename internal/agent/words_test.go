package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// said tells a word to a check of an attempt, and returns what the agent says against it.
func (w *world) said(uuid, check string, word cluster.Word, message string) string {
	w.t.Helper()
	w.rev++
	conn := w.carry(fmt.Sprint("word ", w.rev), transport.StreamRequest{
		Kind: transport.StreamWord, UUID: uuid,
		Word: &transport.WordRequest{Check: check, Word: word, Message: message},
	})
	defer conn.Close()
	f, err := transport.NewFrameReader(conn).Next()
	if err != nil {
		w.t.Fatal(err)
	}
	end, err := f.End()
	if err != nil {
		w.t.Fatal(err)
	}
	w.pass(time.Second) // reports of health are not urgent
	return end.Error
}

// checked makes a definition with checks.
func checked(checks ...cluster.Check) *cluster.TaskDefinition {
	d := definition("web", "app")
	d.Checks = checks
	return d
}

func ttlCheck(meaning cluster.CheckMeaning) cluster.Check {
	return cluster.Check{
		Name: "beat", Type: cluster.CheckTTL, Meaning: meaning,
		TTL: cluster.Duration(20 * time.Second),
	}
}

func (w *world) wantHealth(when string, health cluster.Health, message string) {
	w.t.Helper()
	o := w.want("s1", cluster.StateRunning, "")
	if o.Health != health || !strings.Contains(o.Message, message) {
		w.t.Errorf("%s: %s, %q; want %s, %q", when, o.Health, o.Message, health, message)
	}
}

func TestWordsKeepATaskHealthy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck("")))
		w.pass(5 * time.Second)
		w.wantHealth("before the first word", cluster.HealthUnknown, "")
		for range 10 {
			if problem := w.said("s1", "beat", cluster.WordPass, ""); problem != "" {
				t.Fatal(problem)
			}
			w.pass(14 * time.Second)
			w.wantHealth("kept alive", cluster.HealthHealthy, "")
		}
		w.said("s1", "beat", cluster.WordWarn, "the queue is long")
		w.wantHealth("warned", cluster.HealthWarning, "readiness check beat: the queue is long")
		w.said("s1", "beat", cluster.WordPass, "")
		w.pass(30 * time.Second)
		w.wantHealth("let go", cluster.HealthFailing, "readiness check beat: nothing was said for 20s")
		w.said("s1", "beat", cluster.WordPass, "")
		w.wantHealth("heard again", cluster.HealthHealthy, "")
		w.wantEffects("app s1") // readiness restarts nothing
		for name, request := range map[string]transport.StreamRequest{
			"another check": {UUID: "s1", Word: &transport.WordRequest{Check: "bite", Word: cluster.WordPass}},
			"another task":  {UUID: "s9", Word: &transport.WordRequest{Check: "beat", Word: cluster.WordPass}},
			"another word":  {UUID: "s1", Word: &transport.WordRequest{Check: "beat", Word: "maybe"}},
			"no word":       {UUID: "s1"},
		} {
			if err := w.agent.hear(w.t.Context(), request); err == nil {
				t.Errorf("%s: the word was taken", name)
			}
		}
	})
}

// While no server can pass a word on, the silence is not the task's: nothing is lost by it, and nothing made up.
func TestWordsWithoutAServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck(cluster.MeaningLiveness),
			cluster.Check{Name: "ready", Type: cluster.CheckTTL, TTL: cluster.Duration(20 * time.Second)}))
		w.said("s1", "beat", cluster.WordPass, "")
		w.said("s1", "ready", cluster.WordWarn, "cold")
		w.server.cut(false)
		w.pass(10 * time.Minute)
		w.wantEffects("app s1")
		w.server.cut(true)
		w.pass(15 * time.Second) // it tries to come back every ten seconds
		w.wantHealth("after the servers were away", cluster.HealthWarning, "readiness check ready: cold")
		w.wantEffects("app s1")
		w.pass(20 * time.Second) // now somebody could have said something
		if o := w.want("s1", cluster.StateRunning, cluster.ReasonUnhealthy); o.Restarts != 1 ||
			!strings.Contains(o.Message, "liveness check beat failed: nothing was said") {
			t.Errorf("restarted %d times: %q", o.Restarts, o.Message)
		}
	})
}

// A server that takes no reports may take no words either: only its answer to one that was sent after the end of a TTL
// lets that pass.
func TestWordsToAServerThatHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck(cluster.MeaningLiveness)))
		w.said("s1", "beat", cluster.WordPass, "")
		var hangs atomic.Bool
		hangs.Store(true)
		w.server.mu.Lock()
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			if hangs.Load() {
				return transport.ReportReply{}, errors.New("it hangs")
			}
			return transport.ReportReply{}, nil
		}
		w.server.mu.Unlock()
		w.pass(5 * time.Minute)
		w.wantEffects("app s1")
		hangs.Store(false)
		w.pass(30 * time.Second)
		w.wantEffects("app s1", "app s1")
	})
}

func TestWordsOutliveTheAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck("")))
		w.said("s1", "beat", cluster.WordFail, "the disk is gone")
		w.restart()
		w.pass(10 * time.Second)
		w.wantHealth("a word that failed, after the agent's end", cluster.HealthFailing,
			"readiness check beat: the disk is gone")
		w.said("s1", "beat", cluster.WordPass, "")
		w.stop()
		w.pass(time.Hour) // nobody was there to be told
		w.start()
		w.pass(15 * time.Second)
		w.wantHealth("a word that passed, after an hour without an agent", cluster.HealthHealthy, "")
		w.pass(30 * time.Second)
		w.wantHealth("and its TTL later", cluster.HealthFailing, "nothing was said for 20s")
	})
}

// inChecks runs a test with an agent whose looks are answered by the test: a look at a check of which ill holds the
// name fails.
func inChecks(t *testing.T, test func(w *world, ill *atomic.Pointer[[]string])) {
	inWorld(t, func(w *world) {
		var ill atomic.Pointer[[]string]
		ill.Store(&[]string{})
		w.stop()
		w.probe = func(_ context.Context, c *cluster.Check, _ map[string]int) error {
			if slices.Contains(*ill.Load(), c.Name) {
				return errors.New("500")
			}
			return nil
		}
		w.start()
		test(w, &ill)
	})
}

func look(name string, meaning cluster.CheckMeaning, failAfter int) cluster.Check {
	return cluster.Check{
		Name: name, Type: cluster.CheckTCP, Meaning: meaning, Interval: cluster.Duration(time.Second),
		FailAfter: failAfter,
	}
}

func TestHungProgramIsRestarted(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		w.service("s1", checked(look("alive", cluster.MeaningLiveness, 3), look("ready", "", 3)))
		w.pass(10 * time.Second)
		w.wantHealth("at first", cluster.HealthHealthy, "")
		ill.Store(&[]string{"ready"})
		w.pass(time.Minute)
		w.wantHealth("not ready", cluster.HealthFailing, "readiness check ready: 500")
		w.wantEffects("app s1")
		ill.Store(&[]string{"alive"})
		w.pass(3500 * time.Millisecond)
		ill.Store(&[]string{})
		w.pass(10 * time.Second)
		o := w.want("s1", cluster.StateRunning, "")
		if o.Restarts != 1 || o.Health != cluster.HealthHealthy {
			t.Errorf("restarted %d times, %s", o.Restarts, o.Health)
		}
		w.wantEffects("app s1", "app s1")
		w.wantStory("s1", "running/healthy", "running/warning", "running/failing", "running/healthy", "starting",
			"running/healthy")
	})
}

func TestSlowStart(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		ill.Store(&[]string{"started", "alive", "ready"})
		w.service("s1", checked(look("alive", cluster.MeaningLiveness, 3), look("started", cluster.MeaningStartup, 60),
			look("ready", "", 3)))
		w.pass(50 * time.Second) // far longer than the others would bear
		w.wantHealth("while it starts", cluster.HealthUnknown, "waits for startup check started: 500")
		ill.Store(&[]string{"ready"})
		w.pass(30 * time.Second)
		w.wantHealth("started and not ready", cluster.HealthFailing, "readiness check ready: 500")
		w.restart() // what was found out about the start stays
		ill.Store(&[]string{"started"})
		w.pass(90 * time.Second)
		w.wantHealth("ready", cluster.HealthHealthy, "")
		w.wantEffects("app s1")
	})
}

func TestStartThatNeverSucceeds(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		ill.Store(&[]string{"started"})
		d := checked(look("started", cluster.MeaningStartup, 5))
		d.Restart = cluster.Restart{Limit: 2}
		w.service("s1", d)
		w.pass(2 * time.Minute)
		o := w.want("s1", cluster.StateFailed, cluster.ReasonRestartLimit)
		if !strings.Contains(o.Message, "startup check started failed 5 times in a row: 500") {
			t.Errorf("it ended with %q", o.Message)
		}
		w.wantEffects("app s1", "app s1", "app s1")
	})
}

// A job runs to success: it is not restarted in place unless its policy says so, and a check that finds it hung fails
// it.
func TestHungJob(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		w.box.programs["app"] = program{Runs: time.Hour, Code: 0}
		w.batch("b1", checked(look("alive", cluster.MeaningLiveness, 2)))
		w.pass(10 * time.Second)
		ill.Store(&[]string{"alive"})
		w.pass(30 * time.Second)
		if o := w.want("b1", cluster.StateFailed,
			cluster.ReasonUnhealthy); o.Message != "liveness check alive failed 2 times in a row: 500" {
			t.Errorf("it ended with %q", o.Message)
		}
		w.wantEffects("app b1")
	})
}
