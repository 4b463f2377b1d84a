package main

import "slices"

// figures are the results of a policy on a trace. Times are in seconds.
type figures struct {
	mean, slowdown float64
	p99, longest   int64
}

// tau is the least run time, in seconds, in the bounded slowdown. Without it, jobs of a second would dominate the mean.
const tau = 10

// measure returns the figures for the time that each job of a trace waited. The bounded slowdown of a job is the time
// it was there, in units of its run time, at least 1 (Feitelson and Rudolph, 1998).
func measure(t *trace, waits []int64) (f figures) {
	if len(t.jobs) == 0 {
		return f
	}
	for i, w := range waits {
		run := t.jobs[i].run
		f.mean += float64(w)
		f.slowdown += max(1, float64(w+run)/float64(max(run, tau)))
	}
	n := float64(len(waits))
	f.mean /= n
	f.slowdown /= n
	sorted := slices.Sorted(slices.Values(waits))
	f.p99 = sorted[int(n*0.99)]
	f.longest = sorted[len(sorted)-1]
	return f
}
