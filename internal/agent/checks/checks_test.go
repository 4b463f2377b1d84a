package checks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// healthChange is a change of health and its time.
type healthChange struct {
	At       time.Duration
	Health   cluster.Health
	Failures int
}

func TestChangesOfHealth(t *testing.T) {
	const second = cluster.Duration(time.Second)
	for name, test := range map[string]struct {
		check   cluster.Check
		up      time.Duration
		results string // one letter a probe: . is healthy, x is not, z times out
		want    []healthChange
	}{
		"healthy at the first probe": {cluster.Check{Interval: second}, 0, "...", []healthChange{{0, "healthy", 0}}},
		"initial delay": {
			cluster.Check{Interval: second, InitialDelay: 3 * second},
			0, "..",
			[]healthChange{{3 * time.Second, "healthy", 0}},
		},
		"most of the initial delay has passed": {
			cluster.Check{Interval: second, InitialDelay: 3 * second},
			2 * time.Second,
			".",
			[]healthChange{{time.Second, "healthy", 0}},
		},
		"one failure warns, three fail and are reported once, one success heals": {
			cluster.Check{Interval: second},
			0,
			".xxxxxx.",
			[]healthChange{
				{0, "healthy", 0},
				{time.Second, "warning", 1},
				{2 * time.Second, "warning", 2},
				{3 * time.Second, "failing", 3},
				{4 * time.Second, "failing", 4},
				{7 * time.Second, "healthy", 0},
			},
		},
		"fails after one": {cluster.Check{Interval: second, FailAfter: 1}, 0, "x", []healthChange{{0, "failing", 1}}},
		"a start that succeeded is not probed again": {
			cluster.Check{Interval: second, Meaning: cluster.MeaningStartup},
			0,
			"xx.",
			[]healthChange{{0, "warning", 1}, {time.Second, "warning", 2}, {2 * time.Second, "healthy", 0}},
		},
		"silence is a failure, and the next probe follows directly if the last one took longer than the interval": {
			cluster.Check{Interval: second, Timeout: 3 * second},
			0,
			"zz.",
			[]healthChange{
				{3 * time.Second, "warning", 1}, {6 * time.Second, "warning", 2}, {6 * time.Second, "healthy", 0},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []healthChange
				probe := 0
				ctx, cancel := context.WithCancel(t.Context())
				Run(ctx, Config{
					Checks: []cluster.Check{{}, test.check}, Which: []int{1}, Up: test.up,
					Probe: func(ctx context.Context, _ *cluster.Check) error {
						letter := test.results[probe]
						if probe++; probe == len(test.results) {
							time.AfterFunc(time.Millisecond, cancel)
						}
						switch letter {
						case 'x':
							return errors.New("not healthy")
						case 'z':
							<-ctx.Done()
						}
						return nil
					},
					Changed: func(i int, s lifecycle.CheckState, complaint string) {
						if i != 1 || (complaint == "") != (s.Health == cluster.HealthHealthy) {
							t.Errorf("check %d reported as %s with %q", i, s.Health, complaint)
						}
						got = append(got, healthChange{time.Since(began), s.Health, s.Failures})
					},
				})
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A program that is slow to listen and then answers with an error is reported with that error, not forever with its
// first one. A complaint that changes at each probe is reported with growing intervals.
func TestChangedComplaintIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		state  lifecycle.CheckState
		answer func(probe int) string
		want   []string
	}{
		"another error": {
			lifecycle.CheckState{},
			func(probe int) string {
				if probe < 4 {
					return "connection refused"
				}
				return "answered 404"
			},
			[]string{
				"0s warning connection refused", "1s warning connection refused", "2s failing connection refused",
				"3s failing connection refused", "7s failing answered 404",
			},
		},
		"another one at each probe": {
			lifecycle.CheckState{},
			func(probe int) string { return fmt.Sprint("probe ", probe) },
			[]string{
				"0s warning probe 0", "1s warning probe 0", "2s failing probe 2", "3s failing probe 2",
				"7s failing probe 7",
				"17s failing probe 17", "37s failing probe 37", "1m17s failing probe 77", "2m17s failing probe 137",
			},
		},
		"failing since an earlier life of the agent": {
			lifecycle.CheckState{Health: cluster.HealthFailing, Failures: 4},
			func(probe int) string { return fmt.Sprint("probe ", min(probe, 20)) },
			[]string{"0s failing probe 0", "5s failing probe 5", "15s failing probe 15", "35s failing probe 20"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				began := time.Now()
				probes := -1
				var got []string
				Run(ctx, Config{
					Checks: []cluster.Check{{Interval: cluster.Duration(time.Second)}}, Which: []int{0},
					States: []lifecycle.CheckState{test.state},
					Probe: func(context.Context, *cluster.Check) error {
						probes++
						return errors.New(test.answer(probes))
					},
					Changed: func(_ int, s lifecycle.CheckState, complaint string) {
						got = append(got, fmt.Sprint(time.Since(began), " ", s.Health, " ", complaint))
					},
				})
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("reports (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSlowCheckNeverOverlapsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var now, most, probes atomic.Int32
		Run(ctx, Config{
			Checks: []cluster.Check{{Interval: cluster.Duration(time.Second), Timeout: cluster.Duration(time.Second)}},
			Probe: func(ctx context.Context, _ *cluster.Check) error {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				probes.Add(1)
				time.Sleep(3 * time.Second) // ignores its context
				return ctx.Err()
			},
			Changed: func(int, lifecycle.CheckState, string) {},
			Which:   []int{0},
			Random:  func() float64 { return 0.9 },
		})
		if most.Load() != 1 || probes.Load() < 15 {
			t.Errorf("%d probes, %d concurrent; want 1 at a time", probes.Load(), most.Load())
		}
	})
}

func TestOnlyNamedChecksAreProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var got []string
		Run(ctx, Config{
			Checks: []cluster.Check{{Name: "good"}, {Name: "left"}, {Name: "bad"}},
			Which:  []int{2},
			States: []lifecycle.CheckState{{}, {}, {Health: cluster.HealthWarning, Failures: 2}},
			Probe: func(_ context.Context, c *cluster.Check) error {
				if c.Name != "bad" {
					t.Errorf("probed check %s", c.Name)
				}
				return errors.New("broken")
			},
			Changed: func(i int, s lifecycle.CheckState, complaint string) {
				got = append(got, fmt.Sprint(i, " ", s.Health, " ", s.Failures, " ", complaint))
			},
		})
		want := []string{"2 failing 3 broken", "2 failing 4 broken"} // it continues from the states of an earlier run
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

// statuses reads ranges of statuses.
func statuses(t *testing.T, texts ...string) (ranges []cluster.StatusRange) {
	t.Helper()
	for _, text := range texts {
		r, err := cluster.ParseStatusRange(text)
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, r)
	}
	return ranges
}

func TestProber(t *testing.T) {
	some := statuses(t, "302", "400-404")
	status := atomic.Int32{}
	status.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(int(status.Load()))
		_ = r.Body.Close()
	}))
	defer server.Close()
	host, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	p := Prober{
		Host: host, Ports: map[string]int{"web": port, "closed": 1},
		Exec: func(_ context.Context, _ string, command []string) (int, []byte, error) {
			return len(command) - 1, []byte("said\nmore"), nil
		},
	}
	for name, test := range map[string]struct {
		check  cluster.Check
		status int32
		want   string // part of the complaint; empty: healthy
	}{
		"200":           {cluster.Check{Type: "http", Port: "web", Path: "/x"}, 200, ""},
		"204, no path":  {cluster.Check{Type: "http", Port: "web"}, 204, ""},
		"a redirect":    {cluster.Check{Type: "http", Port: "web"}, 302, "302"},
		"500":           {cluster.Check{Type: "http", Port: "web"}, 500, "500"},
		"accepted 401":  {cluster.Check{Type: "http", Port: "web", Statuses: some}, 401, ""},
		"accepted 302":  {cluster.Check{Type: "http", Port: "web", Statuses: some}, 302, ""},
		"first of some": {cluster.Check{Type: "http", Port: "web", Statuses: some}, 400, ""},
		"last of some":  {cluster.Check{Type: "http", Port: "web", Statuses: some}, 404, ""},
		"behind them":   {cluster.Check{Type: "http", Port: "web", Statuses: some}, 405, "405"},
		"200 unlisted":  {cluster.Check{Type: "http", Port: "web", Statuses: some}, 200, "200"},
		"no such port":  {cluster.Check{Type: "http", Port: "other"}, 200, "no port"},
		"tcp":           {cluster.Check{Type: "tcp", Port: "web"}, 200, ""},
		"tcp, closed":   {cluster.Check{Type: "tcp", Port: "closed"}, 200, "refused"},
		"exec":          {cluster.Check{Type: "exec", Command: []string{"true"}}, 200, ""},
		"exec, failing": {cluster.Check{Type: "exec", Command: []string{"a", "b"}}, 200, "exit code 1: said"},
		"other":         {cluster.Check{Type: "smell"}, 200, "does not support the type"},
	} {
		t.Run(name, func(t *testing.T) {
			status.Store(test.status)
			err := p.Probe(t.Context(), &test.check)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
