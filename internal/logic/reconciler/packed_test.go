package reconciler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// largeJob is a job with a large step, and the attempts of its tasks.
type largeJob struct {
	now    time.Time
	job    *cluster.Job
	tasks  map[int]*reconciler.Task // by index
	packed []reconciler.Packed
}

func drawLargeJob(t *rapid.T) *largeJob {
	l := &largeJob{now: time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC), tasks: map[int]*reconciler.Task{}}
	l.job = &cluster.Job{
		Cluster: "c", Name: "j", Lifespan: cluster.Lifespan{Generation: 2, Created: l.now}, Submitted: l.now,
		Steps: []cluster.Step{{
			Name: "s", Definition: cluster.Ref{Name: "d", Version: 1}, Retries: 1,
			Count:       cluster.PackAbove + rapid.SampledFrom([]int{1, 200, 500, 700}).Draw(t, "tasks"),
			Parallelism: rapid.SampledFrom([]int{0, 40, 5000}).Draw(t, "parallelism"),
		}},
	}
	l.job.SetDefaults()
	return l
}

// run gives tasks of a range attempts that ended well, badly, or run.
func (l *largeJob) run(t *rapid.T) {
	count := l.job.Steps[0].Count
	from := rapid.SampledFrom([]int{0, 1, 300, 499, 500, 777, 1000}).Draw(t, "from")
	to := min(from+rapid.SampledFrom([]int{1, 49, 50, 120, 600, 900}).Draw(t, "length"), count)
	every := rapid.IntRange(1, 3).Draw(t, "every")
	how := rapid.SampledFrom([]string{"succeeded", "succeeded", "succeeded", "failed", "live"}).Draw(t, "how")
	for index := from; index < to; index += every {
		if l.tasks[index] != nil {
			continue
		}
		if how == "live" {
			l.tasks[index] = l.live(index)
		} else {
			l.tasks[index] = l.ended(index, cluster.State(how))
		}
	}
}

func uuidOf(index int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", index) }

// live returns the first attempt of a task while it runs.
func (l *largeJob) live(index int) *reconciler.Task {
	return &reconciler.Task{Attempt: cluster.Attempt{DesiredRev: 7, Desired: &cluster.Desired{
		Task: cluster.JobTask("c", "j", 2, "s", index), Attempt: 1, UUID: uuidOf(index), Node: "n1",
		Owner: l.job.Owner(), Definition: l.job.Steps[0].Definition,
	}}}
}

// ended returns the first attempt of a task after its end.
func (l *largeJob) ended(index int, state cluster.State) *reconciler.Task {
	o := &cluster.Outcome{
		Task: cluster.JobTask("c", "j", 2, "s", index), Attempt: 1, UUID: uuidOf(index), Node: "n1",
		Owner: l.job.Owner(), State: state, Definition: l.job.Steps[0].Definition, Started: true,
		Placed: l.now, Begun: l.now, Ended: l.now.Add(time.Duration(index) * time.Second),
	}
	o.Exit = &cluster.Exit{At: o.Ended}
	if state != cluster.StateSucceeded {
		o.Exit.Code, o.Reason = 1, cluster.ReasonExit
	}
	return &reconciler.Task{Attempt: cluster.Attempt{Outcome: o}}
}

// input returns the input of a decision. Tasks that are packed have no records.
func (l *largeJob) input() reconciler.JobInput {
	in := reconciler.JobInput{
		Owner: l.job.Owner(), Spec: l.job, SpecRev: 7, Now: l.now.Add(time.Hour), Packed: l.packed,
		Definitions: func(cluster.Ref) *cluster.TaskDefinition {
			return &cluster.TaskDefinition{Name: "d", Version: 1, Containers: []cluster.Container{{Name: "main"}}}
		},
	}
	for index, task := range l.tasks { // order-free: the decision does not depend on the order
		if !slices.ContainsFunc(l.packed, func(p reconciler.Packed) bool { return p.Tasks.Has(index) }) {
			in.Tasks = append(in.Tasks, *task)
		}
	}
	return in
}

// commit carries packs out, with the checks that the store makes.
func (l *largeJob) commit(t *rapid.T, packs []reconciler.Pack) {
	for _, w := range packs {
		at := slices.IndexFunc(l.packed, func(p reconciler.Packed) bool { return p.Tasks.Part == w.Tasks.Part })
		before := reconciler.Packed{Tasks: &cluster.PackedTasks{}}
		if at >= 0 {
			before = l.packed[at]
			l.packed = slices.Delete(slices.Clone(l.packed), at, at+1)
		}
		if w.Rev != before.Rev || w.Tasks.Count() != before.Tasks.Count()+len(w.Outcomes) {
			t.Fatalf("%d tasks of revision %d and %d outcomes make %d of revision %d", before.Tasks.Count(), before.Rev,
				len(w.Outcomes), w.Tasks.Count(), w.Rev)
		}
		for _, o := range w.Outcomes {
			parts, _ := o.Task.Parts()
			if was := l.tasks[parts.Index]; was == nil || was.Outcome == nil || !w.Tasks.Has(parts.Index) ||
				was.Outcome.State != cluster.StateSucceeded {
				t.Fatalf("%s is packed and has not succeeded", o.Task)
			}
		}
		l.packed = append(l.packed, reconciler.Packed{Tasks: w.Tasks, Rev: before.Rev + 1})
	}
}

// requested returns the tasks of requests, with why they are held.
func requested(pending []cluster.Pending) map[cluster.TaskID]cluster.ReasonCode {
	all := map[cluster.TaskID]cluster.ReasonCode{}
	for i := range pending {
		for id := range pending[i].Range().Each {
			all[id] = pending[i].Hold.Reason
		}
	}
	return all
}

// TestPackedTasksChangeNothing packs tasks while others run and end. The state of the job, what may begin and what it
// waits for are the same as without packing.
func TestPackedTasksChangeNothing(t *testing.T) {
	packed := 0
	rapid.Check(t, func(t *rapid.T) {
		l := drawLargeJob(t)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			l.run(t)
			with := l.input()
			decided := reconciler.Job(with)
			plain := l.input()
			plain.Tasks, plain.Packed = nil, nil
			for _, task := range l.tasks { // order-free: as in input
				plain.Tasks = append(plain.Tasks, *task)
			}
			want := reconciler.Job(plain)
			if diff := cmp.Diff(reconciler.StatusOfJob(plain), reconciler.StatusOfJob(with)); diff != "" {
				t.Fatal(diff)
			}
			if reconciler.IsUnderWay(plain) != reconciler.IsUnderWay(with) {
				t.Fatalf("the job is under way with packed tasks: %t", reconciler.IsUnderWay(with))
			}
			if diff := cmp.Diff(requested(want.Pending), requested(decided.Pending)); diff != "" {
				t.Fatal(diff)
			}
			decided.Pending, want.Pending, want.Packs = nil, nil, nil
			packs := decided.Packs
			decided.Packs = nil
			if diff := cmp.Diff(want, decided); diff != "" {
				t.Fatal(diff)
			}
			l.commit(t, packs)
			for i := range packs {
				packed += len(packs[i].Outcomes)
			}
		}
	})
	if packed == 0 {
		t.Error("nothing was packed")
	}
}

// All outcomes of a step that has ended are packed. Another run deletes the records, and so does the deletion of the
// job, which waits for that.
func TestPackedTasksOfEndedSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLargeJob(t)
		for index := range l.job.Steps[0].Count {
			l.tasks[index] = l.ended(index, cluster.StateSucceeded)
		}
		for range 20 {
			l.commit(t, reconciler.Job(l.input()).Packs)
		}
		in := l.input()
		if len(in.Tasks) > 0 || reconciler.StatusOfJob(in).State != cluster.JobSucceeded {
			t.Fatalf("%d outcomes are left; the job is %s", len(in.Tasks), reconciler.StatusOfJob(in).State)
		}
		deleted := *l.job
		deleted.Deleted = true
		in.Spec = &deleted
		if d := reconciler.Job(in); d.Remove || len(d.Unpacks) != len(l.packed) {
			t.Fatalf("the deleted job: removed %v, %d of %d records deleted", d.Remove, len(d.Unpacks), len(l.packed))
		}
		again := *l.job
		again.Generation++
		in.Spec = &again
		d := reconciler.Job(in)
		if len(d.Unpacks) != len(l.packed) || cluster.CountTasks(d.Pending) != l.job.Steps[0].Count {
			t.Fatalf("another run: %d of %d records deleted, %d tasks wait", len(d.Unpacks), len(l.packed),
				cluster.CountTasks(d.Pending))
		}
		in.Spec, in.Packed = &deleted, nil
		if d := reconciler.Job(in); !d.Remove {
			t.Fatal("the deleted job without records is not removed")
		}
	})
}

// Tasks whose record cannot be read do not run again, and the job says so. A record of a task that is packed is a stray
// one: it is stopped.
func TestUnreadablePackedTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLargeJob(t)
		l.job.Steps[0].Parallelism = 0
		l.packed = []reconciler.Packed{{Rev: 3, Tasks: &cluster.PackedTasks{
			Cluster: "c", Job: "j", Generation: 2, Step: "s", Part: 1, Unreadable: true,
		}}}
		in := l.input()
		d := reconciler.Job(in)
		if n := cluster.CountTasks(d.Pending); n != l.job.Steps[0].Count-cluster.PackedPart {
			t.Errorf("%d of %d tasks may begin", n, l.job.Steps[0].Count)
		}
		if !strings.Contains(d.Message, "the tasks 500 to 999 of step s cannot be read") {
			t.Errorf("message %q", d.Message)
		}
		// Other tasks of the part go on, and nothing is written over the record.
		for index := 500; index < 700; index++ {
			l.tasks[index] = l.ended(index, cluster.StateSucceeded)
		}
		l.tasks[700] = l.live(700)
		if d := reconciler.Job(l.input()); len(d.Stops)+len(d.Trims)+len(d.Packs) > 0 {
			t.Errorf("%d stops, %d trims and %d packs", len(d.Stops), len(d.Trims), len(d.Packs))
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		l := drawLargeJob(t)
		for index := range 120 {
			l.tasks[index] = l.ended(index, cluster.StateSucceeded)
		}
		l.commit(t, reconciler.Job(l.input()).Packs)
		in := l.input()
		index := l.packed[0].Tasks.Indices[0]
		id := cluster.JobTask("c", "j", 2, "s", index)
		in.Tasks = append(in.Tasks, reconciler.Task{Reported: true, Attempt: cluster.Attempt{
			ObservedRev: 9, Observed: &cluster.Observed{
				Task: id, Attempt: 1, UUID: "u", Node: "n1", State: cluster.StateRunning,
			},
		}})
		d := reconciler.Job(in)
		stopped := func(s reconciler.Stop) bool { return s.Desired.Task == id }
		if len(d.Adoptions) > 0 || !slices.ContainsFunc(d.Stops, stopped) {
			t.Errorf("%d adoptions, stops %+v", len(d.Adoptions), d.Stops)
		}
	})
}
