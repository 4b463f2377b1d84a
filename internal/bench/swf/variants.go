package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

const (
	hour = 3600
	day  = 24 * hour
	week = 7 * day
)

// variants returns traces that are similar to a recorded one. A policy that fits the recorded trace by accident hardly
// fits all variants.
func variants(t *trace) []*trace {
	like := func(name string, jobs []job) *trace {
		return &trace{name: t.name + ", " + name, procs: t.procs, jobs: jobs}
	}
	middle := len(t.jobs) / 2
	return []*trace{
		like("first half", t.jobs[:middle]), like("second half", t.jobs[middle:]),
		like("every other job, twice as dense", everyOther(t.jobs, 0)),
		like("the other jobs, twice as dense", everyOther(t.jobs, 1)),
		like("weeks shuffled (1)", shuffleWeeks(t.jobs, 1)), like("weeks shuffled (2)", shuffleWeeks(t.jobs, 2)),
		like("weeks shuffled (3)", shuffleWeeks(t.jobs, 3)), like("jobs shuffled", shuffleJobs(t.jobs, 1)),
		like("users request five times as long", stretchLimits(t.jobs, 5)),
	}
}

// later lets each job arrive up to a minute later.
func later(t *trace, seed uint64) *trace {
	random := rand.New(rand.NewPCG(seed, 2))
	jobs := slices.Clone(t.jobs)
	for i := range jobs {
		jobs[i].arrived += random.Int64N(61)
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(a.arrived, b.arrived) })
	return &trace{name: t.name, procs: t.procs, jobs: jobs}
}

// everyOther takes half of the jobs and lets them arrive at the same load.
func everyOther(jobs []job, from int) (half []job) {
	for i := from; i < len(jobs); i += 2 {
		j := jobs[i]
		j.arrived /= 2
		half = append(half, j)
	}
	return half
}

// shuffleWeeks puts the weeks in another order, each as it was.
func shuffleWeeks(jobs []job, seed uint64) []job {
	var weeks [][]job
	for _, j := range jobs {
		j.arrived -= jobs[0].arrived
		n := int(j.arrived / week)
		for len(weeks) <= n {
			weeks = append(weeks, nil)
		}
		j.arrived %= week
		weeks[n] = append(weeks[n], j)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	shuffled := make([]job, 0, len(jobs))
	for place, n := range random.Perm(len(weeks)) {
		for _, j := range weeks[n] {
			j.arrived += int64(place) * week
			shuffled = append(shuffled, j)
		}
	}
	return shuffled
}

// shuffleJobs leaves the moments of arrival and exchanges which job arrives.
func shuffleJobs(jobs []job, seed uint64) []job {
	random := rand.New(rand.NewPCG(seed, 0))
	shuffled := make([]job, len(jobs))
	for i, n := range random.Perm(len(jobs)) {
		shuffled[i] = jobs[n]
		shuffled[i].arrived = jobs[i].arrived
	}
	return shuffled
}

// stretchLimits multiplies the requested times, up to the longest requested time of the trace.
func stretchLimits(jobs []job, by int64) []job {
	longest := slices.MaxFunc(jobs, func(a, b job) int { return cmp.Compare(a.limit, b.limit) }).limit
	stretched := slices.Clone(jobs)
	for i := range stretched {
		stretched[i].limit = min(by*stretched[i].limit, longest)
	}
	return stretched
}

// syntheticTrace returns a synthetic trace at a load (demand to capacity). Sizes and run times follow the distributions
// that Lublin and Feitelson fitted to several machines (2003). Arrivals follow the hour and the day of the week. Users
// send several similar jobs in a row and request round times.
func syntheticTrace(seed uint64, count int, procs int64, load float64) *trace {
	r := rand.New(rand.NewPCG(seed, 1))
	t := &trace{name: fmt.Sprintf("made up (%d), load %.2f", seed, load), procs: procs}
	at, area := 0.0, 0.0
	for len(t.jobs) < count {
		size := drawSize(r, procs)
		run := drawRun(r, size)
		limit := round(run / math.Pow(r.Float64(), 0.7))
		user := strconv.Itoa(int(math.Pow(r.Float64(), 2) * 100)) // few users send most
		for range 1 + int(2*r.ExpFloat64()) {
			like := run * math.Exp(0.5*r.NormFloat64())
			if r.Float64() < 0.1 { // it fails soon
				like /= 50
			}
			j := job{arrived: int64(at), run: max(1, min(int64(like), limit)), limit: limit, procs: size, user: user}
			t.jobs = append(t.jobs, j)
			area += float64(j.run * j.procs)
			at += 300 * r.ExpFloat64()
		}
		busy := 1.6 - math.Cos((math.Mod(at/hour, 24)-2)/24*2*math.Pi)
		if math.Mod(at/day, 7) >= 5 {
			busy /= 2
		}
		at += hour / busy * r.ExpFloat64()
	}
	scale := area / float64(procs) / load / at
	for i := range t.jobs {
		t.jobs[i].arrived = int64(float64(t.jobs[i].arrived) * scale)
	}
	return t
}

// drawSize draws the number of processors: one, or a power of two, or any.
func drawSize(r *rand.Rand, procs int64) int64 {
	if r.Float64() < 0.244 {
		return 1
	}
	most := math.Log2(float64(procs))
	log := 0.8 + (most-2.5-0.8)*r.Float64()
	if r.Float64() >= 0.86 {
		log = most - 2.5 + 2.5*r.Float64()
	}
	if r.Float64() < 0.576 {
		log = math.Round(log)
	}
	return max(1, min(int64(math.Round(math.Exp2(log))), procs))
}

// drawRun draws the run time in seconds. Its logarithm is from one of two gamma distributions, for large jobs more
// often from the longer one.
func drawRun(r *rand.Rand, size int64) float64 {
	log := gamma(r, 312, 0.03)
	if r.Float64() < 0.78-0.0054*float64(size) {
		log = gamma(r, 4.2, 0.94)
	}
	return max(1, min(math.Exp(log), 60*hour))
}

// gamma draws from a gamma distribution of a shape of at least 1 (Marsaglia and Tsang, 2000).
func gamma(r *rand.Rand, shape, scale float64) float64 {
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		v *= v * v
		if v > 0 && math.Log(r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return scale * d * v
		}
	}
}

// round returns the next usual requested time, in seconds.
func round(seconds float64) int64 {
	for _, minutes := range []int64{1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 900, 1080, 1440, 2160} {
		if float64(minutes*60) >= seconds {
			return minutes * 60
		}
	}
	return 60 * hour
}
