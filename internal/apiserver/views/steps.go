package views

import (
	"fmt"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// stepsOf returns what keeps the steps of a job from running; nil for a service.
func (b *Builder) stepsOf(o cluster.OwnerRef) *reconciler.StepObstacles {
	e, ok := b.Snapshot.Job(o.Cluster, o.Name)
	if !ok || o.Kind != cluster.KindJob {
		return nil
	}
	return reconciler.StepObstaclesOf(b.Of(o.Cluster).JobInput(e))
}

// TaskThatNeverBegins returns the view of a task of a job's present run that has no records and is not pending: its
// step is skipped or failed, or the job was cancelled. ok is false for any other task.
func (b *Builder) TaskThatNeverBegins(id cluster.TaskID) (v api.TaskView, ok bool) {
	b = b.ofTask(id)
	parts, _ := id.Parts()
	e, found := b.Snapshot.Job(parts.Cluster, parts.Owner)
	if !found || e.Value.Generation != parts.Generation {
		return v, false
	}
	step := e.Value.Step(parts.Step)
	if step == nil || parts.Index < 0 || parts.Index >= step.Count {
		return v, false
	}
	obstacle, found := b.stepsOf(e.Value.Owner()).Of(parts.Step)
	if !found {
		return v, false
	}
	v = api.TaskView{
		ID: id, Owner: e.Value.Owner(), Generation: parts.Generation, Step: parts.Step, Index: parts.Index,
		Definition: step.Definition, State: cluster.StateCancelled, Reason: cluster.ReasonNeeds,
		Message: skipText(e.Value, parts.Step, obstacle),
	}
	if obstacle.State == cluster.StepCancelled {
		v.Reason = cluster.ReasonCancelled
	}
	v.Parameters, _ = b.Snapshot.ParametersOf(parts)
	return v, true
}

// skipText says why a step does not run, and what would let it run.
func skipText(job *cluster.Job, step string, o reconciler.Obstacle) string {
	text := o.Message
	if o.State == cluster.StepSkipped {
		text = fmt.Sprintf("step %s is skipped: %s", step, o.Message)
	}
	if o.Retries {
		text += fmt.Sprintf("; its tasks may begin after `berth retry %s`", job.Owner())
	}
	return text
}

// addSkipped adds why steps of a job are skipped, for the first of them.
func (x *explanation) addSkipped(v *api.JobView) {
	skipped := 0
	for i := range v.Status.Steps {
		s := &v.Status.Steps[i]
		if s.State != cluster.StepSkipped {
			continue
		}
		if skipped++; skipped > maxSentences {
			continue
		}
		o, _ := x.steps.Of(s.Name)
		x.add(api.Because{About: api.AboutPlace, Reason: cluster.ReasonNeeds, Message: skipText(&v.Job, s.Name, o)})
	}
	if more := skipped - maxSentences; more > 0 {
		x.add(api.Because{
			About: api.AboutPlace, Reason: cluster.ReasonNeeds,
			Message: fmt.Sprintf("%d more steps are skipped for similar reasons", more),
		})
	}
}

// needText says, as the end of a sentence, how far the step is that a held task waits for. It is empty for tasks that
// wait for something else.
func (x *explanation) needText(p *cluster.Pending) string {
	if x.steps == nil || p.Hold.Reason != cluster.ReasonNeeds {
		return ""
	}
	o, ok := x.steps.Of(stepOf(p.Task))
	if !ok || o.Hold != p.Hold.Message {
		return ""
	}
	return "; " + o.Message
}
