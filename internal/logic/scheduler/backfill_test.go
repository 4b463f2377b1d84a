package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
)

// batch is a fleet that runs tasks of jobs in virtual time, a minute a step.
type batch struct {
	fleet   *scheduler.Fleet
	now     time.Time
	waiting []cluster.Pending
	ends    map[cluster.TaskID]time.Time // of running tasks
	length  map[cluster.TaskID]time.Duration
	last    scheduler.Result
	arrived int
}

func newBatch(nodes ...int) *batch {
	b := &batch{
		fleet: scheduler.NewFleet(), now: epoch(), ends: map[cluster.TaskID]time.Time{},
		length: map[cluster.TaskID]time.Duration{},
	}
	for i, cpus := range nodes {
		b.fleet.SetNode(scheduler.Node{
			Name: fmt.Sprint("n", i), State: cluster.NodeReady, Arch: "amd64", OS: "linux",
			Executors: []string{"process"}, Capacity: cluster.Demand{CPU: cluster.MilliCPU(1000 * cpus)},
		})
	}
	return b
}

// submit adds a task that runs so long, with a limit (0 for none), and returns its id.
func (b *batch) submit(policy cluster.QueuePolicy, priority, cpus int, runs, limit time.Duration) cluster.TaskID {
	b.arrived++
	p := cluster.Pending{
		Owner:   cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: fmt.Sprint("j", b.arrived)},
		Attempt: 1, Count: 1, Priority: priority, Since: b.now, TimeLimit: cluster.Duration(limit), Queue: policy,
		Demand: cluster.Demand{CPU: cluster.MilliCPU(1000 * cpus)},
	}
	p.Task = cluster.JobTask("c", p.Owner.Name, 1, "s", 0)
	b.length[p.Task] = runs
	b.waiting = append(b.waiting, p)
	return p.Task
}

// step ends the tasks that are due, and schedules.
func (b *batch) step() {
	for task, at := range b.ends {
		if !b.now.Before(at) {
			b.fleet.Release(string(task))
			delete(b.ends, task)
		}
	}
	b.last = scheduler.Schedule(b.fleet, b.waiting, scheduler.Options{Now: b.now})
	for i := range b.last.Placements {
		pl := &b.last.Placements[i]
		r := pl.Reservation(&b.waiting[pl.Pending], string(pl.Task))
		r.Started = b.now
		b.fleet.Reserve(r)
		b.ends[pl.Task] = b.now.Add(b.length[pl.Task])
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(p cluster.Pending) bool {
		_, runs := b.ends[p.Task]
		return runs
	})
}

// first returns the first waiting task in the queue and its promise.
func (b *batch) first() (cluster.TaskID, *cluster.Promise) {
	if len(b.last.Waiting) == 0 {
		return "", nil
	}
	return b.last.Waiting[0].Task, b.last.Waiting[0].Promise
}

// overdueAfter is how long a task with a limit waits in a queue with the policy sjbf before it is overdue.
func overdueAfter(limit time.Duration) time.Duration {
	return max(cycle.MinOverdue, cycle.OverdueFactor*limit)
}

// TestPromisesAreKept draws queues of one priority whose tasks end by their limits: the first task of the queue has a
// promise, which never becomes later and is kept. With the policy sjbf that holds for tasks that are overdue, and for
// all tasks if their limits are equal.
func TestPromisesAreKept(t *testing.T) {
	overdue := 0
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(rapid.IntRange(2, 8), 1, 4).Draw(t, "nodes")
		largest := slices.Max(nodes)
		b := newBatch(nodes...)
		policy, unit := cluster.QueueEASY, time.Minute
		equal := rapid.Bool().Draw(t, "equal limits")
		if rapid.Bool().Draw(t, "sjbf") {
			policy, unit = cluster.QueueSJBF, time.Hour
		}
		limits := map[cluster.TaskID]time.Duration{}
		since := map[cluster.TaskID]time.Time{}
		var task cluster.TaskID
		var promised time.Time
		isFirm := false // the promise may not become later
		for range rapid.IntRange(10, 120).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "arrivals") {
				n := rapid.IntRange(1, 30).Draw(t, "limit")
				if equal {
					n = 10
				}
				limit := time.Duration(n) * unit
				runs := limit - time.Duration(rapid.IntRange(0, n-1).Draw(t, "early"))*unit
				id := b.submit(policy, cluster.DefaultPriority, rapid.IntRange(1, largest).Draw(t, "cpus"), runs, limit)
				limits[id], since[id] = limit, b.now
			}
			b.step()
			first, promise := b.first()
			if first != "" && promise == nil {
				t.Fatalf("%s: the first task %s has no promise: %q", b.now, first, b.last.Waiting[0].Sentence)
			}
			_, started := b.ends[task]
			switch {
			case first == "":
			case isFirm && task == first && promise.At.After(promised):
				t.Fatalf("%s: the promise to %s became later: %s after %s", b.now, task, promise.At, promised)
			case promise.At.Before(b.now):
				t.Fatalf("%s: %s should have started at %s", b.now, first, promise.At)
			case isFirm && task != first && !started:
				t.Fatalf("%s: %s came before %s, which has a promise", b.now, first, task)
			}
			if isFirm && started && b.now.After(promised) {
				t.Fatalf("%s: %s started after its promise of %s", b.now, task, promised)
			}
			task = first
			if promise != nil {
				promised = promise.At
			}
			isOverdue := policy == cluster.QueueSJBF && b.now.Sub(since[first]) >= overdueAfter(limits[first])
			if isFirm = first != "" && (policy == cluster.QueueEASY || equal || isOverdue); isFirm && isOverdue {
				overdue++
			}
			b.now = b.now.Add(unit)
		}
	})
	if overdue == 0 {
		t.Error("no task was overdue")
	}
}

// TestNodesEmpty shows that a task starts though nothing has a limit: the node with the fewest tasks is not filled
// again. With the policy greedy it would wait for ever.
func TestNodesEmpty(t *testing.T) {
	for policy, starts := range map[cluster.QueuePolicy]bool{
		cluster.QueueEASY: true, cluster.QueueFIFO: true, cluster.QueueGreedy: false,
	} {
		b := newBatch(4, 4, 4)
		var large cluster.TaskID
		for minute := range 300 {
			if minute == 10 {
				large = b.submit(policy, cluster.DefaultPriority, 4, time.Hour, 0)
			}
			for i := range 2 { // more than there is room for
				b.submit(policy, cluster.DefaultPriority, 1, time.Duration(7+i*6+minute%5)*time.Minute, 0)
			}
			b.step()
			if _, runs := b.ends[large]; runs {
				break
			}
			b.now = b.now.Add(time.Minute)
		}
		if _, runs := b.ends[large]; runs != starts {
			t.Errorf("%s: the task of four CPUs runs: %v at %s", policy, runs, b.now.Sub(epoch()))
		}
	}
}

// TestNothingStarves shows that a task of the lowest priority starts though more urgent and shorter ones arrive without
// end. Its rank in the queue reaches theirs after (900 − 1) · AgeStep, or with the policy sjbf it is overdue. Then it
// waits for the tasks that run.
func TestNothingStarves(t *testing.T) {
	const urgent, lowest = 900, 1
	const longest = 30 * time.Minute
	for policy, rising := range map[cluster.QueuePolicy]time.Duration{
		cluster.QueueEASY: (urgent - lowest) * cycle.AgeStep, cluster.QueueSJBF: overdueAfter(longest),
	} {
		b := newBatch(4, 2)
		task := b.submit(policy, lowest, 4, longest, longest)
		for {
			if _, runs := b.ends[task]; runs {
				break
			}
			if waited := b.now.Sub(epoch()); waited > rising+2*longest {
				t.Fatalf("%s: still waits after %s", policy, waited)
			}
			for len(b.waiting) < 6 {
				limit := longest - time.Duration(1+b.arrived%7)*time.Minute
				b.submit(policy, urgent, 1+b.arrived%2, limit, limit)
			}
			b.step()
			b.now = b.now.Add(time.Minute)
		}
		if waited := b.now.Sub(epoch()); waited < rising-time.Hour {
			t.Errorf("%s: started after %s, before its rank reached that of the urgent tasks after %s", policy, waited,
				rising)
		}
	}
}

// TestGangsBeyondAQuota shows that a gang whose quota admits some of its members alone gets no promise, and keeps no
// room.
func TestGangsBeyondAQuota(t *testing.T) {
	b := newBatch(4)
	b.fleet.Limits.SetQuota("c", &cluster.Quota{Tasks: 1})
	for i := range 2 {
		b.submit(cluster.QueueEASY, cluster.DefaultPriority, 1, time.Hour, time.Hour)
		p := &b.waiting[i]
		p.Task, p.Gang, p.GangSize = cluster.JobTask("c", "gang", 1, "s", i), "g", 2
	}
	long := b.submit(cluster.QueueEASY, cluster.DefaultPriority, 4, 2*time.Hour, 0)
	b.step()
	if _, promise := b.first(); promise != nil {
		t.Errorf("got a promise: %+v", promise)
	}
	if _, runs := b.ends[long]; !runs {
		t.Error("room is kept for the gang")
	}
}

// TestPromisesOfOtherTasks shows that a task gets its promise behind many tasks that fit on no node, and behind many
// with promises in another pool.
func TestPromisesOfOtherTasks(t *testing.T) {
	for _, policy := range []cluster.QueuePolicy{cluster.QueueEASY, cluster.QueueFIFO} {
		b := newBatch(4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)
		for i := range 11 {
			n, _, _ := b.fleet.Node(fmt.Sprint("n", i))
			if n.Pool = "p"; i == 0 {
				n.Pool = "o"
			}
			b.fleet.SetNode(n)
			b.submit(policy, cluster.DefaultPriority, 2, time.Hour, time.Hour)
			b.waiting[i].Placement.Pool = n.Pool
		}
		b.step()
		for range 20 {
			b.submit(policy, cluster.DefaultPriority+1, 5, time.Hour, time.Hour)
			b.waiting[len(b.waiting)-1].Placement.Pool = "o"
			b.submit(cluster.QueueEASY, cluster.DefaultPriority+1, 2, time.Hour, time.Hour)
			b.waiting[len(b.waiting)-1].Placement.Pool = "p"
		}
		large := b.submit(policy, cluster.DefaultPriority, 4, time.Hour, time.Hour)
		small := b.submit(policy, cluster.DefaultPriority, 2, 2*time.Hour, 2*time.Hour)
		b.waiting[len(b.waiting)-2].Placement.Pool, b.waiting[len(b.waiting)-1].Placement.Pool = "o", "o"
		b.step()
		at := slices.IndexFunc(b.last.Waiting, func(w cluster.Waiting) bool { return w.Task == large })
		if at < 0 || b.last.Waiting[at].Promise == nil {
			t.Errorf("%s: the large task has no promise", policy)
		}
		if _, runs := b.ends[small]; runs {
			t.Errorf("%s: a task that runs longer took the room", policy)
		}
	}
}

// TestRoomOfVictims shows that the room of tasks that ended for a service goes to the service, though a task of a lower
// priority waits for so long that its rank is higher.
func TestRoomOfVictims(t *testing.T) {
	b := newBatch(4)
	old := b.submit(cluster.QueueEASY, cluster.DefaultPriority, 4, time.Hour, time.Hour)
	b.now = b.now.Add(500 * 10 * time.Minute)
	web := cluster.Pending{
		Task: cluster.ServiceTask("c", "web", 1, 0), Attempt: 1, Count: 1, Priority: 900, Since: b.now, Promised: "n0",
		Owner:  cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"},
		Demand: cluster.Demand{CPU: 4000},
	}
	b.waiting = append(b.waiting, web)
	b.step()
	if first, _ := b.first(); first != old {
		t.Errorf("%q waits, want %s", first, old)
	}
}

// TestPromiseBeyondAQuota checks a cycle in which a promise is given anew, while the quota no longer allows the task
// that had it: a short task behind it took its quota on another node.
func TestPromiseBeyondAQuota(t *testing.T) {
	b := newBatch(4, 2)
	b.submit(cluster.QueueEASY, 500, 2, time.Hour, time.Hour)
	b.fleet.SetNode(scheduler.Node{Name: "n1"}) // so that the task runs on the first node
	b.step()
	b.fleet.SetNode(scheduler.Node{
		Name: "n1", State: cluster.NodeReady, Arch: "amd64", OS: "linux", Executors: []string{"process"},
		Capacity: cluster.Demand{CPU: 2000},
	})
	large := b.submit(cluster.QueueEASY, 500, 4, time.Hour, 2*time.Hour)
	short := b.submit(cluster.QueueEASY, 400, 2, time.Minute, 10*time.Minute)
	long := b.submit(cluster.QueueEASY, 300, 1, time.Hour, 0)
	b.waiting[2].Owner.Cluster = "other"
	b.fleet.Limits.SetQuota("c", &cluster.Quota{CPU: 7000})
	b.step()
	for task, want := range map[cluster.TaskID]bool{short: true, large: false, long: true} {
		if _, runs := b.ends[task]; runs != want {
			t.Errorf("%s runs: %t, want %t", task, runs, want)
		}
	}
}
