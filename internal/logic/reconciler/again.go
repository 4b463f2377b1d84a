package reconciler

import "github.com/berthd/berth/internal/cluster"

// Again returns what the next attempt of each of a service's tasks asks for, by task, were it to be placed now, beside
// the attempts that stand: what a move of the task asks for. It is made as Service makes it; a task whose definition
// does not exist is missing.
func Again(in ServiceInput) map[cluster.TaskID]cluster.Pending {
	p := newPlan(in.Spec.Owner(), in.Definitions, in.Now)
	policy := newReschedule(in.Spec)
	p.policy = &policy
	out := map[cluster.TaskID]cluster.Pending{}
	for _, s := range slots(in.Tasks) {
		template := in.template(s)
		template.Daemon = in.daemon()
		if next, ok := p.next(s, template); ok {
			out[s.id] = next
		}
	}
	return out
}

// JobAgain returns the same of a job's tasks, those of earlier runs apart.
func JobAgain(in JobInput) map[cluster.TaskID]cluster.Pending {
	p := newPlan(in.Spec.Owner(), in.Definitions, in.Now)
	out := map[cluster.TaskID]cluster.Pending{}
	for _, s := range slots(in.Tasks) {
		step := in.Spec.Step(s.parts.Step)
		if step == nil || s.parts.Generation != in.Spec.Generation {
			continue
		}
		if next, ok := p.next(s, in.template(step)); ok {
			out[s.id] = next
		}
	}
	return out
}
