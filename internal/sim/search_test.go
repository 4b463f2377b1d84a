package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// found is the first random story that breaks without a clause.
type found struct {
	seed      uint64
	invariant string
	tried     uint64
}

// TestSearch finds, for each clause, the first random story that breaks without it. BERTH_SIM_SEARCH is the number of
// seedCount. The table of docs/reference/simulation.md goes to the file that BERTH_SIM_TABLE names. BERTH_SIM_WITHOUT
// selects one clause.
func TestSearch(t *testing.T) {
	limit, err := strconv.ParseUint(os.Getenv("BERTH_SIM_SEARCH"), 10, 64)
	if err != nil { // a plain run has the traces; this shows only that the search works
		limit = seedCount / 125
	}
	var mu sync.Mutex
	results := map[string]found{}
	jobs := make(chan Clause)
	t.Run("clauses", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker ", i), func(t *testing.T) {
				t.Parallel()
				for c := range jobs {
					f := search(t, c, limit)
					mu.Lock()
					results[c.Trace] = f
					mu.Unlock()
					t.Logf("%s %s: seed %d, %s", c.Trace, c.Name, f.seed, f.invariant)
				}
			})
		}
		go func() {
			defer close(jobs)
			for _, c := range Clauses {
				if only := os.Getenv("BERTH_SIM_WITHOUT"); only == "" || only == c.Name || only == c.Trace {
					jobs <- c
				}
			}
		}()
	})
	seen := 0
	for _, f := range results {
		if f.invariant != "" {
			seen++
		}
	}
	t.Logf("%d of %d clauses are missed by random stories", seen, len(results))
	if limit >= 10_000 && len(results) == len(Clauses) && seen < 12 {
		t.Errorf("random stories miss only %d clauses within %d seedCount", seen, limit)
	}
	if file := os.Getenv("BERTH_SIM_TABLE"); file != "" {
		if err := writeTable(file, results); err != nil {
			t.Error(err)
		}
	}
}

// search returns the first seed whose story breaks an invariant without the clause, and breaks none with it.
func search(t *testing.T, c Clause, limit uint64) found {
	for seed := uint64(1); seed <= limit; seed++ {
		story := Generate(seed)
		without := func() string {
			if r := Run(t, story, Options{Without: c.Set, StopAtOnce: true}); len(r.Violations) > 0 {
				return r.Violations[0].Invariant
			}
			return ""
		}
		first := without()
		// the breach must show repeatedly, because the seed does not decide the order of goroutines
		if first == "" || without() == "" {
			continue
		}
		sound := true
		for range runsPerStory {
			sound = sound && len(Run(t, story, Options{StopAtOnce: true}).Violations) == 0
		}
		if sound {
			return found{seed: seed, invariant: first, tried: seed}
		}
	}
	return found{tried: limit}
}

// The table of docs/reference/simulation.md is between these lines.
const (
	tableBegins = "<!-- table of clauses: begin -->"
	tableEnds   = "<!-- table of clauses: end -->"
)

func writeTable(file string, results map[string]found) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", file, tableBegins, tableEnds)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%s\n\n| trace | clause that is off | first seed that notices | invariant "+
		"|\n|---|---|---|---|\n", tableBegins)
	for _, c := range Clauses {
		f, ran := results[c.Trace]
		seed, invariant := strconv.FormatUint(f.seed, 10), "`"+f.invariant+"`"
		switch {
		case !ran:
			seed, invariant = "not searched", ""
		case f.invariant == "":
			seed, invariant = fmt.Sprintf("none of %d", f.tried), "its scripted trace only"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", c.Trace, c.Name, seed, invariant)
	}
	fmt.Fprintf(&table, "\n%s", tableEnds)
	return os.WriteFile(file, []byte(before+table.String()+after), 0o644)
}
