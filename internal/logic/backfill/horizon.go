package backfill

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"
)

// end is the end of a job, with the resources that it frees. Times are nanoseconds from now.
type end struct {
	at     int64
	id     string
	demand Amounts
}

// horizon holds the free resources now and at each future end. Call its methods in this order: hold for each job that
// starts now, sortEnds, promise, fill.
type horizon struct {
	free Amounts
	ends []end // in order of time after sortEnds
	// freeAfter holds, for each number k of ends, the free amounts after the first k ends if nothing else starts.
	freeAfter []int64
	need      Amounts // of the head
	// promised is the time of the promise, and spare the amounts that the head leaves free from then on. If the time is
	// unknown, spare is what the head leaves of all known ends. It is negative where these are too little.
	promised int64
	spare    Amounts
}

func newHorizon(in *Input) *horizon {
	h := &horizon{free: slices.Clone(in.Capacity), ends: make([]end, 0, len(in.Running))}
	for i := range in.Running {
		r := &in.Running[i]
		at := int64(forever)
		if !r.Ends.IsZero() {
			at = int64(max(r.Ends.Sub(in.Now), time.Duration(0)))
		}
		h.hold(end{at: at, id: r.ID, demand: r.Demand})
	}
	return h
}

// hold subtracts a job's demand from the free amounts until its end.
func (h *horizon) hold(e end) {
	subtract(h.free, e.demand)
	h.ends = append(h.ends, e)
}

func (h *horizon) roomFor(demand Amounts) bool { return fits(demand, h.free) }

// sortEnds sorts the ends by time and computes freeAfter.
func (h *horizon) sortEnds() {
	slices.SortFunc(h.ends, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.id, b.id))
	})
	n := len(h.free)
	h.freeAfter = make([]int64, n*(len(h.ends)+1))
	copy(h.freeAfter, h.free)
	for k, e := range h.ends {
		now, then := h.freeAfter[k*n:(k+1)*n], h.freeAfter[(k+1)*n:(k+2)*n]
		copy(then, now)
		add(then, e.demand)
	}
}

// freeAfterEnds returns the free amounts after the first k ends.
func (h *horizon) freeAfterEnds(k int) Amounts {
	n := len(h.free)
	return h.freeAfter[k*n : (k+1)*n]
}

// promise computes the time of the promise to the head, for which there is no room now. It returns the index of the end
// that makes room. The head fits into the capacity, so such an end exists.
func (h *horizon) promise(need Amounts) (last int) {
	h.need = need
	k := sort.Search(len(h.ends), func(k int) bool { return fits(need, h.freeAfterEnds(k)) })
	last = max(k-1, 0)
	h.promised = h.ends[last].at
	if h.promised == forever { // do not count on ends at unknown times
		k = sort.Search(len(h.ends), func(k int) bool { return h.ends[k].at == forever })
	} else { // count all ends at the same time
		k = sort.Search(len(h.ends), func(k int) bool { return h.ends[k].at > h.promised })
	}
	h.spare = slices.Clone(h.freeAfterEnds(k))
	subtract(h.spare, need)
	return last
}

// keepsPromise reports whether a job that starts now leaves the promise as it is: the job has ended by then, or takes
// only what the head leaves.
func (h *horizon) keepsPromise(demand Amounts, length int64) bool {
	return length != forever && length <= h.promised || fits(demand, h.spare)
}

// fill starts a job behind the head, if there is room and the promise stays as it is.
func (h *horizon) fill(demand Amounts, length int64) bool {
	if !h.roomFor(demand) || !h.keepsPromise(demand, length) {
		return false
	}
	subtract(h.free, demand)
	if length == forever || length > h.promised {
		subtract(h.spare, demand)
	}
	return true
}

// fits reports whether an amount covers a demand.
func fits(demand, of Amounts) bool {
	for i, d := range demand {
		if d > 0 && (i >= len(of) || d > of[i]) {
			return false
		}
	}
	return true
}

// subtract subtracts a demand. It ignores demands for resources that do not exist.
func subtract(from, demand Amounts) {
	for i := range min(len(from), len(demand)) {
		from[i] -= demand[i]
	}
}

// add is the reverse of subtract.
func add(to, demand Amounts) {
	for i := range min(len(to), len(demand)) {
		to[i] += demand[i]
	}
}

// firstShortage returns the first resource whose demand exceeds the amount, with both numbers.
func firstShortage(demand, of Amounts) (resource int, needs, there int64) {
	for i, d := range demand {
		if d > 0 && (i >= len(of) || d > of[i]) {
			if i < len(of) {
				there = of[i]
			}
			return i, d, there
		}
	}
	return -1, 0, 0
}
