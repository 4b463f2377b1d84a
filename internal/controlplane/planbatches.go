package controlplane

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// planOwnerKey is what the tasks of one plan owner have in common.
type planOwnerKey struct {
	owner        cluster.OwnerRef
	rev          uint64
	generation   uint64
	step         string
	definition   cluster.Ref
	count        int
	priority     int
	limit        cluster.Duration
	onDisconnect cluster.OnDisconnect
}

// makePlanBatches makes the contents of plan records from placements, in the order of the decisions. Each record fits
// into the log's room; attempt i gets the identity ids[i].
func (c *planCommits) makePlanBatches(pending []cluster.Pending, placements []scheduler.Placement,
	ids []string,
) []store.PlanBatch {
	maxCompares, maxTasks := c.log.Limits()
	var out []store.PlanBatch
	var at map[planOwnerKey]int
	tasks, compares := 0, 0
	gang := ""
	for i := range placements {
		pl := &placements[i]
		p := &pending[pl.Pending]
		parts, ok := p.Task.Parts()
		if !ok {
			continue
		}
		s := planOwnerKey{
			p.Owner, p.OwnerRev, parts.Generation, parts.Step, p.Definition, p.Count, p.Priority, p.TimeLimit,
			p.OnDisconnect,
		}
		o, known := at[s]
		need := 1 + c.log.Compares(p.Attempt)
		full := at == nil || tasks == maxTasks || compares+need > maxCompares
		// The tasks of a gang are adjacent and are written in one record. Validation bounds a gang by what a record can
		// hold.
		if p.Gang != gang {
			n, more := c.gangNeeds(pending, placements[i:])
			full, gang = full || tasks+n > maxTasks || compares+more > maxCompares, p.Gang
		}
		if full {
			out = append(out, store.PlanBatch{})
			at, tasks, compares, known = map[planOwnerKey]int{}, 0, 0, false
		}
		if known {
			need--
		}
		compares += need
		current := &out[len(out)-1]
		if !known {
			o = len(current.Owners)
			at[s] = o
			current.Owners = append(current.Owners, cluster.PlanOwner{
				Owner: s.owner, Rev: s.rev, Generation: s.generation, Step: s.step, Definition: s.definition,
				Count:    s.count,
				Priority: s.priority, TimeLimit: s.limit, OnDisconnect: s.onDisconnect, Whole: p.Gang != "",
			})
		}
		current.Owners[o].Tasks = append(current.Owners[o].Tasks, cluster.Placed{
			Index: parts.Index, Attempt: p.Attempt, UUID: ids[i], Node: pl.Node, Ports: pl.Ports, Devices: pl.Devices,
		})
		tasks++
	}
	for i := range out {
		out[i].Events = placementEvents(&out[i])
	}
	return out
}

// gangNeeds returns how many tasks and compares the gang of the first placement takes; no tasks if it is in none.
func (c *planCommits) gangNeeds(pending []cluster.Pending, placements []scheduler.Placement) (tasks, compares int) {
	gang := pending[placements[0].Pending].Gang
	for i := range placements {
		p := &pending[placements[i].Pending]
		if gang == "" || p.Gang != gang {
			break
		}
		tasks++
		compares += c.log.Compares(p.Attempt)
	}
	return tasks, compares + 1
}

// maxTasksWithOwnEvents is the largest number of placements in a plan that get an event each.
const maxTasksWithOwnEvents = 50

// placementEvents returns the events of a plan: one for each task or, in a large plan, one for each owner.
func placementEvents(b *store.PlanBatch) []cluster.Event {
	total := 0
	for i := range b.Owners {
		total += len(b.Owners[i].Tasks)
	}
	var out []cluster.Event
	for i := range b.Owners {
		o := &b.Owners[i]
		owner := o.Owner
		if total > maxTasksWithOwnEvents {
			out = append(out, cluster.Event{
				Type: "task.assigned", Cluster: owner.Cluster, Owner: &owner, Count: len(o.Tasks),
				Message: fmt.Sprintf("%d tasks of %s were placed", len(o.Tasks), o.Definition),
			})
			continue
		}
		for j := range o.Tasks {
			t := &o.Tasks[j]
			out = append(out, cluster.Event{
				Type: "task.assigned", Cluster: owner.Cluster, Owner: &owner, Task: o.TaskID(t.Index),
				Attempt: t.Attempt,
				Node:    t.Node, Message: fmt.Sprintf("%s was placed on %s", o.Definition, t.Node),
			})
		}
	}
	return out
}
