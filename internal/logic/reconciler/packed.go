package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Packed is a record of packed tasks of a job.
type Packed struct {
	Tasks *cluster.PackedTasks
	Rev   uint64
}

// Pack writes a record of packed tasks in place of the outcomes that it now holds, in one transaction. It compares the
// revisions of all of them.
type Pack struct {
	Tasks    *cluster.PackedTasks
	Rev      uint64 // 0: there is no record yet
	Outcomes []Trim
}

// Unpack deletes a record of packed tasks of an earlier run.
type Unpack struct {
	Tasks *cluster.PackedTasks
	Rev   uint64
}

// PackBatch is the number of outcomes that are packed at a time. Fewer are packed once the step has ended.
const PackBatch = 50

// packedTasks are the packed tasks of a step, by part.
type packedTasks []Packed

// count returns the number of the tasks.
func (p packedTasks) count() (n int) {
	for i := range p {
		n += p[i].Tasks.Count()
	}
	return n
}

// part returns the record of a part, or nil.
func (p packedTasks) part(number int) *Packed {
	at, found := slices.BinarySearchFunc(p, number, func(one Packed, number int) int {
		return cmp.Compare(one.Tasks.Part, number)
	})
	if !found {
		return nil
	}
	return &p[at]
}

// has reports whether a task has succeeded and is packed. A record that cannot be read has none: a task of it that has
// records of its own is as these say.
func (p packedTasks) has(index int) bool {
	one := p.part(index / cluster.PackedPart)
	return one != nil && one.Tasks.Has(index)
}

// nextFree returns the first index from the given one on that is not packed, and the end of the indices after it that
// are not packed either, up to the limit.
func (p packedTasks) nextFree(from, limit int) (first, end int) {
	for first = from; first < limit; {
		one := p.part(first / cluster.PackedPart)
		if one == nil || !one.Tasks.Unreadable && !one.Tasks.Has(first) {
			break
		}
		if first++; one.Tasks.Unreadable || one.Tasks.Count() == cluster.PackedPart {
			first = (one.Tasks.Part + 1) * cluster.PackedPart
		}
	}
	first = min(first, limit)
	for end = first; end < limit; {
		one := p.part(end / cluster.PackedPart)
		switch {
		case one == nil:
			end = (end/cluster.PackedPart + 1) * cluster.PackedPart
		case one.Tasks.Unreadable || one.Tasks.Has(end):
			return first, end
		default:
			end++
		}
	}
	return first, min(end, limit)
}

// lastEnded returns when the last of the tasks ended.
func (p packedTasks) lastEnded() (last time.Time) {
	for i := range p {
		last = later(last, p[i].Tasks.LastEnded)
	}
	return last
}

// unreadable returns the first record that cannot be read, or nil.
func (p packedTasks) unreadable() *cluster.PackedTasks {
	for i := range p {
		if p[i].Tasks.Unreadable {
			return p[i].Tasks
		}
	}
	return nil
}

// unreadableText says why tasks of the step neither run nor count as ended.
func (s *jobStep) unreadableText() string {
	p := s.packed.unreadable()
	if p == nil {
		return ""
	}
	first := p.Part * cluster.PackedPart
	return fmt.Sprintf("the record of the tasks %d to %d of step %s cannot be read, so they are not run again",
		first, min(first+cluster.PackedPart, s.Count)-1, s.Name)
}

// pack packs the outcomes of tasks of large steps that have succeeded and have no other records.
func (p jobTasks) pack(steps []jobStep) {
	for i := range steps {
		step := &steps[i]
		if step.Count <= cluster.PackAbove {
			continue
		}
		for from := 0; from < len(step.tasks); {
			part := step.tasks[from].parts.Index / cluster.PackedPart
			end := from
			var outcomes []*cluster.Outcome
			for ; end < len(step.tasks) && step.tasks[end].parts.Index/cluster.PackedPart == part; end++ {
				if o := step.tasks[end].packable(step.Step); o != nil && len(outcomes) < PackBatch {
					outcomes = append(outcomes, o)
				}
			}
			if len(outcomes) == PackBatch || len(outcomes) > 0 && step.state.Ended() {
				p.packPart(step, part, outcomes)
			}
			from = end
		}
	}
}

// packPart adds outcomes to the record of a part. A record that cannot be read is not written over: it holds tasks that
// have succeeded.
func (p jobTasks) packPart(step *jobStep, part int, outcomes []*cluster.Outcome) {
	old := step.packed.part(part)
	if old != nil && old.Tasks.Unreadable {
		return
	}
	first, _ := outcomes[0].Task.Parts()
	record := &cluster.PackedTasks{
		Cluster: first.Cluster, Job: first.Owner, Generation: first.Generation, Step: step.Name, Part: part,
		Definition: step.Definition,
	}
	w := Pack{}
	if old != nil {
		record, w.Rev = old.Tasks, old.Rev
	}
	w.Tasks = record.With(outcomes)
	for _, o := range outcomes {
		w.Outcomes = append(w.Outcomes, Trim{o.Task, o.Attempt})
	}
	p.Packs = append(p.Packs, w)
}

// packable returns the outcome of the task if it can be packed, or nil.
func (s *slot) packable(step *cluster.Step) *cluster.Outcome {
	if len(s.attempts) != 1 || s.hasRecords() {
		return nil
	}
	if o := s.attempts[0].Outcome; o != nil && o.Packable() && o.Definition == step.Definition {
		return o
	}
	return nil
}

// unpackEarlier deletes the packed tasks that are not of the present run.
func (p jobTasks) unpackEarlier(in *JobInput) {
	for i := range in.Packed {
		if one := &in.Packed[i]; in.Spec == nil || in.Spec.Deleted || !in.isPresent(one.Tasks) {
			p.Unpacks = append(p.Unpacks, Unpack(*one))
		}
	}
}

// isPresent reports whether packed tasks are of the present run and of a step of it.
func (in *JobInput) isPresent(t *cluster.PackedTasks) bool {
	step := in.Spec.Step(t.Step)
	return t.Generation == in.Spec.Generation && step != nil && t.Part*cluster.PackedPart < step.Count
}
