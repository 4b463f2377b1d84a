package agent

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/telemetry"
)

// traced records a span for a long step of the attempt's first round. Later rounds do not result from the write that
// asked for the task.
func (t *task) traced(step attempt.Step, def *cluster.TaskDefinition,
	act func(context.Context) (stepResult, error),
) func(context.Context) (stepResult, error) {
	tracer, name := t.agent.Tracer, ""
	switch step.Do {
	case attempt.Prepare:
		name = "agent.prepare"
	case attempt.Launch:
		name = "agent.start"
	default:
		return act
	}
	if tracer == nil || t.rec.Round != 1 {
		return act
	}
	parent, about := t.rec.Desired.Trace, t.about()
	about.What = def.Containers[step.Container].Name
	return func(ctx context.Context) (stepResult, error) {
		span := tracer.Span(name, parent, about)
		event, err := act(ctx)
		span.End(err)
		return event, err
	}
}

// traceRunning records the span from the assignment to the first time that the task runs.
func (t *task) traceRunning(state cluster.State) {
	if state != cluster.StateRunning || t.ran || t.agent.Tracer == nil {
		return
	}
	t.ran = true
	if t.rec.Round != 1 {
		return
	}
	about := t.about()
	about.Began = time.Now().Add(t.began - t.agent.Boot())
	t.agent.Tracer.Span("agent.running", t.rec.Desired.Trace, about).End(nil)
}

func (t *task) about() telemetry.About {
	return telemetry.About{Owner: t.rec.Desired.Owner, Task: t.id, Attempt: t.attempt, Node: t.agent.Name}
}
