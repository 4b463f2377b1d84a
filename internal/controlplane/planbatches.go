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

// planFiller distributes placements over plan records, in the order of the decisions. Each record fits into its room.
type planFiller struct {
	log     *store.PlanLog
	snap    *store.Snapshot
	pending []cluster.Pending
	// immediate says that attempts are projected with their plan records (P3.4).
	immediate bool

	out []store.PlanBatch
	// The last record: its owners by their keys, its room, and what it takes of it.
	owners            map[planOwnerKey]int
	room              store.PlanRoom
	operations, tasks int
	gang              string
}

// makePlanBatches makes the contents of plan records from placements; attempt i gets the identity ids[i].
func (c *planCommits) makePlanBatches(snap *store.Snapshot, pending []cluster.Pending,
	placements []scheduler.Placement, ids []string, immediate bool,
) []store.PlanBatch {
	f := planFiller{log: c.log, snap: snap, pending: pending, immediate: immediate}
	for i := range placements {
		f.add(placements[i:], ids[i])
	}
	for i := range f.out {
		f.out[i].Events = placementEvents(&f.out[i])
	}
	return f.out
}

// add adds the first placement. Those after it show how many of its gang follow.
func (f *planFiller) add(placements []scheduler.Placement, id string) {
	pl := &placements[0]
	p := &f.pending[pl.Pending]
	parts, ok := p.Task.Parts()
	if !ok {
		return
	}
	key := planOwnerKey{
		p.Owner, p.OwnerRev, parts.Generation, parts.Step, p.Definition, p.Count, p.Priority, p.TimeLimit,
		p.OnDisconnect,
	}
	f.makeRoom(p, placements)
	current := &f.out[len(f.out)-1]
	o, known := f.owners[key]
	if !known {
		o = len(current.Owners)
		f.owners[key] = o
		f.operations++
		current.Owners = append(current.Owners, cluster.PlanOwner{
			Owner: key.owner, Rev: key.rev, Generation: key.generation, Step: key.step, Definition: key.definition,
			Count: key.count, Priority: key.priority, TimeLimit: key.limit, OnDisconnect: key.onDisconnect,
			Whole: p.Gang != "",
		})
	}
	f.operations += f.room.OperationsOf(p.Attempt)
	f.tasks++
	current.Owners[o].Tasks = append(current.Owners[o].Tasks, cluster.Placed{
		Index: parts.Index, Attempt: p.Attempt, UUID: id, Node: pl.Node, Ports: pl.Ports, Devices: pl.Devices,
	})
	if row, ok := f.snap.ForeignRow(pl.Node, p.Task); ok && row.IsUnreadable() { // the command that placed it (P3.9)
		if current.Replaces == nil {
			current.Replaces = map[cluster.TaskID]uint64{}
		}
		current.Replaces[p.Task] = row.DesiredRev
	}
}

// makeRoom begins another record unless the last one has room for the first placement. The tasks of a gang are adjacent
// and are written in one record. Validation bounds a gang by what a record without projections can hold. A gang that is
// too large for one with projections gets a record without them, and is projected soon after.
func (f *planFiller) makeRoom(p *cluster.Pending, placements []scheduler.Placement) {
	tasks, operations := 1, f.room.OperationsOf(p.Attempt)
	isNext := f.out == nil || p.Gang != f.gang
	if isNext && p.Gang != "" {
		tasks, operations = f.gangNeeds(placements, f.room)
	}
	f.gang = p.Gang
	switch {
	case f.out != nil && !isNext && p.Gang != "": // makeRoom of its first task made room for all
		return
	case f.out != nil && f.out[len(f.out)-1].Projected == f.immediate && f.tasks+tasks <= f.room.Tasks &&
		f.operations+1+operations <= f.room.Operations:
		return
	}
	projected := f.immediate
	f.room = f.log.Room(projected)
	if projected && p.Gang != "" {
		tasks, operations := f.gangNeeds(placements, f.room)
		if tasks > f.room.Tasks || 1+operations > f.room.Operations {
			projected, f.room = false, f.log.Room(false)
		}
	}
	f.out = append(f.out, store.PlanBatch{Projected: projected})
	f.owners, f.operations, f.tasks = map[planOwnerKey]int{}, 0, 0
}

// gangNeeds returns how many tasks and operations the gang of the first placement takes in a record.
func (f *planFiller) gangNeeds(placements []scheduler.Placement, room store.PlanRoom) (tasks, operations int) {
	gang := f.pending[placements[0].Pending].Gang
	for i := range placements {
		p := &f.pending[placements[i].Pending]
		if p.Gang != gang {
			break
		}
		tasks++
		operations += room.OperationsOf(p.Attempt)
	}
	return tasks, operations
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
