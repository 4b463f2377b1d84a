package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

func ofGroup(group string, limit int) func(*cluster.Pending) {
	return func(p *cluster.Pending) { p.JobConcurrency = &cluster.Concurrency{Group: group, Limit: limit} }
}

// TestJobGroup lets one job of a group begin. It has its place for all of its tasks, and until its records say that it
// has ended, also while nothing of it runs.
func TestJobGroup(t *testing.T) {
	var l admission.Ledger
	first, second := task("j1", 0, ofGroup("deploy", 1)), task("j2", 0, ofGroup("deploy", 1))
	more := task("j1", 1, ofGroup("deploy", 1))
	check := func(when string, p *cluster.Pending, want string) {
		t.Helper()
		d := admission.NewDraft(&l)
		if r := d.Refusal(p); r.Detail != want || (r.Code == cluster.ReasonConcurrency) != (want != "") {
			t.Errorf("%s: %s: %q, want %q", when, r.Code, r.Detail, want)
		}
	}
	const full = "concurrency group deploy of jobs: jobs 1 needed, 1 of 1 used"
	check("nothing runs", &first, "")
	hold(&l, first, 1)
	check("the first job runs", &second, full)
	check("the first job runs", &more, "")
	l.SetBegun("a", "j1", 1, "deploy")
	hold(&l, first, -1)
	check("between the steps of the first job", &second, full)
	check("between the steps of the first job", &more, "")
	other := task("j2", 0, ofGroup("deploy", 1), func(p *cluster.Pending) { p.Owner.Cluster = "b" })
	check("another cluster", &other, "")
	service := task("web", 0, ofGroup("deploy", 1))
	check("a service", &service, "")
	if l.SetBegun("a", "j1", 1, "deploy") || !l.SetBegun("a", "j1", 0, "") {
		t.Error("SetBegun reports the wrong changes")
	}
	check("the first job has ended", &second, "")
	hold(&l, first, 1)
	again := task("j1", 0, ofGroup("deploy", 1), func(p *cluster.Pending) { p.Task = "a.j1.2.work.0" })
	check("its next run, while a task of the run before holds room", &again, full)
	hold(&l, first, -1)

	d := admission.NewDraft(&l)
	d.Add(&first, 1)
	if d.Admits(&second) || !d.Admits(&more) {
		t.Error("a placement of the cycle does not count")
	}
	if q, tasks, jobs := d.Sufficient(&second); q != nil || tasks != 0 || jobs != 2 {
		t.Errorf("sufficient are %v, %d and %d, want none, 0 and 2", q, tasks, jobs)
	}
	d.Add(&first, -1)
	if !d.Admits(&second) {
		t.Error("a placement that was given back counts")
	}
}

// TestJobGroupsHold lets random jobs begin, run and end, and compares each verdict with a count of the jobs that have
// begun and not ended.
func TestJobGroupsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l admission.Ledger
		running := map[string][]cluster.Pending{}
		begun := map[string]bool{}   // by job, in the records
		groups := map[string]string{ // of the jobs
			"j1": "x", "j2": "x", "j3": "x", "j4": "y", "j5": "y",
		}
		for cycle := range rapid.IntRange(1, 40).Draw(t, "cycles") {
			d := admission.NewDraft(&l)
			var placed []cluster.Pending
			for n := range rapid.IntRange(0, 6).Draw(t, "tasks of a cycle") {
				job := fmt.Sprint("j", rapid.IntRange(1, 5).Draw(t, "job"))
				limit := rapid.IntRange(1, 2).Draw(t, "limit")
				p := task(job, 100*cycle+n, ofGroup(groups[job], limit))
				under := map[string]bool{}
				for other, group := range groups {
					if group == groups[job] && (len(running[other]) > 0 || begun[other]) {
						under[other] = true
					}
				}
				for i := range placed {
					if groups[placed[i].Owner.Name] == groups[job] {
						under[placed[i].Owner.Name] = true
					}
				}
				want := under[job] || len(under) < limit
				if got := d.Admits(&p); got != want {
					t.Fatalf("%s with a limit of %d is admitted: %t, and %v are under way", job, limit, got, under)
				}
				if !want {
					if _, _, jobs := d.Sufficient(&p); jobs != len(under)+1 {
						t.Fatalf("a limit of %d suffices, want %d", jobs, len(under)+1)
					}
					continue
				}
				d.Add(&p, 1)
				placed = append(placed, p)
			}
			for _, p := range placed {
				hold(&l, p, 1)
				running[p.Owner.Name] = append(running[p.Owner.Name], p)
			}
			for _, job := range slices.Sorted(maps.Keys(groups)) {
				switch rapid.IntRange(0, 3).Draw(t, "records of "+job) {
				case 0:
					l.SetBegun("a", job, 0, "")
					begun[job] = false
				case 1:
					l.SetBegun("a", job, 1, groups[job])
					begun[job] = true
				}
			}
			for _, job := range slices.Sorted(maps.Keys(running)) {
				if rapid.IntRange(0, 2).Draw(t, "tasks of "+job+" end") == 0 {
					for _, p := range running[job] {
						hold(&l, p, -1)
					}
					delete(running, job)
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "copied") == 0 {
				l = l.Clone()
			}
		}
	})
}
