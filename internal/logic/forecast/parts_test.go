package forecast

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestEndsComeInOrder compares the heap with a sorted list: the earliest end comes first, of equal ones that of the
// task with the lowest number.
func TestEndsComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var plain []end
		draw := func() end {
			return end{at: rapid.Int64Range(0, 9).Draw(t, "at"), task: int32(len(plain))}
		}
		for range rapid.IntRange(0, 20).Draw(t, "first") {
			plain = append(plain, draw())
		}
		h := endHeap(slices.Clone(plain))
		h.init()
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if len(h) > 0 && rapid.Bool().Draw(t, "pop") {
				want := slices.MinFunc(plain, func(a, b end) int {
					return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.task, b.task))
				})
				if got := h.pop(); got != want {
					t.Fatalf("got %+v, want %+v", got, want)
				}
				plain = slices.DeleteFunc(plain, func(e end) bool { return e == want })
				continue
			}
			e := draw()
			e.task += 1000 // no number comes twice
			for slices.Contains(plain, e) {
				e.task++
			}
			plain = append(plain, e)
			h.push(e)
		}
		if len(h) != len(plain) {
			t.Fatalf("%d ends are left, want %d", len(h), len(plain))
		}
	})
}

// TestRandom checks the generator with the first numbers that its authors publish for the seed 1234567, and that
// fractions are spread evenly.
func TestRandom(t *testing.T) {
	r := random(1234567)
	for i, want := range []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
	} {
		if got := r.next(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
	var tenths [10]int
	for range 10_000 {
		f := r.float()
		if f < 0 || f >= 1 {
			t.Fatalf("%v is no fraction", f)
		}
		tenths[int(f*10)]++
	}
	for i, n := range tenths {
		if n < 900 || n > 1100 {
			t.Errorf("%d of 10,000 fractions are in tenth %d", n, i)
		}
	}
}

// TestLikelyNodes checks which nodes a forecast names for the nodes of its 29 futures: for a task the fewest that most
// futures use, at most three; for a gang all that most futures use.
func TestLikelyNodes(t *testing.T) {
	repeated := func(counts ...int) (all []int32) {
		for node, n := range counts {
			all = append(all, slices.Repeat([]int32{int32(node)}, n)...)
		}
		slices.Reverse(all)
		return all
	}
	for name, c := range map[string]struct {
		all  []int32
		gang bool
		want []int32
	}{
		"none":                            {nil, false, nil},
		"always one":                      {repeated(0, 29), false, []int32{1}},
		"one in most":                     {repeated(14, 15), false, []int32{1}},
		"two":                             {repeated(14, 14, 1), false, []int32{0, 1}},
		"the likelier first":              {repeated(7, 10, 1), false, []int32{1, 0}},
		"three":                           {repeated(5, 5, 5, 5, 5), false, []int32{0, 1, 2}},
		"four would be needed":            {repeated(4, 4, 4, 4, 4, 4, 4), false, nil},
		"it starts in too few futures":    {repeated(14), false, nil},
		"a gang":                          {repeated(29, 15, 14), true, []int32{0, 1}},
		"a gang, three of four":           {repeated(29, 29, 20, 29), true, []int32{0, 1, 3}},
		"a gang that is elsewhere always": {repeated(10, 10, 14), true, nil},
	} {
		if diff := gocmp.Diff(c.want, likelyNodes(c.all, c.gang)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestIntervalOfStarts checks the interval of a sample: the first, the middle and the last start. A start that some
// futures did not reach is unknown, but it is not before the time that all futures reached.
func TestIntervalOfStarts(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(ns int64) time.Time { return now.Add(time.Duration(ns)) }
	for name, c := range map[string]struct {
		starts, reached []int64
		want            Interval
	}{
		"one":                {[]int64{5}, []int64{9}, Interval{at(5), at(5), at(5)}},
		"three, in no order": {[]int64{7, 1, 3}, []int64{9, 9, 9}, Interval{at(1), at(3), at(7)}},
		"now":                {[]int64{0, 0, 0}, []int64{0, 0, 0}, Interval{now, now, now}},
		"the last unknown":   {[]int64{never, 1, 3}, []int64{9, 9, 9}, Interval{at(1), at(3), time.Time{}}},
		"most are unknown":   {[]int64{never, never, 3}, []int64{8, 9, 9}, Interval{at(3), time.Time{}, time.Time{}}},
		"all are unknown":    {[]int64{never, never, never}, []int64{8, 9, 9}, Interval{From: at(8)}},
	} {
		if diff := gocmp.Diff(c.want, interval(now, c.starts, c.reached)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDraw checks all draws of run times: they are longer than what the task has run, do not exceed the limit, and grow
// with the quantile.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "limit"))
		h := NewHistory(100)
		kind := Kind{Cluster: "c", Job: "j"}
		for range rapid.IntRange(0, 20).Draw(t, "samples") {
			h.Learn(kind, Sample{
				Ran:   time.Duration(rapid.Int64Range(-5, int64(50*time.Hour)).Draw(t, "ran")),
				Limit: time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "with limit")),
			})
		}
		runs := h.Runs(kind, limit)
		ran := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(200*time.Hour)).Draw(t, "has run"))
		u := rapid.Float64Range(0, 0.999999).Draw(t, "u")
		v := rapid.Float64Range(u, 0.999999).Draw(t, "v")
		low, high := runs.Draw(u, ran), runs.Draw(v, ran)
		if low > high || low < max(ran, 0) || low == max(ran, 0) && (limit == 0 || ran < limit) {
			t.Fatalf("quantile %v after %s is %s, and quantile %v is %s", u, ran, low, v, high)
		}
		if limit > 0 && ran < limit && high > limit {
			t.Fatalf("%s after %s exceeds the limit %s", high, ran, limit)
		}
	})
}

// TestDrawOfNothing checks run times of tasks of which nothing is known, and of tasks whose run time is known.
func TestDrawOfNothing(t *testing.T) {
	var none *Runs
	for u, want := range map[float64]time.Duration{0: time.Hour, 0.5: 13 * time.Hour} {
		for _, r := range []*Runs{none, {}} {
			if got := r.Draw(u, time.Hour); got != want {
				t.Errorf("quantile %v of nothing after an hour: %s, want %s", u, got, want)
			}
		}
	}
	known := Fixed(time.Minute)
	if got := known.Draw(0.7, 59*time.Second); got != time.Minute {
		t.Errorf("a known run time: %s, want 1m", got)
	}
	// A task that has run for longer than any other runs up to four times as long in all.
	for u, want := range map[float64]time.Duration{0: 61 * time.Second, 0.5: 106 * time.Second} {
		if got := known.Draw(u, time.Minute); got != want {
			t.Errorf("quantile %v of a task that is late: %s, want %s", u, got, want)
		}
	}
}

// TestHistoryIsBounded checks that the number of groups is bounded after each sample, that what was learned last is
// kept, and that the same samples lead to the same state.
func TestHistoryIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 20).Draw(t, "most")
		h, again := NewHistory(most), NewHistory(most)
		name := func(what string) string { return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, what) }
		for i := range rapid.IntRange(1, 60).Draw(t, "samples") {
			k := Kind{Cluster: name("cluster"), Job: name("job"), Step: name("step")}
			s := Sample{Ran: time.Duration(i+1) * time.Second}
			h.Learn(k, s)
			again.Learn(k, s)
			if len(h.groups) > max(most, 8) {
				t.Fatalf("%d groups, at most %d are allowed", len(h.groups), most)
			}
			for _, of := range k.groups() {
				if g := h.groups[of]; g == nil || g.samples[len(g.samples)-1] != s || len(g.samples) > KeptSamples {
					t.Fatalf("group %v lacks the last sample", of)
				}
			}
			same := gocmp.AllowUnexported(point{})
			if diff := gocmp.Diff(h.Runs(k, 0).points, again.Runs(k, 0).points, same); diff != "" {
				t.Fatalf("the same samples (-first +second):\n%s", diff)
			}
		}
	})
}

// TestOldGroupsAreDropped checks which groups go when there are too many: the half whose last sample is oldest.
func TestOldGroupsAreDropped(t *testing.T) {
	h := NewHistory(12)
	kind := func(job string) Kind { return Kind{Cluster: "c", Job: job, Step: "s"} }
	for _, job := range []string{"a", "b", "c", "d", "a"} { // all, the cluster, and two groups for each job
		h.Learn(kind(job), Sample{Ran: time.Second})
	}
	if len(h.groups) != 10 {
		t.Fatalf("%d groups, want 10", len(h.groups))
	}
	h.Learn(kind("e"), Sample{Ran: time.Second})
	h.Learn(kind("f"), Sample{Ran: time.Second}) // one too many: 14
	for job, kept := range map[string]bool{"a": true, "b": false, "c": false, "d": false, "e": true, "f": true} {
		if _, found := h.groups[kind(job).groups()[0]]; found != kept {
			t.Errorf("job %s is kept: %v, want %v", job, found, kept)
		}
	}
}

// TestLearningShowsAtOnce checks that a distribution that was read before is made anew after the next sample, and that
// reading it twice gives one and the same.
func TestLearningShowsAtOnce(t *testing.T) {
	h := NewHistory(10)
	k := Kind{Cluster: "c", Job: "j", Step: "s"}
	before := h.Runs(k, time.Hour)
	if h.Runs(k, time.Hour) != before || h.Runs(k, time.Minute) == before {
		t.Error("want one distribution for each limit")
	}
	for range KeptSamples {
		h.Learn(k, Sample{Ran: time.Minute, Limit: time.Hour})
	}
	if got := h.Runs(k, time.Hour).Draw(0.5, 0); got != time.Minute {
		t.Errorf("median %s after the samples, want 1m", got)
	}
	for range KeptSamples { // these push out the others
		h.Learn(k, Sample{Ran: 2 * time.Minute, Limit: time.Hour})
	}
	for i := range 10 {
		if got := h.Runs(k, time.Hour).Draw(float64(i)/10, 0); got == time.Minute {
			t.Errorf("quantile %d/10 is of a sample that was pushed out", i)
		}
	}
}

// TestRunTimesUnderLimits checks how a run time counts for tasks with another limit: by its share of the limit, as it
// is where one of the two has none, and never beyond the limit.
func TestRunTimesUnderLimits(t *testing.T) {
	for _, c := range []struct{ ran, limit, under, want int }{ // seconds
		{30, 0, 0, 30},
		{30, 60, 0, 30},
		{30, 0, 60, 30},
		{90, 0, 60, 60},
		{30, 60, 60, 30},
		{70, 60, 60, 60}, // it took a moment to end
		{30, 60, 120, 60},
		{30, 60, 20, 10},
		{70, 60, 120, 120},
	} {
		seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
		s := Sample{Ran: seconds(c.ran), Limit: seconds(c.limit)}
		if got := s.under(seconds(c.under)); got != seconds(c.want) {
			t.Errorf("%s of %s counts as %s under %ds, want %ds", s.Ran, s.Limit, got, c.under, c.want)
		}
	}
}
