package window

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// drawJob draws the requests of a job: steps in several pools with several policies, gangs, held requests, and requests
// of several tasks.
func drawJob(t *rapid.T, n int) (cluster.OwnerRef, []cluster.Pending) {
	o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: []string{"b", "c"}[n%2], Name: fmt.Sprintf("j%02d", n)}
	priority := rapid.SampledFrom([]int{500, 500, 500, 501, 574, 575}).Draw(t, "priority")
	user := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user")
	var requests []cluster.Pending
	for step := range rapid.IntRange(0, 12).Draw(t, "steps") {
		p := cluster.Pending{
			Task:  cluster.JobTask(o.Cluster, o.Name, 1, fmt.Sprintf("s%02d", step), 0),
			Owner: o, Priority: priority, User: user,
			Further: rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "further"),
			Queue: rapid.SampledFrom([]cluster.QueuePolicy{
				cluster.QueueEASY, cluster.QueueSJBF, cluster.QueueSJBF, cluster.QueueFIFO, cluster.QueueFair,
			}).Draw(t, "policy"),
			Since:     noon.Add(-time.Duration(rapid.IntRange(0, 1).Draw(t, "hours")) * time.Hour),
			TimeLimit: cluster.Duration(rapid.IntRange(0, 3).Draw(t, "limit")) * cluster.Duration(time.Hour),
		}
		p.Placement.Pool = rapid.SampledFrom([]string{"", "gpu"}).Draw(t, "pool")
		if rapid.IntRange(0, 5).Draw(t, "held") == 0 {
			p.Hold = cluster.Hold{Reason: cluster.ReasonNeeds, Message: "needs s0"}
		}
		if size := rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "gang"); size > 1 {
			p.Gang, p.GangSize, p.Further = string(p.Task), size, 0
			for i := range size {
				member := p
				member.Task = p.Task.Offset(i)
				requests = append(requests, member)
			}
			continue
		}
		requests = append(requests, p)
	}
	return o, requests
}

// lineOf names the queue of a request: clusters, levels of priority and users of a fair queue have their own. 575 is
// the lowest priority of its level.
func lineOf(p *cluster.Pending) string {
	name := fmt.Sprintf("%s/%s/%s/%t", p.Placement.Pool, p.Queue, p.Owner.Cluster, p.Priority >= 575)
	if p.Queue == cluster.QueueFair {
		name += "/" + p.User
	}
	return name
}

// byQueue returns the requests of all jobs that may be placed, in the order of placement, by queue.
func byQueue(jobs map[cluster.OwnerRef][]cluster.Pending) map[string][]cluster.Pending {
	var all []cluster.Pending
	for _, requests := range jobs { // order-free: sorted below
		all = append(all, requests...)
	}
	order, _ := cycle.Order(all, noon)
	queues := map[string][]cluster.Pending{}
	for _, i := range order {
		name := lineOf(&all[i])
		queues[name] = append(queues[name], all[i])
	}
	return queues
}

// checkWindow checks one window, and returns its tasks.
func checkWindow(t *rapid.T, w *Window, q *Queue, jobs map[cluster.OwnerRef][]cluster.Pending,
	promised []Task,
) map[cluster.TaskID]bool {
	has := map[cluster.TaskID]bool{}
	for i := range w.Pending {
		p := &w.Pending[i]
		if has[p.Task] {
			t.Fatalf("%s is there twice", p.Task)
		}
		has[p.Task] = true
		if of := jobs[w.Of[i].Owner]; w.Of[i].Index >= len(of) || of[w.Of[i].Index].Task != p.Task {
			t.Fatalf("%s is not request %d of %s", p.Task, w.Of[i].Index, w.Of[i].Owner)
		}
	}
	isPromised := map[cluster.TaskID]bool{}
	for _, task := range promised {
		isPromised[task.Task] = true
	}
	queues := byQueue(jobs)
	each := max(q.sizes.Head/max(len(queues), 1), q.sizes.HeadLeast)
	for name, requests := range queues { // order-free: each by itself
		alone := map[string]bool{} // whether a gang is in the window
		for n := range requests {
			p := &requests[n]
			r := p.Range()
			promised := false
			for task := range isPromised { // order-free: any
				promised = promised || r.Has(task)
			}
			if (n < each || promised) && !has[p.Task] {
				t.Fatalf("%s is number %d of %s, promised: %t, and not in the window", p.Task, n, name, promised)
			}
			if p.Gang == "" {
				continue
			}
			if was, known := alone[p.Gang]; known && was != has[p.Task] {
				t.Fatalf("the window has a part of the gang %s", p.Gang)
			}
			alone[p.Gang] = has[p.Task]
		}
	}
	return has
}

// TestWindows checks that each window has the first requests of each queue and those with a promise, and whole gangs;
// and that all others have a turn.
func TestWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New(Sizes{
			Most: 1, Head: rapid.IntRange(1, 40).Draw(t, "head"), HeadLeast: rapid.IntRange(1, 2).Draw(t, "least"),
			Turns: rapid.IntRange(1, 9).Draw(t, "turns"),
		})
		jobs := map[cluster.OwnerRef][]cluster.Pending{}
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range rapid.IntRange(1, 5).Draw(t, "changes") {
				o, requests := drawJob(t, rapid.IntRange(0, 9).Draw(t, "job"))
				q.Set(o, requests)
				if jobs[o] = requests; len(requests) == 0 {
					delete(jobs, o)
				}
			}
			total, placeable := 0, 0
			for _, requests := range jobs { // order-free: sums
				total += len(requests)
			}
			var promised []Task
			for _, requests := range byQueue(jobs) { // order-free: one of each
				last := &requests[len(requests)-1]
				promised = append(promised, Task{last.Owner, last.Task.Offset(last.Further)})
				placeable += len(requests)
			}
			if q.requests != total || q.IsLong() != (total > 1) {
				t.Fatalf("%d requests, and the queue counts %d", total, q.requests)
			}
			q.Restart()
			seen := map[cluster.TaskID]bool{}
			windows := 0
			for ; windows == 0 || q.HasTurns(); windows++ {
				if windows > 2*total+2 {
					t.Fatalf("round %d: turns are left after %d windows", round, windows)
				}
				for task := range checkWindow(t, q.Next(noon, promised), q, jobs, promised) { // order-free: a set
					seen[task] = true
				}
			}
			// A gang of three may exceed a window.
			if most := 2 + placeable/q.sizes.Turns; total > 1 && windows > most {
				t.Fatalf("%d windows for %d requests with %d turns each", windows, placeable, q.sizes.Turns)
			}
			for _, requests := range byQueue(jobs) { // order-free: each by itself
				for i := range requests {
					if total > 1 && !seen[requests[i].Task] {
						t.Fatalf("%s had no turn", requests[i].Task)
					}
				}
			}
		}
	})
}

// TestGangsStayWhole changes a job whose turns have begun, so that the next turn would be in the middle of a gang.
func TestGangsStayWhole(t *testing.T) {
	q := New(Sizes{Most: 1, Head: 1, HeadLeast: 1, Turns: 2})
	o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j"}
	one := func(i int, gang string) cluster.Pending {
		return cluster.Pending{
			Task: cluster.TaskID(fmt.Sprintf("c.j.1.s.%d", i)), Owner: o, Priority: 500, Queue: cluster.QueueEASY,
			Gang: gang,
		}
	}
	var alone, gang []cluster.Pending
	for i := range 6 {
		alone = append(alone, one(i, ""))
	}
	gang = append(gang, one(0, ""))
	for i := 1; i < 6; i++ {
		gang = append(gang, one(i, "g"))
	}
	q.Set(o, alone)
	q.Restart()
	q.Next(noon, nil) // the first one, and two in turn
	q.Set(o, gang)
	q.Restart()
	if w := q.Next(noon, nil); len(w.Of) != 6 {
		t.Fatalf("the window has %d requests, want the first one and the gang of five: %+v", len(w.Of), w.Of)
	}
}

// TestTurnsGoOn checks that a change of the queue does not begin the turns with the first requests again. Otherwise the
// last ones had none while jobs arrive and end all the time.
func TestTurnsGoOn(t *testing.T) {
	q := New(Sizes{Most: 3, Head: 1, HeadLeast: 1, Turns: 5})
	seen := map[cluster.OwnerRef]bool{}
	one := func(n int) (cluster.OwnerRef, []cluster.Pending) {
		o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: fmt.Sprintf("j%03d", n)}
		return o, []cluster.Pending{{
			Task: cluster.TaskID("c." + o.Name + ".s.1.0"), Owner: o, Priority: 500, Queue: cluster.QueueEASY,
			Since: noon.Add(time.Duration(n) * time.Second),
		}}
	}
	for n := range 100 {
		q.Set(one(n))
	}
	for n := range 20 {
		q.Set(one(n % 3)) // written again
		q.Restart()
		for _, r := range q.Next(noon, nil).Of {
			seen[r.Owner] = true
		}
	}
	if len(seen) != 100 {
		t.Fatalf("%d of 100 jobs had a turn", len(seen))
	}
}

// BenchmarkWindow makes windows of a million requests.
func BenchmarkWindow(b *testing.B) {
	for _, jobs := range []int{100, 10_000} {
		q := New(DefaultSizes())
		for j := range jobs {
			o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: fmt.Sprintf("j%05d", j)}
			var requests []cluster.Pending
			for s := range 1_000_000 / jobs {
				requests = append(requests, cluster.Pending{
					Task: cluster.TaskID(fmt.Sprintf("c.%s.s%d.1.0", o.Name, s)), Owner: o, Priority: 500,
					Queue: cluster.QueueEASY, Since: noon.Add(time.Duration(j) * time.Second),
				})
			}
			q.Set(o, requests)
		}
		q.Restart()
		for q.HasTurns() {
			q.Next(noon, nil)
		}
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q.Restart()
				q.Next(noon, nil)
			}
		})
	}
}
