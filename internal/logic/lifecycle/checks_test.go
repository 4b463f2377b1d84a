package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// checksOf makes checks named after their meanings, or after their types if these are ttl.
func checksOf(texts ...string) (all []cluster.Check) {
	for _, text := range texts {
		name, ttl := strings.CutPrefix(text, "ttl ")
		c := cluster.Check{
			Name: "c" + fmt.Sprint(len(all)), Type: cluster.CheckHTTP,
			Meaning: cluster.CheckMeaning(name),
		}
		if ttl {
			c.Type, c.TTL = cluster.CheckTTL, cluster.Duration(10*time.Second)
		}
		all = append(all, c)
	}
	return all
}

// recordsOf reads one letter for each check: "+" healthy, "!" in warning, "-" failing, "?" without a result.
func recordsOf(letters string) (all []lifecycle.CheckRecord) {
	for _, l := range letters {
		var record lifecycle.CheckRecord
		switch l {
		case '+':
			record.Health = cluster.HealthHealthy
		case '!':
			record.Health, record.Failures, record.Complaint = cluster.HealthWarning, 1, "500"
		case '-':
			record.Health, record.Failures, record.Complaint = cluster.HealthFailing, 3, "500"
		}
		all = append(all, record)
	}
	return all
}

func TestCombinedHealthOfChecks(t *testing.T) {
	for _, tt := range []struct {
		name    string
		checks  []cluster.Check
		records string
		through bool // the startup checks had succeeded already
		want    lifecycle.Checked
	}{
		{"no checks", nil, "", true, lifecycle.Checked{Health: "unknown", Started: true}},
		{"no results yet", checksOf(""), "", true, lifecycle.Checked{Health: "unknown", Started: true}},
		{
			"an empty meaning is readiness", checksOf(""), "-", true,
			lifecycle.Checked{Health: "failing", Started: true, Note: "readiness check c0: 500"},
		},
		{
			"the worst readiness check counts, and all that are not healthy are named",
			checksOf("readiness", "readiness", "readiness"),
			"+!-", true,
			lifecycle.Checked{
				Health: "failing", Started: true,
				Note: "readiness check c1: 500; readiness check c2: 500",
			},
		},
		{
			"liveness is no part of health", checksOf("liveness", "readiness"), "!+", true,
			lifecycle.Checked{Health: "healthy", Started: true},
		},
		{
			"liveness alone leaves health open", checksOf("liveness"), "+", true,
			lifecycle.Checked{Health: "unknown", Started: true},
		},
		{
			"failing liveness ends the round", checksOf("liveness", "readiness"), "-+", true,
			lifecycle.Checked{
				Health: "healthy", Started: true,
				Fatal: "liveness check c0 failed 3 times in a row: 500",
			},
		},
		{
			"before the start is through nothing else counts", checksOf("startup", "liveness", "readiness"), "!-+",
			false,
			lifecycle.Checked{Health: "unknown", Note: "waiting for startup check c0: 500"},
		},
		{
			"a start beyond its limit ends the round", checksOf("startup", "readiness"), "-+", false,
			lifecycle.Checked{
				Health: "unknown", Note: "waiting for startup check c0: 500",
				Fatal: "startup check c0 failed 3 times in a row: 500",
			},
		},
		{
			"each startup check has to succeed", checksOf("startup", "startup", "readiness"), "+??", false,
			lifecycle.Checked{Health: "unknown", Note: "waiting for startup check c1"},
		},
		{
			"a start that is waited for by words", checksOf("ttl startup"), "?", false,
			lifecycle.Checked{Health: "unknown", Note: "waiting for startup check c0: no update yet"},
		},
		{
			"the start is through with its last check", checksOf("startup", "readiness"), "++", false,
			lifecycle.Checked{Health: "healthy", Started: true},
		},
		{
			"a start that was through stays so", checksOf("startup", "readiness"), "-+", true,
			lifecycle.Checked{Health: "healthy", Started: true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := lifecycle.Round{Checks: tt.checks, Records: recordsOf(tt.records), Up: 1, Now: time.Hour}
			if tt.through {
				r.Through = 1
			}
			if diff := cmp.Diff(tt.want, lifecycle.Judge(&r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTTLUpdatesExpire(t *testing.T) {
	const up, hour = time.Hour, time.Hour
	s := func(n int) time.Duration { return hour + time.Duration(n)*time.Second }
	for _, tt := range []struct {
		name   string
		change func(*lifecycle.Round)
		now    time.Duration
		want   lifecycle.Expiry
		at     time.Duration
	}{
		{"no update yet, and there is time", func(*lifecycle.Round) {}, s(9), lifecycle.Valid, s(10)},
		{"no update in time", func(r *lifecycle.Round) {
			r.TTLWindow.Until = s(11)
		}, s(12), lifecycle.Expired, 0},
		{"a valid update", func(r *lifecycle.Round) { r.Records[0].UpdatedAt = s(5) }, s(12), lifecycle.Valid, s(15)},
		{"no server has answered since", func(r *lifecycle.Round) {
			r.TTLWindow.Until = s(9)
		}, s(60), lifecycle.Unconfirmed, 0},
		{"without a session nothing expires", func(r *lifecycle.Round) {
			r.TTLWindow.Since = 0
		}, s(600), lifecycle.Valid, 0},
		{"a new session restarts the time", func(r *lifecycle.Round) {
			r.TTLWindow = lifecycle.TTLWindow{Since: s(100)}
		}, s(105), lifecycle.Valid, s(110)},
		{"the initial delay comes before", func(r *lifecycle.Round) {
			r.Checks[0].InitialDelay = cluster.Duration(time.Minute)
		}, s(30), lifecycle.Valid, s(70)},
		{"before the start is through nothing counts", func(r *lifecycle.Round) {
			r.Through = 0
		}, s(60), lifecycle.Valid, 0},
		{"failing already", func(r *lifecycle.Round) { r.Records = recordsOf("-") }, s(60), lifecycle.Valid, 0},
		{"other types do not expire", func(r *lifecycle.Round) {
			r.Checks[0].Type = cluster.CheckTCP
		}, s(60), lifecycle.Valid, 0},
		{
			"a start counts from the round's beginning", func(r *lifecycle.Round) {
				r.Through, r.Checks[0].Meaning, r.TTLWindow.Until = 0, cluster.MeaningStartup, s(11)
			}, s(12), lifecycle.Expired, 0,
		},
		{
			"a start that succeeded is over", func(r *lifecycle.Round) {
				r.Checks[0].Meaning, r.Records = cluster.MeaningStartup, recordsOf("+")
			}, s(60), lifecycle.Valid, 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := lifecycle.Round{
				Checks: checksOf("ttl readiness"), Records: recordsOf("?"), Up: up, Through: up,
				TTLWindow: lifecycle.TTLWindow{Since: up - time.Minute, Until: up}, Now: tt.now,
			}
			tt.change(&r)
			if got, at := lifecycle.Expires(&r, 0); got != tt.want || at != tt.at {
				t.Errorf("got %q, next decision at %v; want %q at %v", got, at, tt.want, tt.at)
			}
		})
	}
}

// After any actions of agents and servers, a check expires only if updates could have arrived for its whole TTL and
// none did.
func TestSilenceOfOthersIsNotTheTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lifecycle.Round{
			Checks: checksOf("ttl readiness"), Records: recordsOf("?"), Up: time.Hour, Through: time.Hour,
			Now: time.Hour,
		}
		ttl := time.Duration(r.Checks[0].TTL)
		deaf := r.Now // last time at which an update came, or could not have come
		for range rapid.IntRange(1, 100).Draw(t, "events") {
			switch rapid.SampledFrom(
				[]string{"time", "time", "time", "session", "lost", "answer", "word", "agent"}).Draw(t, "event") {
			case "time":
				r.Now += time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second
				if r.TTLWindow.Since == 0 {
					deaf = r.Now
				}
			case "session":
				r.TTLWindow = lifecycle.TTLWindow{Since: r.Now}
				deaf = r.Now
			case "lost", "agent": // a restarted agent has its persisted state and no session
				r.TTLWindow, deaf = lifecycle.TTLWindow{}, r.Now
			case "answer":
				if r.TTLWindow.Since != 0 {
					r.TTLWindow.Until = r.Now
				}
			case "word":
				if r.TTLWindow.Since != 0 {
					r.Records[0], deaf = lifecycle.TTLUpdated(cluster.TTLPass, "", r.Now), r.Now
				}
			}
			switch e, _ := lifecycle.Expires(&r, 0); {
			case e == lifecycle.Expired && r.Now-deaf < ttl:
				t.Fatalf("expired %v after the last update, or a time without a connection", r.Now-deaf)
			case e == lifecycle.Valid && r.TTLWindow.Since != 0 && r.Now-deaf >= ttl:
				t.Fatalf("valid %v after the last update", r.Now-deaf)
			}
		}
	})
}

func TestComplaintIsTheReportedOne(t *testing.T) {
	state := lifecycle.CheckState{}
	record := lifecycle.CheckRecord{}
	var got []string
	for i, ok := range []bool{false, false, false, false, true} {
		state = lifecycle.NextHealth(state, ok, 3)
		complaint := ""
		if !ok {
			complaint = fmt.Sprint("answer ", i)
		}
		record = lifecycle.Probed(record, state, complaint)
		got = append(got, strings.TrimSpace(string(record.Health)+" "+record.Complaint))
	}
	want := []string{"warning answer 0", "warning answer 1", "failing answer 2", "failing answer 3", "healthy"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEndByACheck(t *testing.T) {
	end := lifecycle.End{Cause: lifecycle.CauseCheck, Problem: "liveness check c0 failed: 500"}
	for _, tt := range []struct {
		name   string
		change func(*lifecycle.End)
		want   lifecycle.View
		final  bool
	}{
		{
			"the policy has its say", func(*lifecycle.End) {},
			lifecycle.View{State: "failed", Reason: "unhealthy", Message: end.Problem},
			false,
		},
		{
			"whatever its program says at TERM", func(e *lifecycle.End) {
				e.Bad = &lifecycle.BadEnd{Container: "a", Exit: cluster.Exit{Code: 143, Signal: 15}}
			}, lifecycle.View{State: "failed", Reason: "unhealthy", Message: end.Problem}, false,
		},
		{
			"a stop goes before", func(e *lifecycle.End) { e.Stop = &cluster.Stop{Reason: cluster.ReasonDeleted} },
			lifecycle.View{State: "cancelled", Reason: "deleted"},
			true,
		},
		{
			"a batch program whose end is unknown is not run again (P4.4)", func(e *lifecycle.End) {
				e.Batch, e.Unseen = true, true
			},
			lifecycle.View{State: "failed", Reason: "unhealthy", Message: end.Problem},
			true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := end
			tt.change(&e)
			v, final := lifecycle.Classify(e)
			if diff := cmp.Diff(tt.want, v); diff != "" || final != tt.final {
				t.Errorf("final %v, want %v (-want +got):\n%s", final, tt.final, diff)
			}
		})
	}
}
