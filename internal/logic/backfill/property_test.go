package backfill_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/backfill"
)

func upTo(t *rapid.T, name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }

func drawDemand(t *rapid.T, most backfill.Amounts) backfill.Amounts {
	d := make(backfill.Amounts, len(most))
	for i, m := range most {
		d[i] = int64(upTo(t, "demand", int(m)))
	}
	return d
}

// drawInput draws a machine of one to three resources with running and waiting jobs that fit on it, some without
// limits.
func drawInput(t *rapid.T) backfill.Input {
	in := backfill.Input{Now: noon()}
	for range 1 + upTo(t, "resources", 2) {
		in.Capacity = append(in.Capacity, int64(1+upTo(t, "capacity", 12)))
	}
	free := slices.Clone(in.Capacity)
	for i := range upTo(t, "running", 6) {
		r := backfill.Running{ID: fmt.Sprint("r", i), Demand: drawDemand(t, free)}
		if m := upTo(t, "ends", 20); m > 0 {
			r.Ends = after(m - 2)
		}
		for k := range free {
			free[k] -= r.Demand[k]
		}
		in.Running = append(in.Running, r)
	}
	for i := range upTo(t, "waiting", 12) {
		w := waits(fmt.Sprint("w", i), 0, upTo(t, "since", 30), upTo(t, "limit", 20))
		w.Demand = drawDemand(t, in.Capacity)
		w.Expected = time.Duration(upTo(t, "expected", 20)) * time.Minute
		w.Priority = upTo(t, "priority", 3)
		w.PriorityAfter = time.Duration(upTo(t, "priority after", 40)) * time.Minute
		if upTo(t, "large", 15) == 0 {
			w.Demand[0] = in.Capacity[0] + 1
		}
		in.Waiting = append(in.Waiting, w)
	}
	return in
}

// started returns the input after the jobs with the given indexes have started.
func started(in backfill.Input, jobs ...int) backfill.Input {
	next := in
	next.Running, next.Waiting = slices.Clone(in.Running), nil
	for i, w := range in.Waiting {
		if !slices.Contains(jobs, i) {
			next.Waiting = append(next.Waiting, w)
			continue
		}
		r := backfill.Running{ID: w.ID, Demand: w.Demand}
		if length := max(w.Limit, 0); length > 0 {
			r.Ends = in.Now.Add(length)
		} else if w.Expected > 0 {
			r.Ends = in.Now.Add(w.Expected)
		}
		next.Running = append(next.Running, r)
	}
	return next
}

// sumDemands adds up the demands of the running jobs.
func sumDemands(in backfill.Input) backfill.Amounts {
	sum := make(backfill.Amounts, len(in.Capacity))
	for _, r := range in.Running {
		for k, d := range r.Demand {
			sum[k] += d
		}
	}
	return sum
}

// TestOneDecision checks the promises of each single decision.
func TestOneDecision(t *testing.T) {
	filled, delayed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		d := backfill.Decide(in)
		next := started(in, d.Start...)
		if !holds(next) {
			t.Fatalf("%v are in use, and there are %v", sumDemands(next), in.Capacity)
		}

		// The order of the input does not matter.
		mixed := in
		mixed.Waiting = rapid.Permutation(in.Waiting).Draw(t, "waiting")
		mixed.Running = rapid.Permutation(in.Running).Draw(t, "running")
		m := backfill.Decide(mixed)
		if diff := cmp.Diff(ids(in, d.Start), ids(mixed, m.Start)); diff != "" {
			t.Fatalf("started, in another order of the input: %s", diff)
		}
		if diff := cmp.Diff(d.Head, m.Head); diff != "" {
			t.Fatalf("the promise, in another order of the input: %s", diff)
		}

		// A second decision starts nothing and makes the same promise.
		again := backfill.Decide(next)
		if len(again.Start) > 0 {
			t.Fatalf("%v start at the second decision", ids(next, again.Start))
		}
		if d.Head != nil && (again.Head == nil || again.Head.ID != d.Head.ID || !again.Head.At.Equal(d.Head.At)) {
			t.Fatalf("the promise was %+v and is %+v after what was started", d.Head, again.Head)
		}
		if len(d.Start) > 0 && d.Head != nil {
			filled++
		}

		for i, w := range next.Waiting {
			forced := started(next, i)
			if d.Head == nil || d.Head.At.IsZero() || w.ID == d.Head.ID || w.Priority <= 0 || !holds(forced) {
				continue
			}
			delayed++ // it would delay the promise, otherwise it had been started
			if head := backfill.Decide(forced).Head; head != nil && !head.At.IsZero() && !head.At.After(d.Head.At) {
				t.Fatalf("%s keeps waiting, and would not delay the head: %s, %s", w.ID, d.Head.At, head.At)
			}
		}
	})
	if filled == 0 || delayed == 0 {
		t.Errorf("%d decisions filled behind a head and %d jobs were kept from it: nothing was tried", filled, delayed)
	}
}

// holds reports whether the running jobs fit into the capacity.
func holds(in backfill.Input) bool {
	for k, h := range sumDemands(in) {
		if h > in.Capacity[k] {
			return false
		}
	}
	return true
}

func ids(in backfill.Input, jobs []int) (ids []string) {
	for _, i := range jobs {
		ids = append(ids, in.Waiting[i].ID)
	}
	return ids
}

// world is a machine on which jobs run for no longer than their limits.
type world struct {
	in     backfill.Input
	ends   map[string]time.Time     // real ends of the running jobs
	run    map[string]time.Duration // how long each will run
	bounds map[string]time.Time     // latest start of each job that became overdue
	// longest is the longest limit of all jobs.
	longest time.Duration
	head    backfill.Promise // the last one to an overdue head
}

// step decides, carries the decision out and returns the time of the next decision, at the latest until.
func (w *world) step(t *rapid.T, until time.Time) time.Time {
	w.recordBounds(t)
	d := backfill.Decide(w.in)
	for _, i := range d.Start {
		j := w.in.Waiting[i]
		if bound, ok := w.bounds[j.ID]; ok && w.in.Now.After(bound) {
			t.Fatalf("%s starts at %s, %s after its bound", j.ID, w.in.Now, w.in.Now.Sub(bound))
		}
		w.ends[j.ID] = w.in.Now.Add(w.run[j.ID])
	}
	w.in = started(w.in, d.Start...)
	if h := d.Head; h != nil && h.Overdue {
		if w.head.ID == h.ID && h.At.After(w.head.At) {
			t.Fatalf("at %s the promise to the overdue head %s became later: %s, and was %s", w.in.Now, h.ID, h.At,
				w.head.At)
		}
		w.head = *h
	}
	next := until
	if !d.NextDecisionAt.IsZero() && d.NextDecisionAt.Before(next) {
		next = d.NextDecisionAt
	}
	for _, end := range w.ends {
		if end.Before(next) {
			next = end
		}
	}
	return next
}

// recordBounds records the bound of each job that has just become overdue. It follows from the jobs before it in the
// queue and itself.
func (w *world) recordBounds(t *rapid.T) {
	overdue := map[string]time.Time{}
	for _, j := range w.in.Waiting {
		if at := j.Arrived.Add(j.PriorityAfter); j.PriorityAfter > 0 && !at.After(w.in.Now) {
			overdue[j.ID] = at
		}
	}
	for id, at := range overdue {
		bound, known := w.bounds[id]
		if known {
			if w.in.Now.After(bound) {
				t.Fatalf("%s waits at %s, %s after its bound", id, w.in.Now, w.in.Now.Sub(bound))
			}
			continue
		}
		before := 0
		for _, other := range overdue {
			if other.Before(at) || other.Equal(at) { // including itself
				before++
			}
		}
		w.bounds[id] = at.Add(time.Duration(before) * w.longest)
	}
}

// advance runs the machine until a time.
func (w *world) advance(t *rapid.T, until time.Time) {
	for w.in.Now.Before(until) {
		w.in.Now = w.step(t, until)
		w.in.Running = slices.DeleteFunc(w.in.Running, func(r backfill.Running) bool {
			over := !w.ends[r.ID].After(w.in.Now)
			if over {
				delete(w.ends, r.ID)
			}
			return over
		})
	}
}

// TestNoJobStarves floods a machine with jobs of all sizes, most of them short and of high priority. It checks each
// job against its bound: an overdue job waits at most the longest limit for each job that was overdue before it.
func TestNoJobStarves(t *testing.T) {
	overdue := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			ends: map[string]time.Time{}, run: map[string]time.Duration{}, bounds: map[string]time.Time{},
			longest: time.Hour,
		}
		w.in = backfill.Input{Now: noon(), Capacity: backfill.Amounts{8, 4}[:1+upTo(t, "resources", 1)]}
		for i := range 20 + upTo(t, "jobs", 60) {
			j := backfill.Waiting{
				ID: fmt.Sprint("j", i), Arrived: w.in.Now, Priority: 1,
				Demand: drawDemand(t, w.in.Capacity),
			}
			j.Limit = time.Duration(1+upTo(t, "limit", 9)) * time.Minute
			if upTo(t, "kind", 3) == 0 { // a long job, to which all others would be preferred
				j.Limit = time.Duration(1+upTo(t, "long", 59)) * time.Minute
			} else {
				j.Priority += upTo(t, "priority", 5)
			}
			j.PriorityAfter = time.Duration(1+upTo(t, "priority after", 180)) * time.Minute
			j.Expected = min(j.Limit, time.Duration(1+upTo(t, "expected", 60))*time.Minute)
			w.run[j.ID] = min(j.Limit, time.Duration(1+upTo(t, "run", 60))*time.Minute)
			w.in.Waiting = append(w.in.Waiting, j)
			w.advance(t, w.in.Now.Add(time.Duration(upTo(t, "gap", 6))*time.Minute))
		}
		w.advance(t, w.in.Now.Add(100*24*time.Hour))
		if len(w.in.Waiting) > 0 {
			t.Fatalf("%d jobs wait forever", len(w.in.Waiting))
		}
		overdue += len(w.bounds)
	})
	if overdue == 0 {
		t.Error("no job ever became overdue: nothing was tried")
	}
}

// TestPriorityAfterBoundsTheWait shows that PriorityAfter alone bounds the wait of a wide job: short jobs with a higher
// ratio arrive all the time.
func TestPriorityAfterBoundsTheWait(t *testing.T) {
	waited := func(limit time.Duration) time.Duration {
		wide := waits("wide", 2, 0, 600)
		wide.PriorityAfter = limit
		in := backfill.Input{
			Now: noon(), Capacity: backfill.Amounts{2},
			Running: []backfill.Running{runs("first", 1, 2)}, Waiting: []backfill.Waiting{wide},
		}
		for minute := range 24 * 60 {
			in.Now = after(minute)
			in.Running = slices.DeleteFunc(in.Running, func(r backfill.Running) bool { return !r.Ends.After(in.Now) })
			short := waits(fmt.Sprint("short", minute), 1, -minute, 2)
			short.Priority = 2 // before all but overdue jobs
			in.Waiting = append(in.Waiting, short)
			d := backfill.Decide(in)
			if slices.Contains(ids(in, d.Start), "wide") {
				return in.Now.Sub(noon())
			}
			in = started(in, d.Start...)
		}
		return 24 * time.Hour
	}
	if got := waited(0); got != 24*time.Hour {
		t.Errorf("without PriorityAfter it starts after %s, want never", got)
	}
	if got := waited(3 * time.Hour); got < 3*time.Hour || got > 3*time.Hour+2*time.Minute {
		t.Errorf("with PriorityAfter of 3 h it starts after %s, want within 2 minutes more", got)
	}
}
