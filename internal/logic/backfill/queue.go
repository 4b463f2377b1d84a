package backfill

import (
	"cmp"
	"strings"
	"time"
)

// entry is a job in the queue.
type entry struct {
	job int // index into Input.Waiting
	// overdueSince is the Unix time in nanoseconds at which the job became overdue; forever if it is not.
	overdueSince int64
	priority     int
	ratio        float64
	maxRun       int64 // longest time for which it holds resources: its limit, else the expected time
	id           string
	started      bool
}

// queue is a heap of the waiting jobs: the head is first, and the others have no order.
type queue []entry

// buildQueue puts the jobs that could ever start into the queue.
func (d *Decision) buildQueue() {
	d.queue = make(queue, 0, len(d.in.Waiting))
	for i := range d.in.Waiting {
		w := &d.in.Waiting[i]
		if w.Priority <= 0 || !fits(w.Demand, d.in.Capacity) { // held, or too large
			continue
		}
		t := entry{
			job: i, overdueSince: forever, priority: w.Priority, ratio: responseRatio(w, d.in.Now),
			maxRun: maxRunTime(w), id: w.ID,
		}
		if at := w.Arrived.Add(w.PriorityAfter); w.PriorityAfter > 0 && !at.After(d.in.Now) {
			t.overdueSince = at.UnixNano()
		}
		d.queue = append(d.queue, t)
	}
	for i := len(d.queue)/2 - 1; i >= 0; i-- {
		d.queue.sink(i)
	}
}

// pop removes and returns the head.
func (l *queue) pop() entry {
	old := *l
	head := old[0]
	old[0] = old[len(old)-1]
	*l = old[:len(old)-1]
	l.sink(0)
	return head
}

// sink moves the i-th entry down until no entry below precedes it.
func (l queue) sink(i int) {
	for {
		first := 2*i + 1
		if first >= len(l) {
			return
		}
		if other := first + 1; other < len(l) && compareEntries(&l[other], &l[first]) < 0 {
			first = other
		}
		if compareEntries(&l[i], &l[first]) <= 0 {
			return
		}
		l[i], l[first] = l[first], l[i]
		i = first
	}
}

// compareEntries orders the queue: overdue jobs by the time at which they became so, then the others by priority and
// response ratio. Jobs that just arrived have equal ratios: the job with the shorter maximum run time is first.
func compareEntries(a, b *entry) int {
	if a.overdueSince != b.overdueSince {
		return cmp.Compare(a.overdueSince, b.overdueSince)
	}
	if a.overdueSince == forever {
		if a.priority != b.priority {
			return cmp.Compare(b.priority, a.priority)
		}
		if a.ratio != b.ratio {
			return cmp.Compare(b.ratio, a.ratio)
		}
	}
	return cmp.Or(cmp.Compare(a.maxRun, b.maxRun), strings.Compare(a.id, b.id))
}

// responseRatio returns the response ratio of a job. A job of unknown length keeps the lowest ratio, 1.
func responseRatio(w *Waiting, now time.Time) float64 {
	run := w.Expected
	if run <= 0 || w.Limit > 0 && run > w.Limit {
		run = w.Limit
	}
	if run <= 0 {
		return 1
	}
	waited := max(now.Sub(w.Arrived), 0)
	return 1 + float64(waited)/float64(max(run, minRunTime))
}

// maxRunTime returns the longest time for which the job holds resources, in nanoseconds.
func maxRunTime(w *Waiting) int64 {
	switch {
	case w.Limit > 0:
		return int64(w.Limit)
	case w.Expected > 0:
		return int64(w.Expected)
	}
	return forever
}

// PriorityAfter returns the value of Waiting.PriorityAfter that the benchmarks use: eight times the job's own length,
// and at least a day. An equal value for all jobs would order a long queue by arrival, and short jobs would wait for
// days too. With a value that grows with the limit, the jobs that hold most resources for longest wait longest.
func PriorityAfter(length time.Duration) time.Duration {
	return max(MinPriorityAfter, PriorityAfterFactor*min(max(length, 0), maxFactoredLength))
}

// Parameters of [PriorityAfter]. docs/adr/0044 explains their choice and the values of other systems.
const (
	MinPriorityAfter    = 24 * time.Hour
	PriorityAfterFactor = 8
)

// maxFactoredLength is the greatest length that PriorityAfterFactor multiplies without overflow: 36 years.
const maxFactoredLength = forever / PriorityAfterFactor
