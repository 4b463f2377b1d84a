package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// loopLines is how many of the last lines of a crashed attempt are shown.
const loopLines = 10

// crashing tells of tasks that end again and again, as the reconciler named them.
func (l *Builder) crashing(o cluster.OwnerRef, looping []cluster.TaskID) (all []api.CrashLoop) {
	if len(looping) == 0 {
		return nil
	}
	for _, t := range l.tasksOf(o) {
		if slices.Contains(looping, t.id) {
			all = append(all, crashLoop(t))
		}
	}
	return all
}

// crashLoop tells how a task ended, as often as is remembered.
func crashLoop(t *taskHistory) api.CrashLoop {
	c := api.CrashLoop{Task: t.id}
	for _, row := range slices.Backward(t.attempts) {
		switch o := row.Outcome; {
		case o == nil && row.Observed != nil && row.Observed.Restarts > 0:
			c.Restarts = row.Observed.Restarts
		case o == nil, o.State == cluster.StateLost, o.State == cluster.StateCancelled:
			continue // that says nothing about how it does
		case !o.Begun.IsZero() && o.Ended.Sub(o.Begun) >= reconciler.SteadyTime:
			return c
		default:
			c.Times++
		}
		if c.Message == "" {
			last := lastEnd(row)
			c.Node, c.Message, c.Last, c.Log = row.Node, last.message, last.at, lastLines(last.tail)
		}
	}
	return c
}

// ending is how an attempt, or what of it was restarted in its place, last ended.
type ending struct {
	message, tail string
	at            time.Time
}

func lastEnd(row *store.AttemptRow) (e ending) {
	if o := row.Outcome; o != nil {
		return ending{cmp.Or(o.Message, string(o.Reason)), o.LogTail, o.Ended}
	}
	o := row.Observed
	if o == nil {
		return e
	}
	e.message, e.tail = o.Message, o.LogTail
	for i := range o.Containers {
		exit := o.Containers[i].Exit
		if exit == nil || exit.At.Before(e.at) {
			continue
		}
		e.at = exit.At
		what := fmt.Sprintf("container %s ended with code %d", o.Containers[i].Name, exit.Code)
		if exit.OOM {
			what = fmt.Sprintf("container %s was killed for its memory limit", o.Containers[i].Name)
		}
		e.message = cmp.Or(o.Message, what)
	}
	return e
}

// lastLines returns the last lines of an output, at most loopLines.
func lastLines(tail string) []string {
	tail = strings.TrimRight(tail, "\n")
	if tail == "" {
		return nil
	}
	lines := strings.Split(tail, "\n")
	return lines[max(0, len(lines)-loopLines):]
}

// crashText says in a sentence how a task crashes.
func crashText(c *api.CrashLoop) string {
	text := fmt.Sprintf("%s crashes again and again: it ended %s", c.Task, respond.Times(c.Times+c.Restarts))
	if c.Node != "" {
		text += ", last on node " + c.Node
	}
	return text + respond.Suffix(c.Message)
}
