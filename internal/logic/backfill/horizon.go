package backfill

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"
)

// end is what becomes free when a job ends. Moments are nanoseconds from now on.
type end struct {
	at     int64
	id     string
	demand Amounts
}

// horizon is what is free now and what becomes free when. Its use is in steps: hold what starts at once, look, promise,
// fill.
type horizon struct {
	free Amounts
	ends []end // in order of time once looked
	// later holds, for each number k of ends, what is free after the first k of them if nothing else starts.
	later []int64
	need  Amounts // the head's
	// promised is the moment of the promise, and spare what the head leaves free from then on. Where the moment is not
	// known, spare is what it leaves of what is known to become free, less than 0 where that is too little.
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

// hold takes what a job holds from what is free, until its end.
func (h *horizon) hold(e end) {
	take(h.free, e.demand)
	h.ends = append(h.ends, e)
}

func (h *horizon) roomFor(demand Amounts) bool { return fits(demand, h.free) }

// look puts the ends in order and adds them up.
func (h *horizon) look() {
	slices.SortFunc(h.ends, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.id, b.id))
	})
	n := len(h.free)
	h.later = make([]int64, n*(len(h.ends)+1))
	copy(h.later, h.free)
	for k, e := range h.ends {
		now, then := h.later[k*n:(k+1)*n], h.later[(k+1)*n:(k+2)*n]
		copy(then, now)
		give(then, e.demand)
	}
}

// after returns what is free after the first k ends.
func (h *horizon) after(k int) Amounts {
	n := len(h.free)
	return h.later[k*n : (k+1)*n]
}

// promise gives the head, for which there is no room now, its moment, and returns the index of the end that makes room.
// The head fits into the capacity, so there is one.
func (h *horizon) promise(need Amounts) (last int) {
	h.need = need
	k := sort.Search(len(h.ends), func(k int) bool { return fits(need, h.after(k)) })
	last = max(k-1, 0)
	h.promised = h.ends[last].at
	if h.promised == forever { // count on nothing of which nobody knows when it comes
		k = sort.Search(len(h.ends), func(k int) bool { return h.ends[k].at == forever })
	} else { // all that ends at the same moment is there as well
		k = sort.Search(len(h.ends), func(k int) bool { return h.ends[k].at > h.promised })
	}
	h.spare = slices.Clone(h.after(k))
	take(h.spare, need)
	return last
}

// harmless reports whether a job that starts now and holds resources for a time leaves the promise as it is: it has
// ended by then, or takes only what the head leaves.
func (h *horizon) harmless(demand Amounts, length int64) bool {
	return length != forever && length <= h.promised || fits(demand, h.spare)
}

// fill lets a job start behind the head, if there is room and the promise stays as it is.
func (h *horizon) fill(demand Amounts, length int64) bool {
	if !h.roomFor(demand) || !h.harmless(demand, length) {
		return false
	}
	take(h.free, demand)
	if length == forever || length > h.promised {
		take(h.spare, demand)
	}
	return true
}

// delay returns by how much the promise would be later if a job started now that is not harmless; 0 where nobody knows.
// It counts only what looked knows of.
func (h *horizon) delay(demand Amounts, length int64) time.Duration {
	if h.promised == forever {
		return 0
	}
	both := make(Amounts, len(h.free))
	give(both, h.need)
	give(both, demand)
	at := length // the job itself has ended by then
	if k := sort.Search(len(h.ends), func(k int) bool { return fits(both, h.after(k+1)) }); k < len(h.ends) {
		at = min(at, h.ends[k].at)
	}
	if at == forever {
		return 0
	}
	return time.Duration(at - h.promised)
}

// fits reports whether a demand can be had of an amount.
func fits(demand, of Amounts) bool {
	for i, d := range demand {
		if d > 0 && (i >= len(of) || d > of[i]) {
			return false
		}
	}
	return true
}

// take subtracts a demand. What it asks of resources that are not there is passed over.
func take(from, demand Amounts) {
	for i := range min(len(from), len(demand)) {
		from[i] -= demand[i]
	}
}

// give is the reverse of take.
func give(to, demand Amounts) {
	for i := range min(len(to), len(demand)) {
		to[i] += demand[i]
	}
}

// lacks returns the first resource of which a demand asks more than there is, and how much of it is asked for and
// there.
func lacks(demand, of Amounts) (resource int, needs, there int64) {
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
