package backfill

import (
	"slices"
	"time"
)

// Kind says which jobs are alike: whose they are, what they are called, and what they ask for, in words of the caller's
// choice. An empty field is a value like others.
type Kind struct {
	Owner, Name, Shape string
}

// Ended is a job that ended by itself or at its limit. One that was cancelled tells nothing of how long its like will
// run.
type Ended struct {
	Kind  Kind
	Ran   time.Duration
	Limit time.Duration // 0 is no limit
}

// History learns from the jobs that ended how long those to come will run. What it knows is a function of the jobs in
// the order in which it was told of them. It forgets those that it was not told of for longest. It must not be used by
// several goroutines at once.
type History struct {
	most   int
	told   int64 // how many jobs it was told of
	groups map[Kind]*group
}

// group is what is known of one kind of jobs.
type group struct {
	told   int64 // when last, as a number of jobs
	ran    []time.Duration
	shares []float64 // of the limit, of those that had one
}

// How many jobs of a group are remembered. Run times: the last two of the same user predict as well as longer memories
// (Tsafrir, Etsion, Feitelson, 2007). Shares: more, because it is the largest that counts, so as not to take a long job
// for a short one.
const (
	lastRuns   = 2
	lastShares = 10
)

// NewHistory returns a History without memories that keeps at most as many groups as is said: one for each Kind, and
// two more for each owner and each name of an owner's.
func NewHistory(most int) *History {
	return &History{most: max(most, 3), groups: map[Kind]*group{}}
}

// Learn takes note of a job that ended.
func (h *History) Learn(e Ended) {
	h.told++
	ran := max(e.Ran, shortest)
	for _, k := range e.Kind.wider() {
		g := h.groups[k]
		if g == nil {
			g = &group{}
			h.groups[k] = g
		}
		g.told = h.told
		g.ran = last(append(g.ran, ran), lastRuns)
		if e.Limit > 0 {
			g.shares = last(append(g.shares, float64(ran)/float64(e.Limit)), lastShares)
		}
	}
	if len(h.groups) > h.most {
		h.forget()
	}
}

// Expect returns how long a job will likely run: with a limit, as much of it as the owner's last jobs used at most;
// without, the mean of the last two of its kind, or else of its owner's of that name, or else of its owner's. 0 where
// nothing is known; never more than the limit.
func (h *History) Expect(kind Kind, limit time.Duration) time.Duration {
	kinds := kind.wider()
	if limit > 0 {
		g := h.groups[kinds[len(kinds)-1]]
		if g == nil || len(g.shares) == 0 {
			return limit
		}
		return min(limit, max(time.Duration(slices.Max(g.shares)*float64(limit)), shortest))
	}
	for _, k := range kinds {
		if g := h.groups[k]; g != nil {
			var sum time.Duration
			for _, r := range g.ran {
				sum += r
			}
			return sum / time.Duration(len(g.ran))
		}
	}
	return 0
}

// Longer corrects what was expected of a job that has already run for a time: doubled until it is longer than that. 0,
// nothing known, stays.
func Longer(expected, ran time.Duration) time.Duration {
	for expected > 0 && expected <= ran {
		expected *= 2
	}
	return max(expected, 0) // beyond what a Duration holds nothing is known
}

// wider returns the groups that a job of the kind belongs to, the narrowest first. The wider are marked by fields that
// no kind of a caller has, so that an owner's jobs without a name are not all its jobs.
func (k Kind) wider() [3]Kind {
	return [3]Kind{
		{Owner: "=" + k.Owner, Name: "=" + k.Name, Shape: "=" + k.Shape},
		{Owner: "=" + k.Owner, Name: "=" + k.Name},
		{Owner: "=" + k.Owner},
	}
}

// forget gives up the half of the groups that it was not told of for longest.
func (h *History) forget() {
	told := make([]int64, 0, len(h.groups))
	for _, g := range h.groups { // order-free: sorted below
		told = append(told, g.told)
	}
	slices.Sort(told)
	line := told[len(told)/2]
	for k, g := range h.groups { // order-free: each is judged by itself
		if g.told < line {
			delete(h.groups, k)
		}
	}
}

// last returns the last n of a list, in memory of its own size.
func last[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return slices.Delete(list, 0, len(list)-n)
}
