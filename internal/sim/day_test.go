package sim

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
)

// daySeed is the seed of a plain run, whose hour loses attempts. It makes plan records speak for their attempts as long
// as in production; see Story.projectAfter.
const daySeed = 6

// TestDayOfCI runs the work of a CI system while nodes die and servers are killed: an hour of it, or as long as
// BERTH_SIM_DAY says, with the seed in BERTH_SIM_SEED. No task is lost, none runs again after its start unless it may,
// and each that waits has a reason at every moment. In each hour the users of a fair queue hold their fair shares.
func TestDayOfCI(t *testing.T) {
	length, seed := dayLength, uint64(daySeed)
	if os.Getenv("BERTH_SIM_SEED") != "" {
		seed, _ = seedRange(t)
	}
	if text := os.Getenv("BERTH_SIM_DAY"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil || length < ci.MinLength {
			t.Fatalf("BERTH_SIM_DAY is %q, want a duration of at least %v (%v)", text, ci.MinLength, err)
		}
	}
	// The parts of one fleet have little to do at the same time. A second processor, and frequent garbage collections,
	// would make the run a third more expensive.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	began := time.Now()
	day := dayOf(seed, length)
	r := Run(t, DayStory(day), Options{Day: day, Timeout: 6 * time.Hour})
	for _, v := range r.Violations {
		t.Error(v)
	}
	t.Logf("%v of CI in %v: %d jobs, %d tasks, %d programs, %d revisions, %d leadership terms", length,
		time.Since(began).Round(time.Second), r.Day.Jobs, r.Day.Tasks, r.Starts, r.Revisions, r.Leaders)
	t.Logf("%+v", r.Day)
	checkExercise(t, &r, length)
}

// checkExercise fails the test if the day did not contain what it is about.
func checkExercise(t *testing.T, r *Result, length time.Duration) {
	t.Helper()
	d := &r.Day
	hours := int(length / time.Hour)
	for what, ok := range map[string]bool{
		"jobs that succeed, fail and are cancelled": d.Ends[cluster.JobSucceeded] > 0 &&
			d.Ends[cluster.JobFailed] > 0 && d.Ends[cluster.JobCancelled] > 0,
		"400 jobs and 8,000 tasks an hour":   d.Jobs >= 400*hours && d.Tasks >= 8000*hours,
		"a new leader several times an hour": r.Leaders >= 3*hours,
		"lost and failed attempts": hours == 0 ||
			d.Attempts[cluster.StateLost] > 0 && d.Attempts[cluster.StateFailed] > 0,
		"tasks that ran again":     d.Reruns > 0,
		"a leader in most samples": d.QuietSamples > d.Samples*2/3 && d.Leaderless < d.Samples/50,
	} {
		if !ok {
			t.Errorf("the day is to have %s: %+v", what, r.Day)
		}
	}
	for _, u := range ci.FairUsers() {
		known := slices.DeleteFunc(slices.Clone(d.Shares[u.Name]), math.IsNaN)
		if u.Every == 0 && len(known) != hours {
			t.Errorf("tasks of %s always waited in %d of %d hours: %v", u.Name, len(known), hours, d.Shares)
		}
	}
	for _, code := range []cluster.ReasonCode{
		cluster.ReasonShortCPU, cluster.ReasonNeeds, cluster.ReasonParallelism, cluster.ReasonHold,
		cluster.ReasonConcurrency, cluster.ReasonGang, cluster.ReasonQuota, cluster.ReasonOldAttempt, waitsForRetry,
	} {
		if hours > 0 && d.Waits[code] == 0 {
			t.Errorf("no task waited for %s: %v", code, d.Waits)
		}
	}
}
