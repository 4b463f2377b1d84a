// Package heap returns memory to the machine after a burst of work, and makes garbage collections rarer during it. With
// thousands of connections a collection scans hundreds of unchanged megabytes, and a burst of placements would pay for
// several collections.
//
// # Pace
//
// The package checks the runtime's figures every five seconds. From 64 MB in use on, the heap may grow by 200 % before
// the next collection, by 512 MB at most, but never by less than Go's 100 %. After a burst it collects and returns free
// memory to the machine. A burst is an allocation rate of 16 MB/s or more; it is over at half of its maximum or less.
// The package returns memory only if that wins 64 MB, and once a minute at most. A process with GOGC or GOMEMLIMIT
// keeps the pace that these set. Measured with 5,000 agents and 20,000 tasks: 209 µs of CPU a task at 100 %, 192 at 200
// %, 176 at 400 %. A fixed memory limit was rejected, because the right one depends on the number of agents and one
// that is too low makes the collector run all the time.
package heap

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// checkInterval is the interval between two checks of the heap.
	checkInterval = 5 * time.Second
	// busyRate is the allocation rate, in bytes per second, above which the process counts as busy. It is calm again
	// below the maximum rate divided by calmDivisor.
	busyRate, calmDivisor = 16 << 20, 2
	// pacedHeapSize is the live heap, in bytes, above which collections become rarer. Such a heap grows by
	// maxGrowthPercent before the next collection (see GOGC), but by maxGrowth bytes at most, unless that is less
	// than 100 percent.
	pacedHeapSize    = 64 << 20
	maxGrowthPercent = 200
	maxGrowth        = 512 << 20
	// minChecksBetweenReturns is the number of checks between two collections that only return memory.
	minChecksBetweenReturns = 12
	// minReturnedBytes is the least gain of a collection that only returns memory.
	minReturnedBytes = 64 << 20
)

// Tend adapts the heap of the process until the context ends, and returns its error. With GOGC or GOMEMLIMIT set it
// does not change the pace of collections.
func Tend(ctx context.Context) error {
	ticks := time.NewTicker(checkInterval)
	defer ticks.Stop()
	t := pacer{
		free:    debug.FreeOSMemory,
		percent: func(p int) { debug.SetGCPercent(p) },
	}
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		t.percent = func(int) {}
	}
	s := newSampler()
	t.check(s.read())
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
			t.check(s.read())
		}
	}
}

// reading is the state of the heap, in bytes.
type reading struct {
	allocated uint64 // since the process began
	live      uint64 // in use, by the last collection
	held      uint64 // of the machine's memory: in use, garbage, or free and not given back
}

// pacer decides at each check.
type pacer struct {
	free    func()
	percent func(int)

	began bool
	last  uint64  // allocated bytes at the last check
	high  float64 // highest allocation rate since the last rest, in bytes per second
	freed bool    // memory was returned, since checks ago
	since int
	pace  int // current growth in percent; 0 is the initial 100
}

func (t *pacer) check(r reading) {
	if pace := paceOf(r.live); pace != t.pace &&
		(pace == 100 || pace == maxGrowthPercent || pace < t.pace-paceTolerance || pace > t.pace+paceTolerance) {
		t.pace = pace
		t.percent(pace)
	}
	rate := float64(r.allocated-t.last) / checkInterval.Seconds()
	t.last = r.allocated
	if !t.began { // the first check has no rate
		t.began = true
		return
	}
	t.since++
	t.high = max(t.high, rate)
	if t.high < busyRate || rate*calmDivisor > t.high || t.freed && t.since < minChecksBetweenReturns {
		return
	}
	t.high = 0
	if r.held > r.live+minReturnedBytes {
		t.freed, t.since = true, 0
		t.free()
	}
}

// paceTolerance is the tolerated deviation of the pace in percentage points. Each change stops the program briefly.
const paceTolerance = 20

// paceOf returns the growth, in percent, of a heap with that many live bytes.
func paceOf(live uint64) int {
	if live < pacedHeapSize {
		return 100
	}
	return int(min(maxGrowthPercent, max(100, maxGrowth*100/live)))
}

// sampler reads the runtime's figures.
type sampler []metrics.Sample

func newSampler() sampler {
	return sampler{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
}

func (s sampler) read() reading {
	metrics.Read(s)
	return reading{
		allocated: s[0].Value.Uint64(),
		live:      s[1].Value.Uint64(),
		held:      s[2].Value.Uint64() + s[3].Value.Uint64() + s[4].Value.Uint64(),
	}
}
