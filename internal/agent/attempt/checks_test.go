package attempt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// drawChecks draws the checks of the model's definition.
func drawChecks(t *rapid.T) (all []cluster.Check) {
	meanings := []cluster.CheckMeaning{"", cluster.MeaningReadiness, cluster.MeaningLiveness, cluster.MeaningStartup}
	for i := range rapid.IntRange(0, 3).Draw(t, "checks") {
		c := cluster.Check{
			Name: fmt.Sprint("k", i), Type: cluster.CheckTCP,
			Meaning: rapid.SampledFrom(meanings).Draw(t, "meaning"),
		}
		if rapid.IntRange(0, 2).Draw(t, "ttl") == 0 {
			c.Type, c.TTL = cluster.CheckTTL, cluster.Duration(20*time.Second)
		}
		all = append(all, c)
	}
	return all
}

// checks draws the results and updates of the checks, and the agent's TTL window.
func (m *model) checks() {
	events := []string{"probe", "probe", "probe", "update", "session", "answer", "deaf"}
	switch happened := rapid.SampledFrom(events).Draw(m.T, "happened"); happened {
	case "session":
		m.rec.TTLWindow = lifecycle.TTLWindow{Since: m.clock}
	case "answer":
		if m.rec.TTLWindow.Since != 0 {
			m.rec.TTLWindow.Until = m.clock
		}
		if m.rec.Checks(m.def).HasDoubted(m.now()) {
			m.Fatal("doubts what was just answered")
		}
		m.expect()
	case "deaf":
		m.rec.TTLWindow = lifecycle.TTLWindow{}
	default:
		if len(m.def.Checks) == 0 {
			return
		}
		i := rapid.IntRange(0, len(m.def.Checks)-1).Draw(m.T, "check")
		c := &m.def.Checks[i]
		if happened == "update" {
			word := rapid.SampledFrom([]cluster.TTLUpdate{
				cluster.TTLPass, cluster.TTLPass, cluster.TTLWarn,
				cluster.TTLFail,
			}).Draw(m.T, "word")
			if _, err := m.rec.Checks(m.def).Update(c.Name, word, "so", m.now()); err == nil &&
				word == cluster.TTLFail {
				m.found(i)
			}
			return
		}
		if c.Type == cluster.CheckTTL {
			return
		}
		round := m.rec.Round - rapid.IntRange(0, 1).Draw(m.T, "late")
		state := lifecycle.CheckState{Health: rapid.SampledFrom([]cluster.Health{
			cluster.HealthHealthy, cluster.HealthHealthy, cluster.HealthWarning, cluster.HealthFailing,
		}).Draw(m.T, "health")}
		report := CheckReport{Round: round, Check: i, State: state, Complaint: "so"}
		if m.rec.Checks(m.def).Report(report); round == m.rec.Round &&
			state.Health == cluster.HealthFailing {
			m.found(i)
		}
	}
}

// found records a failed probe; a failed readiness check ends nothing.
func (m *model) found(i int) {
	if m.def.Checks[i].EffectiveMeaning() != cluster.MeaningReadiness {
		m.failed[m.rec.Round] = true
	}
}

// expect records the checks that expire now.
func (m *model) expect() {
	moment := transition{m.rec, m.def, m.now()}
	round := moment.round()
	for i := range m.def.Checks {
		if e, _ := lifecycle.Expires(&round, i); m.rec.IsUp() && e == lifecycle.Expired {
			m.found(i)
		}
	}
}

// watched is a service's attempt of one container whose checks a test controls.
type watched struct {
	t   *testing.T
	rec *Record
	def *cluster.TaskDefinition
	now Now
}

// up returns an attempt with a running container.
func up(t *testing.T, checks ...cluster.Check) *watched {
	t.Helper()
	for i := range checks {
		checks[i].Name = fmt.Sprint("k", i)
	}
	w := &watched{
		t: t, now: noon,
		def: &cluster.TaskDefinition{Containers: []cluster.Container{{Name: "a"}}, Checks: checks},
	}
	w.rec = New(cluster.Desired{UUID: "u", Owner: cluster.OwnerRef{Kind: cluster.KindService}}, 1, "boot")
	w.rec.TTLWindow = lifecycle.TTLWindow{Since: noon.Boot, Until: noon.Boot}
	w.next()
	w.rec.Admitted("x", w.def)
	w.begin()
	return w
}

// begin takes the steps of a round until its container runs.
func (w *watched) begin() {
	w.t.Helper()
	w.rec.WasPrepared(0)
	w.rec.PortsProbed()
	if s := w.next(); s.Do != Launch {
		w.t.Fatalf("want a launch, got %+v", s)
	}
	w.rec.WasStarted(0, executor.Process{Pid: 1}, w.now)
	w.next()
}

func (w *watched) next() Step { return w.rec.Next(w.def, w.now) }

func (w *watched) pass(d time.Duration) {
	w.now.Boot += d
	w.now.Wall = w.now.Wall.Add(d)
}

// probed reports results of a check, "+" and "-", by the check's own limit, and returns the next step.
func (w *watched) probed(i int, letters string) Step {
	var state lifecycle.CheckState
	if i < len(w.rec.CheckResults) {
		state = w.rec.CheckResults[i].CheckState
	}
	for _, l := range letters {
		state = lifecycle.NextHealth(state, l == '+', w.def.Checks[i].FailAfter)
		complaint := ""
		if l == '-' {
			complaint = "500"
		}
		w.rec.Checks(w.def).Report(CheckReport{Round: w.rec.Round, Check: i, State: state, Complaint: complaint})
		w.next()
	}
	return w.next()
}

// shows fails unless the attempt is reported with these values.
func (w *watched) shows(state cluster.State, health cluster.Health, message string) {
	w.t.Helper()
	if o := w.rec.Observed(w.def); o.State != state || o.Health != health || !strings.Contains(o.Message, message) {
		w.t.Errorf("shown as %s and %s, %q; want %s and %s, %q", o.State, o.Health, o.Message, state, health, message)
	}
}

func TestLivenessRestartsInPlace(t *testing.T) {
	w := up(t, cluster.Check{Meaning: cluster.MeaningLiveness}, cluster.Check{})
	w.probed(1, "+")
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
	if s := w.probed(0, "--"); s.Do != Wait {
		t.Fatalf("after two failures it wants %+v", s)
	}
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
	if s := w.probed(0, "-"); s.Do != Signal {
		t.Fatalf("after three failures it wants %+v, want a signal", s)
	}
	const cause = "liveness check k0 failed 3 times in a row: 500"
	w.shows(cluster.StateRunning, cluster.HealthUnknown, cause) // not stopping: it continues in place
	w.rec.HasExited("u-0-1", cluster.Exit{Code: 137, Signal: 9}, w.now)
	if s := w.next(); s.Do != Tail || s.Container != 0 {
		t.Fatalf("want the end of its output to be read, got %+v", s)
	}
	w.rec.Tailed("stuck")
	w.next()
	w.shows(cluster.StateStarting, cluster.HealthUnknown, cause+" (1 restart, next in 1s)")
	if o := w.rec.Observed(w.def); o.Restarts != 1 || o.Reason != cluster.ReasonUnhealthy || o.LogTail != "stuck" {
		t.Errorf("restarted %d times for %q, its last output %q", o.Restarts, o.Reason, o.LogTail)
	}
	w.pass(time.Second)
	w.next()
	w.begin()
	w.shows(cluster.StateRunning, cluster.HealthUnknown, cause+" (1 restart)")
	w.probed(1, "+") // results of the round before do not count
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
}

func TestLivenessFollowsThePolicy(t *testing.T) {
	w := up(t, cluster.Check{Meaning: cluster.MeaningLiveness, FailAfter: 1})
	w.def.Restart.Mode = cluster.RestartNever
	w.probed(0, "-")
	w.rec.HasExited("u-0-1", cluster.Exit{Code: 0}, w.now) // it exits with 0 at TERM, but was not healthy
	w.next()
	w.rec.Closed("")
	if o := w.rec.Observed(w.def); o.State != cluster.StateFailed || o.Reason != cluster.ReasonUnhealthy ||
		o.Message != "liveness check k0 failed: 500" {
		t.Errorf("ended as %s (%s), %q", o.State, o.Reason, o.Message)
	}
}

func TestReadinessRestartsNothing(t *testing.T) {
	w := up(t, cluster.Check{Meaning: cluster.MeaningReadiness})
	if s := w.probed(0, strings.Repeat("-", 50)); s.Do != Wait {
		t.Errorf("it wants %+v", s)
	}
	w.shows(cluster.StateRunning, cluster.HealthFailing, "readiness check k0: 500")
}

func TestOthersWaitForTheStart(t *testing.T) {
	w := up(t, cluster.Check{Meaning: cluster.MeaningLiveness},
		cluster.Check{Meaning: cluster.MeaningStartup, FailAfter: 5}, cluster.Check{})
	watches := func(want ...int) {
		t.Helper()
		if diff := cmp.Diff(want, w.rec.Checks(w.def).Watched()); diff != "" {
			t.Errorf("probed (-want +got):\n%s", diff)
		}
	}
	watches(1)
	w.probed(1, "----")
	w.shows(cluster.StateRunning, cluster.HealthUnknown, "waiting for startup check k1: 500")
	w.pass(time.Hour)
	if s := w.probed(1, "+"); s.Do != Wait {
		t.Fatalf("want to wait, got %+v", s)
	}
	watches(0, 2)
	w.shows(cluster.StateRunning, cluster.HealthUnknown, "")
	w.probed(2, "+")
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
	w.rec.Recover(map[executor.ID]executor.Status{"u-0-1": {ID: "u-0-1", State: executor.StateRunning}}, "boot", w.now)
	w.next()
	watches(0, 2) // a restart of the agent does not repeat the startup checks
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
}

func TestStartBeyondItsLimit(t *testing.T) {
	w := up(t, cluster.Check{Meaning: cluster.MeaningStartup, FailAfter: 5})
	if s := w.probed(0, "-----"); s.Do != Signal {
		t.Fatalf("want a signal, got %+v", s)
	}
	w.shows(cluster.StateRunning, cluster.HealthUnknown, "startup check k0 failed 5 times in a row: 500")
}

func TestHealthyAfterItsStartWithoutReadiness(t *testing.T) {
	w := up(t, cluster.Check{Meaning: cluster.MeaningStartup})
	w.pass(time.Hour)
	w.next()
	w.shows(cluster.StateRunning, cluster.HealthUnknown, "")
	w.probed(0, "+")
	w.shows(cluster.StateRunning, cluster.HealthUnknown, "") // P4.7: for its minimum healthy time
	w.pass(time.Second)
	w.next()
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
}

func ttl(m cluster.CheckMeaning) cluster.Check {
	return cluster.Check{Type: cluster.CheckTTL, TTL: cluster.Duration(10 * time.Second), Meaning: m}
}

func TestTTLUpdates(t *testing.T) {
	w := up(t, ttl(""))
	say := func(word cluster.TTLUpdate, message string, changes bool) {
		t.Helper()
		if changed, err := w.rec.Checks(w.def).Update("k0", word, message, w.now); err != nil || changed != changes {
			t.Errorf("%s: changed %v, %v; want %v", word, changed, err, changes)
		}
		w.next()
	}
	w.shows(cluster.StateRunning, cluster.HealthUnknown, "")
	say(cluster.TTLPass, "fine", true)
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
	say(cluster.TTLPass, "still fine", false) // no change that must be durable
	say(cluster.TTLWarn, "slow", true)
	w.shows(cluster.StateRunning, cluster.HealthWarning, "readiness check k0: slow")
	say(cluster.TTLFail, "stuck", true)
	w.shows(cluster.StateRunning, cluster.HealthFailing, "readiness check k0: stuck")
	say(cluster.TTLPass, "", true)
	w.pass(11 * time.Second)
	if s := w.next(); s.Do != Wait || s.At != w.now.Boot+doubtRecheckInterval ||
		!w.rec.Checks(w.def).HasDoubted(w.now) {
		t.Errorf("it wants %+v, want another decision soon", s)
	}
	w.shows(cluster.StateRunning, cluster.HealthHealthy, "")
	w.rec.TTLWindow.Until = w.now.Boot
	w.next()
	w.shows(cluster.StateRunning, cluster.HealthFailing, "readiness check k0: no update for 10s")
	if w.rec.Checks(w.def).HasDoubted(w.now) {
		t.Error("it doubts what it decided")
	}
	for name, check := range map[string]string{"no check": "k1", "another type": "k2"} {
		w.def.Checks = append(w.def.Checks[:1], cluster.Check{Name: "k2", Type: cluster.CheckTCP})
		if _, err := w.rec.Checks(w.def).Update(check, cluster.TTLPass, "", w.now); err == nil {
			t.Errorf("%s: the update was accepted", name)
		}
	}
}

func TestTTLUpdatesOfAFormerRound(t *testing.T) {
	w := up(t, ttl(cluster.MeaningLiveness))
	if _, err := w.rec.Checks(w.def).Update("k0", cluster.TTLFail, "", w.now); err != nil {
		t.Fatal(err)
	}
	if s := w.next(); s.Do != Signal {
		t.Fatalf("want a signal, got %+v", s)
	}
	if _, err := w.rec.Checks(w.def).Update("k0", cluster.TTLPass, "", w.now); err == nil {
		t.Error("an update for a round that ends was accepted")
	}
	w.rec.HasExited("u-0-1", cluster.Exit{Code: 1}, w.now)
	w.next()
	w.rec.Tailed("")
	w.pass(time.Minute)
	w.next()
	w.rec.TTLWindow.Until = w.now.Boot
	w.begin()
	if s := w.next(); s.Do != Wait || s.At == 0 {
		t.Errorf("an update of the previous round counts in this one: it wants %+v", s)
	}
}
