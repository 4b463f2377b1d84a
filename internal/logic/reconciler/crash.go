package reconciler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// Numbers of what is named trouble.
const (
	// LoopAfter is how often a task was restarted, or how many of its last attempts failed within SteadyTime, when it
	// is called crash-looping.
	LoopAfter = 3
	// MemoryWindow is within what time two ends for want of memory make a service one that leaks or is too small.
	MemoryWindow = time.Hour
	// loggedLines and loggedBytes bound what a message quotes of a log.
	loggedLines = 3
	loggedBytes = 300
)

// looping says that a task ends again and again, with the last that it wrote; empty if it does not. One that is healthy
// now is not called so.
func (s *slot) looping() string {
	t := s.newest()
	if t == nil || s.healthy() || t.stopped() || t.Outcome != nil && t.Outcome.State == cluster.StateCancelled {
		return ""
	}
	if o := t.Observed; t.live() && o != nil && o.Restarts >= LoopAfter && t.Absence == watcher.Present {
		return fmt.Sprintf("%s ends again and again, it was restarted %s on node %s%s%s", s.id, times(o.Restarts),
			t.node(), because(o.Message), s.lastWords())
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
		if !failure(o) {
			break
		}
		if failed++; last == "" {
			last = o.Message
		}
	}
	if failed < LoopAfter {
		return ""
	}
	return fmt.Sprintf("%s ends again and again, its last %d attempts failed%s%s", s.id, failed, because(last),
		s.lastWords())
}

// lastWords quotes the end of the newest log of the task that is known, as the end of a sentence.
func (s *slot) lastWords() string {
	for _, t := range slices.Backward(s.attempts) {
		for _, log := range []string{t.logOf(), t.outcomeLog()} {
			if text := tail(log); text != "" {
				return "; its last lines: " + text
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

// tail returns the last lines of a log in one line.
func tail(log string) string {
	var lines []string
	for line := range strings.SplitSeq(log, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines[max(0, len(lines)-loggedLines):], " | ")
	if cut := len(text) - loggedBytes; cut > 0 {
		text = "…" + strings.ToValidUTF8(text[cut:], "")
	}
	return text
}

// hungry says that tasks of a service were killed for memory, or moved for want of it, again and again: it leaks, or
// its limit is too small. Empty if they were not. What ends soon after its start never had enough; what takes long
// grew.
func hungry(all []*slot, now time.Time) string {
	kills, moves := 0, 0
	var lived time.Duration
	count := func(begun, ended time.Time) {
		if kills++; !begun.IsZero() {
			lived = max(lived, ended.Sub(begun))
		}
	}
	recent := func(at time.Time) bool { return now.Sub(at) < MemoryWindow }
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
		return fmt.Sprintf("its tasks were moved %s within an hour because their nodes were short of "+
			"memory: it leaks, or reserves less than it uses", times(moves))
	case lived >= SteadyTime:
		return fmt.Sprintf("its tasks were killed for their memory limit %s%s within an hour, after up to %s: it leaks",
			times(kills), andMoved(moves), cluster.Duration(lived.Round(time.Second)))
	}
	return fmt.Sprintf("its tasks were killed for their memory limit %s%s within an hour, soon after they "+
		"began: the limit is too small", times(kills), andMoved(moves))
}

func andMoved(n int) string {
	if n == 0 {
		return ""
	}
	return " and moved for want of memory " + times(n)
}
