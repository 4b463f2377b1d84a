package controlplane

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// reservation returns what an attempt, whose record is d, takes up on its node, and what other tasks look at of it.
func (l *loop) reservation(snap *store.Snapshot, row *store.AttemptRow, d *cluster.Desired) scheduler.Reservation {
	r := scheduler.Reservation{
		UUID: d.UUID, Task: row.Task, Node: row.Node, Demand: l.demand(snap, d.Definition), Definition: d.Definition,
		Priority: d.Priority, Devices: d.Devices,
	}
	for _, port := range d.Ports { // order-free: a set
		r.Ports = append(r.Ports, port)
	}
	if o, ok := row.Ref(); ok {
		m := l.mannersOf(snap, o)
		r.Labels = m.labels
		parts, _ := row.Task.Parts()
		r.Away = m.away[parts.Step]
	}
	return r
}

// manners are what an owner's spec says of its tasks to others: its labels, and by step, "" for a service, whom they
// must be kept away from.
type manners struct {
	rev    uint64 // of the spec
	labels cluster.Labels
	away   map[string][]cluster.Relation
}

// mannersOf returns those of an owner, none for one that is not there. They are read once for each write of the spec.
func (l *loop) mannersOf(snap *store.Snapshot, o cluster.OwnerRef) manners {
	if o.Kind == cluster.KindJob {
		e, ok := snap.Job(o.Cluster, o.Name)
		return l.minded(o, ok, e.Modified, func() manners {
			m := manners{labels: e.Value.Labels, away: map[string][]cluster.Relation{}}
			for i := range e.Value.Steps {
				m.away[e.Value.Steps[i].Name] = e.Value.Steps[i].Placement.KeepsAway()
			}
			return m
		})
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	return l.minded(o, ok, e.Modified, func() manners {
		return manners{labels: e.Value.Labels, away: map[string][]cluster.Relation{"": e.Value.Placement.KeepsAway()}}
	})
}

// minded returns an owner's manners as they were last read, unless its spec was written since.
func (l *loop) minded(o cluster.OwnerRef, there bool, rev uint64, read func() manners) manners {
	if !there {
		delete(l.manners, o)
		return manners{}
	}
	m, ok := l.manners[o]
	if !ok || m.rev != rev {
		m = read()
		m.rev = rev
		l.manners[o] = m
	}
	return m
}

// recharge has the reservations of an owner's tasks say what its spec says now, where that was written.
func (l *loop) recharge(snap *store.Snapshot, o cluster.OwnerRef) {
	was, had := l.manners[o]
	if !had {
		return
	}
	now := l.mannersOf(snap, o)
	if now.rev != was.rev {
		l.misfits.owners[o] = true
	}
	if now.rev == was.rev || maps.Equal(was.labels, now.labels) &&
		maps.EqualFunc(was.away, now.away, func(a, b []cluster.Relation) bool {
			return slices.EqualFunc(a, b, cluster.Relation.Equal)
		}) {
		return
	}
	for row := range snap.Attempts(o) {
		held, ok := l.reserve[store.AttemptKey{Task: row.Task, Number: row.Number}]
		if !ok {
			continue
		}
		if d := l.occupant(snap, row); d != nil && (hold{d.UUID, row.Node}) == held {
			l.fleet.Reserve(l.reservation(snap, row, d))
			l.unplaced = true
		}
	}
}

// demand returns what a task of the definition takes up. The last answer is kept: many tasks in a row are of one
// definition.
func (l *loop) demand(snap *store.Snapshot, r cluster.Ref) cluster.Demand {
	if l.asked.snap == snap && l.asked.ref == r {
		return l.asked.demand
	}
	l.asked = asked{snap: snap, ref: r}
	if def, ok := snap.Definition(r); ok {
		l.asked.demand = def.Value.Demand()
	}
	return l.asked.demand
}

type asked struct {
	snap   *store.Snapshot
	ref    cluster.Ref
	demand cluster.Demand
}
