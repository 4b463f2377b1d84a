package task

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/telemetry"
)

// taskTrace records spans of the work on one attempt. The attempt's goroutine calls its methods.
type taskTrace struct {
	parts *Parts
	id    attempt.ID
	// began is when this run of the agent took the attempt up (Boot).
	began time.Duration
	ran   bool // the task has run in this run of the agent
}

// step returns act with a span, for a long step of the attempt's first round. Later rounds do not result from the write
// that requested the task.
func (t *taskTrace) step(step attempt.Step, rec *attempt.Record, def *cluster.TaskDefinition,
	act func(context.Context) (stepResult, error),
) func(context.Context) (stepResult, error) {
	tracer, name := t.parts.Tracer, ""
	switch step.Do {
	case attempt.Prepare:
		name = "agent.prepare"
	case attempt.Launch:
		name = "agent.start"
	default:
		return act
	}
	if tracer == nil || rec.Round != 1 {
		return act
	}
	parent, about := rec.Desired.Trace, t.about(rec)
	about.What = def.Containers[step.Container].Name
	return func(ctx context.Context) (stepResult, error) {
		span := tracer.Span(name, parent, about)
		event, err := act(ctx)
		span.End(err)
		return event, err
	}
}

// running records the span from the assignment to the first time that the task runs.
func (t *taskTrace) running(state cluster.State, rec *attempt.Record) {
	if state != cluster.StateRunning || t.ran || t.parts.Tracer == nil {
		return
	}
	t.ran = true
	if rec.Round != 1 {
		return
	}
	about := t.about(rec)
	about.Began = time.Now().Add(t.began - t.parts.Boot())
	t.parts.Tracer.Span("agent.running", rec.Desired.Trace, about).End(nil)
}

func (t *taskTrace) about(rec *attempt.Record) telemetry.About {
	return telemetry.About{Owner: rec.Desired.Owner, Task: t.id.Task, Attempt: t.id.Attempt, Node: t.parts.Name}
}
