package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// maxCrashLines is how many of the last lines of a crashed attempt are shown.
const maxCrashLines = 10

// crashLoops shows the tasks of an owner that the reconciler found in a crash loop.
func crashLoops(snap *store.Snapshot, o cluster.OwnerRef, looping []cluster.TaskID) (all []api.CrashLoop) {
	if len(looping) == 0 {
		return nil
	}
	for _, t := range taskHistories(snap, o) {
		if slices.Contains(looping, t.id) {
			all = append(all, t.crashLoop())
		}
	}
	return all
}

// crashLoop shows how often the task has ended, as far as its records remember, and its last end.
func (t *taskHistory) crashLoop() api.CrashLoop {
	c := api.CrashLoop{Task: t.id}
	for _, row := range slices.Backward(t.attempts) {
		switch o := row.Outcome; {
		case o == nil && row.Observed != nil && row.Observed.Restarts > 0:
			c.Restarts = row.Observed.Restarts
		case o == nil, o.State == cluster.StateLost, o.State == cluster.StateCancelled:
			continue // such an end is no crash
		case !o.Begun.IsZero() && o.Ended.Sub(o.Begun) >= reconciler.SteadyTime:
			return c
		default:
			c.Times++
		}
		if c.Message == "" {
			last := lastExit(row)
			c.Node, c.Message, c.Last, c.Log = row.Node, last.message, last.at, lastLines(last.tail)
		}
	}
	return c
}

// exit is an end of an attempt, or of a container that was restarted in place.
type exit struct {
	message, tail string
	at            time.Time
}

// lastExit returns the last exit of an attempt.
func lastExit(row *store.AttemptRow) (last exit) {
	if o := row.Outcome; o != nil {
		return exit{cmp.Or(o.Message, string(o.Reason)), o.LogTail, o.Ended}
	}
	o := row.Observed
	if o == nil {
		return last
	}
	last.message, last.tail = o.Message, o.LogTail
	for i := range o.Containers {
		status := o.Containers[i].Exit
		if status == nil || status.At.Before(last.at) {
			continue
		}
		last.at = status.At
		text := fmt.Sprintf("container %s exited with code %d", o.Containers[i].Name, status.Code)
		if status.OOM {
			text = fmt.Sprintf("container %s was killed for its memory limit", o.Containers[i].Name)
		}
		last.message = cmp.Or(o.Message, text)
	}
	return last
}

// lastLines returns the last lines of an output, at most maxCrashLines.
func lastLines(tail string) []string {
	tail = strings.TrimRight(tail, "\n")
	if tail == "" {
		return nil
	}
	lines := strings.Split(tail, "\n")
	return lines[max(0, len(lines)-maxCrashLines):]
}
