package usage

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/telemetry"
)

// counter is an executor that counts the calls of Details.
type counter struct {
	fixed
	counts func(executor.ID) cluster.Counts
	asked  map[executor.ID]int
}

func (c *counter) Details(running map[executor.ID]executor.Process) map[executor.ID]cluster.Counts {
	out := map[executor.ID]cluster.Counts{}
	for id := range running {
		c.asked[id]++
		out[id] = c.counts(id)
	}
	return out
}

// Details are the rates since the last reading, every ten seconds for each attempt, not at the same time for all. Two
// containers in one network namespace have one network. Each measurement passes on the total use of each container.
func TestDetailsAreRates(t *testing.T) {
	now := time.Hour
	c := &counter{asked: map[executor.ID]int{}, fixed: fixed{usage: map[executor.ID]executor.Usage{}}}
	c.counts = func(id executor.ID) cluster.Counts {
		passed := int64((now - time.Hour) / time.Second)
		n := cluster.Counts{
			Network:  &cluster.NetworkCounts{Namespace: 5, Received: cluster.Bytes(1000 * passed)},
			Disk:     &cluster.DiskCounts{Written: cluster.Bytes(500 * passed)},
			Throttle: &cluster.ThrottleCounts{Periods: 10 * passed, Throttled: passed},
		}
		if id == "alone" {
			n.Network, n.HostNetwork = nil, true
		}
		return n
	}
	var samples []telemetry.ContainerSample
	var all []attempt.Status
	m := measuring(&node.Node{Boot: func() time.Duration { return now }}, c, func() []attempt.Status { return all })
	m.Samples = func(s []telemetry.ContainerSample) { samples = s }
	add := func(uuid string, kind cluster.Kind, names ...string) {
		def := defined(names...)
		rec := attempt.New(cluster.Desired{
			Task: "c.web.1.0", UUID: uuid,
			Owner: cluster.OwnerRef{Kind: kind, Cluster: "c", Name: "web"},
		}, 1, "b")
		rec.Executor = "box"
		for _, n := range names {
			id := executor.ID(n)
			rec.Containers = append(rec.Containers, attempt.Container{ID: id, Progress: attempt.Running})
			c.usage[id] = executor.Usage{Memory: cluster.MiB}
		}
		all = append(all, attempt.Status{
			ID: attempt.ID{UUID: uuid}, View: &attempt.View{Record: *rec, Definition: def},
		})
	}
	add("u1", cluster.KindService, "app", "side")
	add("u2", cluster.KindJob, "alone")
	var last []measured
	for range 31 { // a minute
		u := c.usage["app"]
		u.CPU += measureInterval / 4
		c.usage["app"] = u
		last = m.measure()
		now += measureInterval
	}
	for id, n := range c.asked {
		if n < 6 || n > 8 {
			t.Errorf("%s was read %d times in a minute, want once each ten seconds", id, n)
		}
	}
	web := cluster.Rates{
		Throttled: 10, Network: &cluster.NetworkRates{Received: 1000},
		Disk: &cluster.DiskRates{Written: 500},
	}
	want := []*cluster.UseDetail{
		{
			Rates: cluster.Rates{Throttled: 10, Network: web.Network, Disk: &cluster.DiskRates{Written: 1000}},
			Containers: []cluster.ContainerUse{
				{Name: "app", CPU: 250, Memory: cluster.MiB, Rates: web},
				{Name: "side", Memory: cluster.MiB, Rates: web},
			},
		},
		{Rates: cluster.Rates{Throttled: 10, HostNetwork: true, Disk: web.Disk}},
	}
	if diff := cmp.Diff(want, []*cluster.UseDetail{last[0].stats.Detail, last[1].stats.Detail}); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
	if len(samples) != 3 {
		t.Fatalf("%d samples, want 3", len(samples))
	}
	for i, want := range []telemetry.ContainerSample{
		{
			Cluster: "c", Service: "web", Task: "c.web.1.0", Container: "app", CPU: 31 * measureInterval / 4,
			Memory: cluster.MiB,
		},
		{Cluster: "c", Service: "web", Task: "c.web.1.0", Container: "side", Memory: cluster.MiB},
		{Cluster: "c", Job: "web", Task: "c.web.1.0", Container: "alone", Memory: cluster.MiB},
	} {
		got := samples[i]
		if got.Disk == nil || got.Disk.Written < 20_000 {
			t.Errorf("sample %d counts %+v, want what was written since the beginning", i, got.Disk)
		}
		got.Counts = cluster.Counts{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sample %d (-want +got):\n%s", i, diff)
		}
	}
}
