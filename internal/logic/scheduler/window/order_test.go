package window

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// tasksOf returns the ordered tasks of a window.
func tasksOf(w *Window) (all []cluster.TaskID) {
	for i := range w.Pending {
		all = append(all, w.Pending[i].Task)
	}
	slices.Sort(all)
	return all
}

// single returns a job with one request.
func single(n int) (cluster.OwnerRef, []cluster.Pending) {
	o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: fmt.Sprintf("j%03d", n)}
	return o, []cluster.Pending{{
		Task: cluster.JobTask("c", o.Name, 1, "s", 0), Owner: o, Priority: 500, Queue: cluster.QueueEASY,
		Since: noon.Add(time.Duration(n) * time.Second),
	}}
}

// TestOrderOfChanges: the windows do not depend on the order in which jobs came, on jobs that came and went, or on
// requests that were written again.
func TestOrderOfChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := Sizes{
			Most: 1, Head: rapid.IntRange(1, 20).Draw(t, "head"), HeadLeast: rapid.IntRange(1, 2).Draw(t, "least"),
			Turns: rapid.IntRange(1, 9).Draw(t, "turns"),
		}
		jobs := map[cluster.OwnerRef][]cluster.Pending{}
		for n := range rapid.IntRange(1, 8).Draw(t, "jobs") {
			if o, requests := drawJob(t, n); len(requests) > 0 {
				jobs[o] = requests
			}
		}
		owners := slices.SortedFunc(maps.Keys(jobs), cluster.OwnerRef.Compare)
		straight, other := New(sizes), New(sizes)
		for _, o := range owners {
			straight.Set(o, jobs[o])
		}
		gone, goneRequests := single(500)
		other.Set(gone, goneRequests)
		for _, o := range rapid.Permutation(owners).Draw(t, "order") {
			if rapid.Bool().Draw(t, "written before") {
				other.Set(o, goneRequests)
			}
			other.Set(o, jobs[o])
		}
		other.Remove(gone)
		other.Remove(gone)
		straight.Restart()
		other.Restart()
		for range 6 {
			a, b := tasksOf(straight.Next(noon, nil)), tasksOf(other.Next(noon, nil))
			if diff := cmp.Diff(a, b); diff != "" {
				t.Fatalf("in another order:\n%s", diff)
			}
			if straight.HasTurns() != other.HasTurns() {
				t.Fatalf("turns are left: %t, in another order %t", straight.HasTurns(), other.HasTurns())
			}
		}
	})
}

// TestEveryRequestHasATurnInTime adds and removes jobs before each window. A job that stays has its turn before the
// turns could have gone round the whole queue, less what joins meanwhile.
func TestEveryRequestHasATurnInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most, turns, churn = 60, 5, 2
		q := New(Sizes{Most: 1, Head: 1, HeadLeast: 1, Turns: turns})
		waits := map[cluster.OwnerRef]int{} // windows since the last one that had it
		names := rapid.Permutation(upTo(999)).Draw(t, "names")
		add := func() {
			o, requests := single(names[0])
			names = names[1:]
			q.Set(o, requests)
			waits[o] = 0
		}
		for range most - churn {
			add()
		}
		for range 60 {
			for range rapid.IntRange(0, churn).Draw(t, "joins") {
				if len(waits) < most {
					add()
				}
			}
			if rapid.Bool().Draw(t, "one ends") {
				owners := slices.SortedFunc(maps.Keys(waits), cluster.OwnerRef.Compare)
				o := rapid.SampledFrom(owners).Draw(t, "ended")
				q.Remove(o)
				delete(waits, o)
			}
			q.Restart()
			for o := range waits { // order-free: each by itself
				waits[o]++
			}
			for _, r := range q.Next(noon, nil).Of {
				waits[r.Owner] = 0
			}
			for o, n := range waits { // order-free: each by itself
				if n > most/(turns-churn)+1 {
					t.Fatalf("%s was in none of the last %d windows", o, n)
				}
			}
		}
	})
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestTurnsEnd: an external scheduler ends the turns until something changes. A queue that is not long has none.
func TestTurnsEnd(t *testing.T) {
	q := New(Sizes{Most: 3, Head: 1, HeadLeast: 1, Turns: 1})
	for n := range 3 {
		q.Set(single(n))
	}
	q.Restart()
	if q.IsLong() || q.HasTurns() {
		t.Error("three requests count as many, and three is the most")
	}
	q.Set(single(3))
	q.Restart()
	if !q.IsLong() || !q.HasTurns() {
		t.Error("four requests do not count as many, and three is the most")
	}
	q.Next(noon, nil)
	if !q.HasTurns() {
		t.Error("all had their turn in a window of two")
	}
	if q.EndTurns(); q.HasTurns() {
		t.Error("turns go on after their end")
	}
	if w := q.Next(noon, nil); len(w.Of) != 1 || w.Of[0].Owner.Name != "j000" {
		t.Errorf("without turns the window has %+v, want the first request alone", w.Of)
	}
	q.Restart()
	seen := map[string]bool{}
	for windows := 0; q.HasTurns(); windows++ {
		for _, r := range q.Next(noon, nil).Of {
			seen[r.Owner.Name] = true
		}
		if windows > 8 {
			t.Fatal("the turns do not end")
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d of 4 requests had a turn", len(seen))
	}
}

// TestPromises puts requests with a promise into a window: by a task in the middle of a request of several, and with
// the whole gang. Promises of jobs and tasks that are gone change nothing, and none has a request twice.
func TestPromises(t *testing.T) {
	q := New(Sizes{Most: 1, Head: 1, HeadLeast: 1, Turns: 0})
	q.Set(single(0)) // the first one of the queue
	o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j900"}
	many := cluster.Pending{
		Task: cluster.JobTask("c", o.Name, 1, "a", 0), Further: 9, Owner: o, Priority: 500, Queue: cluster.QueueEASY,
		Since: noon.Add(time.Hour),
	}
	gang := func(i int) cluster.Pending {
		p := many
		p.Task, p.Further, p.Gang, p.GangSize = cluster.JobTask("c", o.Name, 1, "g", i), 0, "g", 3
		return p
	}
	q.Set(o, []cluster.Pending{gang(0), many, gang(1), gang(2)})
	gone, _ := single(901)
	for _, c := range []struct {
		name     string
		promised []Task
		want     []cluster.TaskID
	}{
		{"none", nil, []cluster.TaskID{"c.j000.1.s.0"}},
		{
			"the middle of a request",
			[]Task{{o, cluster.JobTask("c", o.Name, 1, "a", 4)}},
			[]cluster.TaskID{"c.j000.1.s.0", many.Task},
		},
		{
			"one of a gang",
			[]Task{{o, gang(1).Task}},
			[]cluster.TaskID{"c.j000.1.s.0", gang(0).Task, gang(1).Task, gang(2).Task},
		},
		{
			"several times",
			[]Task{{o, many.Task}, {o, many.Task.Offset(9)}, {o, gang(2).Task}, {o, gang(0).Task}},
			[]cluster.TaskID{"c.j000.1.s.0", many.Task, gang(0).Task, gang(1).Task, gang(2).Task},
		},
		{
			"gone",
			[]Task{{gone, "c.j901.1.s.0"}, {o, many.Task.Offset(10)}, {o, "c.j900.2.a.0"}},
			[]cluster.TaskID{"c.j000.1.s.0"},
		},
	} {
		if diff := cmp.Diff(c.want, tasksOf(q.Next(noon, c.promised))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	q.Remove(o)
	if got := tasksOf(q.Next(noon, []Task{{o, many.Task}})); len(got) != 1 {
		t.Errorf("after the end of the job the window has %v", got)
	}
	q.Remove(cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j000"})
	q.Restart()
	if w := q.Next(noon, nil); len(w.Of) != 0 || len(w.Pending) != 0 || q.HasTurns() {
		t.Errorf("an empty queue has the window %+v and turns: %t", w.Of, q.HasTurns())
	}
}
