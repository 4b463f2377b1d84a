package reconciler

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Wait explains what a task, a stop or the next batch of a rollout waits for. Task is empty if the wait concerns the
// whole service. Attempt is 0 for a task that is not placed.
type Wait struct {
	Task    cluster.TaskID
	Attempt int
	Node    string
	Code    cluster.ReasonCode
	Message string // a sentence for people, with numbers
}

// Waits returns what each of a service's tasks, its delayed stops and the next batch of its rollout wait for. The
// scheduler explains why a task finds no node. Waits reads all of the input.
func Waits(in ServiceInput) []Wait {
	// The caller may not know which nodes have reported. Then every attempt with a desired record counts as reported.
	if !slices.ContainsFunc(in.Tasks, func(t Task) bool { return t.Reported }) {
		in.Tasks = slices.Clone(in.Tasks)
		for i := range in.Tasks {
			in.Tasks[i].Reported = in.Tasks[i].Desired != nil
		}
	}
	return Service(in).Waits
}

// noteDelayedStop records why an attempt continues although it is to end.
func (p *plan) noteDelayedStop(t *Task, message string) {
	p.Waits = append(p.Waits, Wait{t.id(), t.number(), t.node(), cluster.ReasonPermit, message})
}

// noteWait records what a task without an attempt, or the service as a whole, waits for.
func (p *plan) noteWait(id cluster.TaskID, code cluster.ReasonCode, message string) {
	p.Waits = append(p.Waits, Wait{Task: id, Code: code, Message: message})
}

// failed reports whether the service's rollout has failed and goes no further. r may be nil.
func (r *rollout) failed() bool { return r != nil && r.rec.State == cluster.RolloutFailed }

// explainWait records what the next step of the rollout waits for.
func (r *rollout) explainWait() {
	what := fmt.Sprintf("generation %d with %s", r.rec.Generation, r.rec.Definition)
	count := fmt.Sprintf("%d of %s healthy", r.healthy, tasksAre(r.n, "is", "are"))
	c := min(r.canaries(), r.n)
	switch {
	case r.rec.State == cluster.RolloutComplete || r.rec.Generation == 0 || r.healthy >= r.n && c == 0 &&
		r.gatesSatisfied():
	case r.rec.State.Ended():
		r.noteWait("", cluster.ReasonRollout,
			fmt.Sprintf("%s goes no further: %s; undo it or request another version", what, r.rec.Message))
	case r.spec.Rollout.Paused:
		r.noteWait("", cluster.ReasonPaused, fmt.Sprintf("%s is paused: %s", what, count))
	case c > 0 && r.healthy < c:
		r.noteWait("", cluster.ReasonWaitForHealth,
			fmt.Sprintf("%s waits until its canaries are healthy: %d of %d are", what, r.healthy, c))
	case c > 0 && r.spec.Update.AutoPromote:
		r.noteWait("", cluster.ReasonGate, fmt.Sprintf("%s waits for its gates: %s", what, r.missingGates()))
	case c > 0:
		r.noteWait("", cluster.ReasonPromotion,
			fmt.Sprintf("%s: %s healthy and %s to be promoted", what, canariesAre(r.healthy), waits(r.healthy)))
	case r.starting() > 0:
		r.noteWait("", cluster.ReasonWaitForHealth,
			fmt.Sprintf("%s waits for %s to become healthy (at most %d at a time): %s", what,
				countedTasks(r.starting()), r.limits.Parallelism, count))
	case !r.gatesPassed():
		r.noteWait("", cluster.ReasonGate, fmt.Sprintf("%s waits for its gates: %s; %s", what, r.missingGates(), count))
	case r.staggerEnd().After(r.now):
		r.noteWait("", cluster.ReasonRollout,
			fmt.Sprintf("%s continues in %s: %s", what, cluster.Duration(r.staggerEnd().Sub(r.now)), count))
	}
}
