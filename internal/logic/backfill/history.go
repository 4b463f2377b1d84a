package backfill

import (
	"slices"
	"time"
)

// Kind identifies similar jobs by their owner, their name and their shape, in words of the caller's choice. An empty
// field is a value like others.
type Kind struct {
	Owner, Name, Shape string
}

// Ended is a job that ended by itself or at its limit. A cancelled job says nothing about the run time of similar jobs.
type Ended struct {
	Kind  Kind
	Ran   time.Duration
	Limit time.Duration // 0 is no limit
}

// History predicts run times from ended jobs. Its state is a function of the jobs in the order in which it learned
// them. It drops the groups whose last job is oldest. It must not be used concurrently.
type History struct {
	maxGroups   int
	jobsLearned int64 // number of jobs
	groups      map[Kind]*group
}

// group holds the memories of one group of similar jobs.
type group struct {
	lastLearned int64 // value of jobsLearned at the group's last job
	ran         []time.Duration
	shares      []float64 // run time as a share of the limit, for jobs with a limit
}

// Remembered jobs of a group. The last two run times of a user predict as well as longer memories (Tsafrir, Etsion,
// Feitelson, 2007). More shares are kept, because the largest counts: a long job must not be taken for a short one.
const (
	keptRuns   = 2
	keptShares = 10
)

// NewHistory returns an empty History of at most maxGroups groups. There is one group for each Kind, and two more for
// each owner and each name of an owner's jobs.
func NewHistory(most int) *History {
	return &History{maxGroups: max(most, 3), groups: map[Kind]*group{}}
}

// Learn records a job that ended.
func (h *History) Learn(e Ended) {
	h.jobsLearned++
	ran := max(e.Ran, minRunTime)
	for _, k := range e.Kind.groups() {
		g := h.groups[k]
		if g == nil {
			g = &group{}
			h.groups[k] = g
		}
		g.lastLearned = h.jobsLearned
		g.ran = keepLast(append(g.ran, ran), keptRuns)
		if e.Limit > 0 {
			g.shares = keepLast(append(g.shares, float64(ran)/float64(e.Limit)), keptShares)
		}
	}
	if len(h.groups) > h.maxGroups {
		h.dropOldest()
	}
}

// Expect returns how long a job will likely run; 0 if unknown, and never more than the limit. With a limit it is the
// largest share of their limits that the owner's last jobs used. Without one it is the mean of the last two jobs of its
// kind, or else of its owner's jobs of that name, or else of its owner's jobs.
func (h *History) Expect(kind Kind, limit time.Duration) time.Duration {
	kinds := kind.groups()
	if limit > 0 {
		g := h.groups[kinds[len(kinds)-1]]
		if g == nil || len(g.shares) == 0 {
			return limit
		}
		return min(limit, max(time.Duration(slices.Max(g.shares)*float64(limit)), minRunTime))
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

// Longer doubles the expected run time of a running job until it exceeds the time that the job has already run. 0, for
// unknown, stays 0.
func Longer(expected, ran time.Duration) time.Duration {
	for expected > 0 && expected <= ran {
		expected *= 2
	}
	return max(expected, 0) // unknown where a Duration overflows
}

// groups returns the groups that a job of the kind belongs to, the narrowest first. The "=" marks keep a wider group
// apart from a caller's kind with empty fields: an owner's jobs without a name are not all of its jobs.
func (k Kind) groups() [3]Kind {
	return [3]Kind{
		{Owner: "=" + k.Owner, Name: "=" + k.Name, Shape: "=" + k.Shape},
		{Owner: "=" + k.Owner, Name: "=" + k.Name},
		{Owner: "=" + k.Owner},
	}
}

// dropOldest drops the half of the groups whose last job is oldest.
func (h *History) dropOldest() {
	learned := make([]int64, 0, len(h.groups))
	for _, g := range h.groups { // order-free: sorted below
		learned = append(learned, g.lastLearned)
	}
	slices.Sort(learned)
	median := learned[len(learned)/2]
	for k, g := range h.groups { // order-free: each is judged by itself
		if g.lastLearned < median {
			delete(h.groups, k)
		}
	}
}

// keepLast returns the last n elements of a list, in memory of its own size.
func keepLast[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return slices.Delete(list, 0, len(list)-n)
}
