package scheduler_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// mixed is a fleet on which jobs and services of all kinds run in virtual time.
type mixed struct {
	now     time.Time
	nodes   []scheduler.Node
	held    map[cluster.TaskID]scheduler.Reservation
	ends    map[cluster.TaskID]time.Time // of running tasks
	waiting []cluster.Pending
	arrived int
	quota   int // of tasks; 0 for none
	several int // requests for several tasks
}

// fleet returns a fleet with the reservations under UUIDs that begin with a prefix, in a random order.
func (m *mixed) fleet(t *rapid.T, prefix string) *scheduler.Fleet {
	f := scheduler.NewFleet()
	if m.quota > 0 {
		f.Limits.SetQuota("c", &cluster.Quota{Tasks: m.quota})
	}
	for _, n := range rapid.Permutation(m.nodes).Draw(t, "nodes") {
		f.SetNode(n)
	}
	var held []scheduler.Reservation
	for _, r := range m.held { // order-free: sorted next
		held = append(held, r)
	}
	slices.SortFunc(held, func(a, b scheduler.Reservation) int { return a.Started.Compare(b.Started) })
	if len(held) > 0 {
		held = rapid.Permutation(held).Draw(t, "held")
	}
	for i, r := range held {
		r.UUID = fmt.Sprint(prefix, i)
		f.Reserve(r)
	}
	return f
}

func drawMixed(t *rapid.T) *mixed {
	m := &mixed{
		now: epoch(), held: map[cluster.TaskID]scheduler.Reservation{}, ends: map[cluster.TaskID]time.Time{},
		quota: max(rapid.IntRange(-10, 10).Draw(t, "quota"), 0),
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := scheduler.Node{
			Name: fmt.Sprint("n", i), State: cluster.NodeReady, Arch: "amd64", OS: "linux",
			Executors: []string{"process"}, Pool: rapid.SampledFrom([]string{"", "p"}).Draw(t, "pool"),
			Capacity: cluster.Demand{
				CPU:    cluster.MilliCPU(1000 * rapid.IntRange(2, 8).Draw(t, "cpus")),
				Memory: cluster.Bytes(rapid.IntRange(2, 8).Draw(t, "memory")),
			},
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "devices") {
			n.Devices = append(n.Devices, cluster.Device{ID: fmt.Sprint("g", j), Type: "gpu", Memory: 8})
		}
		m.nodes = append(m.nodes, n)
	}
	return m
}

// arrive adds the tasks of a job or a service.
func (m *mixed) arrive(t *rapid.T) {
	m.arrived++
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: fmt.Sprint("o", m.arrived)}
	if rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
		owner.Kind = cluster.KindService
	}
	p := cluster.Pending{
		Owner: owner, Attempt: 1, Since: m.now, Count: rapid.IntRange(1, 3).Draw(t, "count"),
		Priority: rapid.SampledFrom([]int{1, 500, 500, 500, 900}).Draw(t, "priority"),
		Queue: rapid.SampledFrom([]cluster.QueuePolicy{
			cluster.QueueEASY, cluster.QueueEASY, cluster.QueueFIFO, cluster.QueueSJBF, cluster.QueueGreedy, "",
		}).Draw(t, "policy"),
		TimeLimit: cluster.Duration(rapid.IntRange(0, 20).Draw(t, "limit")) * cluster.Duration(time.Minute),
		Demand: cluster.Demand{
			CPU:    cluster.MilliCPU(1000 * rapid.IntRange(0, 8).Draw(t, "cpus")),
			Memory: cluster.Bytes(rapid.IntRange(0, 8).Draw(t, "memory")),
		},
	}
	p.Placement.Pool = rapid.SampledFrom([]string{"", "p"}).Draw(t, "pool")
	for i := range rapid.IntRange(-2, 2).Draw(t, "ports") {
		port := rapid.SampledFrom([]int{0, 80 + i}).Draw(t, "port")
		p.Ports = append(p.Ports, cluster.Port{Name: fmt.Sprint("p", i), Port: port})
	}
	switch rapid.IntRange(0, 5).Draw(t, "devices") {
	case 0:
		p.Devices = []cluster.DeviceRequest{{Type: "gpu", Count: rapid.IntRange(1, 3).Draw(t, "gpus")}}
	case 1:
		p.Devices = []cluster.DeviceRequest{{
			Type: "gpu", Share: 100 * rapid.IntRange(1, 9).Draw(t, "share"),
			Memory: cluster.Bytes(rapid.IntRange(0, 8).Draw(t, "gpu memory")),
		}}
	}
	switch rapid.IntRange(0, 8).Draw(t, "placement") {
	case 0:
		p.Placement.AntiAffinity = cluster.AntiAffinityDemand
	case 1:
		p.Placement.Spread = []cluster.Spread{{Attribute: "node.name", MaxSkew: 1}}
	case 2:
		p.Promised = rapid.SampledFrom(m.nodes).Draw(t, "promised").Name
	case 3:
		p.OnlyNode = rapid.SampledFrom(m.nodes).Draw(t, "only").Name
	}
	gang := p.Count > 1 && rapid.Bool().Draw(t, "gang")
	for i := range p.Count {
		q := p
		if gang {
			q.Gang, q.GangSize = owner.Name, p.Count-rapid.IntRange(0, 1).Draw(t, "spare")
		}
		if q.Task = cluster.JobTask("c", owner.Name, 1, "s", i); owner.Kind == cluster.KindService {
			q.Task = cluster.ServiceTask("c", owner.Name, 1, i)
		}
		m.waiting = append(m.waiting, q)
	}
}

// TestMixedQueues draws queues of jobs and services with ports, devices, gangs and policies, and nodes that come and
// go. No node is used beyond its capacity, and the result depends on no order and no UUID.
func TestMixedQueues(t *testing.T) {
	promises, several := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawMixed(t)
		defer func() { several += m.several }()
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			m.now = m.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "minutes")) * time.Minute)
			for task, at := range m.ends { // order-free: each by itself
				if !m.now.Before(at) {
					delete(m.ends, task)
					delete(m.held, task)
				}
			}
			for range rapid.IntRange(0, 5).Draw(t, "arrivals") {
				m.arrive(t)
			}
			down := rapid.IntRange(0, 2*len(m.nodes)).Draw(t, "down")
			all := m.nodes
			if down < len(all) {
				m.nodes = slices.Delete(slices.Clone(all), down, down+1)
			}
			if len(m.nodes) > 0 {
				promises += m.step(t)
			}
			m.nodes = all
		}
	})
	if promises == 0 || several == 0 {
		t.Errorf("%d promises were given, and %d requests were for several tasks", promises, several)
	}
}

// step schedules, checks the result and carries it out. It returns the number of promises.
func (m *mixed) step(t *rapid.T) (promises int) {
	f := m.fleet(t, "a")
	opts := scheduler.Options{Now: m.now}
	res := scheduler.Schedule(f, m.waiting, opts)
	sameResult(t, "the fleet changed", scheduler.Schedule(f, m.waiting, opts), res)
	sameResult(t, "the clone differs", scheduler.Schedule(f.Clone(), m.waiting, opts), res)
	for _, way := range []taskclass.SearchWay{taskclass.SearchByRanking, taskclass.SearchByTrees} {
		sameResult(t, "the search differs",
			scheduler.Schedule(f, m.waiting, scheduler.Options{Now: m.now, Search: way}), res)
	}
	if len(m.waiting) > 0 {
		shuffled := rapid.Permutation(m.waiting).Draw(t, "pending")
		got := scheduler.Schedule(m.fleet(t, "b"), shuffled, opts)
		for i := range got.Placements {
			p := &got.Placements[i]
			p.Pending = slices.IndexFunc(m.waiting, func(q cluster.Pending) bool { return q.Task == p.Task })
		}
		sameResult(t, "the order matters", got, res)
	}
	everyTaskHasAnAnswer(t, m.waiting, res)
	m.several += sameForRanges(t, f, m.waiting, opts, res)
	for i := range res.Placements {
		pl := &res.Placements[i]
		p := &m.waiting[pl.Pending]
		r := pl.Reservation(p, string(pl.Task))
		if r.Started = m.now; rapid.IntRange(0, 4).Draw(t, "starts") == 0 {
			r.Started = time.Time{}
		}
		m.held[pl.Task] = r
		runs := cmp.Or(time.Duration(p.TimeLimit), time.Hour) * time.Duration(rapid.IntRange(1, 4).Draw(t, "runs")) / 4
		m.ends[pl.Task] = m.now.Add(runs)
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(p cluster.Pending) bool {
		_, runs := m.held[p.Task]
		return runs
	})
	m.nothingIsUsedTwice(t)
	for _, w := range res.Waiting {
		if p := w.Promise; p != nil {
			promises++
			if p.After == "" || p.Node == "" || !p.At.IsZero() && p.At.Before(m.now) {
				t.Fatalf("promise to %s: %+v", w.Task, p)
			}
		}
	}
	return promises
}

// nothingIsUsedTwice checks what runs against the nodes.
func (m *mixed) nothingIsUsedTwice(t *rapid.T) {
	for _, n := range m.nodes {
		var used cluster.Demand
		ports, shares, memory := map[int]bool{}, map[string]int{}, map[string]cluster.Bytes{}
		for task, r := range m.held { // order-free: a sum
			if r.Node != n.Name {
				continue
			}
			used = used.Add(r.Demand)
			for _, p := range r.Ports {
				if ports[p] {
					t.Fatalf("%s: port %d of %s is used twice", task, p, n.Name)
				}
				ports[p] = true
			}
			for _, d := range r.Devices {
				shares[d.ID] += d.Share
				memory[d.ID] += d.Memory
				if shares[d.ID] > cluster.WholeDevice || memory[d.ID] > 8 {
					t.Fatalf("%s: device %s of %s is used twice", task, d.ID, n.Name)
				}
			}
		}
		if used.CPU > n.Capacity.CPU || used.Memory > n.Capacity.Memory {
			t.Fatalf("%s is used beyond its capacity: %v of %v", n.Name, used, n.Capacity)
		}
	}
}
