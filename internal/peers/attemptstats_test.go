package peers

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// runs writes what an agent reports of an attempt.
func (g *serverGroup) runs(m *member, node, uuid string, state cluster.State) {
	g.t.Helper()
	id := cluster.ServiceTask("c", uuid, 1, 0)
	g.put(m.engine, store.Prefix(store.DefaultPrefix).Observed(node, id), &cluster.Observed{
		Task: id, Attempt: 1, UUID: uuid, Node: node, State: state,
	})
}

func each(milli ...cluster.MilliCPU) *cluster.NodeStats {
	s := &cluster.NodeStats{}
	for i, m := range milli {
		if m != 0 {
			s.Each = append(s.Each, cluster.TaskStats{UUID: string(rune('a' + i)), CPU: m})
		}
	}
	return s
}

// Statistics of an attempt are sent once, when they change. All servers forget the statistics of ended attempts.
func TestChangedAttemptStatsAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServerGroup(t)
		g.status("n1", 1)
		s1, s2 := g.start("s1", 0), g.start("s2", 0)
		for _, uuid := range []string{"a", "b", "c"} {
			g.runs(s1, "n1", uuid, cluster.StateRunning)
		}
		pass(3 * time.Second)
		want := func(what string, s *cluster.NodeStats) {
			t.Helper()
			pass(1500 * time.Millisecond)
			got := s2.stats("n1")
			if got == nil {
				t.Fatalf("%s: s2 knows nothing", what)
			}
			if diff := cmp.Diff(s.Each, got.Each); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		s1.beat("n1", 1, 1, each(1, 2, 3))
		want("at first", each(1, 2, 3))
		before := len(s2.digests)
		s1.beat("n1", 1, 2, each(1, 5, 3))
		want("after a change", each(1, 5, 3))
		reported := 0
		for _, d := range s2.digests[before:] {
			for _, b := range d.Pulses {
				if b.Stats != nil {
					reported += len(b.Stats.Each)
				}
			}
		}
		if reported != 1 {
			t.Errorf("reported %d attempts, want the one that changed", reported)
		}
		g.runs(s1, "n1", "c", cluster.StateFailed)
		s1.beat("n1", 1, 3, each(1, 6))
		want("after an end", each(1, 6))

		s1.beat("n1", 1, 4, &cluster.NodeStats{Each: each(1, 6).Each, Pressure: &cluster.Pressure{Victim: "a"}})
		want("under pressure", each(1, 6))
		if p := s2.stats("n1").Pressure; p == nil || p.Victim != "a" {
			t.Errorf("pressure: got %+v", p)
		}
		s1.beat("n1", 1, 5, each(1, 6))
		pass(1500 * time.Millisecond)
		if p := s2.stats("n1").Pressure; p != nil {
			t.Errorf("pressure that ended: got %+v", p)
		}

		// A restarted server gets all statistics.
		s3 := g.start("s3", 0)
		pass(3 * time.Second)
		if got := s3.stats("n1"); got == nil || cmp.Diff(each(1, 6).Each, got.Each) != "" {
			t.Errorf("a new server knows %+v", got)
		}
	})
}

func TestDigestsAreBoundedByAttempts(t *testing.T) {
	pending := map[string]pendingPulse{}
	var nodes []string
	for i := range 10 {
		node := fmt.Sprint("n", i)
		nodes = append(nodes, node)
		pending[node] = pendingPulse{pulse: cluster.Pulse{
			Stats: &cluster.NodeStats{Each: make([]cluster.TaskStats, maxAttemptsPerDigest/4)},
		}, stats: true}
	}
	if n := countFitting(nodes, pending); n != 4 {
		t.Errorf("a digest has %d nodes, want 4", n)
	}
	pending["n0"] = pendingPulse{
		pulse: cluster.Pulse{Stats: &cluster.NodeStats{Each: make([]cluster.TaskStats, maxAttemptsPerDigest*2)}},
		stats: true,
	}
	if n := countFitting(nodes, pending); n != 1 {
		t.Errorf("a digest has %d nodes, want one however many attempts it has", n)
	}
}

// The receiver reads the largest digest: attempts with all statistics, in the longest numbers.
func TestDigestOfDetailsIsRead(t *testing.T) {
	rates := cluster.Rates{
		Throttled: 100, Stall: &cluster.StallRates{CPU: 100, Memory: 100, IO: 100},
		Network: &cluster.NetworkRates{Received: 1 << 34, Sent: 1 << 34},
		Disk:    &cluster.DiskRates{Read: 1 << 34, Written: 1 << 34, Reads: 123456.5, Writes: 123456.5},
	}
	pending := map[string]pendingPulse{}
	var nodes []string
	for i := range 200 {
		s := &cluster.NodeStats{}
		for j := range 100 {
			s.Each = append(s.Each, cluster.TaskStats{
				Task: "some-cluster.a-service-with-a-name.1234567.123",
				UUID: fmt.Sprintf("6d012d2a-e5d8-4069-9f6a-%012d", j), CPU: 12345, Memory: 1 << 34, Growth: 1 << 30,
				Requests: 12345.5,
				Detail: &cluster.UseDetail{
					Rates: rates,
					Containers: []cluster.ContainerUse{
						{Name: "some-container", CPU: 123, Memory: 1 << 34, Rates: rates},
					},
				},
			})
		}
		node := fmt.Sprint("node-", i)
		nodes = append(nodes, node)
		pending[node] = pendingPulse{pulse: cluster.Pulse{Stats: s}, stats: true}
	}
	n := countFitting(nodes, pending)
	l := &link{peers: &liveness{self: &self{}}}
	b, err := json.Marshal(l.digest(nodes[:n], pending, 0, nil))
	if err != nil || n < 20 || len(b) > maxDigest {
		t.Errorf("a digest of %d nodes has %d bytes, want %d at the most: %v", n, len(b), maxDigest, err)
	}
	t.Logf("%d nodes, %d bytes", n, len(b))
}
