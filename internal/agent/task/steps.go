package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/plain"
)

// stepResult is the result of a step: an event for the record. A step that fails returns an error instead and is
// retried.
type stepResult func(*attempt.Record)

// currentStep is the step that a task performs, or the last failed one. It belongs to the task's goroutine.
type currentStep struct {
	do      attempt.Do
	busy    bool               // the step is running
	cancel  context.CancelFunc // cancels the step
	retryAt time.Time          // when the failed step is retried
	retry   *pause.Backoff
	problem string // why the step failed
}

// beginStep starts a step. It reads the record here; the work happens on another goroutine, unless the step is too
// quick to matter.
func (t *Task) beginStep(ctx context.Context, step attempt.Step, def *cluster.TaskDefinition) {
	w := stepWork{t}
	var act func(context.Context) (stepResult, error)
	switch step.Do {
	case attempt.Admit:
		act = w.admit(def)
	case attempt.Prepare:
		act = w.prepare(step.Container, def)
	case attempt.ProbePorts:
		act = w.probePorts()
	case attempt.Launch:
		act = w.launch(step.Container, def)
	case attempt.Discard:
		act = w.discard(step.Container)
	case attempt.Use:
		act = w.usePermit()
	case attempt.Leave:
		act = w.leave(def)
	case attempt.Signal:
		act = w.signal(step.Signal)
	case attempt.Close:
		act = w.close(step.Container, def)
	case attempt.Tail:
		act = w.tail(step.Container, def)
	case attempt.Clear:
		act = w.clear()
	case attempt.Wait:
		return
	}
	act = t.trace.step(step, t.rec, def, act)
	if step.Do == attempt.Admit || step.Do == attempt.ProbePorts || step.Do == attempt.Close ||
		step.Do == attempt.Tail {
		t.step.do, t.step.retryAt = step.Do, time.Time{}
		event, err := act(ctx)
		t.finishStep(t.rec, step, event, err)
		t.WakeUp()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	t.step.busy, t.step.do, t.step.cancel, t.step.retryAt = true, step.Do, cancel, time.Time{}
	t.parts.Go(func() {
		defer cancel()
		event, err := act(ctx)
		t.events.put(func(r *attempt.Record) { t.finishStep(r, step, event, err) })
	})
}

// finishStep handles the result of a step.
func (t *Task) finishStep(r *attempt.Record, step attempt.Step, event stepResult, err error) {
	t.step.busy, t.step.cancel = false, nil
	if err == nil {
		t.step.retry.Reset()
		t.step.problem = ""
		event(r)
		return
	}
	if errors.Is(err, context.Canceled) {
		return // the agent ends, or the attempt has to stop first
	}
	t.step.retryAt = time.Now().Add(t.step.retry.Next())
	t.step.problem = fmt.Sprintf("%s: %s", step.Do, plain.Text(err))
	t.parts.Logger.Warn("a step failed and is tried again",
		"task", t.ID.Task, "attempt", t.ID.Attempt, "step", step.Do, "error", err)
}
