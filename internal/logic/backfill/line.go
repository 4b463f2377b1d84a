package backfill

import (
	"cmp"
	"strings"
	"time"
)

// turn is a job's place in the line.
type turn struct {
	job int // index into Input.Waiting
	// ripe is the moment at which its patience passed, as a Unix time in nanoseconds; forever where it has not.
	ripe     int64
	priority int
	ratio    float64
	length   int64 // for how long it holds resources at the most: its limit, else what is expected
	id       string
	started  bool
}

// line is a heap of those that wait: the head is the first, and the others stand in no order.
type line []turn

// form puts the jobs that could ever start in line.
func (d *Decision) form() {
	d.line = make(line, 0, len(d.in.Waiting))
	for i := range d.in.Waiting {
		w := &d.in.Waiting[i]
		t := turn{job: i, ripe: forever, priority: w.Priority, ratio: ratio(w, d.in.Now), length: length(w), id: w.ID}
		if w.Priority <= 0 || !fits(w.Demand, d.in.Capacity) {
			d.out = append(d.out, t)
			continue
		}
		if at := w.Arrived.Add(w.Patience); w.Patience > 0 && !at.After(d.in.Now) {
			t.ripe = at.UnixNano()
		}
		d.line = append(d.line, t)
	}
	for i := len(d.line)/2 - 1; i >= 0; i-- {
		d.line.sink(i)
	}
}

// pop takes the head out.
func (l *line) pop() turn {
	old := *l
	head := old[0]
	old[0] = old[len(old)-1]
	*l = old[:len(old)-1]
	l.sink(0)
	return head
}

// sink moves the i-th down to where nothing below comes before it.
func (l line) sink(i int) {
	for {
		first := 2*i + 1
		if first >= len(l) {
			return
		}
		if other := first + 1; other < len(l) && before(&l[other], &l[first]) < 0 {
			first = other
		}
		if before(&l[i], &l[first]) <= 0 {
			return
		}
		l[i], l[first] = l[first], l[i]
		i = first
	}
}

// before orders the line: ripe jobs by the end of their patience, then the others by priority and response ratio. Of
// two that are equal in that, as all that just arrived are, the one that may hold resources for less time is first.
func before(a, b *turn) int {
	if a.ripe != b.ripe {
		return cmp.Compare(a.ripe, b.ripe)
	}
	if a.ripe == forever {
		if a.priority != b.priority {
			return cmp.Compare(b.priority, a.priority)
		}
		if a.ratio != b.ratio {
			return cmp.Compare(b.ratio, a.ratio)
		}
	}
	return cmp.Or(cmp.Compare(a.length, b.length), strings.Compare(a.id, b.id))
}

// ratio is the response ratio. A job of unknown length rises least of all: 1 is the lowest there is.
func ratio(w *Waiting, now time.Time) float64 {
	run := w.Expected
	if run <= 0 || w.Limit > 0 && run > w.Limit {
		run = w.Limit
	}
	if run <= 0 {
		return 1
	}
	waited := max(now.Sub(w.Arrived), 0)
	return 1 + float64(waited)/float64(max(run, shortest))
}

// length is for how long the job holds resources at the most, in nanoseconds.
func length(w *Waiting) int64 {
	switch {
	case w.Limit > 0:
		return int64(w.Limit)
	case w.Expected > 0:
		return int64(w.Expected)
	}
	return forever
}

// Patience is the rule that the benchmarks are made with: a job bears that others are preferred to it for eight times
// as long as it may run itself, and for a day at least. A patience that is the same for all makes a crowded queue one
// in order of arrival, in which short jobs wait for days too; one that grows with the limit asks most patience of those
// that hold most for longest.
func Patience(length time.Duration) time.Duration {
	return max(LeastPatience, PatienceFactor*min(max(length, 0), longest))
}

// The numbers of [Patience]. docs/adr/0044 says how they were chosen and what others do.
const (
	LeastPatience  = 24 * time.Hour
	PatienceFactor = 8
)

// longest is the length that PatienceFactor still multiplies without overflow: 36 years.
const longest = forever / PatienceFactor
