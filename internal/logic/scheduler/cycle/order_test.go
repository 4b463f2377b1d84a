package cycle

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

func noon() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

// drawPending draws services and jobs of few priorities, times, limits and policies, some of them in gangs or held.
func drawPending(t *rapid.T) (all []cluster.Pending) {
	gangs := map[string]int{}
	for i := range rapid.IntRange(0, 12).Draw(t, "tasks") {
		p := cluster.Pending{
			Task:     cluster.ServiceTask("c", "web", 1, i),
			Owner:    cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"},
			Priority: rapid.SampledFrom([]int{0, 1, 2, 500, 501, 999, cluster.MaxPriority}).Draw(t, "priority"),
			Since: noon().Add(-time.Duration(rapid.SampledFrom(
				[]int{-1, 0, 1, 9, 10, 60, 1439, 1440, 9000, 100_000},
			).Draw(t, "waited")) * time.Minute),
		}
		if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
			p.Owner.Kind = cluster.KindJob
			p.Queue = rapid.SampledFrom([]cluster.QueuePolicy{
				"", cluster.QueueEASY, cluster.QueueSJBF, cluster.QueueSJBF,
			}).Draw(t, "queue")
			p.TimeLimit = cluster.Duration(rapid.SampledFrom([]int{0, 1, 60, 3600, 100_000}).Draw(t, "limit")) *
				cluster.Duration(time.Second)
			if rapid.IntRange(0, 4).Draw(t, "gang") == 0 {
				p.Gang = rapid.SampledFrom([]string{"g", "h"}).Draw(t, "name")
				if first, known := gangs[p.Gang]; known { // the members are equal
					gang, task := p.Gang, p.Task
					p = all[first]
					p.Gang, p.Task = gang, task
				} else {
					gangs[p.Gang] = i
				}
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "promised") == 0 && p.Gang == "" {
			p.Promised = "n1"
		}
		if rapid.IntRange(0, 7).Draw(t, "hold") == 0 && p.Gang == "" {
			p.Hold = cluster.Hold{Reason: "later", Message: "It waits."}
		}
		all = append(all, p)
	}
	return all
}

func tasksOf(all []cluster.Pending, indices []int32) (tasks []cluster.TaskID) {
	for _, i := range indices {
		tasks = append(tasks, all[i].Task)
	}
	return tasks
}

// TestOrderIsOfTheTasks checks that the order depends on the tasks alone, not on the order in which they are given, and
// that each task is in one of the two lists: a task of priority 0 or with a hold is held.
func TestOrderIsOfTheTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawPending(t)
		order, held := Order(all, noon())
		if len(order)+len(held) != len(all) {
			t.Fatalf("%d tasks in order and %d held of %d", len(order), len(held), len(all))
		}
		for i := range all {
			isHeld := all[i].Priority == 0 || all[i].Hold != cluster.Hold{}
			if slices.Contains(held, int32(i)) != isHeld || slices.Contains(order, int32(i)) == isHeld {
				t.Fatalf("%+v is held: %v, want %v", all[i], !isHeld, isHeld)
			}
		}
		other := rapid.Permutation(all).Draw(t, "other order")
		otherOrder, otherHeld := Order(other, noon())
		if diff := cmp.Diff(tasksOf(all, order), tasksOf(other, otherOrder)); diff != "" {
			t.Fatalf("tasks in order (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(tasksOf(all, held), tasksOf(other, otherHeld)); diff != "" {
			t.Fatalf("held tasks (-want +got):\n%s", diff)
		}
	})
}

// TestGangsAreTogether checks that the members of a gang follow each other, at the place of the first of them.
func TestGangsAreTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawPending(t)
		order, _ := Order(all, noon())
		single := slices.Clone(all)
		for i := range single {
			single[i].Gang = ""
		}
		plain, _ := Order(single, noon())
		// The order without gangs, with the later members of each gang moved forward.
		var want []int32
		done := map[string]bool{}
		for _, i := range plain {
			gang := all[i].Gang
			if gang == "" {
				want = append(want, i)
				continue
			}
			for _, k := range plain {
				if all[k].Gang == gang && !done[gang] {
					want = append(want, k)
				}
			}
			done[gang] = true
		}
		if diff := cmp.Diff(tasksOf(all, want), tasksOf(all, order)); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	})
}

// isOverdue reports whether a task has waited for eight times its limit, and for a day at least.
func isOverdue(p *cluster.Pending) bool {
	waited := noon().Sub(p.Since)
	return p.Owner.Kind == cluster.KindJob && p.Queue == cluster.QueueSJBF && waited >= 24*time.Hour &&
		waited >= 8*time.Duration(p.TimeLimit)
}

// mustPrecede returns the rule by which one task comes before another, "" if there is none.
func mustPrecede(a, b *cluster.Pending) string {
	isJob := func(p *cluster.Pending) bool { return p.Owner.Kind == cluster.KindJob }
	switch {
	case !isJob(a) && !isJob(b) && a.Priority > b.Priority && a.Promised == b.Promised:
		return "the service of the higher priority"
	case !isJob(a) && isJob(b) && b.Promised == "" && a.Priority > b.Priority:
		return "a service before jobs of lower priorities, however long these wait"
	case isJob(a) && isJob(b) && a.Promised != "" && b.Promised == "" && a.Priority > b.Priority:
		return "a task for which others end before jobs of lower priorities"
	case !isJob(a) || !isJob(b) || a.Promised != "" || b.Promised != "":
		return ""
	case isOverdue(a) && !isOverdue(b):
		return "the overdue task"
	case isOverdue(a) || isOverdue(b):
		return ""
	case a.Queue == cluster.QueueSJBF && b.Queue == cluster.QueueSJBF && a.Priority > b.Priority:
		return "the shorter or longer task of the higher priority"
	case a.Queue != cluster.QueueSJBF && b.Queue != cluster.QueueSJBF && Rank(a, noon()) > Rank(b, noon()):
		return "the task of the higher rank"
	case a.Queue != cluster.QueueSJBF && b.Queue != cluster.QueueSJBF && Rank(a, noon()) == Rank(b, noon()) &&
		a.Since.Before(b.Since):
		return "the task that has waited longer"
	case a.Queue == b.Queue && a.Priority == b.Priority && a.Since.Equal(b.Since) && a.TimeLimit == b.TimeLimit &&
		a.Task < b.Task:
		return "the task with the lower id"
	}
	return ""
}

// TestRulesOfTheOrder checks the rules in the comment of Order for each pair of tasks.
func TestRulesOfTheOrder(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		all := drawPending(t)
		for i := range all {
			all[i].Gang = ""
		}
		order, _ := Order(all, noon())
		for i, a := range order {
			for _, b := range order[i+1:] {
				if rule := mustPrecede(&all[b], &all[a]); rule != "" {
					t.Fatalf("%s: %+v comes after\n%+v", rule, all[b], all[a])
				}
				seen[mustPrecede(&all[a], &all[b])]++
			}
		}
	})
	if len(seen) < 9 {
		t.Errorf("the worlds show %d rules: %v", len(seen), seen)
	}
}

// TestResponseRatios orders tasks of one priority in a queue with the policy sjbf: the highest ratio of the time waited
// to the limit first, those without a limit last.
func TestResponseRatios(t *testing.T) {
	task := func(name string, waited, limit time.Duration) cluster.Pending {
		return cluster.Pending{
			Task: cluster.TaskID(name), Owner: cluster.OwnerRef{Kind: cluster.KindJob}, Priority: 500,
			Queue: cluster.QueueSJBF, Since: noon().Add(-waited), TimeLimit: cluster.Duration(limit),
		}
	}
	all := []cluster.Pending{
		task("overdue since 2 h", 26*time.Hour, time.Minute),
		task("overdue since 1 h", 41*time.Hour, 5*time.Hour),
		task("ratio 60", 10*time.Hour, 10*time.Minute),
		task("ratio 7", 35*time.Hour, 5*time.Hour), // a day is not enough: eight times five hours are not over
		task("ratio 2", 2*time.Hour, time.Hour),
		task("ratio 1", time.Hour, time.Hour),
		task("ratio 0.1", time.Hour, 10*time.Hour),
		task("no limit", 20*time.Hour, 0),
		task("not yet waiting, short", -time.Minute, time.Minute),
	}
	var want []cluster.TaskID
	for i := range all {
		want = append(want, all[i].Task)
	}
	slices.Reverse(all)
	order, _ := Order(all, noon())
	if diff := cmp.Diff(want, tasksOf(all, order)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestOverdueIsFirst checks that no response ratio reaches an overdue task, at the highest priority and the shortest
// limit either.
func TestOverdueIsFirst(t *testing.T) {
	job := cluster.OwnerRef{Kind: cluster.KindJob}
	all := []cluster.Pending{
		{
			Task: "short", Owner: job, Priority: cluster.MaxPriority, Queue: cluster.QueueSJBF,
			Since: noon().Add(-23 * time.Hour), TimeLimit: cluster.Duration(time.Second),
		},
		{
			Task: "overdue", Owner: job, Priority: 1, Queue: cluster.QueueSJBF, Since: noon().Add(-25 * time.Hour),
			TimeLimit: cluster.Duration(time.Second),
		},
		{Task: "old", Owner: job, Priority: cluster.MaxPriority, Since: noon().Add(-1000 * time.Hour)},
	}
	order, _ := Order(all, noon())
	if diff := cmp.Diff([]cluster.TaskID{"overdue", "short", "old"}, tasksOf(all, order)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestOrderWithoutATime checks that no task has waited at the zero time: priorities and ids decide.
func TestOrderWithoutATime(t *testing.T) {
	var all []cluster.Pending
	for i, priority := range []int{1, 500, 2, 500} {
		all = append(all, cluster.Pending{
			Task: cluster.TaskID(fmt.Sprint("t", i)), Owner: cluster.OwnerRef{Kind: cluster.KindJob},
			Priority: priority, Queue: pickPolicy(i == 0), TimeLimit: cluster.Duration(time.Second), Since: noon(),
		})
	}
	order, _ := Order(all, time.Time{})
	if diff := cmp.Diff([]cluster.TaskID{"t1", "t3", "t2", "t0"}, tasksOf(all, order)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func pickPolicy(sjbf bool) cluster.QueuePolicy {
	if sjbf {
		return cluster.QueueSJBF
	}
	return cluster.QueueEASY
}

// TestRank checks that a task of a job gains one point for each full AgeStep, up to the highest priority, and that a
// service gains none.
func TestRank(t *testing.T) {
	for _, c := range []struct {
		kind     cluster.Kind
		priority int
		waited   time.Duration
		want     int
	}{
		{cluster.KindJob, 500, 0, 500},
		{cluster.KindJob, 500, AgeStep - 1, 500},
		{cluster.KindJob, 500, AgeStep, 501},
		{cluster.KindJob, 500, 7*AgeStep + 1, 507},
		{cluster.KindJob, 500, 500 * AgeStep, cluster.MaxPriority},
		{cluster.KindJob, 500, 501 * AgeStep, cluster.MaxPriority},
		{cluster.KindJob, cluster.MaxPriority, time.Hour, cluster.MaxPriority},
		{cluster.KindJob, cluster.MaxPriority + 5, time.Hour, cluster.MaxPriority + 5},
		{cluster.KindJob, 500, -time.Hour, 500}, // its wait begins later
		{cluster.KindService, 500, 1000 * AgeStep, 500},
	} {
		p := cluster.Pending{
			Owner: cluster.OwnerRef{Kind: c.kind}, Priority: c.priority, Since: noon().Add(-c.waited),
		}
		if got := Rank(&p, noon()); got != c.want {
			t.Errorf("rank of a %s of priority %d after %s: got %d, want %d", c.kind, c.priority, c.waited, got, c.want)
		}
	}
	if got := Rank(&cluster.Pending{Owner: cluster.OwnerRef{Kind: cluster.KindJob}, Priority: 3}, noon()); got != 3 {
		t.Errorf("rank of a task whose wait is not known: got %d, want 3", got)
	}
}

// TestLevels checks that each named priority has a level of its own, with 74 priorities on both sides, and that a user
// who holds nothing has the level of its rank.
func TestLevels(t *testing.T) {
	for i, named := range []int{50, 200, 350, 500, 650, 800, 950} {
		for _, priority := range []int{named - 74, named, named + 74} {
			if got := Level(max(priority, 0)); got != i {
				t.Errorf("level of priority %d: got %d, want %d", priority, got, i)
			}
		}
	}
	p := cluster.Pending{
		Owner: cluster.OwnerRef{Kind: cluster.KindJob}, Priority: 500, Since: noon().Add(-200 * AgeStep),
		Queue: cluster.QueueFair,
	}
	if with, without := LevelOf(&p, noon(), false), LevelOf(&p, noon(), true); with != 3 || without != 4 {
		t.Errorf("levels of a task of priority 500 and rank 700: %d and, for a user without tasks, %d, want 3 and 4",
			with, without)
	}
}

// TestHighestVictim compares it with trying all priorities: victims are lower by the gap, and in a fair queue of a
// lower level.
func TestHighestVictim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := cluster.Pending{
			Priority: rapid.IntRange(1, cluster.MaxPriority).Draw(t, "priority"),
			Queue:    rapid.SampledFrom([]cluster.QueuePolicy{cluster.QueueEASY, cluster.QueueFair}).Draw(t, "queue"),
			Owner: cluster.OwnerRef{
				Kind: rapid.SampledFrom([]cluster.Kind{cluster.KindJob, cluster.KindService}).Draw(t, "kind"),
			},
		}
		gap := rapid.IntRange(1, 400).Draw(t, "gap")
		got := HighestVictim(&p, gap)
		fair := p.Queue == cluster.QueueFair && p.Owner.Kind == cluster.KindJob
		for victim := range cluster.MaxPriority + 1 {
			ends := p.Priority-victim >= gap && (!fair || Level(victim) < Level(p.Priority))
			if ends != (victim <= got) {
				t.Fatalf("priority %d with a gap of %d, fair %v: the highest victim is %d, but one of %d ends: %v",
					p.Priority, gap, fair, got, victim, ends)
			}
		}
	})
}

// TestOverdueAt checks when tasks are overdue: after eight times the limit, at least a day, for any limit.
func TestOverdueAt(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{
		0:             24 * time.Hour,
		time.Second:   24 * time.Hour,
		3 * time.Hour: 24 * time.Hour,
		4 * time.Hour: 32 * time.Hour,
		math.MaxInt64: math.MaxInt64 / 8 * 8,
	} {
		w := Wait{Queue: cluster.QueueSJBF, Since: noon(), TimeLimit: cluster.Duration(limit)}
		if got := w.overdueAt().Sub(noon()); got != want {
			t.Errorf("a task with the limit %s is overdue after %s, want %s", limit, got, want)
		}
	}
}

// TestPlacesOnlyRise checks that a task of a job never falls behind by waiting: at a later time its place is the same
// or before that of an earlier time.
func TestPlacesOnlyRise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Wait{
			Queue:     rapid.SampledFrom([]cluster.QueuePolicy{cluster.QueueEASY, cluster.QueueSJBF}).Draw(t, "queue"),
			Priority:  rapid.IntRange(1, cluster.MaxPriority).Draw(t, "priority"),
			Since:     noon(),
			TimeLimit: cluster.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "limit")),
		}
		first := time.Duration(rapid.Int64Range(0, int64(200*time.Hour)).Draw(t, "first"))
		then := first + time.Duration(rapid.Int64Range(0, int64(200*time.Hour)).Draw(t, "more"))
		a, b := w.Place(noon().Add(first)), w.Place(noon().Add(then))
		if a.rank > b.rank {
			t.Fatalf("%+v: rank %d after %s, and %d after %s", w, a.rank, first, b.rank, then)
		}
	})
}
