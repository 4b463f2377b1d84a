// Package backfill decides which jobs of a batch queue start now, with all nodes as one pool. The replays of
// internal/bench/swf call it: it is the reference for logs of batch systems. The leader's promises, node by node, are
// those of package scheduler (ADR 0088).
//
// Jobs wait in a queue. Jobs start from its front as long as they fit into the free resources. The first job that does
// not fit is the head. It gets a promise: the time at which enough running jobs will have ended, by their limits. The
// jobs behind the head fill the remaining free resources, in the order of the queue, unless they would delay the
// promise. This is EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995). Berth orders the queue by the
// response ratio instead of the arrival (Brinch Hansen, 1971):
//
//	(time waited + time it will run) / time it will run
//
// The ratio of a short job rises fast and that of a long one slowly, so every job rises while it waits. The expected
// run time of a job is its limit, corrected by the owner's use of earlier limits. Without a limit it is the observed
// run time of similar jobs: see [History]. Promises rest on limits alone. A wrong guess may cost a job its position in
// the queue, but never breaks a promise.
//
// # Bounded wait
//
// A job that waited longer than its PriorityAfter is overdue. Overdue jobs precede all others, ordered by the time at
// which they became overdue. This bounds every wait, under four conditions. All jobs have limits and end by them. The
// capacity does not shrink. No job joins the queue that would have been overdue before jobs in it. Decide is called
// whenever a job ends and at [Decision.NextDecisionAt]. Then:
//
//   - the promise of an overdue head never becomes later;
//   - a job that becomes overdue behind k other overdue jobs starts within (k+1)·L from then, where L is the longest
//     limit: the head waits at most until all running jobs have ended, and then the next job is the head.
//
// If PriorityAfter is equal for all jobs, k is at most the number of jobs that waited when the job arrived: later jobs
// do not count. Otherwise later jobs that became overdue earlier count too.
//
// Free resources are counted as one pool. The scheduler decides whether a node has room for a task.
package backfill

import (
	"math"
	"slices"
	"time"
)

// Amounts holds an amount of each resource. The caller chooses the resources: processors alone, or CPU, memory and each
// kind of device. The n-th number of every list belongs to the same resource, and missing numbers at the end are 0. No
// demand is negative.
type Amounts []int64

// Input is the state of the queue at one time. Decide does not change it.
type Input struct {
	Now      time.Time
	Capacity Amounts
	Running  []Running
	Waiting  []Waiting // in any order
}

// Running is a job that holds resources.
type Running struct {
	ID     string
	Demand Amounts
	// Ends is the time at which the job ends at the latest, by its limit or else as expected; zero if unknown. A past
	// time counts as now.
	Ends time.Time
}

// Waiting is a job that could start.
type Waiting struct {
	ID      string // unique among all jobs of the input
	Arrived time.Time
	Demand  Amounts
	// Limit is the run time after which the job is stopped; 0 for no limit.
	Limit time.Duration
	// Expected is the likely run time, 0 if unknown. It determines the position in the queue. For a job without a limit
	// it also serves as the limit, and promises are then only as good as this guess.
	Expected time.Duration
	// Priority precedes the response ratio: jobs of a higher priority precede jobs of a lower one. Overdue jobs precede
	// both. 0 holds the job back.
	Priority int
	// PriorityAfter is how long, from the job's arrival, other jobs may be preferred to it. With 0 the job never
	// becomes overdue, and others may be preferred to it without end.
	PriorityAfter time.Duration
}

// Decision is the result for an Input. It stays valid as long as the caller does not change the Input's lists.
type Decision struct {
	// Start lists the jobs to start, as indexes into Input.Waiting, in the order in which they were chosen.
	Start []int
	// Head is the promise to the first waiting job, nil if no job waits that could ever start.
	Head *Promise
	// NextDecisionAt is the time at which the next job becomes overdue, which changes the queue. Zero if none will.
	NextDecisionAt time.Time

	in    Input
	queue queue // of jobs that keep waiting; after Decide the head is first and the others have no order
}

// Promise says when the head of the queue starts at the latest, and what it waits for.
type Promise struct {
	ID string
	// At is the latest start; zero if the head needs resources of a job whose end is unknown.
	At time.Time
	// After names the last job whose end is needed to make room. At is the time of that end.
	After string
	// Resource is the index of the first resource that is short. Needs is the head's demand for it, Free the amount
	// that is left.
	Resource    int
	Needs, Free int64
	// Overdue says that the head is overdue: no job is preferred to it any more, and At will not become
	// later.
	Overdue bool
}

// forever is an unknown length or time.
const forever = math.MaxInt64

// minRunTime is the least time by which the response ratio divides.
const minRunTime = time.Second

// Decide returns which jobs start now. The order of the input does not matter. The cost is about w + s·log w + r·log r
// for w waiting, s starting and r running jobs: only jobs that could start are sorted.
func Decide(in Input) Decision {
	d := Decision{in: in}
	d.buildQueue() // 1. the queue
	h := newHorizon(&in)
	for len(d.queue) > 0 && h.roomFor(d.demand(0)) { // 2. jobs from the front that fit
		t := d.queue.pop()
		h.hold(end{at: t.maxRun, id: t.id, demand: in.Waiting[t.job].Demand})
		d.Start = append(d.Start, t.job)
	}
	if len(d.queue) == 0 {
		return d
	}
	h.sortEnds()
	d.promise(h)                     // 3. the head's promise
	for _, i := range d.mayFill(h) { // 4. jobs behind it that do not delay the promise
		if h.fill(d.demand(i), d.queue[i].maxRun) {
			d.Start = append(d.Start, d.queue[i].job)
			d.queue[i].started = true
		}
	}
	d.queue = slices.DeleteFunc(d.queue, func(t entry) bool { return t.started })
	d.NextDecisionAt = d.nextOverdue()
	return d
}

// demand returns the demand of the i-th entry in memory order.
func (d *Decision) demand(i int) Amounts { return d.in.Waiting[d.queue[i].job].Demand }

// promise sets the head's promise.
func (d *Decision) promise(h *horizon) {
	first, need := d.queue[0], d.demand(0)
	last := h.ends[h.promise(need)]
	p := &Promise{ID: first.id, After: last.id, Overdue: first.overdueSince != forever}
	if last.at != forever {
		p.At = d.in.Now.Add(time.Duration(last.at))
	}
	p.Resource, p.Needs, p.Free = firstShortage(need, h.free)
	d.Head = p
}

// mayFill returns the entries that could each start alone behind the head, in the order of the queue.
func (d *Decision) mayFill(h *horizon) (may []int) {
	for i := 1; i < len(d.queue); i++ {
		if need := d.demand(i); h.roomFor(need) && h.keepsPromise(need, d.queue[i].maxRun) {
			may = append(may, i)
		}
	}
	slices.SortFunc(may, func(a, b int) int { return compareEntries(&d.queue[a], &d.queue[b]) })
	return may
}

// nextOverdue returns the time at which the next job of the queue becomes overdue.
func (d *Decision) nextOverdue() (at time.Time) {
	for i := range d.queue {
		w := &d.in.Waiting[d.queue[i].job]
		if d.queue[i].overdueSince != forever || w.PriorityAfter <= 0 {
			continue
		}
		if due := w.Arrived.Add(w.PriorityAfter); at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}
