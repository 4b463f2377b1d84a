package reconciler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/shorten"
)

// Thresholds of trouble.
const (
	// CrashLoopThreshold is the number of restarts, or of consecutive failed attempts, from which a task counts as
	// crash-looping. A failed attempt counts if it ran for less than SteadyTime.
	CrashLoopThreshold = 3
	// MemoryTroubleWindow is the time within which two ends for want of memory show that a service leaks or has too
	// small a limit.
	MemoryTroubleWindow = time.Hour
	// maxQuotedLines and maxQuotedBytes limit the log excerpt in a message.
	maxQuotedLines = 3
	maxQuotedBytes = 300
)

// crashLoop describes, with the end of its log, a task that is crash-looping; empty otherwise. A task that is healthy
// now is not.
func crashLoop(s *slot) string {
	t := s.newest()
	if t == nil || s.healthy() || t.stopped() || t.Outcome != nil && t.Outcome.State == cluster.StateCancelled {
		return ""
	}
	if o := t.Observed; t.live() && o != nil && o.Restarts >= CrashLoopThreshold && t.Absence == watcher.Present {
		return fmt.Sprintf("%s is crash-looping on %s%s%s%s", s.id, t.node(), because(o.Message),
			restartsUnlessIn(o.Message, o.Restarts), quoteLog(s))
	}
	failed, last := 0, ""
	for _, t := range slices.Backward(s.attempts) {
		o := t.Outcome
		if o == nil {
			continue
		}
		if o.State == cluster.StateLost || o.State == cluster.StateCancelled {
			break
		}
		if !isFailure(o) {
			break
		}
		if failed++; last == "" {
			last = o.Message
		}
	}
	if failed < CrashLoopThreshold {
		return ""
	}
	return fmt.Sprintf("%s is crash-looping%s (%d failed attempts)%s", s.id, because(last), failed, quoteLog(s))
}

// restartsUnlessIn returns the number of restarts in brackets, unless the message of the agent has it.
func restartsUnlessIn(message string, restarts int) string {
	text := cluster.RestartsText(restarts)
	if strings.Contains(message, text) {
		return ""
	}
	return " (" + text + ")"
}

// quoteLog quotes the end of the task's newest known log, as the end of a sentence.
func quoteLog(s *slot) string {
	for _, t := range slices.Backward(s.attempts) {
		for _, log := range []string{t.logOf(), t.outcomeLog()} {
			if text := lastLines(log); text != "" {
				return "; last lines: " + text
			}
		}
	}
	return ""
}

func (t *Task) logOf() string {
	if t.Observed == nil {
		return ""
	}
	return t.Observed.LogTail
}

func (t *Task) outcomeLog() string {
	if t.Outcome == nil {
		return ""
	}
	return t.Outcome.LogTail
}

// lastLines returns the last lines of a log, joined in one line.
func lastLines(log string) string {
	var lines []string
	for line := range strings.SplitSeq(log, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines[max(0, len(lines)-maxQuotedLines):], " | ")
	if end := shorten.End(text, maxQuotedBytes); end != text {
		return "…" + end
	}
	return text
}

// memoryTrouble describes repeated kills or moves of a service's tasks for want of memory; empty if there were none. A
// task that ends soon after its start has too small a limit; one that ends much later leaks.
func memoryTrouble(all []*slot, now time.Time) string {
	kills, moves := 0, 0
	var lived time.Duration
	count := func(begun, ended time.Time) {
		if kills++; !begun.IsZero() {
			lived = max(lived, ended.Sub(begun))
		}
	}
	recent := func(at time.Time) bool { return now.Sub(at) < MemoryTroubleWindow }
	for _, s := range all {
		for _, t := range s.attempts {
			switch o, seen := t.Outcome, t.Observed; {
			case o != nil && recent(o.Ended) && (o.Reason == cluster.ReasonOOM || o.Exit != nil && o.Exit.OOM):
				count(o.Begun, o.Ended)
			case o != nil && recent(o.Ended) && o.Reason == cluster.ReasonPressure:
				moves++
			case o == nil && seen != nil:
				for i := range seen.Containers {
					c := &seen.Containers[i]
					if c.Exit == nil || !c.Exit.OOM || !recent(c.Exit.At) {
						continue
					}
					kills += max(0, c.OOMs-1)
					count(seen.Started, c.Exit.At)
				}
			}
		}
	}
	switch {
	case kills+moves < 2:
		return ""
	case kills == 0:
		return fmt.Sprintf("nodes short of memory: tasks moved %s within 1h; raise the memory request or fix a leak",
			times(moves))
	case lived >= SteadyTime:
		return fmt.Sprintf("memory limit reached: tasks killed %s%s within 1h, after up to %s: a memory leak",
			times(kills), andMoved(moves), cluster.Duration(lived.Round(time.Second)))
	}
	return fmt.Sprintf("memory limit reached: tasks killed %s%s within 1h, soon after their start; raise the limit",
		times(kills), andMoved(moves))
}

func andMoved(n int) string {
	if n == 0 {
		return ""
	}
	return " and moved " + times(n)
}
