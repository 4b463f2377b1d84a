package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// errNoPrevious is the error for a task that neither restarted nor has an earlier attempt.
var errNoPrevious = errors.New("it has run only once, so there is no earlier output")

// printPreviousOf prints the previous output of several tasks, one after the other. Tasks without one are left out,
// unless no task has one.
func (l *logsCommand) printPreviousOf(ctx context.Context, owner session.Name, tasks []api.TaskView) error {
	printed := false
	var failed []error
	for _, t := range tasks {
		err := l.printPrevious(ctx, t)
		if errors.Is(err, errNoPrevious) {
			continue
		}
		printed = true
		failed = append(failed, err)
	}
	if !printed {
		return fmt.Errorf("%s: each task has run only once, so there is no earlier output", owner)
	}
	return errors.Join(failed...)
}

// printPrevious prints the output of a task before its containers last restarted in place, or else that of its previous
// attempt.
func (l *logsCommand) printPrevious(ctx context.Context, t api.TaskView) error {
	if t.State == cluster.StatePending {
		return l.printer.printKeptOutput(ctx, l.client, t)
	}
	o, ends := l.options, previousEnds(t, l.Now())
	switch {
	case len(ends) > 0:
		o.Tail = -1 // the newest lines are those of the present run
	case t.Attempt > 1:
		o.Attempt = t.Attempt - 1
	default:
		return fmt.Errorf("task %s: %w", string(t.ID), errNoPrevious)
	}
	var kept []api.LogLine
	for line, err := range l.client.Logs(ctx, t.ID, o) {
		if err != nil {
			return fmt.Errorf("%s: %w", string(t.ID), err)
		}
		if len(ends) > 0 && !line.Time.Before(ends[line.Container]) {
			continue
		}
		if kept = append(kept, line); l.options.Tail >= 0 && len(kept) > l.options.Tail {
			kept = kept[1:]
		}
	}
	for _, line := range kept {
		if err := l.printer.write(t.ID, line); err != nil {
			return err
		}
	}
	if len(kept) == 0 {
		l.Messagef("berth: no earlier output of %s is kept", string(t.ID))
	}
	return nil
}

// previousEnds returns when the output before the newest start ends, for each container that restarted in place. A
// container that waits for its next start has ended, so all its output counts.
func previousEnds(t api.TaskView, now time.Time) map[string]time.Time {
	ends := map[string]time.Time{}
	for _, c := range t.Containers {
		switch {
		case c.State != cluster.ContainerRunning && c.Restarts > 0:
			ends[c.Name] = now
		case c.Restarts > 0:
			ends[c.Name] = c.Started
		}
	}
	return ends
}
