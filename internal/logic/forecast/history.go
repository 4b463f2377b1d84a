package forecast

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// Kind identifies similar tasks: those of one step, of one job and of one cluster. Jobs of a name follow each other.
type Kind struct {
	Cluster, Job, Step string
}

// groups returns the groups of a kind, the narrowest first: the step, the job, the cluster, and all.
func (k Kind) groups() [levels]Kind {
	return [levels]Kind{{k.Cluster, k.Job, "=" + k.Step}, {k.Cluster, "=" + k.Job, ""}, {"=" + k.Cluster, "", ""}, {}}
}

const (
	levels = 4
	// KeptSamples is the number of run times that a History keeps of each group, the last ones.
	KeptSamples = 40
	// trust is the number of run times of a group that weigh as much as the next wider group.
	trust = 6.0
	// maxRunsCached is the number of distributions that a History keeps ready.
	maxRunsCached = 4000
)

// Sample is the run time of a task that ended by itself or at its limit.
type Sample struct {
	Ran   time.Duration
	Limit time.Duration // 0 for no limit
}

// History holds the run times of ended tasks, the last KeptSamples of each group. Its state is a function of the
// samples in the order in which it learned them. It drops the groups whose last sample is oldest. It must not be used
// concurrently.
type History struct {
	maxGroups int
	learned   int64 // number of samples
	groups    map[Kind]*group
	runs      map[runsKey]*Runs
}

type group struct {
	samples []Sample // the oldest first
	last    int64    // value of learned at the last sample
}

type runsKey struct {
	kind  Kind
	limit time.Duration
}

// NewHistory returns an empty History of at most maxGroups groups. There is one for each Kind, and one more for each
// job's name and each cluster.
func NewHistory(maxGroups int) *History {
	return &History{maxGroups: max(maxGroups, 2*levels), groups: map[Kind]*group{}, runs: map[runsKey]*Runs{}}
}

// Learn records a task that ended.
func (h *History) Learn(k Kind, s Sample) {
	h.learned++
	s.Ran = max(s.Ran, time.Millisecond)
	for _, name := range k.groups() {
		g := h.groups[name]
		if g == nil {
			g = &group{}
			h.groups[name] = g
		}
		g.last = h.learned
		if len(g.samples) == KeptSamples {
			g.samples = slices.Delete(g.samples, 0, 1)
		}
		g.samples = append(g.samples, s)
	}
	if len(h.groups) > h.maxGroups {
		h.dropOldest()
	}
	clear(h.runs)
}

// dropOldest drops the half of the groups whose last sample is oldest.
func (h *History) dropOldest() {
	last := make([]int64, 0, len(h.groups))
	for _, g := range h.groups { // order-free: sorted below
		last = append(last, g.last)
	}
	slices.Sort(last)
	middle := last[len(last)/2]
	for k, g := range h.groups { // order-free: each is judged by itself
		if g.last < middle {
			delete(h.groups, k)
		}
	}
}

// Runs returns the distribution of the run times of tasks of a kind that have a limit; 0 is no limit.
//
// Each group is a sample, and the groups are nested: with n run times in the narrowest one, a run time is one of them
// with probability n/(n+trust), else one of the next wider group. This is the predictive distribution of a hierarchy of
// Dirichlet processes. The widest group falls back to all shares of the limit with equal probability, or without a
// limit to times between a second and a day, equal on a logarithmic scale.
func (h *History) Runs(k Kind, limit time.Duration) *Runs {
	key := runsKey{k, limit}
	if r := h.runs[key]; r != nil {
		return r
	}
	r := &Runs{limit: limit, group: hash(k.Cluster + "/" + k.Job)}
	rest := 1.0
	for _, name := range k.groups() {
		g := h.groups[name]
		if g == nil {
			continue
		}
		n := float64(len(g.samples))
		part := rest * n / (n + trust)
		for _, s := range g.samples {
			r.points = append(r.points, point{at: s.under(limit), weight: part / n})
		}
		rest -= part
	}
	const prior = 20
	for i := range prior {
		at := limit * time.Duration(i+1) / prior
		if limit <= 0 {
			at = time.Second << (i * 17 / prior) // up to 18 hours
		}
		r.points = append(r.points, point{at: at, weight: rest / prior})
	}
	slices.SortFunc(r.points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	sum := 0.0
	for i := range r.points {
		sum += r.points[i].weight
		r.points[i].weight = sum
	}
	if len(h.runs) >= maxRunsCached {
		clear(h.runs)
	}
	h.runs[key] = r
	return r
}

// under returns how long a task with a limit runs if it is like the sample: the same share of the limit, or the same
// time if one of them has no limit.
func (s Sample) under(limit time.Duration) time.Duration {
	switch {
	case limit <= 0:
		return s.Ran
	case s.Limit <= 0 || s.Limit == limit:
		return min(s.Ran, limit)
	}
	return min(time.Duration(float64(s.Ran)/float64(s.Limit)*float64(limit)), limit)
}

// Runs is a distribution of run times.
type Runs struct {
	group  uint64 // hash of the cluster and the job's name; 0 for none
	limit  time.Duration
	points []point // in the order of their times; a weight includes those of the points before
}

type point struct {
	at     time.Duration
	weight float64
}

// Fixed returns the distribution of a known run time.
func Fixed(run time.Duration) *Runs { return &Runs{points: []point{{at: run, weight: 1}}} }

// Draw returns a run time of a task that has already run for a time. u is uniform in [0, 1).
func (r *Runs) Draw(u float64, ran time.Duration) time.Duration {
	if ran < 0 {
		ran = 0
	}
	if r == nil || len(r.points) == 0 {
		return ran + time.Duration(u*float64(24*time.Hour))
	}
	from := sort.Search(len(r.points), func(i int) bool { return r.points[i].at > ran })
	if from == len(r.points) { // longer than all others: up to four times as long
		at := ran + time.Duration(float64(ran)*3*u*u) + time.Second
		if r.limit > 0 {
			at = max(min(at, r.limit), ran)
		}
		return at
	}
	below := 0.0
	if from > 0 {
		below = r.points[from-1].weight
	}
	want := below + u*(r.points[len(r.points)-1].weight-below)
	i := from + sort.Search(len(r.points)-1-from, func(i int) bool { return r.points[from+i].weight > want })
	return r.points[i].at
}

// hash is FNV-1a.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
