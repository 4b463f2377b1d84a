package cron_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/cron"
	"github.com/berthd/berth/internal/testkit"
)

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

func upTo(t *rapid.T, name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }

func drawWorld(t *rapid.T) *world {
	w := &world{now: midnight(), every: time.Duration(1+upTo(t, "every", 20)) * time.Minute}
	keep := upTo(t, "keep", 3)
	w.spec = &cluster.Cron{
		Cluster: "c", Name: "backup", Schedules: []string{"s"}, KeepSucceeded: &keep, KeepFailed: &keep,
		Concurrency: pick(t, "concurrency", cluster.CronForbid, cluster.CronAllow, cluster.CronReplace),
		Missed:      pick(t, "missed", cluster.CronSkip, cluster.CronOnce, cluster.CronAll),
		Within:      cluster.Duration(1+upTo(t, "within", 60)) * cluster.Duration(time.Minute),
	}
	w.spec.Created, w.spec.Updated = w.now, w.now
	w.step() // records the schedules
	return w
}

// change makes a random change between two decisions.
func (w *world) change(t *rapid.T) {
	switch pick(t, "change", "", "", "", "end", "end", "suspend", "resume", "relabel", "back") {
	case "end":
		for i := range w.jobs {
			if !w.jobs[i].Done {
				w.finish(w.jobs[i].Spec.Name, upTo(t, "failed", 1) == 1)
				break
			}
		}
	case "suspend":
		w.spec.Suspended, w.spec.Updated = true, w.now
	case "resume":
		w.spec.Suspended, w.spec.Updated = false, w.now
	case "relabel":
		w.spec.Updated = w.now
	case "back":
		w.now = w.now.Add(-time.Duration(upTo(t, "by", 1800)) * time.Second)
	}
}

// TestPromises runs a cron for a while and checks the rules for each decision.
func TestPromises(t *testing.T) {
	made, skipped := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		jobs, newest := map[time.Time]int{}, w.now
		for range upTo(t, "decisions", 60) {
			w.now = w.now.Add(time.Duration(upTo(t, "later", 900)) * time.Second)
			w.change(t)
			in := w.input()
			d := cron.Decide(in)
			if diff := cmp.Diff(d, cron.Decide(in)); diff != "" {
				t.Fatalf("the same input, another decision, or the first changed it:\n%s", diff)
			}
			if upTo(t, "refused", 9) == 0 {
				continue // another writer came first: the decision is dropped
			}
			w.check(t, d)
			w.apply(d)
			for _, j := range d.Make {
				made++
				if jobs[j.At]++; jobs[j.At] > 1 {
					t.Fatalf("two jobs for %s", j.At)
				}
			}
			for _, e := range d.Events {
				if e.Type == cron.EventSkipped {
					skipped += e.Count
				}
			}
			if !w.now.Before(newest) { // otherwise moments may have been too old by the earlier clock
				newest = w.now
				w.checkEachMomentHasAJob(t, jobs)
			}
			if again := cron.Decide(w.input()); len(again.Make) > 0 && w.spec.Concurrency != cluster.CronReplace {
				t.Fatalf("made %d jobs, and %d more in the next decision", len(d.Make), len(again.Make))
			}
		}
	})
	if made == 0 || skipped == 0 {
		t.Errorf("%d jobs were made and %d moments skipped: too few to show anything", made, skipped)
	}
}

// check compares a decision with the promises of the policies.
func (w *world) check(t *rapid.T, d cron.Decision) {
	running := 0
	for _, j := range w.jobs {
		if !j.Done && !slices.Contains(d.Cancel, j.Spec.Name) {
			running++
		}
	}
	switch {
	case len(d.Make) > 0 && w.spec.Suspended:
		t.Fatal("suspended, and makes a job")
	case w.spec.Concurrency != cluster.CronAllow && len(d.Make) > 0 && len(d.Make)+running > 1:
		t.Fatalf("%d jobs run after that, with %s", len(d.Make)+running, w.spec.Concurrency)
	case w.spec.Missed != cluster.CronAll && len(d.Make) > 1:
		t.Fatalf("%d jobs in one decision, with %s", len(d.Make), w.spec.Missed)
	case d.Status != nil && w.status != nil && d.Status.Last.Before(w.status.Last):
		t.Fatalf("the last moment went back from %s to %s", w.status.Last, d.Status.Last)
	case len(d.Make) > 0 && d.Status == nil:
		t.Fatal("a job was made, and that is not recorded")
	}
	for _, j := range d.Make {
		late := w.now.Sub(j.At)
		if late < 0 || late > time.Duration(w.spec.Within) || w.spec.Missed == cluster.CronSkip &&
			late > cron.MaxLateness {
			t.Fatalf("a job for %s at %s", j.At, w.now)
		}
	}
	for _, name := range slices.Concat(d.Cancel, d.Delete) {
		i := slices.IndexFunc(w.jobs, func(j cron.Job) bool { return j.Spec.Name == name })
		if i < 0 || w.jobs[i].Done != slices.Contains(d.Delete, name) {
			t.Fatalf("cancels %v and deletes %v: %s is not one to", d.Cancel, d.Delete, name)
		}
	}
}

// checkEachMomentHasAJob checks crons whose jobs run together, each moment by itself.
func (w *world) checkEachMomentHasAJob(t *rapid.T, jobs map[time.Time]int) {
	if w.spec.Missed != cluster.CronAll || w.spec.Concurrency != cluster.CronAllow || w.spec.Suspended {
		return
	}
	for at := w.now.Truncate(w.every); w.now.Sub(at) <= time.Duration(w.spec.Within) &&
		at.After(w.spec.Created); at = at.Add(-w.every) {
		if jobs[at] != 1 {
			t.Fatalf("%d jobs for %s", jobs[at], at)
		}
	}
}

// TestJobsAreComplete: a job contains everything that the cron specifies, and shares no memory with it.
func TestJobsAreComplete(t *testing.T) {
	at := midnight().Add(time.Hour)
	spec := &cluster.Cron{
		Cluster: "c", Name: "backup", Schedules: []string{"@hourly"}, Within: cluster.DefaultCronWithin,
		Job: cluster.CronJob{
			Labels: cluster.Labels{"a": "b"}, Priority: 700,
			Steps: []cluster.Step{{Name: "dump", Definition: cluster.Ref{Name: "dump", Version: 3}, Count: 2}},
		},
	}
	spec.Created, spec.Updated = midnight(), midnight()
	in := cron.Input{Spec: spec, Due: []time.Time{at, at}, Now: at}
	d := cron.Decide(in)
	want := []*cluster.Job{{
		Cluster: "c", Name: "backup-202611200100", Labels: cluster.Labels{"a": "b"}, Priority: 700, Cron: "backup",
		At:    at,
		Steps: []cluster.Step{{Name: "dump", Definition: cluster.Ref{Name: "dump", Version: 3}, Count: 2}},
	}}
	if diff := cmp.Diff(want, d.Make); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.Make[0].Labels["a"], d.Make[0].Steps[0].Count = "c", 9
	if spec.Job.Labels["a"] != "b" || spec.Job.Steps[0].Count != 2 {
		t.Error("the job shares labels or steps with the cron")
	}
	owner := cluster.OwnerRef{Kind: cluster.KindCron, Cluster: "c", Name: "backup"}
	wantEvents := []cluster.Event{{
		Type: cron.EventFired, Cluster: "c", Owner: &owner, Reason: cluster.ReasonSchedule,
		Message: "job backup-202611200100, for 2026-11-20T01:00Z",
	}}
	if diff := cmp.Diff(wantEvents, d.Events); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCancelsOnce: a job that is already cancelled or deleted is left alone, and the new job does not wait for it.
func TestCancelsOnce(t *testing.T) {
	at := midnight().Add(time.Hour)
	spec := &cluster.Cron{
		Cluster: "c", Name: "backup", Schedules: []string{"@hourly"},
		Within: cluster.DefaultCronWithin, Concurrency: cluster.CronReplace,
	}
	spec.Created, spec.Updated = midnight(), midnight()
	jobs := []cron.Job{
		{Spec: &cluster.Job{Name: "a", Cron: "backup", Cancelled: true}},
		{Spec: &cluster.Job{Name: "b", Cron: "backup", Lifespan: cluster.Lifespan{Deleted: true}}},
		{Spec: &cluster.Job{Name: "c", Cron: "backup"}},
		{Spec: &cluster.Job{Name: "d", Cron: "other"}},
	}
	d := cron.Decide(cron.Input{Spec: spec, Due: []time.Time{at}, Jobs: jobs, Now: at})
	if len(d.Make) != 1 || !slices.Equal(d.Cancel, []string{"c"}) {
		t.Errorf("makes %d jobs and cancels %v, want 1 and c", len(d.Make), d.Cancel)
	}
}

// TestEveryMomentIsAccountedFor: the record of handled moments passes a moment only with a job for it or an event that
// says what became of it, whatever names users take for jobs of their own. A cron that skips missed moments passes
// those of a suspension without an event.
func TestEveryMomentIsAccountedFor(t *testing.T) {
	taken := 0
	testkit.CheckRounds(t, 5, func(t *rapid.T) {
		w := drawWorld(t)
		for range upTo(t, "decisions", 40) {
			w.now = w.now.Add(time.Duration(upTo(t, "later", 1200)) * time.Second)
			w.change(t)
			if upTo(t, "a user takes a name", 3) == 0 {
				at := w.now.Truncate(w.every).Add(time.Duration(upTo(t, "moments ahead", 3)) * w.every)
				if name := w.spec.JobName(at); !slices.ContainsFunc(w.jobs, func(j cron.Job) bool {
					return j.Spec.Name == name
				}) {
					w.jobs = append(w.jobs, cron.Job{Spec: &cluster.Job{Cluster: "c", Name: name}})
				}
			}
			in := w.input()
			d := cron.Decide(in)
			if d.Status == nil || len(in.Due) >= cluster.MaxMissed {
				w.apply(d)
				continue
			}
			passed := 0
			for _, at := range in.Due {
				if at.After(w.status.Last) && !at.After(d.Status.Last) {
					passed++
				}
			}
			told := len(d.Make)
			for _, e := range d.Events {
				if e.Type != cron.EventFired {
					told += e.Count
				}
				if strings.Contains(e.Message, "already exists") {
					taken++
				}
			}
			if told != passed && (!w.spec.Suspended || w.spec.Missed != cluster.CronSkip) {
				t.Fatalf("%d moments are handled, and %d have a job or an event: %+v", passed, told, d.Events)
			}
			w.apply(d)
		}
	}, func() bool { return taken > 0 })
	if taken == 0 {
		t.Error("no name of a due moment was ever taken")
	}
}

// TestAsOftenAsOne: a decision between two others changes nothing about the jobs that a cron makes: a leader that
// decides more often than another makes the same ones.
func TestAsOftenAsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.spec.Concurrency = cluster.CronAllow
		often := *w
		for range upTo(t, "decisions", 20) {
			w.now = w.now.Add(time.Duration(upTo(t, "later", 1200)) * time.Second)
			for often.now.Before(w.now) {
				if often.now = often.now.Add(time.Minute); often.now.After(w.now) {
					often.now = w.now
				}
				often.step()
			}
			w.step()
		}
		made := func(w *world) map[string]bool {
			names := map[string]bool{}
			for _, j := range w.jobs {
				names[j.Spec.Name] = true
			}
			return names
		}
		for name := range made(w) { // order-free: a set
			if !made(&often)[name] {
				t.Fatalf("job %s is made by the leader that decides less often alone", name)
			}
		}
		if !often.status.Last.Equal(w.status.Last) {
			t.Fatalf("handled up to %s and to %s", often.status.Last, w.status.Last)
		}
	})
}

// TestOrderOfInputs: a decision does not depend on the order of jobs and moments, nor on moments that are given twice.
func TestOrderOfInputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range upTo(t, "decisions", 20) {
			w.now = w.now.Add(time.Duration(upTo(t, "later", 1200)) * time.Second)
			w.change(t)
			in := w.input()
			d := cron.Decide(in)
			if len(in.Due) < cluster.MaxMissed {
				in.Jobs = rapid.Permutation(in.Jobs).Draw(t, "jobs")
				in.Due = rapid.Permutation(slices.Concat(in.Due, in.Due[:len(in.Due)/2])).Draw(t, "moments")
				if diff := cmp.Diff(d, cron.Decide(in)); diff != "" {
					t.Fatalf("in another order:\n%s", diff)
				}
			}
			w.apply(d)
		}
	})
}
