package backfill

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cause is why a job waits.
type Cause string

// Causes.
const (
	Head     Cause = "head"      // first in line: it starts when its promise says, or earlier
	Full     Cause = "full"      // too little is free of what it asks for
	Delays   Cause = "delays"    // there is room, but the head would start later
	TooLarge Cause = "too-large" // it asks for more than there is
	Held     Cause = "held"      // its priority is 0
)

// Wait tells why a job waits on.
type Wait struct {
	ID    string
	Cause Cause
	// Place is where it stands in the line, from 1 on; 0 where it stands in none, as TooLarge and Held do.
	Place int
	// Resource is the index of the first resource of which there is too little, Needs what the job asks of it and Free
	// what is left now (of TooLarge: what there is at all). For Head, Full and TooLarge.
	Resource    int
	Needs, Free int64
	// Behind is the promise to the head: for Head its own. Nil where there is none.
	Behind *Promise
	// By is how much later the head would start if this job started now; 0 where nobody knows. For Delays.
	By time.Duration
}

// Waits returns why each job that waits on does so: first the line in its order, then what stands in none. It puts the
// whole line in order, so it is for those who ask.
func (d *Decision) Waits() []Wait {
	waits := make([]Wait, 0, len(d.line)+len(d.out))
	h := d.settled()
	line := slices.Clone(d.line)
	slices.SortFunc(line, func(a, b turn) int { return before(&a, &b) })
	for i, t := range line {
		w := &d.in.Waiting[t.job]
		why := Wait{ID: w.ID, Place: i + 1, Behind: d.Head}
		switch {
		case i == 0:
			why.Cause, why.Resource, why.Needs, why.Free = Head, d.Head.Resource, d.Head.Needs, d.Head.Free
		case !h.roomFor(w.Demand):
			why.Cause = Full
			why.Resource, why.Needs, why.Free = lacks(w.Demand, h.free)
		default:
			why.Cause, why.By = Delays, h.delay(w.Demand, t.length)
		}
		waits = append(waits, why)
	}
	for _, t := range slices.SortedFunc(slices.Values(d.out), func(a, b turn) int {
		return strings.Compare(a.id, b.id)
	}) {
		w := &d.in.Waiting[t.job]
		why := Wait{ID: w.ID, Cause: Held}
		if w.Priority > 0 {
			why.Cause = TooLarge
			why.Resource, why.Needs, why.Free = lacks(w.Demand, d.in.Capacity)
		}
		waits = append(waits, why)
	}
	return waits
}

// settled returns the horizon once all of Start run.
func (d *Decision) settled() *horizon {
	h := newHorizon(&d.in)
	for _, i := range d.Start {
		w := &d.in.Waiting[i]
		h.hold(end{at: length(w), id: w.ID, demand: w.Demand})
	}
	h.look()
	if len(d.line) > 0 {
		h.promise(d.demand(0))
	}
	return h
}

// Sentence tells people why the job waits. resources names the resources in the order of the amounts.
func (w Wait) Sentence(resources ...string) string {
	name := "of a resource"
	if w.Resource >= 0 && w.Resource < len(resources) {
		name = resources[w.Resource]
	}
	switch w.Cause {
	case Head:
		if w.Behind.At.IsZero() {
			return fmt.Sprintf("first in line: needs %d %s, %d free; waits for %s, of which nobody knows when it ends",
				w.Needs, name, w.Free, w.Behind.After)
		}
		return fmt.Sprintf("first in line: needs %d %s, %d free; starts at the latest at %s, when %s has ended",
			w.Needs, name, w.Free, moment(w.Behind.At), w.Behind.After)
	case Full:
		return fmt.Sprintf("number %d in line: needs %d %s, %d free", w.Place, w.Needs, name, w.Free)
	case Delays:
		return fmt.Sprintf("behind: %s; would delay it%s", w.Behind.reserved(), by(w.By))
	case TooLarge:
		return fmt.Sprintf("asks for %d %s, and there are %d in all", w.Needs, name, w.Free)
	case Held:
		return "held: its priority is 0"
	}
	return string(w.Cause)
}

// reserved says for whom what is free is kept.
func (p *Promise) reserved() string {
	if p.At.IsZero() {
		return fmt.Sprintf("reserved for %s as soon as %s has ended", p.ID, p.After)
	}
	return fmt.Sprintf("reserved for %s at %s", p.ID, moment(p.At))
}

func by(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return " by " + d.Round(time.Second).String()
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
