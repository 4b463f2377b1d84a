package wait

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/trouble"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// Limits of a wait without --timeout. progressTimeout ends the wait for a service without progress. failingTimeout ends
// it for a service that the server reports as failing. checksTimeout takes its place while the programs run and only
// their checks fail, since a program may need a while until it answers.
const (
	progressTimeout = 5 * time.Minute
	failingTimeout  = 20 * time.Second
	checksTimeout   = time.Minute
)

// Waiter waits until its targets reach their wanted state.
type Waiter struct {
	*session.Session
	Client  *client.Client
	Targets []*Target
	// Timeout ends the wait; 0 is no limit.
	Timeout time.Duration
}

// Await waits for the targets and prints the results. After an interruption it prints the text goesOn, which says what
// continues.
func (w *Waiter) Await(ctx context.Context, goesOn string) error {
	if err := w.Wait(ctx); err != nil {
		return w.StoppedWaiting(ctx, err, goesOn)
	}
	return w.printReport(ctx)
}

// Wait returns once all targets are done, with success or without.
func (w *Waiter) Wait(ctx context.Context) error {
	began := w.Now()
	names := make([]session.Name, len(w.Targets))
	for i, t := range w.Targets {
		names[i] = t.Name
		if t.progressAt.IsZero() {
			t.progressAt = began
		}
	}
	progress := NewProgress(w.Session, w.Targets)
	loop := Loop{
		Session: w.Session, Progress: progress, Changes: ChangesOf(w.Client, names),
		Read: func(ctx context.Context) (bool, error) {
			err := w.readTargets(ctx)
			finished := w.isFinished(began)
			if finished {
				err = nil // the targets were given up
			}
			progress.Show()
			return !finished, err
		},
	}
	if w.Timeout > 0 {
		loop.Until = began.Add(w.Timeout)
	}
	return loop.Run(ctx)
}

// isFinished reports whether all targets are done. It gives up targets that exceed a limit.
func (w *Waiter) isFinished(began time.Time) bool {
	all := true
	for _, t := range w.Targets {
		if t.done {
			continue
		}
		now := w.Now()
		var failed *Target
		if t.awaitsNeeds() {
			t.progressAt, failed = now, w.failedNeed(t) // it waits for the progress of others
		}
		switch {
		case w.Timeout > 0 && now.Sub(began) >= w.Timeout:
			t.giveUpAs(fmt.Sprintf("is not %s after %s", t.goal(), cluster.Duration(w.Timeout)))
			t.isLate = true
		case failed != nil:
			t.giveUpAs("has not begun: " + failed.failureText())
		case t.until != "", t.Stop, t.isRolling(now): // the control plane enforces the deadlines of a rollout
			all = false
		case w.Timeout == 0 && t.Name.Kind == wording.KindService && now.Sub(t.progressAt) >= progressTimeout:
			t.giveUpAs("made no progress for " + cluster.Duration(progressTimeout).String())
		case t.keepsFailing(now):
			t.giveUpAs("keeps failing")
		default:
			all = false
		}
	}
	return all
}

// failedNeed returns a target that another one needs and that was given up, or nil.
func (w *Waiter) failedNeed(t *Target) *Target {
	needs := t.needs()
	for _, u := range w.Targets {
		if u.Failure != "" && slices.ContainsFunc(needs, func(o cluster.OwnerRef) bool {
			return u.Name == session.OwnerName(o)
		}) {
			return u
		}
	}
	return nil
}

// readTargets reads every target that is not done.
func (w *Waiter) readTargets(ctx context.Context) error {
	for _, t := range w.Targets {
		if t.done {
			continue
		}
		read := t.readChanged
		if t.until != "" {
			read = t.readState
		}
		if err := read(ctx, w.Client, w.Now()); err != nil {
			return err
		}
	}
	return nil
}

// printReport prints the targets, and explains those that failed.
func (w *Waiter) printReport(ctx context.Context) error {
	if err := w.printTargets(); err != nil {
		return err
	}
	failed := 0
	for _, t := range w.Targets {
		if t.notice != "" {
			w.Messagef("%s: %s", t.Name, t.notice)
		}
		if t.Failure == "" {
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
	return &session.ExitError{Code: session.ExitNo} // each failure was printed
}

// Unmet is an object that did not reach its state, for programs.
type Unmet struct {
	Object string `json:"object"`
	Why    string `json:"why"`
	Next   string `json:"next,omitempty"` // the command that shows more
}

// Unmet returns the targets that did not reach their state, after a wait.
func (w *Waiter) Unmet(ctx context.Context) (all []Unmet, err error) {
	for _, t := range w.Targets {
		if t.Failure == "" {
			continue
		}
		tr, err := w.troubleOf(ctx, t)
		if err != nil {
			return nil, err
		}
		u := Unmet{Object: t.Name.String(), Why: t.Failure}
		if tr != nil {
			u.Why, u.Next = wording.JoinNonEmpty(": ", t.Failure, tr.Cause), tr.Next
		}
		all = append(all, u)
	}
	return all, nil
}

// Explain prints why a target failed.
func (w *Waiter) Explain(ctx context.Context, t *Target) error {
	w.Messagef("")
	w.Messagef("%s", t.failureText())
	tr, err := w.troubleOf(ctx, t)
	if err != nil || tr == nil {
		return err
	}
	w.Messagef("  %s", tr.Cause)
	var lines []string
	if tr.Task != "" {
		lines = trouble.ReadTail(ctx, w.Client, tr.Task)
		trouble.PrintLines(w.Session, w.Stderr, tr.Task, lines)
	}
	if len(lines) == 0 && t.hasFailedRollout() { // the task and its output are deleted
		lines = t.tail.lines
		trouble.PrintLines(w.Session, w.Stderr, t.tail.task, lines)
	}
	if len(lines) > 0 || tr.Task != "" {
		w.Messagef("")
	}
	w.Messagef("  → %s", tr.Next)
	return nil
}

func (w *Waiter) troubleOf(ctx context.Context, t *Target) (*api.Trouble, error) {
	if !t.hasFailedRollout() {
		return trouble.MostUrgent(ctx, w.Client, t.Name)
	}
	tasks, err := fetch.ListTasks(ctx, w.Client, t.Name, true)
	if err != nil {
		return nil, err
	}
	return rolloutTrouble(t, session.KeepNewest(tasks)), nil
}

// printTargets prints the final state of the targets.
func (w *Waiter) printTargets() error {
	all := fetch.Owners{Services: []api.ServiceView{}, Jobs: []api.JobView{}}
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
		if err := w.PrintTable(tables.ServiceTable(w.Session, all.Services).WithoutMessages()); err != nil {
			return err
		}
		if len(all.Jobs) > 0 {
			w.Printf("")
		}
	}
	if len(all.Jobs) > 0 {
		return w.PrintTable(tables.JobTable(w.Session, all.Jobs).WithoutMessages())
	}
	return nil
}
