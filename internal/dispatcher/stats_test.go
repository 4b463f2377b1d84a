package dispatcher_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/transport"
)

// The pulse holds the statistics of all running attempts, merged from reports of changes.
func TestPulseHasStatisticsOfAttempts(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		cut := f.connect()
		defer cut()
		id := f.placeTask("n1")
		seq := uint64(0)
		send := func(tasks []cluster.Observed, s *cluster.NodeStats) {
			t.Helper()
			seq++
			if reply, err := f.Report(t.Context(), transportReport(seq, tasks, s)); err != nil ||
				len(reply.Refused) != 0 {
				t.Fatalf("report %d: %+v %v", seq, reply, err)
			}
		}
		want := func(what string, each ...cluster.TaskStats) {
			t.Helper()
			p, _ := f.tables.Pulse("n1")
			if diff := cmp.Diff(each, p.Stats.Each); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		use := func(uuid string, milli cluster.MilliCPU) cluster.TaskStats {
			return cluster.TaskStats{Task: task, UUID: uuid, CPU: milli}
		}
		running := observed(id, cluster.StateRunning)
		send([]cluster.Observed{observed(id, cluster.StateStarting)}, nil)
		send([]cluster.Observed{running}, &cluster.NodeStats{Each: []cluster.TaskStats{use(id, 5), use("zz", 7)}})
		want("at first", use(id, 5), use("zz", 7))
		send(nil, &cluster.NodeStats{CPU: 9})
		want("of those that are not named, only what runs stays", use(id, 5))
		send(nil, nil)
		want("a plain sign of life changes nothing", use(id, 5))
		send(nil, &cluster.NodeStats{Each: []cluster.TaskStats{use(id, 6)}})
		want("after a change", use(id, 6))
		ended := observed(id, cluster.StateSucceeded)
		send([]cluster.Observed{ended}, nil)
		p, _ := f.tables.Pulse("n1")
		if len(p.Stats.Each) != 0 {
			t.Errorf("after its end: %+v", p.Stats.Each)
		}
	})
}

// A node that is short of memory reports often, and its pulse names the attempt to move.
func TestPressureIsWatchedClosely(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		cut := f.connect()
		defer cut()
		short := uses(0, 2, 10, 0)
		short.Pressure = &cluster.Pressure{Message: "memory: 97% of the machine is used", Victim: "u1"}
		if got := f.usage(1, short); got != dispatcher.NearHeartbeat {
			t.Errorf("asked again in %v, want %v", got, dispatcher.NearHeartbeat)
		}
		if p, _ := f.tables.Pulse("n1"); p.Stats.Pressure == nil || p.Stats.Pressure.Victim != "u1" {
			t.Errorf("the pulse says %+v", p.Stats)
		}
		if got := f.usage(2, uses(0, 2, 10, 0)); got <= dispatcher.NearHeartbeat {
			t.Errorf("asked again in %v once that is over", got)
		}
	})
}

func transportReport(seq uint64, tasks []cluster.Observed, s *cluster.NodeStats) transport.Report {
	return transport.Report{Node: "n1", Session: 1, Seq: seq, Tasks: tasks, Stats: s}
}
