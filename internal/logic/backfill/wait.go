package backfill

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cause is the reason for which a job waits.
type Cause string

// Causes.
const (
	Head     Cause = "head"      // first in the queue: it starts at its promise or earlier
	Full     Cause = "full"      // too little of a requested resource is free
	Delays   Cause = "delays"    // it fits, but the head would start later
	TooLarge Cause = "too-large" // it requests more than the capacity
	Held     Cause = "held"      // its priority is 0
)

// Wait explains why a job keeps waiting.
type Wait struct {
	ID    string
	Cause Cause
	// Place is the job's position in the queue, from 1 on; 0 for TooLarge and Held, which are in no queue.
	Place int
	// Resource is the index of the first resource that is short. Needs is the job's demand for it, and Free the amount
	// that is left now (for TooLarge the capacity). Set for Head, Full and TooLarge.
	Resource    int
	Needs, Free int64
	// Behind is the promise to the head; for Head it is the job's own. Nil if there is none.
	Behind *Promise
	// By is how much later the head would start if this job started now; 0 if unknown. Set for Delays.
	By time.Duration
}

// Waits returns why each waiting job keeps waiting: first the queue in its order, then the jobs outside of it. It sorts
// the whole queue, so call it only on request.
func (d *Decision) Waits() []Wait {
	waits := make([]Wait, 0, len(d.queue)+len(d.excluded))
	h := d.horizonOnceStarted()
	ordered := slices.Clone(d.queue)
	slices.SortFunc(ordered, func(a, b entry) int { return compareEntries(&a, &b) })
	for i, t := range ordered {
		w := &d.in.Waiting[t.job]
		why := Wait{ID: w.ID, Place: i + 1, Behind: d.Head}
		switch {
		case i == 0:
			why.Cause, why.Resource, why.Needs, why.Free = Head, d.Head.Resource, d.Head.Needs, d.Head.Free
		case !h.roomFor(w.Demand):
			why.Cause = Full
			why.Resource, why.Needs, why.Free = firstShortage(w.Demand, h.free)
		default:
			why.Cause, why.By = Delays, h.delay(w.Demand, t.maxRun)
		}
		waits = append(waits, why)
	}
	for _, t := range slices.SortedFunc(slices.Values(d.excluded), func(a, b entry) int {
		return strings.Compare(a.id, b.id)
	}) {
		w := &d.in.Waiting[t.job]
		why := Wait{ID: w.ID, Cause: Held}
		if w.Priority > 0 {
			why.Cause = TooLarge
			why.Resource, why.Needs, why.Free = firstShortage(w.Demand, d.in.Capacity)
		}
		waits = append(waits, why)
	}
	return waits
}

// horizonOnceStarted returns the horizon after all jobs of Start have started.
func (d *Decision) horizonOnceStarted() *horizon {
	h := newHorizon(&d.in)
	for _, i := range d.Start {
		w := &d.in.Waiting[i]
		h.hold(end{at: maxRunTime(w), id: w.ID, demand: w.Demand})
	}
	h.sortEnds()
	if len(d.queue) > 0 {
		h.promise(d.demand(0))
	}
	return h
}

// Sentence explains to people why the job waits. resources names the resources in the order of the amounts.
func (w Wait) Sentence(resources ...string) string {
	name := "of a resource"
	if w.Resource >= 0 && w.Resource < len(resources) {
		name = resources[w.Resource]
	}
	switch w.Cause {
	case Head:
		if w.Behind.At.IsZero() {
			return fmt.Sprintf("first in the queue: needs %d %s, %d free; waiting for %s, whose end is unknown",
				w.Needs, name, w.Free, w.Behind.After)
		}
		return fmt.Sprintf("first in the queue: needs %d %s, %d free; starts at the latest at %s, when %s has ended",
			w.Needs, name, w.Free, formatTime(w.Behind.At), w.Behind.After)
	case Full:
		return fmt.Sprintf("number %d in the queue: needs %d %s, %d free", w.Place, w.Needs, name, w.Free)
	case Delays:
		return fmt.Sprintf("its resources are %s, which it would delay%s", w.Behind.reservedFor(), delayText(w.By))
	case TooLarge:
		return fmt.Sprintf("requests %d %s of %d in total", w.Needs, name, w.Free)
	case Held:
		return "on hold: its priority is 0"
	}
	return string(w.Cause)
}

// reservedFor says for which job the free resources are reserved.
func (p *Promise) reservedFor() string {
	if p.At.IsZero() {
		return fmt.Sprintf("reserved for %s as soon as %s has ended", p.ID, p.After)
	}
	return fmt.Sprintf("reserved for %s at %s", p.ID, formatTime(p.At))
}

func delayText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return " by " + d.Round(time.Second).String()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
