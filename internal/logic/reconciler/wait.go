package reconciler

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Wait is what a task, a stop or the next batch of a rollout waits for. Task is empty for what concerns the service as
// a whole; Attempt is 0 for a task that is not placed.
type Wait struct {
	Task    cluster.TaskID
	Attempt int
	Node    string
	Code    cluster.ReasonCode
	Message string // a sentence for people, with numbers
}

// Waits returns what each wished or dismissed stop of a service, the next batch of its rollout and each of its tasks
// wait for. Why a task finds no node is the scheduler's to say. It looks at all of the input.
func Waits(in ServiceInput) []Wait {
	// the caller does not know who was heard
	if !slices.ContainsFunc(in.Tasks, func(t Task) bool { return t.Reported }) {
		in.Tasks = slices.Clone(in.Tasks)
		for i := range in.Tasks {
			in.Tasks[i].Reported = in.Tasks[i].Desired != nil
		}
	}
	return Service(in).Waits
}

// wait notes why an attempt goes on though it is to end.
func (p *plan) wait(t *Task, message string) {
	p.Waits = append(p.Waits, Wait{t.id(), t.number(), t.node(), cluster.ReasonPermit, message})
}

// hold notes what a task without an attempt, or the service as a whole, waits for.
func (p *plan) hold(id cluster.TaskID, code cluster.ReasonCode, message string) {
	p.Waits = append(p.Waits, Wait{Task: id, Code: code, Message: message})
}

// failed reports whether the service's rollout has failed and goes no further. There may be none.
func (r *rollout) failed() bool { return r != nil && r.rec.State == cluster.RolloutFailed }

// explain notes what the next step of the rollout waits for.
func (r *rollout) explain() {
	what := fmt.Sprintf("generation %d with %s", r.rec.Generation, r.rec.Definition)
	count := fmt.Sprintf("%d of %s healthy", r.healthy, tasksAre(r.n, "is", "are"))
	c := min(r.canaries(), r.n)
	switch {
	case r.rec.State == cluster.RolloutComplete || r.rec.Generation == 0 || r.healthy >= r.n && c == 0 && r.judged():
	case r.rec.State.Ended():
		r.hold("", cluster.ReasonRollout,
			fmt.Sprintf("%s goes no further: %s; undo it or ask for another version", what, r.rec.Message))
	case r.spec.Rollout.Paused:
		r.hold("", cluster.ReasonPaused, fmt.Sprintf("%s is paused: %s", what, count))
	case c > 0 && r.healthy < c:
		r.hold("", cluster.ReasonWaitForHealth,
			fmt.Sprintf("%s waits until its canaries are healthy: %d of %d are", what, r.healthy, c))
	case c > 0 && r.spec.Update.AutoPromote:
		r.hold("", cluster.ReasonGate, fmt.Sprintf("%s waits for its gates: %s", what, r.closed()))
	case c > 0:
		r.hold("", cluster.ReasonPromotion,
			fmt.Sprintf("%s: %s healthy and %s to be promoted", what, canariesAre(r.healthy), waits(r.healthy)))
	case r.waiting() > 0:
		r.hold("", cluster.ReasonWaitForHealth,
			fmt.Sprintf("%s waits for the health of %d of its tasks, of which at most %d may be on their way: %s", what,
				r.waiting(), r.limits.Parallelism, count))
	case !r.passes():
		r.hold("", cluster.ReasonGate, fmt.Sprintf("%s waits for its gates: %s; %s", what, r.closed(), count))
	case r.rested().After(r.now):
		r.hold("", cluster.ReasonRollout,
			fmt.Sprintf("%s goes on in %s: %s", what, cluster.Duration(r.rested().Sub(r.now)), count))
	}
}
