package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// fleetWithRoom returns a fleet with one empty node in each of the zones.
func fleetWithRoom(zones ...string) *scheduler.Fleet {
	f := scheduler.NewFleet()
	for i, zone := range zones {
		f.SetNode(scheduler.Node{
			Name: fmt.Sprint("n", i), State: cluster.NodeReady, Executors: []string{"containerd"},
			Labels:   cluster.Labels{"zone": zone},
			Capacity: cluster.Demand{CPU: 8000, Memory: 8 * cluster.GiB},
		})
	}
	return f
}

// Tasks of one owner share the trace of the first one, attempt by attempt, and the newest counts.
func TestDecisionTracesOfACycle(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock, options := func() time.Time { return now }, scheduler.Options{}
	f := fleetWithRoom("a", "b", "b")
	pending := func(owner string, attempt int, indices ...int) (all []cluster.Pending) {
		for _, i := range indices {
			all = append(all, cluster.Pending{
				Task: cluster.ServiceTask("c", owner, 1, i), Attempt: attempt, Priority: 1,
				Demand: cluster.Demand{CPU: 100},
				Owner:  cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: owner},
			})
		}
		return all
	}
	var g Traces
	decide := func(p []cluster.Pending) {
		g.Record(f, p, scheduler.Schedule(f, p, options).Placements, options, clock())
	}
	decide(append(pending("web", 1, 0, 1, 2, 5), pending("api", 1, 0)...))
	now = now.Add(time.Minute)
	decide(pending("web", 2, 1))
	for ask, want := range map[string]string{
		"c.web.1.0/1": "c.web.1.0/1 of 4 after 1, 3 nodes", "c.web.1.5/1": "c.web.1.0/1 of 4 after 1, 3 nodes",
		"c.web.1.1/2": "c.web.1.1/2 of 1 after 0, 3 nodes",
		"c.api.1.0/1": "c.api.1.0/1 of 1 after 0, 3 nodes", "c.web.1.3/1": "", "c.web.1.0/2": "", "c.web.1.0/3": "",
		"c.web.2.0/1": "", "c.web": "", "": "", "c.web.1.": "", "c.web.1.x": "",
	} {
		id, attempt, _ := strings.Cut(ask, "/")
		number := 1
		_, _ = fmt.Sscan(attempt, &number)
		got := ""
		if v, ok := g.Get(cluster.TaskID(id), number); ok {
			got = fmt.Sprintf("%s/%d of %d after %d, %d nodes", v.Task, v.Attempt, v.Like, v.Before, v.Nodes)
			if len(v.Best) < 2 || v.At.IsZero() {
				t.Errorf("%s: %+v", ask, v)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", ask, diff)
		}
	}
}

// The oldest traces are dropped, and nothing is left of them.
func TestDecisionTracesAreBounded(t *testing.T) {
	clock, options := time.Now, scheduler.Options{}
	f := fleetWithRoom("a")
	var g Traces
	const all = maxKeptTraces + 100
	for i := range all {
		p := []cluster.Pending{{Task: cluster.ServiceTask("c", fmt.Sprint("o", i), 1, 0), Attempt: 1, Priority: 1}}
		g.Record(f, p, scheduler.Schedule(f, p, options).Placements, options, clock())
	}
	if len(g.ring) != maxKeptTraces || len(g.byTasks) != maxKeptTraces {
		t.Errorf("%d are kept, of %d owners, want %d", len(g.ring), len(g.byTasks), maxKeptTraces)
	}
	for i, want := range map[int]bool{0: false, 99: false, 100: true, all - 1: true} {
		if _, got := g.Get(cluster.ServiceTask("c", fmt.Sprint("o", i), 1, 0), 1); got != want {
			t.Errorf("number %d is kept: %v, want %v", i, got, want)
		}
	}
}

// BenchmarkDecisionTraces measures a cycle's decisions with and without keeping their traces: 25 racks of 200 nodes.
func BenchmarkDecisionTraces(b *testing.B) {
	zones := make([]string, 5000)
	for i := range zones {
		zones[i] = fmt.Sprint(i % 25)
	}
	f := fleetWithRoom(zones...)
	clock, options := time.Now, scheduler.Options{}
	for _, owners := range []int{1, 50, 4000} {
		var pending []cluster.Pending
		for i := range 4000 {
			o := fmt.Sprint("o", i*owners/4000)
			pending = append(pending, cluster.Pending{
				Task: cluster.ServiceTask("c", o, 1, i), Attempt: 1, Priority: 1,
				Demand:     cluster.Demand{CPU: 100, Memory: 64 * cluster.MiB},
				Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: o},
				Definition: cluster.Ref{Name: "d", Version: 1},
			})
		}
		for _, kept := range []bool{false, true} {
			b.Run(fmt.Sprintf("tasks=4000/owners=%d/kept=%v", owners, kept), func(b *testing.B) {
				var g Traces
				b.ReportAllocs()
				for range b.N {
					placed := scheduler.Schedule(f, pending, options).Placements
					if kept {
						g.Record(f, pending, placed, options, clock())
					}
				}
			})
		}
	}
}
