// Package yardstick measures time as a quiet machine of usual speed would. Limits of waits follow it, so that no check
// fails because its machine is slow or busy. Checks of real parts use it: the suites, which programs may run as well,
// and through internal/testkit all tests.
package yardstick

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/berthd/berth/internal/pause"
)

const (
	// usualWork is how long the fixed work takes on a machine of usual speed (one core of a server of 2023 at 3 GHz).
	usualWork = 5 * time.Millisecond
	// workRounds is the size of the fixed work.
	workRounds = 4_000_000
	// sampleInterval is the time between two samples of the machine's load.
	sampleInterval = 50 * time.Millisecond
	// latelySpan is over which time the slowness is averaged for limits that are fixed beforehand.
	latelySpan = 3 * time.Second
	// maxSlowness bounds the slowness, so that a limit ends on any machine.
	maxSlowness = 40
	// maxScale bounds what Scaled multiplies a limit by. A check waits for some of these limits in full: for the
	// deadline of a rollout that fails, for instance. A sample of one busy moment must not turn each into an hour.
	maxScale = 8 * raceSlowness
	// maxDiskSlowness bounds what processes that wait for a disk add: half of the work of a test is no disk's.
	maxDiskSlowness = 4
)

// Scaled returns a limit for a machine of usual speed as a limit for this machine, now. A quiet machine of usual speed
// returns the limit itself. A machine that is slower, or on which four processes want each core, returns a multiple: at
// most maxScale times the limit.
//
// Scaled is for limits that a check writes into a manifest or a configuration. A check that waits uses Eventually or
// WithLimit, which follow the load while they wait. Inside a synctest bubble the limit stays as it is.
func Scaled(limit time.Duration) time.Duration {
	if inBubble() {
		return limit
	}
	return time.Duration(float64(limit) * machine().handOut())
}

// Stopwatch measures how long something would take on a quiet machine of usual speed. Checks that compare a
// duration with an upper limit use it in place of time.Since. It is safe for concurrent use.
type Stopwatch struct {
	began  time.Time
	usual  time.Duration
	bubble bool
}

// NewStopwatch returns a stopwatch that runs. Inside a synctest bubble it shows the bubble's time.
func NewStopwatch() *Stopwatch {
	if inBubble() {
		return &Stopwatch{began: time.Now(), bubble: true}
	}
	return &Stopwatch{began: time.Now(), usual: machine().now()}
}

// Elapsed returns the time since the start, at most the time on the wall.
func (s *Stopwatch) Elapsed() time.Duration {
	wall := time.Since(s.began)
	if s.bubble {
		return wall
	}
	return min(wall, machine().now()-s.usual)
}

// WithLimit is context.WithTimeout with a limit that stretches as by Eventually. The cause of the context's
// end states the limit.
func WithLimit(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if inBubble() {
		return context.WithTimeout(parent, limit)
	}
	ctx, cancel := context.WithCancelCause(parent)
	watch := NewStopwatch()
	go func() {
		for left := limit; left > 0 && ctx.Err() == nil; left = limit - watch.Elapsed() {
			_ = pause.For(ctx, max(left, poll)) // the loop sees the end of the context
		}
		cancel(fmt.Errorf("after %v: %w", limit, context.DeadlineExceeded))
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// inBubble reports whether the caller runs inside a synctest bubble. A bubble's time begins with the year 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// yard counts time as a quiet machine of usual speed would: while the machine is three times slower, a third of the
// time passes.
type yard struct {
	mu     sync.Mutex
	speed  float64 // how many times slower a core is than a usual one
	usual  time.Duration
	last   time.Time
	slower float64 // at the last sample: how many times slower than usual all goes
	lately float64 // the same over the last seconds
	most   float64 // the largest factor that Scaled used
	stat   stat
}

// machine returns the yard of this process. Its first call starts the sampling, which never ends: by a timer,
// because a remaining goroutine would be a leak for the tests that check for leaks.
var machine = sync.OnceValue(func() *yard { //nolint:gochecknoglobals // a process has one machine
	y := &yard{speed: coreSlowness() * raceSlowness, last: time.Now(), slower: 1}
	y.stat, _ = readStat()
	y.slower, y.lately = y.speed, y.speed
	time.AfterFunc(sampleInterval, y.sampleAgain)
	return y
})

func (y *yard) now() time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.usual + time.Duration(float64(time.Since(y.last))/y.slower)
}

func (y *yard) slowness() float64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return max(y.slower, y.lately)
}

// handOut returns the slowness for a limit that is fixed beforehand.
func (y *yard) handOut() float64 {
	factor := min(y.slowness(), maxScale)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.most = max(y.most, factor)
	return factor
}

// over reports whether a wait with a limit has lasted for too long: by the time of a quiet machine, and by the time on
// the wall as the largest limit was stretched that is fixed somewhere. A wait with a limit of a busy minute must not
// give up in a quiet one.
func (s *Stopwatch) over(limit time.Duration) bool {
	if s.Elapsed() < limit || s.bubble {
		return s.Elapsed() >= limit
	}
	y := machine()
	y.mu.Lock()
	defer y.mu.Unlock()
	return time.Since(s.began) >= time.Duration(float64(limit)*max(y.most, 1))
}

func (y *yard) sampleAgain() {
	y.sample()
	time.AfterFunc(sampleInterval, y.sampleAgain)
}

// sample counts the time since the last sample by how busy the machine is now.
func (y *yard) sample() {
	s, err := readStat()
	y.mu.Lock()
	defer y.mu.Unlock()
	now := time.Now()
	if err == nil {
		y.slower = min(max(y.speed*s.slowness(y.stat, runtime.NumCPU()), 1), maxSlowness)
		y.lately += (y.slower - y.lately) * sampleInterval.Seconds() / latelySpan.Seconds()
		y.stat = s
	}
	y.usual += time.Duration(float64(now.Sub(y.last)) / y.slower)
	y.last = now
}

// stat holds the kernel's figures of a machine's load.
type stat struct {
	running, blocked float64 // processes that want a core, that wait for a disk
	stolen, all      float64 // ticks of the cores since the start: that went to other machines, and in all
}

// slowness returns how many times slower than alone a process proceeds, by this sample and the one before.
func (s stat) slowness(before stat, cores int) float64 {
	factor := max(s.running/float64(cores), 1) * min(1+s.blocked, maxDiskSlowness)
	if all := s.all - before.all; all > 0 {
		factor /= max(1-(s.stolen-before.stolen)/all, 1.0/maxSlowness)
	}
	return factor
}

func readStat() (stat, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return stat{}, fmt.Errorf("read the load: %w", err)
	}
	return parseStat(text), nil
}

// parseStat reads /proc/stat (proc_stat(5)).
func parseStat(text []byte) stat {
	var s stat
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		number := func(i int) float64 {
			n, _ := strconv.ParseFloat(string(fields[i]), 64) // what is no number counts for nothing
			return n
		}
		switch string(fields[0]) {
		case "cpu":
			for i := 1; i < len(fields); i++ {
				s.all += number(i)
			}
			if len(fields) > 8 {
				s.stolen = number(8)
			}
		case "procs_running":
			s.running = number(1)
		case "procs_blocked":
			s.blocked = number(1)
		}
	}
	return s
}

// coreSlowness returns how many times slower than usual a core of this machine is: the best of several tries counts, as
// other processes may be in the way of each.
func coreSlowness() float64 {
	best := time.Hour
	for range 5 {
		began := time.Now()
		sum := uint64(1)
		for i := range uint64(workRounds) {
			sum = sum*6364136223846793005 + i
		}
		runtime.KeepAlive(sum)
		best = min(best, time.Since(began))
	}
	return max(float64(best)/float64(usualWork), 1)
}
