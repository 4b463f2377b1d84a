package checks

import (
	"context"
	"errors"
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
)

// told is a change of health and when it came.
type told struct {
	At     time.Duration
	Health cluster.Health
}

func TestChangesOfHealth(t *testing.T) {
	const second = cluster.Duration(time.Second)
	for name, test := range map[string]struct {
		check   cluster.Check
		results string // one letter a look: . is well, x is not, z is silent
		want    []told
	}{
		"well at once": {cluster.Check{Interval: second}, "...", []told{{0, "healthy"}}},
		"initial delay": {
			cluster.Check{Interval: second, InitialDelay: 3 * second},
			"..",
			[]told{{3 * time.Second, "healthy"}},
		},
		"one failure warns, three fail, one success heals": {
			cluster.Check{Interval: second},
			".xxxx.",
			[]told{{0, "healthy"}, {time.Second, "warning"}, {3 * time.Second, "failing"}, {5 * time.Second, "healthy"}},
		},
		"fails after one": {cluster.Check{Interval: second, FailAfter: 1}, "x", []told{{0, "failing"}}},
		"silence is a failure, and the next look comes at once where that took longer than the interval": {
			cluster.Check{Interval: second, Timeout: 3 * second},
			"zz.",
			[]told{{3 * time.Second, "warning"}, {6 * time.Second, "healthy"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []told
				look := 0
				ctx, cancel := context.WithCancel(t.Context())
				Run(ctx, Config{
					Checks: []cluster.Check{test.check},
					Probe: func(ctx context.Context, _ *cluster.Check) error {
						letter := test.results[look]
						if look++; look == len(test.results) {
							time.AfterFunc(time.Millisecond, cancel)
						}
						switch letter {
						case 'x':
							return errors.New("not well")
						case 'z':
							<-ctx.Done()
						}
						return nil
					},
					Changed: func(h cluster.Health, _ string) { got = append(got, told{time.Since(began), h}) },
				})
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSlowCheckNeverOverlapsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var now, most, looks atomic.Int32
		Run(ctx, Config{
			Checks: []cluster.Check{{Interval: cluster.Duration(time.Second), Timeout: cluster.Duration(time.Second)}},
			Probe: func(ctx context.Context, _ *cluster.Check) error {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				looks.Add(1)
				time.Sleep(3 * time.Second) // deaf to its context
				return ctx.Err()
			},
			Changed: func(cluster.Health, string) {},
			Random:  func() float64 { return 0.9 },
		})
		if most.Load() != 1 || looks.Load() < 15 {
			t.Errorf("%d looks, %d at once; want 1 at once", looks.Load(), most.Load())
		}
	})
}

func TestWorstCheckCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var got []string
		Run(ctx, Config{
			Checks: []cluster.Check{{Name: "good"}, {Name: "bad"}},
			Probe: func(_ context.Context, c *cluster.Check) error {
				if c.Name == "bad" {
					return errors.New("broken")
				}
				return nil
			},
			Changed: func(h cluster.Health, complaint string) { got = append(got, string(h)+" "+complaint) },
		})
		want := []string{"warning check bad: broken", "failing check bad: broken"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

func TestProber(t *testing.T) {
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
		want   string // part of the complaint; empty: well
	}{
		"200":           {cluster.Check{Type: "http", Port: "web", Path: "/x"}, 200, ""},
		"204, no path":  {cluster.Check{Type: "http", Port: "web"}, 204, ""},
		"a redirect":    {cluster.Check{Type: "http", Port: "web"}, 302, "302"},
		"500":           {cluster.Check{Type: "http", Port: "web"}, 500, "500"},
		"no such port":  {cluster.Check{Type: "http", Port: "other"}, 200, "no port"},
		"tcp":           {cluster.Check{Type: "tcp", Port: "web"}, 200, ""},
		"tcp, closed":   {cluster.Check{Type: "tcp", Port: "closed"}, 200, "refused"},
		"exec":          {cluster.Check{Type: "exec", Command: []string{"true"}}, 200, ""},
		"exec, failing": {cluster.Check{Type: "exec", Command: []string{"a", "b"}}, 200, "exit code 1: said"},
		"other":         {cluster.Check{Type: "smell"}, 200, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			status.Store(test.status)
			err := p.Probe(t.Context(), &test.check)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want well", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
