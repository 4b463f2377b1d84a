package wait

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/trouble"
)

// Patience of run. A service that makes no progress for patience is given up, and one that the
// server calls failing for failingPatience.
const (
	patience        = 5 * time.Minute
	failingPatience = 20 * time.Second
	OutagePatience  = 30 * time.Second
)

// Time between two looks while run waits: the longer the less changes.
const (
	ShortestPause = 200 * time.Millisecond
	LongestPause  = time.Second
)

// Waiter looks at targets until each is done.
type Waiter struct {
	*session.Session
	Client   *client.Client
	Targets  []*Target
	Timeout  time.Duration
	Progress *Progress
}

// Await waits for the targets and reports how they are; an interruption is told with what goes on without it.
func (w *Waiter) Await(ctx context.Context, goesOn string) error {
	if err := w.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			w.Messagef("Stopped waiting; %s", goesOn)
		}
		return err
	}
	return w.report(ctx)
}

// Wait returns once all targets are done, one way or the other.
func (w *Waiter) Wait(ctx context.Context) error {
	began := w.Now()
	pause := ShortestPause
	var outage time.Time
	defer w.Progress.End()
	for {
		changed, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			outage = time.Time{}
		case !errors.Is(err, client.ErrUnreachable) && client.StatusOf(err) != http.StatusServiceUnavailable:
			return err
		case outage.IsZero():
			outage = w.Now()
			w.Progress.Note(session.ErrorText(err) + "; trying again")
		case w.Now().Sub(outage) > OutagePatience:
			return err
		}
		w.Progress.Show()
		if w.finished(began) {
			return nil
		}
		if pause = min(pause*5/4, LongestPause); changed {
			pause = ShortestPause
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// finished reports whether there is nothing left to wait for, and gives up what took too long.
func (w *Waiter) finished(began time.Time) bool {
	all := true
	for _, t := range w.Targets {
		if t.done {
			continue
		}
		switch now := w.Now(); {
		case w.Timeout > 0 && now.Sub(began) >= w.Timeout:
			t.giveUp(fmt.Sprintf("not well after %v", w.Timeout))
		case t.rolling(now): // its deadlines are the control plane's to keep
			all = false
		case w.Timeout == 0 && t.Name.Kind == session.KindService && now.Sub(t.Moved) >= patience:
			t.giveUp(fmt.Sprintf("no progress for %v", patience))
		case !t.failing.IsZero() && now.Sub(t.failing) >= failingPatience:
			t.giveUp("keeps failing")
		default:
			all = false
		}
	}
	return all
}

// look reads every target that is not done and reports whether anything changed.
func (w *Waiter) look(ctx context.Context) (changed bool, err error) {
	for _, t := range w.Targets {
		if t.done {
			continue
		}
		line, best := t.Line, t.best
		if t.Name.Kind == session.KindJob {
			err = t.lookAtJob(ctx, w.Client)
		} else {
			err = t.lookAtService(ctx, w.Client, w.Now())
		}
		if client.StatusOf(err) == http.StatusNotFound {
			t.giveUp("was deleted")
			err = nil
		}
		if err != nil {
			return changed, err
		}
		t.lookAtPreparing(ctx, w.Client, w.Now())
		if t.best > best {
			t.Moved = w.Now()
		}
		changed = changed || t.Line != line
	}
	return changed, nil
}

// report prints how the targets are, and why those that are not well are not.
func (w *Waiter) report(ctx context.Context) error {
	if err := w.printTargets(); err != nil {
		return err
	}
	failed := 0
	for _, t := range w.Targets {
		if t.Failure == "" {
			if t.notice != "" {
				w.Messagef("%s: %s", t.Name, t.notice)
			}
			continue
		}
		failed++
		if err := w.Explain(ctx, t); err != nil {
			return err
		}
	}
	if failed == 0 {
		return nil
	}
	verb := "are"
	if failed == 1 {
		verb = "is"
	}
	return &session.ExitError{
		Code: session.ExitNo,
		Err:  fmt.Errorf("%d of %d %s not well", failed, len(w.Targets), verb),
	}
}

// Explain tells why a target is not well.
func (w *Waiter) Explain(ctx context.Context, t *Target) error {
	w.Messagef("")
	w.Messagef("%s: %s", t.Name, t.Failure)
	tasks, err := fetch.TasksOf(ctx, w.Client, t.Name, true)
	if err != nil {
		return err
	}
	tasks = session.Newest(tasks)
	var tr *trouble.Trouble
	switch {
	case t.fell():
		tr = rolloutTrouble(t, tasks)
	case t.service != nil:
		tr = trouble.ServiceTrouble(*t.service, tasks)
	case t.job != nil:
		tr = trouble.JobTrouble(*t.job, tasks)
	}
	if tr == nil {
		return nil
	}
	w.Messagef("  %s", session.ShortTasks(tr.Cause))
	var lines []string
	if tr.Task != nil {
		lines = trouble.TailOf(ctx, w.Client, *tr.Task)
		trouble.PrintLines(w.Stderr, tr.Task.ID, lines)
	}
	if len(lines) == 0 && t.fell() { // the task is gone, with its output
		lines = t.tail
		trouble.PrintLines(w.Stderr, t.tailOf, lines)
	}
	if len(lines) > 0 || tr.Task != nil {
		w.Messagef("")
	}
	w.Messagef("  → %s", tr.Next)
	return nil
}

// printTargets prints the final state of the targets.
func (w *Waiter) printTargets() error {
	all := fetch.Everything{Services: []api.ServiceView{}, Jobs: []api.JobView{}}
	for _, t := range w.Targets {
		if t.service != nil {
			all.Services = append(all.Services, *t.service)
		}
		if t.job != nil {
			all.Jobs = append(all.Jobs, *t.job)
		}
	}
	if w.WantsData() {
		return w.PrintData(map[string]any{"services": all.Services, "jobs": all.Jobs})
	}
	if len(all.Services) > 0 {
		if err := w.PrintTable(tables.ServiceTable(w.Session, all.Services).Brief()); err != nil {
			return err
		}
		if len(all.Jobs) > 0 {
			w.Printf("")
		}
	}
	if len(all.Jobs) > 0 {
		return w.PrintTable(tables.JobTable(w.Session, all.Jobs).Brief())
	}
	return nil
}
