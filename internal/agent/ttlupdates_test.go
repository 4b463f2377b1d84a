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

// sendTTLUpdate sends an update to a ttl check of an attempt, and returns the agent's error.
func (w *world) sendTTLUpdate(uuid, check string, word cluster.TTLUpdate, message string) string {
	w.t.Helper()
	return w.requestTTLUpdate(uuid, &transport.WordRequest{Check: check, Word: word, Message: message})
}

// requestTTLUpdate sends a request for an update and returns the problem in the answer.
func (w *world) requestTTLUpdate(uuid string, r *transport.WordRequest) string {
	w.t.Helper()
	w.rev++
	conn := w.carry(fmt.Sprint("word ", w.rev),
		transport.StreamRequest{Kind: transport.StreamTTLUpdate, UUID: uuid, Word: r})
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

// checked returns a definition with checks.
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

func TestTTLUpdatesKeepATaskHealthy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck("")))
		w.pass(5 * time.Second)
		w.wantHealth("before the first update", cluster.HealthUnknown, "")
		for range 10 {
			if problem := w.sendTTLUpdate("s1", "beat", cluster.TTLPass, ""); problem != "" {
				t.Fatal(problem)
			}
			w.pass(14 * time.Second)
			w.wantHealth("kept alive", cluster.HealthHealthy, "")
		}
		w.sendTTLUpdate("s1", "beat", cluster.TTLWarn, "the queue is long")
		w.wantHealth("warned", cluster.HealthWarning, "readiness check beat: the queue is long")
		w.sendTTLUpdate("s1", "beat", cluster.TTLPass, "")
		w.pass(30 * time.Second)
		w.wantHealth("expired", cluster.HealthFailing, "readiness check beat: no update for 20s")
		w.sendTTLUpdate("s1", "beat", cluster.TTLPass, "")
		w.wantHealth("updated again", cluster.HealthHealthy, "")
		w.wantEffects("app s1") // readiness restarts nothing
		for name, request := range map[string]transport.StreamRequest{
			"another check": {UUID: "s1", Word: &transport.WordRequest{Check: "bite", Word: cluster.TTLPass}},
			"another task":  {UUID: "s9", Word: &transport.WordRequest{Check: "beat", Word: cluster.TTLPass}},
			"another word":  {UUID: "s1", Word: &transport.WordRequest{Check: "beat", Word: "maybe"}},
			"no word":       {UUID: "s1"},
		} {
			if problem := w.requestTTLUpdate(request.UUID, request.Word); problem == "" {
				t.Errorf("%s: the update was accepted", name)
			}
		}
	})
}

// Without a server that passes on updates, silence is not the task's fault: no check expires.
func TestTTLUpdatesWithoutAServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck(cluster.MeaningLiveness),
			cluster.Check{Name: "ready", Type: cluster.CheckTTL, TTL: cluster.Duration(20 * time.Second)}))
		w.sendTTLUpdate("s1", "beat", cluster.TTLPass, "")
		w.sendTTLUpdate("s1", "ready", cluster.TTLWarn, "cold")
		w.server.cut(false)
		w.pass(10 * time.Minute)
		w.wantEffects("app s1")
		w.server.cut(true)
		w.pass(15 * time.Second) // the agent tries to reconnect every ten seconds
		w.wantHealth("after the servers were away", cluster.HealthWarning, "readiness check ready: cold")
		w.wantEffects("app s1")
		w.pass(20 * time.Second) // updates could arrive in this time
		if o := w.want("s1", cluster.StateRunning, cluster.ReasonUnhealthy); o.Restarts != 1 ||
			!strings.Contains(o.Message, "liveness check beat failed: no update") {
			t.Errorf("restarted %d times: %q", o.Restarts, o.Message)
		}
	})
}

// A server that accepts no reports may pass on no updates either. A TTL expires only after the answer to a report that
// was sent after its end.
func TestTTLUpdatesToAHangingServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck(cluster.MeaningLiveness)))
		w.sendTTLUpdate("s1", "beat", cluster.TTLPass, "")
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

func TestTTLUpdatesOutliveTheAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", checked(ttlCheck("")))
		w.sendTTLUpdate("s1", "beat", cluster.TTLFail, "the disk is gone")
		w.restart()
		w.pass(10 * time.Second)
		w.wantHealth("a failed update, after the agent's end", cluster.HealthFailing,
			"readiness check beat: the disk is gone")
		w.sendTTLUpdate("s1", "beat", cluster.TTLPass, "")
		w.stop()
		w.pass(time.Hour) // no update could arrive
		w.start()
		w.pass(15 * time.Second)
		w.wantHealth("a passed update, after an hour without an agent", cluster.HealthHealthy, "")
		w.pass(30 * time.Second)
		w.wantHealth("and its TTL later", cluster.HealthFailing, "no update for 20s")
	})
}

// inChecks runs a test with an agent whose probes the test answers: a probe of a check named in ill fails.
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

func probedCheck(name string, meaning cluster.CheckMeaning, failAfter int) cluster.Check {
	return cluster.Check{
		Name: name, Type: cluster.CheckTCP, Meaning: meaning, Interval: cluster.Duration(time.Second),
		FailAfter: failAfter,
	}
}

func TestHungProgramIsRestarted(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		w.service("s1", checked(probedCheck("alive", cluster.MeaningLiveness, 3), probedCheck("ready", "", 3)))
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
		w.wantStates("s1", "running/healthy", "running/warning", "running/failing", "running/healthy", "starting",
			"running/healthy")
	})
}

func TestSlowStart(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		ill.Store(&[]string{"started", "alive", "ready"})
		w.service("s1", checked(probedCheck("alive", cluster.MeaningLiveness, 3),
			probedCheck("started", cluster.MeaningStartup, 60),
			probedCheck("ready", "", 3)))
		w.pass(50 * time.Second) // far longer than the other checks allow
		w.wantHealth("while it starts", cluster.HealthUnknown, "waiting for startup check started: 500")
		ill.Store(&[]string{"ready"})
		w.pass(30 * time.Second)
		w.wantHealth("started and not ready", cluster.HealthFailing, "readiness check ready: 500")
		w.restart() // the result of the startup checks stays
		ill.Store(&[]string{"started"})
		w.pass(90 * time.Second)
		w.wantHealth("ready", cluster.HealthHealthy, "")
		w.wantEffects("app s1")
	})
}

func TestStartThatNeverSucceeds(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		ill.Store(&[]string{"started"})
		d := checked(probedCheck("started", cluster.MeaningStartup, 5))
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

// A job runs to success: it restarts in place only if its policy says so. A check that finds it hung fails it.
func TestHungJob(t *testing.T) {
	inChecks(t, func(w *world, ill *atomic.Pointer[[]string]) {
		w.executor.programs["app"] = program{Runs: time.Hour, Code: 0}
		w.batch("b1", checked(probedCheck("alive", cluster.MeaningLiveness, 2)))
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
