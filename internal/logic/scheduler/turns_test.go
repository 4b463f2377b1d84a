package scheduler_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// fairTask returns the request of further+1 tasks of a job of a user.
func fairTask(in, user, job string, further int, d cluster.Demand) cluster.Pending {
	return cluster.Pending{
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: in, Name: job},
		Task:  cluster.JobTask(in, job, 1, "s", 0), Further: further, Attempt: 1, Priority: cluster.DefaultPriority,
		Queue: cluster.QueueFair, User: user, Weight: 1, Demand: d, Since: epoch(),
	}
}

// TestDominantShares repeats the example of the paper on dominant resource fairness: on 9 CPUs and 18 GB, a user whose
// tasks need 1 CPU and 4 GB gets three, and one whose tasks need 3 CPUs and 1 GB gets two.
func TestDominantShares(t *testing.T) {
	t.Parallel()
	for _, users := range [][2][2]string{{{"a", "x"}, {"b", "x"}}, {{"a", "x"}, {"a", "y"}}} {
		f := scheduler.NewFleet()
		f.SetNode(scheduler.Node{
			Name: "n", State: cluster.NodeReady, Executors: []string{"process"},
			Capacity: cluster.Demand{CPU: 9000, Memory: 18 * cluster.GiB},
		})
		pending := []cluster.Pending{
			fairTask(users[0][0], users[0][1], "memory", 99, cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB}),
			fairTask(users[1][0], users[1][1], "cpu", 99, cluster.Demand{CPU: 3000, Memory: cluster.GiB}),
		}
		placed := map[string]int{}
		res := scheduler.Schedule(f, pending, scheduler.Options{Now: epoch()})
		for i := range res.Placements {
			placed[res.Pending[res.Placements[i].Pending].Owner.Name]++
		}
		if placed["memory"] != 3 || placed["cpu"] != 2 {
			t.Errorf("%v: %v tasks are placed, want 3 and 2", users, placed)
		}
	}
}

// fairUsage is what the users of a fair queue hold in a simulation of a full fleet.
type fairUsage struct {
	t       *testing.T
	fleet   *scheduler.Fleet
	now     time.Time
	pending []cluster.Pending
	random  *rand.Rand
	longest time.Duration
	ends    map[string]time.Time      // by UUID
	demand  map[string]cluster.Demand // by UUID
	holder  map[string]string         // by UUID: cluster/user
	used    map[string]time.Duration  // CPU seconds by cluster/user
	started map[cluster.OwnerRef]int  // tasks
	number  int
}

func newFairUsage(t *testing.T, nodes, cpus int) *fairUsage {
	u := &fairUsage{
		t: t, fleet: scheduler.NewFleet(), now: epoch(), random: rand.New(rand.NewPCG(1, 2)),
		longest: 20 * time.Minute, ends: map[string]time.Time{}, demand: map[string]cluster.Demand{},
		holder: map[string]string{}, used: map[string]time.Duration{}, started: map[cluster.OwnerRef]int{},
	}
	for i := range nodes {
		u.fleet.SetNode(scheduler.Node{
			Name: fmt.Sprint("n", i), State: cluster.NodeReady, Executors: []string{"process"},
			Capacity: cluster.Demand{CPU: cluster.MilliCPU(1000 * cpus)},
		})
	}
	return u
}

// run runs the queue for a time, a minute a step, and returns the share of the CPUs that each user held.
func (u *fairUsage) run(d time.Duration, capacity int) map[string]float64 {
	clear(u.used)
	const step = time.Minute
	for range d / step {
		for uuid, at := range u.ends {
			if !u.now.Before(at) {
				u.fleet.Release(uuid)
				delete(u.ends, uuid)
				delete(u.demand, uuid)
				delete(u.holder, uuid)
			}
		}
		res := scheduler.Schedule(u.fleet, u.pending, scheduler.Options{Now: u.now})
		for i := range res.Placements {
			pl := &res.Placements[i]
			p := &res.Pending[pl.Pending]
			u.number++
			r := pl.Reservation(p, fmt.Sprint(u.number))
			r.Started = u.now
			u.fleet.Reserve(r)
			u.ends[r.UUID] = u.now.Add(time.Duration(1+u.random.IntN(int(u.longest/step))) * step)
			u.demand[r.UUID], u.holder[r.UUID] = p.Demand, p.Owner.Cluster+"/"+p.User
			u.started[p.Owner]++
		}
		placed := map[int]bool{} // requests of which nothing is left
		for i := range res.Placements {
			placed[res.Placements[i].Pending] = true
		}
		left := u.pending[:0]
		for i := range u.pending {
			if !placed[i] {
				left = append(left, res.Pending[i])
			}
		}
		u.pending = left
		for uuid, demand := range u.demand {
			u.used[u.holder[uuid]] += time.Duration(demand.CPU) * step
		}
		u.now = u.now.Add(step)
	}
	shares := map[string]float64{}
	for user, used := range u.used {
		shares[user] = float64(used) / float64(d) / float64(1000*capacity)
	}
	return shares
}

// TestFairSharesOfEachHour has clusters and users with more work than room, whose tasks differ in size and length. In
// each hour of a day, each holds its share, within 5 % of it: first with three users, later with a fourth one, which
// came last and whose jobs are the newest.
func TestFairSharesOfEachHour(t *testing.T) {
	t.Parallel()
	u := newFairUsage(t, 50, 32)
	add := func(in, user string, weight, milliCPU int) {
		p := fairTask(in, user, fmt.Sprint("j", len(u.pending)), 1_000_000,
			cluster.Demand{CPU: cluster.MilliCPU(milliCPU)})
		p.Weight, p.Since = weight, u.now
		u.pending = append(u.pending, p)
	}
	check := func(hour int, got, want map[string]float64) {
		t.Helper()
		for user, share := range want {
			if math.Abs(got[user]-share) > 0.05*share {
				t.Errorf("hour %d: %s held %.3f of the CPUs, want %.3f", hour, user, got[user], share)
			}
		}
	}
	add("a", "ann", 1, 1000)
	add("a", "ann", 1, 500)
	add("a", "bob", 1, 2000)
	add("b", "cat", 2, 1500)
	for hour := range 6 {
		check(hour, u.run(time.Hour, 1600), map[string]float64{"a/ann": 1. / 6, "a/bob": 1. / 6, "b/cat": 2. / 3})
	}
	add("b", "dan", 2, 1000)
	u.run(u.longest, 1600) // tasks of cat end
	for hour := range 6 {
		check(7+hour, u.run(time.Hour, 1600),
			map[string]float64{"a/ann": 1. / 6, "a/bob": 1. / 6, "b/cat": 1. / 3, "b/dan": 1. / 3})
	}
}

// TestFairQueueServesWhatIsLeft gives the share of those that have no work to the others, and none to those that ask
// for what no node has.
func TestFairQueueServesWhatIsLeft(t *testing.T) {
	t.Parallel()
	u := newFairUsage(t, 20, 16)
	u.pending = []cluster.Pending{
		fairTask("a", "ann", "large", 1000, cluster.Demand{CPU: 17_000}),
		fairTask("a", "ann", "small", 1_000_000, cluster.Demand{CPU: 1000}),
		fairTask("b", "bob", "small", 99, cluster.Demand{CPU: 1000}),
	}
	u.pending[0].Since = epoch().Add(-time.Hour)
	u.run(time.Hour, 320)
	if len(u.pending) != 2 {
		t.Fatalf("%d requests are left, want those of ann", len(u.pending))
	}
	if got := u.run(time.Hour, 320); got["a/ann"] < 0.99 {
		t.Errorf("the only user with work that fits holds %.3f of the CPUs", got["a/ann"])
	}
}

// TestFairQueuesStarveNobody has a user whose jobs are of the lowest priority beside users of the highest one with
// endless work.
func TestFairQueuesStarveNobody(t *testing.T) {
	t.Parallel()
	u := newFairUsage(t, 2, 4)
	u.pending = []cluster.Pending{
		fairTask("a", "ann", "urgent", 1_000_000, cluster.Demand{CPU: 1000}),
		fairTask("b", "bob", "urgent", 1_000_000, cluster.Demand{CPU: 1000}),
		fairTask("a", "low", "low", 10, cluster.Demand{CPU: 1000}),
	}
	u.pending[0].Priority, u.pending[1].Priority, u.pending[2].Priority = 950, 950, 50
	low := u.pending[2].Owner
	u.run(24*time.Hour, 8)
	if n := u.started[low]; n > 0 {
		t.Errorf("%d tasks of the lowest priority started on the first day", n)
	}
	u.run(7*24*time.Hour, 8)
	if u.started[low] == 0 {
		t.Error("no task of the lowest priority has started after eight days")
	}
}

// TestFairOrder draws fair queues on an empty fleet with room for all tasks: they are placed in the order that Order
// gives, and requests of several tasks have the result of single ones.
func TestFairOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := scheduler.NewFleet()
		f.SetNode(scheduler.Node{
			Name: "n", State: cluster.NodeReady, Executors: []string{"process"},
			Capacity: cluster.Demand{CPU: 1_000_000},
		})
		var pending, single []cluster.Pending
		for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			p := fairTask(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "cluster"),
				rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "user"), fmt.Sprint("j", i),
				rapid.SampledFrom([]int{0, 1, 5, 9}).Draw(t, "further"),
				cluster.Demand{CPU: rapid.SampledFrom([]cluster.MilliCPU{100, 300, 500}).Draw(t, "cpu")})
			p.Priority = rapid.SampledFrom([]int{350, 500, 550}).Draw(t, "priority")
			p.Queue = rapid.SampledFrom([]cluster.QueuePolicy{cluster.QueueFair, cluster.QueueFair, cluster.QueueEASY}).
				Draw(t, "queue")
			pending = append(pending, p)
			single = append(single, cluster.Expand([]cluster.Pending{p})...)
		}
		res := scheduler.Schedule(f, pending, scheduler.Options{Now: epoch()})
		var placed, first []cluster.TaskID
		seen := map[cluster.OwnerRef]bool{}
		for i := range res.Placements {
			placed = append(placed, res.Placements[i].Task)
			if o := res.Pending[res.Placements[i].Pending].Owner; !seen[o] {
				seen[o] = true
				first = append(first, res.Placements[i].Task)
			}
		}
		var alone []cluster.TaskID
		for _, pl := range scheduler.Schedule(f, single, scheduler.Options{Now: epoch()}).Placements {
			alone = append(alone, pl.Task)
		}
		if !slices.Equal(placed, alone) {
			t.Fatalf("placed as ranges: %v\nplaced as single tasks: %v", placed, alone)
		}
		order, _ := scheduler.Order(f, pending, epoch())
		var ordered []cluster.TaskID
		for i := range order {
			ordered = append(ordered, pending[order[i].Pending].Task)
			if at := slices.Index(placed, ordered[i]); order[i].Ahead != at {
				t.Fatalf("%s: %d tasks are ahead of it, want %d in %v", ordered[i], order[i].Ahead, at, placed)
			}
		}
		if !slices.Equal(ordered, first) {
			t.Fatalf("order %v, placed %v", ordered, first)
		}
	})
}

// TestOrderOfBorrowers puts a request last whose first task is beyond the quota of its cluster, and so a gang of which
// one member is. What a request takes of the quota counts for those behind it.
func TestOrderOfBorrowers(t *testing.T) {
	f := scheduler.NewFleet()
	f.Limits.SetQuota("c", &cluster.Quota{Tasks: 3, Borrow: &cluster.QuotaBorrow{Tasks: 5}})
	f.Limits.SetQuota("b", &cluster.Quota{Tasks: 5})
	request := func(name, job, gang string, tasks int) cluster.Pending {
		return cluster.Pending{
			Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: name, Name: job}, Attempt: 1, Priority: 500,
			Task: cluster.JobTask(name, job, 1, "s", 0), Further: tasks - 1, Gang: gang, GangSize: 2,
		}
	}
	member := request("c", "j2", "g", 1)
	member.Task = cluster.JobTask("c", "j2", 1, "s", 1)
	pending := []cluster.Pending{
		request("c", "j1", "", 2), request("c", "j2", "g", 1), member, request("c", "j3", "", 1),
		request("c", "j4", "", 1), request("b", "j5", "", 7), request("c", "j6", "", 1),
	}
	for i := range pending {
		pending[i].Priority -= i
	}
	order, _ := scheduler.Order(f, pending, epoch())
	want := []scheduler.Turn{{0, 0}, {3, 2}, {5, 3}, {1, 10}, {2, 11}, {4, 12}, {6, 13}}
	if !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}
