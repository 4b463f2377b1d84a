package backfill_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/logic/backfill"
)

// noon returns the time of all decisions.
func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// after returns the time a number of minutes after noon.
func after(minutes int) time.Time { return noon().Add(time.Duration(minutes) * time.Minute) }

// runs returns a job on a number of processors that ends some minutes after noon.
func runs(id string, procs int64, ends int) backfill.Running {
	return backfill.Running{ID: id, Demand: backfill.Amounts{procs}, Ends: after(ends)}
}

// waits returns a job that arrived since minutes before noon and may run for limit minutes.
func waits(id string, procs int64, since, limit int) backfill.Waiting {
	return backfill.Waiting{
		ID: id, Arrived: after(-since), Demand: backfill.Amounts{procs}, Limit: time.Duration(limit) * time.Minute,
		Priority: 1,
	}
}

// result is the part of a decision that a test compares.
type result struct {
	Start []string
	Head  *backfill.Promise
}

func decide(in backfill.Input) result {
	in.Now = noon()
	d := backfill.Decide(in)
	var t result
	for _, i := range d.Start {
		t.Start = append(t.Start, in.Waiting[i].ID)
	}
	t.Head = d.Head
	return t
}

func TestDecide(t *testing.T) {
	patient := func(w backfill.Waiting, minutes int) backfill.Waiting {
		w.PriorityAfter = time.Duration(minutes) * time.Minute
		return w
	}
	prior := func(w backfill.Waiting, priority int) backfill.Waiting {
		w.Priority = priority
		return w
	}
	likely := func(w backfill.Waiting, minutes int) backfill.Waiting {
		w.Expected = time.Duration(minutes) * time.Minute
		return w
	}
	for _, c := range []struct {
		name string
		in   backfill.Input
		want result
	}{
		{
			"nothing waits",
			backfill.Input{Capacity: backfill.Amounts{8}},
			result{},
		},
		{
			"all fit",
			backfill.Input{
				Capacity: backfill.Amounts{8},
				Waiting:  []backfill.Waiting{waits("a", 4, 0, 60), waits("b", 4, 0, 30)},
			},
			result{Start: []string{"b", "a"}},
		},
		{
			"a short job ends before the promise, a long one would not",
			backfill.Input{
				Capacity: backfill.Amounts{8}, Running: []backfill.Running{runs("r", 6, 60)},
				Waiting: []backfill.Waiting{
					waits("wide", 8, 600, 60), waits("short", 2, 10, 60),
					waits("long", 2, 10, 90),
				},
			},
			result{
				Start: []string{"short"},
				Head:  &backfill.Promise{ID: "wide", At: after(60), After: "r", Needs: 8, Free: 2},
			},
		},
		{
			"a job that would delay the head says by how much",
			backfill.Input{
				Capacity: backfill.Amounts{8}, Running: []backfill.Running{runs("r", 4, 60), runs("s", 2, 80)},
				Waiting: []backfill.Waiting{
					waits("wide", 6, 600, 60), waits("less", 1, 10, 70),
					waits("long", 2, 10, 90), waits("longer", 1, 10, 600),
				},
			},
			result{
				Head: &backfill.Promise{ID: "wide", At: after(60), After: "r", Needs: 6, Free: 2},
			},
		},
		{
			"a long job takes what the head leaves, once",
			backfill.Input{
				Capacity: backfill.Amounts{8}, Running: []backfill.Running{runs("r", 6, 60)},
				Waiting: []backfill.Waiting{
					waits("wide", 7, 600, 60), waits("one", 1, 20, 90),
					waits("two", 1, 10, 90),
				},
			},
			result{
				Start: []string{"one"},
				Head:  &backfill.Promise{ID: "wide", At: after(60), After: "r", Needs: 7, Free: 2},
			},
		},
		{
			"a short job rises faster than a long one, by what is expected of it",
			backfill.Input{
				Capacity: backfill.Amounts{1},
				Waiting: []backfill.Waiting{
					waits("old", 1, 100, 600), waits("young", 1, 10, 50),
					likely(waits("guess", 1, 10, 600), 10),
				},
			},
			result{
				Start: []string{"guess"},
				Head:  &backfill.Promise{ID: "young", At: after(600), After: "guess", Needs: 1},
			},
		},
		{
			"an overdue job precedes all, and priority before the ratio",
			backfill.Input{
				Capacity: backfill.Amounts{1}, Running: []backfill.Running{runs("r", 1, 5)},
				Waiting: []backfill.Waiting{
					waits("fast", 1, 10, 1), prior(waits("dear", 1, 0, 60), 7),
					patient(waits("late", 1, 100, 600), 100), patient(waits("later", 1, 99, 600), 98),
				},
			},
			result{
				Head: &backfill.Promise{ID: "later", At: after(5), After: "r", Needs: 1, Overdue: true},
			},
		},
		{
			"jobs that can never start, or are held, are not in the queue",
			backfill.Input{
				Capacity: backfill.Amounts{8}, Running: []backfill.Running{runs("r", 8, 5)},
				Waiting: []backfill.Waiting{
					waits("huge", 9, 9000, 1), prior(waits("held", 1, 9000, 1), 0),
					waits("small", 1, 1, 1),
				},
			},
			result{
				Head: &backfill.Promise{ID: "small", At: after(5), After: "r", Needs: 1},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, decide(c.in)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestManyResources: the head waits for GPUs, and jobs without a demand for GPUs do not delay it.
func TestManyResources(t *testing.T) {
	job := func(id string, cpu, gpu int64, limit int) backfill.Waiting {
		w := waits(id, cpu, 10, limit)
		w.Demand = backfill.Amounts{cpu, gpu}
		return w
	}
	busy := runs("r", 0, 60)
	busy.Demand = backfill.Amounts{2, 3}
	got := decide(backfill.Input{
		Capacity: backfill.Amounts{16, 4}, Running: []backfill.Running{busy},
		Waiting: []backfill.Waiting{
			job("gpus", 4, 4, 10), job("cpu", 4, 0, 6000), job("cpus", 12, 0, 7000),
			job("one", 1, 1, 600),
		},
	})
	want := result{
		Start: []string{"cpu"},
		Head:  &backfill.Promise{ID: "gpus", At: after(60), After: "r", Resource: 1, Needs: 4, Free: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestUnknownEnds: the head waits for a job whose end is unknown. A job with a limit may run meanwhile. A job without
// one takes nothing that the head lacks.
func TestUnknownEnds(t *testing.T) {
	endless := runs("r", 6, 0)
	endless.Ends = time.Time{}
	in := backfill.Input{
		Capacity: backfill.Amounts{8}, Running: []backfill.Running{endless},
		Waiting: []backfill.Waiting{
			waits("wide", 7, 600, 60), waits("limited", 1, 10, 6000),
			waits("unlimited", 1, 10, 0),
		},
	}
	got := decide(in)
	want := result{
		Start: []string{"limited"},
		Head:  &backfill.Promise{ID: "wide", After: "r", Needs: 7, Free: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestOverdue: a job runs beyond its limit and counts as one that ends at any time.
func TestOverdue(t *testing.T) {
	got := decide(backfill.Input{
		Capacity: backfill.Amounts{2}, Running: []backfill.Running{runs("r", 1, -5)},
		Waiting: []backfill.Waiting{waits("both", 2, 10, 5), waits("one", 1, 1, 5)},
	})
	if got.Start != nil || got.Head == nil || !got.Head.At.Equal(noon()) {
		t.Errorf("got %+v, want a promise for now and no start", got)
	}
}

// TestNextDecisionAt: the decision names the time at which the next job becomes overdue.
func TestNextDecisionAt(t *testing.T) {
	in := backfill.Input{Now: noon(), Capacity: backfill.Amounts{1}, Running: []backfill.Running{runs("r", 1, 600)}}
	for _, minutes := range []int{0, 10, 45, 60} {
		w := waits(time.Duration(minutes).String(), 1, 30, 10)
		w.PriorityAfter = time.Duration(minutes) * time.Minute
		w.Priority += minutes // so that the head is not the first to become overdue
		in.Waiting = append(in.Waiting, w)
	}
	if got, want := backfill.Decide(in).NextDecisionAt, after(15); !got.Equal(want) {
		t.Errorf("next decision at %s, want %s", got, want)
	}
}
