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

// Limits of the growth of memory: a share, and a slack for small processes. From the first third of the time to the
// last one, bounded buffers may fill. The 20,000 event batches of a server take 45 MiB, and the store's history, which
// is compacted every five minutes, half of that. In a long run they are full by the middle. From the middle third to
// the last one nothing grows.
const (
	growShare = 0.15
	growSlack = 16 << 20
	fillSlack = 96 << 20
	// longEnough is a run in whose middle all is full.
	longEnough    = 50 * time.Minute
	judgeInterval = 5 * time.Second
)

// memory holds the memory of servers and agents over time: the mean of the living ones, in bytes.
type memory struct {
	mu      sync.Mutex
	samples map[string][]int64
}

func newMemory() *memory { return &memory{samples: map[string][]int64{}} }

// run samples the memory until ctx ends.
func (m *memory) run(ctx context.Context, fl *loadFleet) {
	for ctx.Err() == nil {
		var all [2][]int64
		fl.mu.Lock()
		for _, s := range fl.Servers {
			all[0] = append(all[0], resident(s.Pid()))
		}
		for _, a := range fl.Agents {
			all[1] = append(all[1], resident(a.Pid()))
		}
		fl.mu.Unlock()
		m.mu.Lock()
		for i, kind := range []string{"servers", "agents"} {
			if mean := mean(all[i]); mean > 0 {
				m.samples[kind] = append(m.samples[kind], mean)
			}
		}
		m.mu.Unlock()
		testkit.Pause(ctx, judgeInterval)
	}
}

// mean returns the mean of the numbers other than 0.
func mean(all []int64) int64 {
	sum, n := int64(0), int64(0)
	for _, b := range all {
		if b > 0 {
			sum, n = sum+b, n+1
		}
	}
	return sum / max(n, 1)
}

// resident returns the memory of a process in bytes, 0 if it is gone. It does not count mapped pages of files, such as
// those of the store, because the kernel can reclaim them.
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

// judge prints the results and checks the guarantees. Records after the end of the audit belong to the cleanup.
func (fl *loadFleet) judge(length time.Duration, until time.Time) {
	t := fl.t
	t.Helper()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for i := range fl.kills {
		if fl.kills[i].Known.IsZero() {
			fl.kills[i].Known = until
		}
	}
	records := slices.DeleteFunc(fl.recorder.All(), func(r load.Record) bool { return r.At.After(until) })
	failures, lost := fl.traffic.Failures()
	excused, wrong := 0, []string(nil)
	for _, f := range failures {
		if load.Excused(f, fl.kills) {
			excused++
		} else {
			wrong = append(wrong, f.String()+"\n    "+history(records, f.UUID))
		}
	}
	below := load.BelowMinimum(records, fl.kills, fl.leasts, lingers)
	fl.table(length, records, len(wrong), excused)
	if len(wrong)+lost > 0 {
		t.Errorf("%d requests failed on what the test did not kill:\n%s", len(wrong)+lost, sentence(wrong, 20))
	}
	if n := fl.traffic.Empty(); n > 0 {
		t.Errorf("%d times there was no address to ask", n)
	}
	if len(below) > 0 {
		t.Errorf("%d times a healthy task was given up below the minimum:\n%s", len(below), sentence(below, 20))
	}
	if want := max(1, min(10, int(length/(2*time.Minute)))); len(fl.rollouts) < want {
		t.Errorf("%d rollouts are complete, want %d at least", len(fl.rollouts), want)
	}
	if fl.traffic.Sent() < int64(length.Seconds())*50 {
		t.Errorf("only %d requests were sent", fl.traffic.Sent())
	}
	for _, kind := range slices.Sorted(maps.Keys(fl.memory.samples)) {
		m := thirds(fl.memory.samples[kind])
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

// history is the records of the processes of an attempt.
func history(records []load.Record, uuid string) string {
	var lines []string
	for _, r := range records {
		if r.UUID == uuid {
			lines = append(lines, fmt.Sprintf("%s %s (%d)", r.At.Format(time.StampMilli), r.What, r.Pid))
		}
	}
	return strings.Join(lines, ", ")
}

// table prints what was done and seen.
func (fl *loadFleet) table(length time.Duration, records []load.Record, wrong, excused int) {
	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-34s %s\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\n%d tasks on %d nodes, %d servers, for %v\n", most, agents, servers, length)
	row("requests", "%d (%.0f/s)", fl.traffic.Sent(), float64(fl.traffic.Sent())/length.Seconds())
	row("failed", "%d", wrong)
	row("failed on what the test killed", "%d", excused)
	row("fewest healthy addresses", "%d", fl.traffic.Fewest())
	row("longest time without an answer", "%v", fl.traffic.Blind().Round(time.Millisecond))
	count := map[string]int{}
	for _, r := range records {
		count[r.What]++
	}
	row("tasks started", "%d", count[load.Up])
	row("tasks with a stop", "%d", count[load.Term])
	for _, what := range slices.Sorted(maps.Keys(fl.did)) {
		row(what, "%d times, at most %v", fl.did[what], fl.took[what].Round(100*time.Millisecond))
	}
	for _, kind := range slices.Sorted(maps.Keys(fl.memory.samples)) {
		row("memory of the "+kind, "%s in the thirds of the time", megabytes(thirds(fl.memory.samples[kind])))
	}
	fl.t.Log(b.String())
}
