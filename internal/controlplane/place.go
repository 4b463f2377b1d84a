package controlplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// place schedules all pending tasks and has the placements committed as plan records. It returns their number.
//
// Tasks that should leave their nodes are scheduled too, each as if it waited. A task with a place elsewhere may then
// leave its node, and the next cycle places it.
func (l *loop) place(ctx context.Context, snap *store.Snapshot) (placed int, err error) {
	if l.inFlight == nil {
		if err := l.settle(ctx); err != nil {
			return 0, err
		}
	}
	if !l.takeNeedsPlacement() {
		return 0, nil
	}
	began := l.config.Now()
	pending, moves := l.waiting.all()
	l.preemption.applyPromises(pending[:len(pending)-len(moves)])
	l.plane.valueModel.Store(l.waiting.arrivals.updateFleet(snap, l.view.fleet))
	result := scheduler.Schedule(l.view.fleet, pending, l.config.Scheduler)
	result, leaving := l.splitMoves(result, moves, len(pending)-len(moves))
	l.preemption.search(l.observed(snap), pending[:len(pending)-len(moves)], &result, l.config.Scheduler)
	l.plane.reasons.set(result.Waiting, l.preemption.listVictims())
	if err := l.commitMoves(ctx, snap, leaving); err != nil {
		l.placeAgain = true
		return 0, err
	}
	if len(result.Placements) == 0 {
		return 0, nil
	}
	l.plane.traces.record(l.view.fleet, pending, result.Placements, &l.config)
	if err := l.awaitInFlight(); err != nil { // one plan is in flight at a time
		l.placeAgain = true
		return 0, err
	}
	l.commitInBackground(ctx, snap, pending, result.Placements, began)
	if l.synchronous {
		return len(result.Placements), l.awaitInFlight()
	}
	return len(result.Placements), nil
}

// takeNeedsPlacement reports whether a placement may have another result than the last one.
func (l *loop) takeNeedsPlacement() bool {
	needed := l.placeAgain || l.preemption.isSearchDue()
	l.placeAgain = false
	// Each of them forgets its change.
	for _, changed := range []bool{l.waiting.takeChanged(), l.view.takeChanged(), l.preemption.takeChanged()} {
		needed = needed || changed
	}
	return needed
}

// settle finds out whether a plan with a lost result was written, and waits until the tables show the answer.
func (l *loop) settle(ctx context.Context) error {
	if !l.plans.Unsettled() {
		return nil
	}
	revision, err := l.plans.Settle(ctx)
	l.writtenRevision = max(l.writtenRevision, revision)
	if err != nil {
		return err
	}
	if _, err := l.config.awaitRevision(ctx, revision); err != nil {
		return err
	}
	// An applied plan shows in the follower's next changes; nothing is placed before that.
	return errSettled
}

// errSettled ends a cycle that settled a plan, as the cycle's decisions are out of date.
var errSettled = errors.New("a plan was settled; deciding again")

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

// makeProposals makes plan records of placements, in the order of the decisions. Each record fits into the log's room;
// attempt i gets the identity ids[i].
func (l *loop) makeProposals(pending []cluster.Pending, placements []scheduler.Placement,
	ids []string,
) []store.Proposal {
	maxCompares, maxTasks := l.plans.Limits()
	var out []store.Proposal
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
		need := 1 + l.plans.Compares(p.Attempt)
		full := at == nil || tasks == maxTasks || compares+need > maxCompares
		// The tasks of a gang are adjacent and are written in one record. Validation bounds a gang by what a record can
		// hold.
		if p.Gang != gang {
			n, c := l.gangNeeds(pending, placements[i:])
			full, gang = full || tasks+n > maxTasks || compares+c > maxCompares, p.Gang
		}
		if full {
			out = append(out, store.Proposal{})
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
func (l *loop) gangNeeds(pending []cluster.Pending, placements []scheduler.Placement) (tasks, compares int) {
	gang := pending[placements[0].Pending].Gang
	for i := range placements {
		p := &pending[placements[i].Pending]
		if gang == "" || p.Gang != gang {
			break
		}
		tasks++
		compares += l.plans.Compares(p.Attempt)
	}
	return tasks, compares + 1
}

// maxTasksWithOwnEvents is the largest number of placements in a plan that get an event each.
const maxTasksWithOwnEvents = 50

// placementEvents returns the events of a plan: one for each task or, in a large plan, one for each owner.
func placementEvents(p *store.Proposal) []cluster.Event {
	total := 0
	for i := range p.Owners {
		total += len(p.Owners[i].Tasks)
	}
	var out []cluster.Event
	for i := range p.Owners {
		o := &p.Owners[i]
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
