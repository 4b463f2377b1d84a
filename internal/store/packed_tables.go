package store

import (
	"iter"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// packedTables hold the outcomes of tasks of large steps that are packed.
type packedTables struct {
	packed table[cluster.PackedTasks] // by "<c>.<j>.<generation>.<step>.<part>"
}

// packedKey has the form of a task's id, with the part in place of the index.
func packedKey(inCluster, job string, generation uint64, step string, part int) string {
	return string(cluster.JobTask(inCluster, job, generation, step, part))
}

// PackedTasks returns the packed tasks of a job, of all its runs. The parts of a step are in no order.
func (p *packedTables) PackedTasks(job cluster.OwnerRef) iter.Seq[Entry[cluster.PackedTasks]] {
	return scan(p.packed, job.Cluster+"."+job.Name+".")
}

// AllPackedTasks returns the packed tasks of all jobs.
func (p *packedTables) AllPackedTasks() iter.Seq[Entry[cluster.PackedTasks]] {
	return scan(p.packed, "")
}

// packedRow returns the row of a packed task, or nil. It is as the row was before, without the last output.
func (p *packedTables) packedRow(task cluster.TaskID) *AttemptRow {
	if p.packed.Len() == 0 {
		return nil
	}
	t, ok := task.Parts()
	if !ok || t.Step == "" {
		return nil
	}
	e, ok := p.packed.Get(packedKey(t.Cluster, t.Owner, t.Generation, t.Step, t.Index/cluster.PackedPart))
	if !ok {
		return nil
	}
	o := e.Value.Outcome(t.Index)
	if o == nil {
		return nil
	}
	row := &AttemptRow{Task: task, Number: o.Attempt, Node: o.Node, OutcomeRev: e.Modified, Packed: true}
	row.Outcome = o
	return row
}

// packedTasks applies packed/<tasks>. The tasks of a record that cannot be read are not known to have succeeded, and
// must not run again (P3.5): the table keeps an entry for them.
func (s *state) packedTasks(rest string, c *Change) {
	parts, ok := cluster.TaskID(rest).Parts()
	if !ok || parts.Step == "" {
		return
	}
	s.delta.addOwner(cluster.OwnerRef{Kind: cluster.KindJob, Cluster: parts.Cluster, Name: parts.Owner})
	if c.Deleted {
		s.packed.Delete(rest)
		return
	}
	v, err := Decode[cluster.PackedTasks](c.Value)
	if err != nil || !v.Consistent() || packedKey(v.Cluster, v.Job, v.Generation, v.Step, v.Part) != rest {
		s.faults(c.Key, err)
		v = &cluster.PackedTasks{
			Cluster: parts.Cluster, Job: parts.Owner, Generation: parts.Generation, Step: parts.Step, Part: parts.Index,
			Unreadable: true,
		}
	}
	s.packed.Set(strings.Clone(rest), Entry[cluster.PackedTasks]{
		Value: v, Key: c.Key, Created: c.Created, Modified: c.Modified,
	})
}
