package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOffsetOfATask(t *testing.T) {
	for _, c := range []struct {
		id   TaskID
		n    int
		want TaskID
	}{
		{"c.j.1.s.0", 0, "c.j.1.s.0"},
		{"c.j.1.s.9", 1, "c.j.1.s.10"},
		{"c.j.1.s.7", 999_993, "c.j.1.s.1000000"},
		{"c.s.3.4", 2, "c.s.3.6"},
		{"none", 3, "none"},
	} {
		if got := c.id.Offset(c.n); got != c.want {
			t.Errorf("%s by %d: %s, want %s", c.id, c.n, got, c.want)
		}
	}
}

// TestRangesOfTasks draws requests of several tasks. Expand gives each task once. Isolate keeps the tasks and their
// order, and gives each wanted task a request of its own. TaskIndex finds each task in its range and no other task.
func TestRangesOfTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pending []Pending
		taken := map[TaskID]int{}
		for _, step := range []string{"a", "b"} {
			for next := rapid.IntRange(0, 3).Draw(t, "first"); next < 30; next += rapid.IntRange(0, 3).Draw(t, "gap") {
				p := Pending{
					Task: JobTask("c", "j", 2, step, next), Attempt: len(pending),
					Further: rapid.IntRange(0, 6).Draw(t, "further"),
				}
				for n := range p.Tasks() {
					taken[p.Task.Offset(n)] = len(pending)
				}
				pending = append(pending, p)
				next += p.Tasks()
			}
		}
		single := Expand(pending)
		if len(single) != len(taken) {
			t.Fatalf("%d tasks in %d requests", len(taken), len(single))
		}
		wanted := map[TaskID]bool{}
		var list []TaskID
		for range rapid.IntRange(0, 8).Draw(t, "wanted") {
			id := JobTask("c", "j", 2, rapid.SampledFrom([]string{"a", "b", "x"}).Draw(t, "step"),
				rapid.IntRange(0, 40).Draw(t, "index"))
			wanted[id], list = true, append(list, id)
		}
		isolated := Isolate(pending, list)
		if diff := cmp.Diff(single, Expand(isolated)); diff != "" {
			t.Fatal(diff)
		}
		for i := range isolated {
			p := &isolated[i]
			for n := range p.Tasks() {
				if p.Further > 0 && wanted[p.Task.Offset(n)] {
					t.Fatalf("%s is in a request of %d tasks", p.Task.Offset(n), p.Tasks())
				}
			}
		}
		if len(isolated) > len(pending)+2*len(list) {
			t.Fatalf("%d requests became %d for %d tasks", len(pending), len(isolated), len(list))
		}
		index := IndexTasks(RangesOf(pending))
		r := TaskRange{
			JobTask("c", "j", 2, "a", rapid.IntRange(0, 40).Draw(t, "of")), rapid.IntRange(0, 40).Draw(t, "more"),
		}
		overlap := 0
		for n := range r.Count() {
			if _, held := taken[r.First.Offset(n)]; held {
				overlap++
			}
		}
		if got := index.Overlap(r); got != overlap {
			t.Fatalf("%v shares %d tasks, want %d", r, got, overlap)
		}
		for i := range 45 {
			for _, step := range []string{"a", "b", "x"} {
				id := JobTask("c", "j", 2, step, i)
				want, held := taken[id]
				if got, found := index.Find(id); found != held || got != want {
					t.Fatalf("%s is in %d (%v), want %d (%v)", id, got, found, want, held)
				}
			}
		}
	})
}
