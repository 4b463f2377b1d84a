// Package backfill decides which jobs of a batch queue start now.
//
// Jobs wait in a line. From its front all start that fit into what is free. The first that does not fit is the head: it
// gets a promise, the moment at which enough will have ended for it, by the limits of what runs. The jobs behind it
// fill what it leaves free, in the order of the line, as long as none of them would make the promise later. This is
// EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995); Berth's line is not the order of arrival but of
// the response ratio (Brinch Hansen, 1971):
//
//	(time waited + time it will run) / time it will run
//
// A short job rises fast and a long one slowly, and both the more the longer they wait. How long a job will run is its
// limit, corrected by what its owner made of earlier limits, or what it was seen to run where it has none: see
// [History]. Promises rest on limits alone, so that a wrong guess may cost a job its place in the line, and never
// breaks a promise.
//
// # Nobody starves
//
// A job whose patience has passed is ripe. Ripe jobs stand before all others, those first whose patience passed first.
// From this follows, as long as all jobs have limits and end by them, the capacity does not shrink, no job joins the
// line that would have been ripe before those in it, and Decide is asked whenever a job ends and at [Decision.Look]:
//
//   - the promise of a ripe head never becomes later;
//   - a job that becomes ripe while k ripe jobs wait before it starts within (k+1)·L from then, L being the longest
//     limit: the head waits at most until all that runs has ended, and then the next one is the head.
//
// Where all jobs have the same patience, k is at most the number of jobs that waited when it arrived: nothing that
// comes later counts. With patiences that differ, jobs that came later and became ripe earlier count too.
//
// What is free is counted as one heap. Whether a node has room for a task is for the scheduler to say.
package backfill

import (
	"math"
	"slices"
	"time"
)

// Amounts tells how much of each resource. The caller chooses which: processors alone, or CPU, memory and each kind of
// device; the n-th number of every list is of the same resource, and what is missing at a list's end is 0. No amount
// that is asked for is negative.
type Amounts []int64

// Input is what is known at one moment. Decide changes nothing in it.
type Input struct {
	Now      time.Time
	Capacity Amounts
	Running  []Running
	Waiting  []Waiting // in any order: it does not matter
}

// Running is a job that holds resources.
type Running struct {
	ID     string
	Demand Amounts
	// Ends is when it ends at the latest, by its limit, or else when it is expected to; zero where nothing is known. A
	// moment that has passed counts as now.
	Ends time.Time
}

// Waiting is a job that could start.
type Waiting struct {
	ID      string // unique among all jobs of the input
	Arrived time.Time
	Demand  Amounts
	// Limit is how long it may run: it is stopped then. 0 is no limit.
	Limit time.Duration
	// Expected is how long it will likely run, 0 where nothing is known. It decides the place in the line; of a job
	// without a limit it also stands for the limit, and promises are then as good as it.
	Expected time.Duration
	// Priority goes before the response ratio: jobs with a higher one stand before those with a lower one, ripe jobs
	// before both. 0 holds the job back.
	Priority int
	// Patience is for how long others may be preferred to it, from its arrival on. With 0 it never becomes ripe, and
	// others may be preferred to it without end.
	Patience time.Duration
}

// Decision is what follows from an Input. It stays readable as long as the caller does not change the Input's lists.
type Decision struct {
	// Start lists the jobs to start, as indexes into Input.Waiting, in the order in which they were chosen.
	Start []int
	// Head is the promise to the first in line of those that wait on, nil where nothing waits that could ever start.
	Head *Promise
	// Look is when the next job becomes ripe: the line changes then by time alone. Zero where none will.
	Look time.Time

	in   Input
	line line   // those that wait on; once decided, the head first and the others in no order
	out  []turn // those that stand in no line: held or too large
}

// Promise tells when the head of the line starts at the latest, and what it waits for.
type Promise struct {
	ID string
	// At is the moment; zero where it needs what a job holds of which nobody knows when it ends.
	At time.Time
	// After names the job whose end, the last that is needed, makes room: At is its end.
	After string
	// Resource is the index of the first resource of which too little is free; Needs is what the head asks of it and
	// Free what is left.
	Resource    int
	Needs, Free int64
	// Ripe says that its patience has passed: nobody is preferred to it any more, and At will not become later.
	Ripe bool
}

// forever is a length or a moment that nobody knows.
const forever = math.MaxInt64

// shortest is the least time by which the response ratio divides.
const shortest = time.Second

// Decide returns which jobs start now. The same jobs in another order give the same decision. It costs about w + s·log
// w + r·log r for w jobs that wait, s that start and r that run: only those that could start are put in order.
func Decide(in Input) Decision {
	d := Decision{in: in}
	d.form() // 1. the line
	h := newHorizon(&in)
	for len(d.line) > 0 && h.roomFor(d.demand(0)) { // 2. from the front, what fits
		t := d.line.pop()
		h.hold(end{at: t.length, id: t.id, demand: in.Waiting[t.job].Demand})
		d.Start = append(d.Start, t.job)
	}
	if len(d.line) == 0 {
		return d
	}
	h.look()
	d.promise(h)                     // 3. the head's promise
	for _, i := range d.mayFill(h) { // 4. behind it, what does not make the promise later
		if h.fill(d.demand(i), d.line[i].length) {
			d.Start = append(d.Start, d.line[i].job)
			d.line[i].started = true
		}
	}
	d.line = slices.DeleteFunc(d.line, func(t turn) bool { return t.started })
	d.Look = d.next()
	return d
}

// demand is that of the i-th of the line as it lies in memory.
func (d *Decision) demand(i int) Amounts { return d.in.Waiting[d.line[i].job].Demand }

// promise gives the first in line its promise.
func (d *Decision) promise(h *horizon) {
	first, need := d.line[0], d.demand(0)
	last := h.ends[h.promise(need)]
	p := &Promise{ID: first.id, After: last.id, Ripe: first.ripe != forever}
	if last.at != forever {
		p.At = d.in.Now.Add(time.Duration(last.at))
	}
	p.Resource, p.Needs, p.Free = lacks(need, h.free)
	d.Head = p
}

// mayFill returns which jobs of the line could start behind the head if each were the only one, in the order of the
// line.
func (d *Decision) mayFill(h *horizon) (may []int) {
	for i := 1; i < len(d.line); i++ {
		if need := d.demand(i); h.roomFor(need) && h.harmless(need, d.line[i].length) {
			may = append(may, i)
		}
	}
	slices.SortFunc(may, func(a, b int) int { return before(&d.line[a], &d.line[b]) })
	return may
}

// next returns when the next job of the line becomes ripe.
func (d *Decision) next() (look time.Time) {
	for i := range d.line {
		w := &d.in.Waiting[d.line[i].job]
		if d.line[i].ripe != forever || w.Patience <= 0 {
			continue
		}
		if at := w.Arrived.Add(w.Patience); look.IsZero() || at.Before(look) {
			look = at
		}
	}
	return look
}
