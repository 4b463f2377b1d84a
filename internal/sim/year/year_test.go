package year_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/publishing"
	"github.com/berthd/berth/internal/sim/year"
)

const (
	// steadyDay is the day from which the domain deletes each day as much as it writes: its clusters keep jobs for a
	// week.
	steadyDay = 8
	// heapInterval is the number of days between two measurements of the heap.
	heapInterval = 8
	// fullDay is the day after which the event log is filled, with what the days before it wrote.
	fullDay = 3
	// comparedDay is the first day that is compared with those before it.
	comparedDay = 30
	// tracedDay is a day at which the leader keeps as many decision traces as it ever does.
	tracedDay = 220
)

// aFew is the work of a day that takes little time, and fullWork that of a large CI system.
var (
	aFew     = year.Workload{Tasks: 12, Rounds: 2}
	fullWork = year.Workload{Tasks: 200_000, Rounds: 24, Keep: 6 * time.Hour}
)

// TestYear passes a year with a few tasks a day. The store is not larger after the first month than in it, and neither
// is the memory of a leader.
func TestYear(t *testing.T) {
	const days = 365
	w := begin(t)
	var first, later peaks
	for day := range days {
		if day == steadyDay+2 || day == steadyDay+3 { // then one leader leads for long
			if err := w.Lead(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		pass(t, w, day, aFew)
		switch {
		case day >= steadyDay && day < comparedDay:
			first.noteUsage(w)
		case day >= comparedDay:
			later.noteUsage(w)
		}
		switch {
		case day%heapInterval != 0 || day < tracedDay:
		case day < (tracedDay+days)/2:
			first.noteHeap()
		default:
			later.noteHeap()
		}
	}
	compare(t, &first, &later)
}

// TestFullDays passes a month with a few tasks a day, and then as many days with 200,000 tasks as BERTH_SIM_YEAR says.
// Nothing is larger in the second half of these days than in the first.
func TestFullDays(t *testing.T) {
	days, _ := strconv.Atoi(os.Getenv("BERTH_SIM_YEAR"))
	work := fullWork
	if days < 4 { // a small size of the test itself
		days, work.Tasks, work.Rounds = 4, 480, 8
	}
	w := begin(t)
	var first, later peaks
	for day := range comparedDay + days {
		if day < comparedDay {
			pass(t, w, day, aFew)
			continue
		}
		pass(t, w, day, work)
		switch full := day - comparedDay; {
		case full == 0: // jobs of the day before are left
		case full <= days/2:
			first.noteUsage(w)
			first.noteHeap()
		default:
			later.noteUsage(w)
			later.noteHeap()
		}
	}
	compare(t, &first, &later)
}

// TestYearWithClockJumps sets the wall clock forward and back. When the jobs from these times have expired, the store
// is as large as before.
func TestYearWithClockJumps(t *testing.T) {
	w := begin(t)
	var first, later peaks
	for day := range 54 {
		switch day {
		case 31, 37: // a wrong time server, for some time
			w.JumpBy(5 * 24 * time.Hour)
		case 33, 38:
			w.JumpBy(-5 * 24 * time.Hour)
		case 35: // a wrong zone, for a day
			w.JumpBy(-2 * time.Hour)
		case 36:
			w.JumpBy(2 * time.Hour)
		}
		pass(t, w, day, aFew)
		switch {
		case day >= steadyDay && day < comparedDay:
			first.noteUsage(w)
		case day >= 51:
			later.noteUsage(w)
		}
	}
	compare(t, &first, &later)
}

func begin(t *testing.T) *year.World {
	t.Helper()
	// Frequent garbage collections, and a second processor, would make a simulation more expensive.
	gc, processors := debug.SetGCPercent(400), runtime.GOMAXPROCS(1)
	t.Cleanup(func() {
		debug.SetGCPercent(gc)
		runtime.GOMAXPROCS(processors)
	})
	w, err := year.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := w.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func pass(t *testing.T, w *year.World, day int, work year.Workload) {
	t.Helper()
	began := time.Now()
	if err := w.Day(t.Context(), day, work); err != nil {
		t.Fatalf("day %d: %v", day, err)
	}
	if day == fullDay {
		if err := w.FillEvents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if day%60 == 0 || work.Tasks > aFew.Tasks {
		t.Logf("day %d in %v: %d attempts have ended, heap %d MiB, %v", day,
			time.Since(began).Round(time.Millisecond), w.Ended(), year.Heap()>>20, w.Usage())
	}
}

// peaks are the largest sizes on some days.
type peaks struct {
	usage map[string]year.Usage
	heap  uint64
}

func (p *peaks) noteUsage(w *year.World) {
	if p.usage == nil {
		p.usage = map[string]year.Usage{}
	}
	for noun, u := range w.Usage() {
		most := p.usage[noun]
		p.usage[noun] = year.Usage{Keys: max(most.Keys, u.Keys), Bytes: max(most.Bytes, u.Bytes)}
	}
}

func (p *peaks) noteHeap() { p.heap = max(p.heap, year.Heap()) }

// compare fails the test if anything is larger than before.
func compare(t *testing.T, first, later *peaks) {
	t.Helper()
	// Numbers in records, such as revisions, have more digits later.
	grows := func(before, after, slack int) bool { return after > before+before/20+slack }
	for noun, after := range later.usage {
		before := first.usage[noun]
		if noun == "event" { // its limits are of its own: the sizes of events vary
			before = year.Usage{Keys: publishing.KeptBatches + 500, Bytes: int(publishing.MaxBytes)}
		}
		if grows(before.Keys, after.Keys, 1) || grows(before.Bytes, after.Bytes, 256) {
			t.Errorf("%s/… had at most %d keys with %d bytes, and later %d keys with %d bytes", noun, before.Keys,
				before.Bytes, after.Keys, after.Bytes)
		}
	}
	if first.heap > 0 {
		t.Logf("the heap had at most %d KiB, and later %d KiB", first.heap>>10, later.heap>>10)
	}
	if grows(int(first.heap), int(later.heap), int(cluster.MiB)/2) {
		t.Errorf("the heap had at most %d KiB, and later %d KiB", first.heap>>10, later.heap>>10)
	}
}
