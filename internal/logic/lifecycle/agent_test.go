package lifecycle_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

func TestHealthAsAStory(t *testing.T) {
	for _, tt := range []struct{ name, results, want string }{
		{"healthy at the first probe", "+", "healthy"},
		{"warning, then failing after three", "----", "warning warning failing failing"},
		{"one success heals", "---+", "warning warning failing healthy"},
		{"failures count in a row", "+--+--", "healthy warning warning healthy warning warning"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s lifecycle.CheckState
			var got []string
			for _, r := range tt.results {
				s = lifecycle.NextHealth(s, r == '+', 3)
				got = append(got, string(s.Health))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFailAfterOneFailsImmediately(t *testing.T) {
	if got := lifecycle.NextHealth(lifecycle.CheckState{}, false, 1).Health; got != cluster.HealthFailing {
		t.Errorf("got %s", got)
	}
	s := lifecycle.CheckState{}
	for range 1000 {
		s = lifecycle.NextHealth(s, false, 0)
	}
	if s.Health != cluster.HealthFailing || s.Failures > 10 {
		t.Errorf("after 1000 failures: %+v, want failing and a bounded count", s)
	}
}

func TestOverallIsTheWorst(t *testing.T) {
	h := func(words ...cluster.Health) (all []lifecycle.CheckState) {
		for _, w := range words {
			all = append(all, lifecycle.CheckState{Health: w})
		}
		return all
	}
	for _, tt := range []struct {
		in   []lifecycle.CheckState
		want cluster.Health
	}{
		{nil, cluster.HealthUnknown},
		{h(cluster.HealthHealthy), cluster.HealthHealthy},
		{h(cluster.HealthHealthy, ""), cluster.HealthUnknown},
		{h("", cluster.HealthWarning), cluster.HealthWarning},
		{h(cluster.HealthFailing, cluster.HealthWarning, cluster.HealthHealthy), cluster.HealthFailing},
	} {
		if got := lifecycle.Overall(tt.in); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestHealthWithoutChecks(t *testing.T) {
	if h, rest := lifecycle.HealthWithoutChecks(time.Second, 300*time.Millisecond); h != cluster.HealthUnknown ||
		rest != 700*time.Millisecond {
		t.Errorf("after 300 ms: %s, %s to go", h, rest)
	}
	if h, rest := lifecycle.HealthWithoutChecks(time.Second, time.Second); h != cluster.HealthHealthy || rest != 0 {
		t.Errorf("after 1 s: %s, %s to go", h, rest)
	}
}

func policy(mode cluster.RestartMode) cluster.Restart {
	return cluster.Restart{
		Mode: mode, Limit: 5, Window: cluster.Duration(10 * time.Minute),
		Delay: cluster.Duration(time.Second), MaxDelay: cluster.Duration(5 * time.Second),
	}
}

func TestRestartsOfATaskThatExitsImmediately(t *testing.T) {
	now := time.Unix(0, 0)
	var r lifecycle.Restarts
	var got []string
	for {
		d := lifecycle.NextRestart(policy(cluster.RestartAlways), r, false, time.Millisecond, now)
		if d.Limit {
			got = append(got, "limit")
			break
		}
		got = append(got, d.Delay.String())
		r, now = d.Next, now.Add(d.Delay)
	}
	if diff := cmp.Diff("1s 2s 4s 5s 5s limit", strings.Join(got, " ")); diff != "" {
		t.Error(diff)
	}
}

func TestRestartModes(t *testing.T) {
	for _, tt := range []struct {
		mode    cluster.RestartMode
		success bool
		again   bool
	}{
		{cluster.RestartAlways, true, true},
		{cluster.RestartAlways, false, true},
		{cluster.RestartOnFailure, true, false},
		{cluster.RestartOnFailure, false, true},
		{cluster.RestartNever, false, false},
		{"", false, false},
	} {
		t.Run(fmt.Sprintf("%s after success %v", tt.mode, tt.success), func(t *testing.T) {
			d := lifecycle.NextRestart(policy(tt.mode), lifecycle.Restarts{}, tt.success, 0, time.Unix(0, 0))
			if d.Again != tt.again || d.Limit {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestLongRunResetsRestarts(t *testing.T) {
	now := time.Unix(100000, 0)
	old := lifecycle.Restarts{Streak: 5, Total: 9}
	for i := range 5 {
		old.At = append(old.At, now.Add(time.Duration(i-10)*time.Second))
	}
	d := lifecycle.NextRestart(policy(cluster.RestartAlways), old, false, 11*time.Minute, now)
	want := lifecycle.RestartDecision{
		Again: true, Delay: time.Second, Next: lifecycle.Restarts{At: []time.Time{now}, Streak: 1, Total: 10},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRestartsStayBelowTheLimit: no window ever holds more restarts than the limit, delays stay within their bounds,
// and the input is not changed.
func TestRestartsStayBelowTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy(cluster.RestartAlways)
		p.Limit = rapid.IntRange(1, 6).Draw(t, "limit")
		now := time.Unix(0, 0)
		var r lifecycle.Restarts
		var all []time.Time
		for range 40 {
			ran := time.Duration(rapid.Int64Range(0, int64(9*time.Minute)).Draw(t, "ran"))
			now = now.Add(ran)
			before := fmt.Sprint(r)
			d := lifecycle.NextRestart(p, r, rapid.Bool().Draw(t, "success"), ran, now)
			if fmt.Sprint(r) != before {
				t.Fatal("the history handed in was changed")
			}
			if !d.Again {
				break
			}
			if d.Delay < time.Duration(p.Delay) || d.Delay > time.Duration(p.MaxDelay) {
				t.Fatalf("delay %s", d.Delay)
			}
			all = append(all, now)
			in := 0
			for _, at := range all {
				if now.Sub(at) < time.Duration(p.Window) {
					in++
				}
			}
			if in > p.Limit {
				t.Fatalf("%d restarts within %s, limit %d", in, p.Window, p.Limit)
			}
			r, now = d.Next, now.Add(d.Delay)
		}
	})
}

func TestBackoffNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "first"))
		limit := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "limit"))
		n := rapid.IntRange(0, 100).Draw(t, "n")
		d := lifecycle.Backoff(first, limit, n)
		if d < 0 || d > limit || d < min(first, limit) {
			t.Fatalf("Backoff(%d, %d, %d) = %d", first, limit, n, d)
		}
	})
}
