package agent

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// reported returns the number of reports and the newest one.
func (w *world) reported() (int, transport.Report) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	n := len(w.server.reports)
	if n == 0 {
		return 0, transport.Report{}
	}
	return n, w.server.reports[n-1]
}

func (w *world) uses(s cluster.NodeStats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats = s
}

// A node with a long interval reports immediately when its use jumps or comes near a limit, and only then.
func TestPressureIsReportedImmediately(t *testing.T) {
	for name, c := range map[string]struct {
		before, after cluster.NodeStats
		early         bool
	}{
		"memory comes near its limit": {
			cluster.NodeStats{Memory: 7 * cluster.GiB},
			cluster.NodeStats{Memory: 7500 * cluster.MiB},
			true,
		},
		"memory jumps": {
			cluster.NodeStats{Memory: 1 * cluster.GiB},
			cluster.NodeStats{Memory: 2 * cluster.GiB},
			true,
		},
		"cpu jumps":      {cluster.NodeStats{}, cluster.NodeStats{CPU: 500}, true},
		"cpu falls":      {cluster.NodeStats{CPU: 500}, cluster.NodeStats{}, true},
		"little changes": {cluster.NodeStats{CPU: 100}, cluster.NodeStats{CPU: 300}, false},
		"it stays near a limit": {
			cluster.NodeStats{Memory: 7400 * cluster.MiB},
			cluster.NodeStats{Memory: 7500 * cluster.MiB},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.uses(c.before)
				w.server.mu.Lock()
				w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
					return transport.ReportReply{Heartbeat: cluster.Duration(time.Minute)}, nil
				}
				w.server.mu.Unlock()
				w.pass(2 * time.Minute) // a report or two, and none is due soon
				before, _ := w.reported()
				for {
					w.pass(time.Second)
					if n, _ := w.reported(); n != before {
						break
					}
				}
				before, _ = w.reported()
				w.uses(c.after)
				w.pass(measureEvery + time.Second)
				after, last := w.reported()
				if early := after > before; early != c.early {
					w.t.Fatalf("reported early: %v, want %v", early, c.early)
				}
				if c.early && (last.Stats == nil || last.Stats.CPU != c.after.CPU ||
					last.Stats.Memory != c.after.Memory) {
					w.t.Errorf("the report says %+v, want %+v", last.Stats, c.after)
				}
				w.pass(20 * time.Second)
				if again, _ := w.reported(); again != after {
					w.t.Errorf("%d more reports although nothing changed since", again-after)
				}
			})
		})
	}
}

// The next run of the agent knows the last list of servers.
func TestServersAreRemembered(t *testing.T) {
	inWorld(t, func(w *world) {
		w.server.mu.Lock()
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{Servers: []string{"https://s1:1", "https://s2:1"}}, nil
		}
		w.server.mu.Unlock()
		w.pass(10 * time.Second)
		w.restart()
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		if got := w.server.learned; len(got) != 2 || got[1] != "https://s2:1" {
			w.t.Errorf("the next life begins with the servers %q", got)
		}
	})
}

// An agent that loses its session to another one again and again registers with growing pauses, and the server gets a
// report.
func TestDisplacedAgentHoldsBack(t *testing.T) {
	inWorld(t, func(w *world) {
		seen := 0
		for began := time.Now(); time.Since(began) < 30*time.Minute; w.pass(time.Second) {
			w.server.mu.Lock()
			// the other one registers right after this one
			if w.server.live == w.server.sessions && len(w.server.regs) > seen {
				seen = len(w.server.regs)
				w.server.sessions++
				w.server.live = w.server.sessions
			}
			w.server.mu.Unlock()
		}
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		last := w.server.regs[len(w.server.regs)-1]
		if n := len(w.server.regs); n < 7 || n > 18 {
			w.t.Errorf("registered %d times in half an hour, want about ten", n)
		}
		if last.Displaced < 5 {
			w.t.Errorf("the server received %d displacements", last.Displaced)
		}
	})
}
