package controlplane

import (
	"context"
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// splitMoves takes the moves out of a result: their requests begin at index from. It returns the moves that have a
// place, and why the others stay where they are.
func (l *loop) splitMoves(r scheduler.Result, moves []*reconciler.Move, from int,
) (out scheduler.Result, leaving []*reconciler.Move, stays []cluster.Waiting) {
	stuck := map[string]string{}
	l.nodes.SetStuck(stuck)
	if len(moves) == 0 {
		return r, nil, nil
	}
	byTask := make(map[cluster.TaskID]*reconciler.Move, len(moves))
	for _, m := range moves {
		byTask[m.Next.Task] = m
	}
	out.Pending = r.Pending
	for _, p := range r.Placements {
		if from <= p.Pending && p.Pending < from+len(moves) {
			leaving = append(leaving, moves[p.Pending-from])
		} else {
			out.Placements = append(out.Placements, p)
		}
	}
	count, first := map[string]int{}, map[string]string{}
	for _, w := range r.Waiting {
		m := byTask[w.Task]
		if m == nil {
			out.Waiting = append(out.Waiting, w)
			continue
		}
		l.rebalancing.NoteRefusal(w)
		stays = append(stays, w)
		if !l.nodes.IsDraining(m.From) {
			continue // its reason is shown once the node drains
		}
		if count[m.From]++; first[m.From] == "" {
			first[m.From] = w.Sentence
		}
	}
	for node, n := range count { // order-free: each node by itself
		has := "have"
		if n == 1 {
			has = "has"
		}
		stuck[node] = fmt.Sprintf("%d of them %s no feasible node: %s", n, has, first[node])
	}
	return out, leaving, stays
}

// commitMoves writes what lets tasks with a place elsewhere leave their nodes. Moves of healthy tasks are limited by
// the decision about their service. None of them is written if the service has changed and has to be decided again
// (P5.4).
func (l *loop) commitMoves(ctx context.Context, snap *store.Snapshot, moves []*reconciler.Move) error {
	builder := l.builder(snap)
	var units []store.Unit
	stale, left := map[cluster.OwnerRef]bool{}, map[cluster.OwnerRef]int{}
	for _, m := range moves {
		stale[m.Next.Owner] = l.queue.IsMarked(m.Next.Owner)
	}
	for _, m := range moves {
		if m.Limit > 0 {
			if stale[m.Next.Owner] || left[m.Next.Owner] == m.Limit {
				continue
			}
			left[m.Next.Owner]++
		}
		l.queue.Mark(m.Next.Owner)
		var u store.Unit
		var err error
		if builder.Requires = l.external.RequiresToLeave(m.Next.Owner); m.Stop != nil {
			u, err = builder.StopUnit(m.Stop)
		} else {
			u, err = builder.ConclusionUnit(m.Conclusion)
			u.Compares = append(u.Compares, builder.Requires...)
		}
		if err != nil {
			return err
		}
		units = append(units, u)
	}
	_, err := l.term.commit(ctx, units)
	return err
}
