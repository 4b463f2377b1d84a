package advice_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// drawQueue draws a fleet on which jobs run, and a queue of jobs.
func drawQueue(t *rapid.T) (f *scheduler.Fleet, queue []cluster.Pending) {
	minutes := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(1, most).Draw(t, name)) * time.Minute
	}
	f = scheduler.NewFleet()
	for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		name := fmt.Sprint("n", n)
		f.SetNode(ready(name, 4000, cluster.GiB))
		if cpu := rapid.SampledFrom([]int{0, 2, 3, 3, 4}).Draw(t, "running"); cpu > 0 {
			f.Reserve(scheduler.Reservation{
				UUID: name, Task: cluster.JobTask("c", "old", 1, "s", n), Node: name, Batch: true, Started: noon(),
				Demand: cluster.Demand{CPU: cluster.MilliCPU(1000 * cpu)}, Limit: minutes("limit", 90),
			})
		}
	}
	policy := rapid.SampledFrom([]cluster.QueuePolicy{
		cluster.QueueEASY, cluster.QueueEASY, cluster.QueueFIFO,
	}).Draw(t, "policy")
	for i := range rapid.IntRange(2, 4).Draw(t, "jobs") {
		name := fmt.Sprint("j", i)
		p := cluster.Pending{
			Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: name}, Attempt: 1, Queue: policy,
			Task: cluster.JobTask("c", name, 1, "s", 0), Priority: rapid.IntRange(499, 501).Draw(t, "priority"),
			Demand: cluster.Demand{
				CPU: cluster.MilliCPU(1000 * rapid.SampledFrom([]int{1, 1, 2, 4, 4}).Draw(t, "cpu")),
			},
			Since: noon().Add(-minutes("waited", 60)),
		}
		if rapid.Bool().Draw(t, "limited") {
			p.TimeLimit = cluster.Duration(minutes("limit", 120))
		}
		queue = append(queue, p)
	}
	return f, queue
}

// startsWith reports whether a task of a queue starts after a change of it, and whether all others start that start
// without the change.
func startsWith(f *scheduler.Fleet, queue []cluster.Pending, at int, change func(p *cluster.Pending),
) (starts, all bool) {
	changed := append([]cluster.Pending(nil), queue...)
	change(&changed[at])
	after := map[cluster.TaskID]bool{}
	for _, pl := range scheduler.Schedule(f, changed, options()).Placements {
		after[pl.Task] = true
	}
	all = true
	for _, pl := range scheduler.Schedule(f, queue, options()).Placements {
		all = all && after[pl.Task]
	}
	return after[queue[at].Task], all
}

// TestOvertakeIsEnoughAndNotMore checks each suggestion for a task behind others: with it the task starts. It does not
// with a priority that is lower by 1, unless that takes the room of a task that starts otherwise. Nor does it with a
// time limit that is longer by a minute. The fleet and the queue stay as they are. A task that starts anyway gets no
// suggestion.
func TestOvertakeIsEnoughAndNotMore(t *testing.T) {
	limits, priorities := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f, queue := drawQueue(t)
		nodes, held := state(f)
		given := append([]cluster.Pending(nil), queue...)
		for at := range queue {
			list := advice.Overtake(f, queue, queue[at].Task, options())
			for i := range list {
				if list[i].Changes[0].Kind == cluster.ChangePriority {
					priorities++
				} else {
					limits++
				}
				checkOvertake(t, f, queue, at, &list[i])
			}
		}
		nodesAfter, heldAfter := state(f)
		if diff := cmp.Diff(nodes, nodesAfter, cmpopts.EquateEmpty()) + cmp.Diff(held, heldAfter) +
			cmp.Diff(given, queue); diff != "" {
			t.Fatalf("the input was changed:\n%s", diff)
		}
	})
	if limits == 0 || priorities < 10 {
		t.Errorf("%d time limits and %d priorities were checked", limits, priorities)
	}
}

// checkOvertake checks one suggestion for a task of a queue.
func checkOvertake(t *rapid.T, f *scheduler.Fleet, queue []cluster.Pending, at int, sg *cluster.Suggestion) {
	t.Helper()
	if starts, _ := startsWith(f, queue, at, func(*cluster.Pending) {}); starts {
		t.Fatalf("the task starts anyway, and gets %q", sg.Text)
	}
	if starts, _ := startsWith(f, queue, at, func(p *cluster.Pending) { advice.ApplyToTask(sg, p) }); !starts {
		t.Fatalf("it does not start with %q", sg.Text)
	}
	less := queue[at] // a smaller change
	switch c := sg.Changes[0]; c.Kind {
	case cluster.ChangePriority:
		less.Priority = c.Priority - 1
	case cluster.ChangeTimeLimit:
		if more := c.TimeLimit + cluster.Duration(time.Minute); less.TimeLimit == 0 || more < less.TimeLimit {
			less.TimeLimit = more
		}
	default:
		t.Fatalf("%q is no change for a queue", sg.Text)
	}
	if starts, all := startsWith(f, queue, at, func(p *cluster.Pending) { *p = less }); starts && all {
		t.Fatalf("%q: it also starts with %d, %s", sg.Text, less.Priority, less.TimeLimit)
	}
}

// TestOvertakeByWaiting has a task that has waited longer than the one for which room is kept: at the same rank it
// comes first. A task that has waited less needs one more.
func TestOvertakeByWaiting(t *testing.T) {
	job := func(name string, cpu cluster.MilliCPU, priority int, waited time.Duration) cluster.Pending {
		return cluster.Pending{
			Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: name}, Attempt: 1,
			Task: cluster.JobTask("c", name, 1, "s", 0), Priority: priority, Demand: cluster.Demand{CPU: cpu},
			Queue: cluster.QueueFIFO, Since: noon().Add(-waited),
		}
	}
	f := scheduler.NewFleet()
	f.SetNode(ready("n1", 4000, cluster.GiB))
	f.Reserve(scheduler.Reservation{
		UUID: "u", Task: "c.old.1.s.0", Node: "n1", Demand: cluster.Demand{CPU: 3000}, Batch: true, Started: noon(),
		Limit: time.Hour,
	})
	for waited, want := range map[time.Duration]int{5 * time.Minute: 503, 3 * time.Minute: 503, time.Minute: 504} {
		queue := []cluster.Pending{job("big", 4000, 503, 3*time.Minute), job("a", 500, 500, waited)}
		list := advice.Overtake(f, queue, queue[1].Task, options())
		if len(list) != 1 || list[0].Changes[0].Priority != want {
			t.Errorf("a task that has waited %s: got %+v, want priority %d", waited, list, want)
		}
	}
}

// TestOvertakeOfOthers checks that tasks of services, and tasks that do not wait, get no suggestions.
func TestOvertakeOfOthers(t *testing.T) {
	f := scheduler.NewFleet()
	service := cluster.Pending{
		Task: "c.web.1.0", Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}, Priority: 5,
	}
	for _, task := range []cluster.TaskID{service.Task, "c.none.1.0"} {
		if list := advice.Overtake(f, []cluster.Pending{service}, task, options()); list != nil {
			t.Errorf("%s: got %q, want nothing", task, list[0].Text)
		}
	}
}

// TestSuggestionsForAnotherFleet makes the changes of suggestions to another fleet and another task, as a user does who
// reads an old answer: changes of things that do not exist are skipped, and lists of the other task are copied.
func TestSuggestionsForAnotherFleet(t *testing.T) {
	made := 0
	for seed := range 200 {
		d := seeded(9_000_000+seed, 1)
		f, names := d.fleet(6)
		p := d.task(names)
		other, otherNames := d.fleet(3)
		q := d.task(otherNames)
		in := advice.Input{Options: options(), Fleet: f, Task: p, MaxSuggestions: 20}
		for _, sg := range advice.Find(in).Suggestions {
			g, changed := other.Clone(), q
			constraints := append([]cluster.Constraint(nil), q.Placement.Constraints...)
			relations := append([]cluster.Relation(nil), q.Placement.Relations...)
			advice.Apply(&sg, g, &changed)
			made++
			if diff := cmp.Diff(constraints, q.Placement.Constraints) +
				cmp.Diff(relations, q.Placement.Relations); diff != "" {
				t.Fatalf("seed %d: %q changed the lists of the task:\n%s", seed, sg.Text, diff)
			}
			added := 0
			for i := range sg.Changes {
				if c := &sg.Changes[i]; c.Kind == cluster.ChangeAdd {
					added += max(c.Count, 1)
				}
			}
			if got := len(g.Nodes()) - len(other.Nodes()); got < 0 || got > added {
				t.Fatalf("seed %d: %q adds %d nodes, want at most %d", seed, sg.Text, got, added)
			}
		}
	}
	if made < 200 {
		t.Errorf("%d suggestions were applied", made)
	}
}
