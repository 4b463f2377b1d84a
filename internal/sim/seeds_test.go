package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthd/berth/internal/clause"
)

// seedRange returns the first and last seed of the stories to run: seedCount stories, or the range in BERTH_SIM_SEEDS
// ("5000" or "2000-3000"), or the seed in BERTH_SIM_SEED.
func seedRange(t *testing.T) (first, last uint64) {
	t.Helper()
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%q is not a seed", s)
		}
		return n
	}
	if v := os.Getenv("BERTH_SIM_SEED"); v != "" {
		return number(v), number(v)
	}
	if v := os.Getenv("BERTH_SIM_SEEDS"); v != "" {
		if a, b, ok := strings.Cut(v, "-"); ok {
			return number(a), number(b)
		}
		return 1, number(v)
	}
	if testing.Short() {
		return 1, 50
	}
	return 1, seedCount
}

// TestSeeds runs random stories. A story with a breach is shortened, and printed with the command that runs it again.
func TestSeeds(t *testing.T) {
	if file := os.Getenv("BERTH_SIM_STORY"); file != "" {
		runStoryFile(t, file)
		return
	}
	first, last := seedRange(t)
	without := ClauseNamed(os.Getenv("BERTH_SIM_WITHOUT"))
	survey := os.Getenv("BERTH_SIM_SURVEY") != "" // a line for each seed that fails, not shortened
	var next, starts, revisions atomic.Uint64
	next.Store(first)
	var mu sync.Mutex
	var actions ActionCounts
	for i := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("worker ", i), func(t *testing.T) {
			t.Parallel()
			for seed := next.Add(1) - 1; seed <= last && !t.Failed(); seed = next.Add(1) - 1 {
				story := Generate(seed)
				r := Run(t, story, Options{Logs: first == last && testing.Verbose(), Without: without})
				mu.Lock()
				actions.add(r.Actions)
				mu.Unlock()
				starts.Add(uint64(r.Starts))
				revisions.Add(r.Revisions)
				if survey && len(r.Violations) > 0 {
					t.Logf("seed %d: %v", seed, r.Violations[0])
					continue
				}
				if len(r.Violations) > 0 {
					report(t, story, r, without)
				}
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d stories, %d programs, %d revisions; of Berth's own accord: %+v", last-first+1, starts.Load(),
			revisions.Load(), actions)
		if last-first >= 90 && without == 0 && !survey &&
			(actions.VoluntaryStops == 0 || actions.Permits == 0 || actions.Reverts == 0 || actions.Scalings == 0 ||
				actions.CronJobs == 0 || actions.Proposed == 0 || actions.TakeOvers == 0 || actions.Commanded == 0 ||
				last-first >= 900 && actions.Departures == 0) {
			t.Errorf("the stories exercise too few actions: %+v", actions)
		}
	})
}

// report fails the test with the shortest story that shows the breach.
func report(t *testing.T, story *Story, r Result, without clause.Set) {
	t.Helper()
	invariant := r.Violations[0].Invariant
	var found strings.Builder
	for _, v := range r.Violations {
		fmt.Fprintln(&found, " ", v)
	}
	// Printed immediately: the output of a test appears when it ends, and shortening the story takes minutes.
	fmt.Fprintf(os.Stderr, "seed %d breaks %q:\n%s%s", story.Seed, invariant, found.String(), story.String())
	short := Shrink(t, story, r.Violations[0], Options{Without: without})
	t.Errorf("seed %d breaks %q:\n%s\nthe shortest story that does:\n%s\nreplay: BERTH_SIM_SEED=%d go test "+
		"-run TestSeeds ./internal/sim\n"+
		"or save the story and: BERTH_SIM_STORY=<file> go test -v -run TestSeeds ./internal/sim",
		story.Seed, invariant, found.String(), short.String(), story.Seed)
}

// runStoryFile runs the story in a file, a few times, and prints what happened.
func runStoryFile(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	story, err := ParseStory(f)
	if err != nil {
		t.Fatal(err)
	}
	for range runsPerStory {
		r := Run(t, story, Options{
			Verbose: testing.Verbose(), Logs: os.Getenv("BERTH_SIM_LOGS") != "",
			Without: ClauseNamed(os.Getenv("BERTH_SIM_WITHOUT")),
		})
		for _, line := range r.Chronicle {
			fmt.Println(line)
		}
		for _, v := range r.Violations {
			t.Error(v)
		}
		if t.Failed() {
			return
		}
	}
}
