package reconciler

import (
	"fmt"
	"slices"
	"strings"

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

// activity says what the rollout does: "rolling out web@2".
func (r *rollout) activity() string { return activityText(r.spec, r.rec.Definition) }

// maxNamedTasks limits the tasks that a message names.
const maxNamedTasks = 3

// startingText names the tasks of the newest version that were begun and are not healthy.
func (r *rollout) startingText() string {
	var names []string
	for _, s := range r.fresh {
		if s.begun() == 1 && !s.healthy() {
			names = append(names, string(s.id))
		}
	}
	if len(names) == 0 { // an old attempt of a task counts as begun
		return countedTasks(r.starting())
	}
	slices.Sort(names)
	if more := len(names) - maxNamedTasks; more > 0 {
		names = append(names[:maxNamedTasks], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// explainWait records what the next step of the rollout waits for.
func (r *rollout) explainWait() {
	what, activity := rolloutText(r.spec, r.rec.Definition), r.activity()
	count := fmt.Sprintf("%d/%d healthy", r.healthy, r.n)
	c := min(r.canaries(), r.n)
	switch {
	case r.rec.State == cluster.RolloutComplete || r.rec.Generation == 0 || r.healthy >= r.n && c == 0 &&
		r.gatesSatisfied():
	case r.rec.State.Ended():
		r.noteWait("", cluster.ReasonRollout,
			fmt.Sprintf("%s failed: %s; undo it or run another version", what, r.rec.Message))
	case r.spec.Rollout.Paused:
		r.noteWait("", cluster.ReasonPaused, fmt.Sprintf("%s is paused: %s", what, count))
	case c > 0 && r.healthy < c:
		r.noteWait("", cluster.ReasonWaitForHealth,
			fmt.Sprintf("%s: %d/%d canaries healthy", activity, r.healthy, c))
	case c > 0 && r.spec.Update.AutoPromote:
		r.noteWait("", cluster.ReasonGate, fmt.Sprintf("%s: waiting for gates: %s", activity, r.missingGates()))
	case c > 0:
		r.noteWait("", cluster.ReasonPromotion,
			promotionText(activity, r.healthy))
	case r.starting() > 0:
		r.noteWait("", cluster.ReasonWaitForHealth,
			fmt.Sprintf("%s: %s; waiting for %s (%d at a time)", activity, count, r.startingText(),
				r.limits.Parallelism))
	case !r.gatesPassed():
		r.noteWait("", cluster.ReasonGate,
			fmt.Sprintf("%s: %s; waiting for gates: %s", activity, count, r.missingGates()))
	case r.staggerEnd().After(r.now):
		r.noteWait("", cluster.ReasonRollout,
			fmt.Sprintf("%s: %s; next batch in %s (stagger)", activity, count,
				cluster.Duration(r.staggerEnd().Sub(r.now))))
	}
}
