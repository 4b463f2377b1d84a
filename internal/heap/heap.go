// Package heap gives memory back to the machine once a server has come to rest after much work, and lets its garbage be
// collected less often while it works. With thousands of connections a collection looks at hundreds of megabytes that
// do not change, and a burst of placements would pay for several of them.
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
	// lookEvery is how often it looks.
	lookEvery = 5 * time.Second
	// busyRate is from how many allocated bytes a second on the process works hard; it has come to rest at a part of
	// the most in calm.
	busyRate, calm = 16 << 20, 2
	// large is from which size on of what is in use garbage is collected less often, in bytes, most by how many percent
	// of it a heap then grows before the next collection (see GOGC), and room by how many bytes at most, unless that
	// were less than 100 percent.
	large = 64 << 20
	most  = 200
	room  = 512 << 20
	// pause is how many looks are between two collections that only give memory back.
	pause = 12
	// worthwhile is how much has to be won, in bytes, for a collection that only gives memory back.
	worthwhile = 64 << 20
)

// Tend looks after the heap of the process until the context ends, and returns its error. It leaves the pace of
// collections alone where GOGC or GOMEMLIMIT is set.
func Tend(ctx context.Context) error {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	t := tender{
		free:    debug.FreeOSMemory,
		percent: func(p int) { debug.SetGCPercent(p) },
	}
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		t.percent = func(int) {}
	}
	s := newSampler()
	t.look(s.read())
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
			t.look(s.read())
		}
	}
}

// reading is what the runtime says of the heap, in bytes.
type reading struct {
	allocated uint64 // since the process began
	live      uint64 // in use, by the last collection
	held      uint64 // of the machine's memory: in use, garbage, or free and not given back
}

// tender decides, look by look.
type tender struct {
	free    func()
	percent func(int)

	began bool
	last  uint64  // what had been allocated at the last look
	high  float64 // bytes allocated a second since it was at rest, the most
	freed bool    // memory was given back, so many looks ago:
	since int
	pace  int // percent at present; 0 for what the runtime began with, which is 100
}

func (t *tender) look(r reading) {
	if pace := paceOf(r.live); pace != t.pace &&
		(pace == 100 || pace == most || pace < t.pace-slack || pace > t.pace+slack) {
		t.pace = pace
		t.percent(pace)
	}
	rate := float64(r.allocated-t.last) / lookEvery.Seconds()
	t.last = r.allocated
	if !t.began { // what was allocated before says nothing of a rate
		t.began = true
		return
	}
	t.since++
	if t.high = max(t.high, rate); t.high < busyRate || rate*calm > t.high || t.freed && t.since < pause {
		return
	}
	t.high = 0
	if r.held > r.live+worthwhile {
		t.freed, t.since = true, 0
		t.free()
	}
}

// slack is by how many percent the pace may be off, as each change of it stops the program for a moment.
const slack = 20

// paceOf is by how many percent a heap with so much in use may grow.
func paceOf(live uint64) int {
	if live < large {
		return 100
	}
	return int(min(most, max(100, room*100/live)))
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
