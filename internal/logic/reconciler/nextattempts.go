package reconciler

import "github.com/berthd/berth/internal/cluster"

// NextAttempts returns, by task, what the next attempt of each of a service's tasks would request if it were placed now
// beside the existing attempts. This is the request of a move of the task, and equals the request that Service makes. A
// task without a definition is missing from the result.
func NextAttempts(in ServiceInput) map[cluster.TaskID]cluster.Pending {
	p := newPlan(in.Spec.Owner(), in.Definitions, in.Now)
	policy := newReschedule(in.Spec)
	p.policy = &policy
	out := map[cluster.TaskID]cluster.Pending{}
	for _, s := range slots(in.Tasks) {
		template := in.template(s)
		template.Daemon = in.daemon()
		if next, ok := p.nextAttempt(s, template); ok {
			out[s.id] = next
		}
	}
	return out
}

// NextJobAttempts returns the same for a job's tasks, without tasks of earlier runs.
func NextJobAttempts(in JobInput) map[cluster.TaskID]cluster.Pending {
	p := newPlan(in.Spec.Owner(), in.Definitions, in.Now)
	out := map[cluster.TaskID]cluster.Pending{}
	for _, s := range slots(in.Tasks) {
		step := in.Spec.Step(s.parts.Step)
		if step == nil || s.parts.Generation != in.Spec.Generation {
			continue
		}
		if next, ok := p.nextAttempt(s, in.template(step)); ok {
			out[s.id] = next
		}
	}
	return out
}
