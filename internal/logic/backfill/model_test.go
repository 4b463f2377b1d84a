package backfill_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/backfill"
)

// model decides as the package comment says, without optimizations. It sorts the whole queue. It lets a job start
// behind the head if the head could then start as early as without it. It searches again at every time. It knows all
// ends.
func model(in backfill.Input) (start []string, head string, at time.Time) {
	queue := slices.DeleteFunc(slices.Clone(in.Waiting), func(w backfill.Waiting) bool {
		return w.Priority == 0 || !room(backfill.Input{Capacity: in.Capacity}, w.Demand, in.Now)
	})
	slices.SortFunc(queue, func(a, b backfill.Waiting) int { return modelOrder(in.Now, a, b) })
	for _, w := range queue {
		now := started(backfill.Input{
			Now: in.Now, Capacity: in.Capacity, Running: in.Running,
			Waiting: []backfill.Waiting{w},
		}, 0)
		switch {
		case !room(in, w.Demand, in.Now):
			if head == "" {
				head, at = w.ID, earliest(in, w.Demand)
			}
		case head == "" || !earliest(now, demand(queue, head)).After(at):
			start = append(start, w.ID)
			in.Running = now.Running
		}
	}
	return start, head, at
}

func modelOrder(now time.Time, a, b backfill.Waiting) int {
	overdue := func(w backfill.Waiting) time.Time {
		if at := w.Arrived.Add(w.PriorityAfter); w.PriorityAfter > 0 && !at.After(now) {
			return at
		}
		return now.Add(time.Hour) // after all overdue jobs
	}
	ratio := func(w backfill.Waiting) float64 {
		run := w.Limit
		if w.Expected > 0 {
			run = min(w.Expected, w.Limit)
		}
		return 1 + float64(now.Sub(w.Arrived))/float64(run)
	}
	if c := overdue(a).Compare(overdue(b)); c != 0 {
		return c
	}
	if !overdue(a).After(now) {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.ID, b.ID))
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(ratio(b), ratio(a)), cmp.Compare(a.Limit, b.Limit),
		cmp.Compare(a.ID, b.ID))
}

func demand(queue []backfill.Waiting, id string) backfill.Amounts {
	return queue[slices.IndexFunc(queue, func(w backfill.Waiting) bool { return w.ID == id })].Demand
}

// room reports whether a demand fits beside all that still runs at a moment.
func room(in backfill.Input, demand backfill.Amounts, at time.Time) bool {
	for k, free := range in.Capacity {
		for _, r := range in.Running {
			if r.Ends.After(at) || !at.After(in.Now) { // a job that should end now still runs
				free -= r.Demand[k]
			}
		}
		if demand[k] > free {
			return false
		}
	}
	return true
}

// earliest returns the first end at which there is room for a demand.
func earliest(in backfill.Input, demand backfill.Amounts) (first time.Time) {
	for _, r := range in.Running {
		at := r.Ends
		if at.Before(in.Now) {
			at = in.Now
		}
		if (first.IsZero() || at.Before(first)) && room(in, demand, at.Add(time.Nanosecond)) {
			first = at
		}
	}
	return first
}

// TestModel compares the decision with the model's.
func TestModel(t *testing.T) {
	type outcome struct {
		Start []string
		Head  string
		At    time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		for i := range in.Running {
			if in.Running[i].Ends.IsZero() {
				in.Running[i].Ends = after(i)
			}
		}
		for i := range in.Waiting {
			in.Waiting[i].Limit = max(in.Waiting[i].Limit, time.Minute)
		}
		var want, got outcome
		want.Start, want.Head, want.At = model(in)
		d := backfill.Decide(in)
		got.Start = ids(in, d.Start)
		if d.Head != nil {
			got.Head, got.At = d.Head.ID, d.Head.At
		}
		if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decision (-model +got):\n%s", diff)
		}
	})
}
