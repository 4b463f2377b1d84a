package load_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/load"
)

// What memory may grow by: a share, and a slack for what is small. From the first third of the time to the last one
// what is bounded may fill: the 20,000 batches of events that servers keep take 45 MiB, the history of the store, which
// is trimmed every five minutes, half of that. In a long run they are full by the middle, and from the middle third to
// the last one nothing grows.
const (
	growShare = 0.15
	growSlack = 16 << 20
	fillSlack = 96 << 20
	// longEnough is a run in whose middle all is full.
	longEnough = 50 * time.Minute
	lookEvery  = 5 * time.Second
)

// memory is what servers and agents took over time: the mean of those that live, in bytes.
type memory struct {
	mu      sync.Mutex
	samples map[string][]int64
}

func newMemory() *memory { return &memory{samples: map[string][]int64{}} }

// run looks until ctx ends.
func (m *memory) run(ctx context.Context, w *world) {
	for ctx.Err() == nil {
		var all [2][]int64
		w.mu.Lock()
		for _, s := range w.Servers {
			all[0] = append(all[0], resident(s.Pid()))
		}
		for _, a := range w.Agents {
			all[1] = append(all[1], resident(a.Pid()))
		}
		w.mu.Unlock()
		m.mu.Lock()
		for i, kind := range []string{"servers", "agents"} {
			if mean := mean(all[i]); mean > 0 {
				m.samples[kind] = append(m.samples[kind], mean)
			}
		}
		m.mu.Unlock()
		testkit.Pause(ctx, lookEvery)
	}
}

// mean is that of the numbers that are not 0.
func mean(all []int64) int64 {
	sum, n := int64(0), int64(0)
	for _, b := range all {
		if b > 0 {
			sum, n = sum+b, n+1
		}
	}
	return sum / max(n, 1)
}

// resident returns the memory of a process in bytes, 0 where it is gone. The pages of files that it looks at, such as
// those of its store, are not counted: the kernel takes them back when it needs them.
func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, found := strings.Cut(string(text), "RssAnon:")
	if !found {
		return 0
	}
	n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64) // the kernel writes a number
	return n << 10
}

// thirds returns the medians of the three parts of a time.
func thirds(all []int64) (each [3]int64) {
	n := len(all) / 3
	if n == 0 {
		return each
	}
	return [3]int64{median(all[:n]), median(all[n : len(all)-n]), median(all[len(all)-n:])}
}

func median(all []int64) int64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// judge prints what happened and demands what was promised. What was told after the end of the audit is the clearing
// up.
func (w *world) judge(length time.Duration, until time.Time) {
	t := w.t
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.kills {
		if w.kills[i].Known.IsZero() {
			w.kills[i].Known = until
		}
	}
	records := slices.DeleteFunc(w.recorder.All(), func(r load.Record) bool { return r.At.After(until) })
	failures, lost := w.traffic.Failures()
	excused, wrong := 0, []string(nil)
	for _, f := range failures {
		if load.Excused(f, w.kills) {
			excused++
		} else {
			wrong = append(wrong, f.String()+"\n    "+history(records, f.UUID))
		}
	}
	below := load.BelowMinimum(records, w.kills, w.leasts, lingers)
	w.table(length, records, len(wrong), excused)
	if len(wrong)+lost > 0 {
		t.Errorf("%d requests failed on what the test did not kill:\n%s", len(wrong)+lost, sentence(wrong, 20))
	}
	if n := w.traffic.Empty(); n > 0 {
		t.Errorf("%d times there was no address to ask", n)
	}
	if len(below) > 0 {
		t.Errorf("%d times a healthy task was given up below the minimum:\n%s", len(below), sentence(below, 20))
	}
	if want := max(1, min(10, int(length/(2*time.Minute)))); len(w.rollouts) < want {
		t.Errorf("%d rollouts are complete, want %d at least", len(w.rollouts), want)
	}
	if w.traffic.Sent() < int64(length.Seconds())*50 {
		t.Errorf("only %d requests were sent", w.traffic.Sent())
	}
	for _, kind := range slices.Sorted(maps.Keys(w.memory.samples)) {
		m := thirds(w.memory.samples[kind])
		grows := func(from, to int64, slack int64) bool {
			return from > 0 && to > int64(float64(from)*(1+growShare))+slack
		}
		if grows(m[0], m[2], fillSlack) || length >= longEnough && grows(m[1], m[2], growSlack) {
			t.Errorf("the memory of the %s grew: %s in the three thirds of the time", kind, megabytes(m))
		}
	}
}

func megabytes(m [3]int64) string {
	return fmt.Sprintf("%d, %d and %d MiB", m[0]>>20, m[1]>>20, m[2]>>20)
}

// history is what the processes of an attempt told.
func history(records []load.Record, uuid string) string {
	var told []string
	for _, r := range records {
		if r.UUID == uuid {
			told = append(told, fmt.Sprintf("%s %s (%d)", r.At.Format(time.StampMilli), r.What, r.Pid))
		}
	}
	return strings.Join(told, ", ")
}

// table prints what was done and seen.
func (w *world) table(length time.Duration, records []load.Record, wrong, excused int) {
	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-34s %s\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\n%d tasks on %d nodes, %d servers, for %v\n", most, agents, servers, length)
	row("requests", "%d (%.0f/s)", w.traffic.Sent(), float64(w.traffic.Sent())/length.Seconds())
	row("failed", "%d", wrong)
	row("failed on what the test killed", "%d", excused)
	row("fewest healthy addresses", "%d", w.traffic.Fewest())
	row("longest time without an answer", "%v", w.traffic.Blind().Round(time.Millisecond))
	count := map[string]int{}
	for _, r := range records {
		count[r.What]++
	}
	row("tasks started", "%d", count[load.Up])
	row("tasks told to stop", "%d", count[load.Term])
	for _, what := range slices.Sorted(maps.Keys(w.did)) {
		row(what, "%d times, at most %v", w.did[what], w.took[what].Round(100*time.Millisecond))
	}
	for _, kind := range slices.Sorted(maps.Keys(w.memory.samples)) {
		row("memory of the "+kind, "%s in the thirds of the time", megabytes(thirds(w.memory.samples[kind])))
	}
	w.t.Log(b.String())
}
