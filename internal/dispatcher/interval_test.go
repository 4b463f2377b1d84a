package dispatcher_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/transport"
)

var machine = cluster.Facts{CPU: 8000, Memory: 32 * cluster.GiB, Disk: 100 * cluster.GiB}

func uses(cpu cluster.MilliCPU, memory, disk cluster.Bytes, tasks int) *cluster.NodeStats {
	return &cluster.NodeStats{CPU: cpu, Memory: memory * cluster.GiB, Disk: disk * cluster.GiB, Tasks: tasks}
}

func TestInterval(t *testing.T) {
	idle := uses(100, 2, 10, 0)
	for name, c := range map[string]struct {
		before, now *cluster.NodeStats
		total       cluster.Facts
		want        time.Duration
	}{
		"an agent without statistics":  {nil, nil, machine, dispatcher.Heartbeat},
		"a machine of unknown size":    {nil, idle, cluster.Facts{}, dispatcher.Heartbeat},
		"empty and at rest":            {uses(0, 2, 10, 0), uses(0, 2, 10, 0), machine, dispatcher.IdleHeartbeat},
		"the first report, at rest":    {nil, uses(0, 2, 10, 0), machine, dispatcher.IdleHeartbeat},
		"a little load":                {uses(400, 2, 10, 0), uses(400, 2, 10, 0), machine, 54 * time.Second},
		"five tasks at rest":           {uses(0, 2, 10, 5), uses(0, 2, 10, 5), machine, 33 * time.Second},
		"ten tasks at rest":            {uses(0, 2, 10, 10), uses(0, 2, 10, 10), machine, dispatcher.Heartbeat},
		"half of the cpu":              {uses(4000, 2, 10, 1), uses(4000, 2, 10, 1), machine, dispatcher.Heartbeat},
		"all of the cpu, all the time": {uses(7900, 2, 10, 1), uses(7900, 2, 10, 1), machine, dispatcher.Heartbeat},
		"the cpu on its way to the limit": {
			uses(5000, 2, 10, 1), uses(7500, 2, 10, 1), machine,
			dispatcher.NearHeartbeat,
		},
		"memory half way":             {uses(0, 22, 10, 0), uses(0, 22, 10, 0), machine, 34 * time.Second},
		"memory near its limit":       {uses(0, 2, 10, 0), uses(0, 29, 10, 0), machine, dispatcher.NearHeartbeat},
		"memory stays near its limit": {uses(0, 29, 10, 0), uses(0, 29, 10, 0), machine, dispatcher.NearHeartbeat},
		"disk near its limit":         {uses(0, 2, 95, 0), uses(0, 2, 95, 0), machine, dispatcher.NearHeartbeat},
		"disk nearly full":            {uses(0, 2, 80, 0), uses(0, 2, 80, 0), machine, dispatcher.IdleHeartbeat},
		"a change of a twentieth":     {uses(0, 2, 10, 0), uses(0, 2, 15, 0), machine, 33 * time.Second},
		"a change of a tenth":         {uses(0, 2, 10, 0), uses(0, 2, 20, 0), machine, dispatcher.Heartbeat},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dispatcher.Interval(c.now, c.before, c.total, 2500); (got - c.want).Abs() > time.Second {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// Empty nodes of a server with very many sessions report less often, all others as before.
func TestIntervalOfEmptyNodesFollowsTheLoad(t *testing.T) {
	for sessions, want := range map[int]time.Duration{
		0: 60 * time.Second, 2500: 60 * time.Second, 2550: 61 * time.Second, 3750: 90 * time.Second,
		5000: 120 * time.Second, 50_000: 120 * time.Second,
	} {
		rest, task, busy := uses(0, 2, 10, 0), uses(0, 2, 10, 1), uses(4000, 2, 10, 0)
		if got := dispatcher.Interval(rest, rest, machine, sessions); got != want ||
			dispatcher.Longest(sessions).Round(time.Second) != want {
			t.Errorf("an empty node of %d: got %v, want %v", sessions, got, want)
		}
		if sessions < 2500 {
			continue
		}
		if got := dispatcher.Interval(task, task, machine, sessions); got > 55*time.Second {
			t.Errorf("a node with a task, of %d: got %v", sessions, got)
		}
		if got := dispatcher.Interval(busy, busy, machine, sessions); got != dispatcher.Heartbeat {
			t.Errorf("an empty node that is busy, of %d: got %v", sessions, got)
		}
	}
}

// No connection is pinged during the silence that the server requested from its agent.
func TestPingsComeAfterTheLongestInterval(t *testing.T) {
	var s http.Server
	transport.ConfigureServer(&s)
	if pings := s.HTTP2.SendPingTimeout; pings <= dispatcher.LongestHeartbeat {
		t.Errorf("pings come after %v, reports after up to %v", pings, dispatcher.LongestHeartbeat)
	}
}

// The interval stays within its bounds; more of anything never makes it longer; near a limit it is the shortest
// immediately.
func TestIntervalProperties(t *testing.T) {
	stats := rapid.Custom(func(t *rapid.T) *cluster.NodeStats {
		return uses(
			cluster.MilliCPU(rapid.IntRange(0, 9000).Draw(t, "cpu")),
			cluster.Bytes(rapid.IntRange(0, 33).Draw(t, "memory")),
			cluster.Bytes(rapid.IntRange(0, 101).Draw(t, "disk")), rapid.IntRange(0, 30).Draw(t, "tasks"),
		)
	})
	rapid.Check(t, func(t *rapid.T) {
		before, now := stats.Draw(t, "before"), stats.Draw(t, "now")
		sessions := rapid.IntRange(0, 7000).Draw(t, "sessions")
		got := dispatcher.Interval(now, before, machine, sessions)
		most := dispatcher.IdleHeartbeat
		if now.Tasks == 0 {
			most = dispatcher.Longest(sessions).Round(time.Second)
		}
		if got < dispatcher.NearHeartbeat || got > most || got%time.Second != 0 {
			t.Fatalf("got %v", got)
		}
		if dispatcher.Interval(now, before, machine, sessions+rapid.IntRange(0, 3000).Draw(t, "others")) < got {
			t.Fatal("more sessions make it shorter")
		}
		more := *now
		more.Tasks += rapid.IntRange(0, 5).Draw(t, "more")
		if dispatcher.Interval(&more, before, machine, sessions) > got {
			t.Fatal("more tasks make it longer")
		}
		if share := transport.Shares(now, machine); (share.Memory >= transport.NearMemory ||
			share.Disk >= transport.NearDisk) != (got == dispatcher.NearHeartbeat) && share.CPU < transport.NearCPU {
			t.Fatalf("%+v: got %v", share, got)
		}
	})
}

// usage reports what a node uses, and returns the time until the next report.
func (f *fixture) usage(seq uint64, s *cluster.NodeStats) time.Duration {
	f.t.Helper()
	reply, err := f.Report(f.t.Context(), transport.Report{Node: "n1", Session: 1, Seq: seq, Stats: s})
	if err != nil {
		f.t.Fatal(err)
	}
	return time.Duration(reply.Heartbeat)
}

func (f *fixture) grantedInterval() time.Duration {
	f.t.Helper()
	p, ok := f.tables.Pulse("n1")
	if !ok {
		f.t.Fatal("there is no pulse")
	}
	return p.At + p.Next - f.clock()
}

// connect registers n1, of a machine that is known, and opens its assignment stream until the returned function is
// called.
func (f *fixture) connect() (cut func()) {
	f.t.Helper()
	if _, err := f.Register(f.t.Context(),
		transport.Registration{Wire: transport.WireVersion, Node: "n1", Facts: machine}); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	_, ended := follow(ctx, f.Dispatcher, transport.AssignmentsRequest{Node: "n1", Session: 1})
	return func() {
		cancel()
		<-ended
	}
}

// The interval follows the node's use within one report, and the use is published.
func TestIntervalFollowsTheNode(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.connect()
		for seq, step := range []struct {
			stats *cluster.NodeStats
			want  time.Duration
		}{
			{uses(0, 2, 10, 0), dispatcher.IdleHeartbeat},
			{uses(0, 29, 10, 0), dispatcher.NearHeartbeat},
			{uses(0, 2, 10, 0), dispatcher.Heartbeat},
			{uses(0, 2, 10, 0), dispatcher.IdleHeartbeat},
			{nil, dispatcher.IdleHeartbeat},
		} {
			if got := f.usage(uint64(seq+1), step.stats); got != step.want || f.grantedInterval() != step.want {
				t.Errorf("report %d: asked again in %v and expected in %v, want %v", seq+1, got, f.grantedInterval(),
					step.want)
			}
			if p, _ := f.tables.Pulse("n1"); p.Stats == nil || step.stats != nil &&
				cmp.Diff(*step.stats, *p.Stats) != "" {
				t.Errorf("report %d: the pulse says %+v", seq+1, p.Stats)
			}
		}
	})
}

// The interval of an idle node is long. It is shortened when its stream breaks, so that a dead machine is noticed soon.
// A report without a stream gets no long interval.
func TestBrokenStreamShortensTheInterval(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		cut := f.connect()
		f.usage(1, uses(0, 2, 10, 0))
		time.Sleep(7 * time.Second) // in-bubble: inWorld makes one
		before, _ := f.tables.Pulse("n1")
		cut()
		if got := f.grantedInterval(); got != dispatcher.Heartbeat {
			t.Errorf("after the stream broke the node is expected in %v, want %v", got, dispatcher.Heartbeat)
		}
		if after, _ := f.tables.Pulse("n1"); after.At != before.At || after.Stats == nil {
			t.Errorf("the end of a stream counts as a sign of life, or drops the statistics: %+v", after)
		}
		if got := f.usage(2, uses(0, 2, 10, 0)); got != dispatcher.Heartbeat {
			t.Errorf("without a stream the next report is requested in %v, want %v", got, dispatcher.Heartbeat)
		}
		_, _ = follow(t.Context(), f.Dispatcher, transport.AssignmentsRequest{Node: "n1", Session: 1})
		if got := f.usage(3, uses(0, 2, 10, 0)); got != dispatcher.IdleHeartbeat {
			t.Errorf("with a new stream it is requested in %v, want %v", got, dispatcher.IdleHeartbeat)
		}
		// A newer stream in the place of the old one is no break.
		_, _ = follow(t.Context(), f.Dispatcher, transport.AssignmentsRequest{Node: "n1", Session: 1})
		synctest.Wait()
		if got := f.grantedInterval(); got != dispatcher.IdleHeartbeat {
			t.Errorf("after a change of streams the node is expected in %v, want %v", got, dispatcher.IdleHeartbeat)
		}
	})
}

// A report that is repeated after a lost answer gets the interval of its answer.
func TestRepeatedReportKeepsTheInterval(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.connect()
		f.usage(1, uses(0, 2, 10, 0))
		r := transport.Report{
			Node: "n1", Session: 1, Seq: 2,
			Tasks: []cluster.Observed{observed(f.placeTask("n1"), cluster.StatePreparing)},
		}
		for range 2 {
			time.Sleep(time.Second) // in-bubble: inWorld makes one
			reply, err := f.Report(t.Context(), r)
			if err != nil || time.Duration(reply.Heartbeat) != dispatcher.IdleHeartbeat ||
				f.grantedInterval() != dispatcher.IdleHeartbeat {
				t.Errorf(
					"asked again in %v, expected in %v: %v",
					time.Duration(reply.Heartbeat),
					f.grantedInterval(),
					err,
				)
			}
		}
	})
}

// An interval below the shortened one stays.
func TestBrokenStreamOfABusyNode(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		cut := f.connect()
		f.usage(1, uses(0, 29, 10, 0))
		cut()
		if got := f.grantedInterval(); got != dispatcher.NearHeartbeat {
			t.Errorf("expected in %v, want %v", got, dispatcher.NearHeartbeat)
		}
	})
}

// A server that ends sends its agents to other servers.
func TestEndingServerSendsAgentsAway(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.connect()
		f.stop()
		if f.Holds("n1") {
			t.Error("a server that ended has a session")
		}
	})
}

// A stream that broke and was opened again restores the interval that the agent received: nothing makes it report
// sooner.
func TestReopenedStreamRestoresTheInterval(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		cut := f.connect()
		f.usage(1, uses(0, 2, 10, 0))
		time.Sleep(7 * time.Second) // in-bubble: inWorld makes one
		before, _ := f.tables.Pulse("n1")
		cut()
		time.Sleep(200 * time.Millisecond) // in-bubble: inWorld makes one
		again, cancel := context.WithCancel(t.Context())
		_, ended := follow(again, f.Dispatcher, transport.AssignmentsRequest{Node: "n1", Session: 1})
		if after, _ := f.tables.Pulse("n1"); after != before {
			t.Errorf("the pulse is %+v, want what it was before the break: %+v", after, before)
		}
		cancel()
		<-ended
		if got := f.grantedInterval(); got != dispatcher.Heartbeat {
			t.Errorf("after the second break it is expected in %v, want %v", got, dispatcher.Heartbeat)
		}
		// A stream does not extend an interval that was granted without one.
		f.usage(2, uses(0, 2, 10, 0))
		_, _ = follow(t.Context(), f.Dispatcher, transport.AssignmentsRequest{Node: "n1", Session: 1})
		if got := f.grantedInterval(); got != dispatcher.Heartbeat {
			t.Errorf("it was asked to report in %v and is expected in %v", dispatcher.Heartbeat, got)
		}
	})
}
