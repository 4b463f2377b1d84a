package controlplane

import (
	"context"
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// part takes the moves out of a result: those with a place are returned, and of the others is kept why they stay: they
// are the last of those that wait. Of what was scheduled the moves are the last, from the given index on.
func (l *loop) part(r scheduler.Result, moves []*reconciler.Move, from int) (scheduler.Result, []*reconciler.Move) {
	clear(l.watch.stuck)
	if len(moves) == 0 {
		return r, nil
	}
	byTask := make(map[cluster.TaskID]*reconciler.Move, len(moves))
	for _, m := range moves {
		byTask[m.Next.Task] = m
	}
	var out scheduler.Result
	var leaving []*reconciler.Move
	for _, p := range r.Placements {
		if p.Pending >= from {
			leaving = append(leaving, moves[p.Pending-from])
		} else {
			out.Placements = append(out.Placements, p)
		}
	}
	var stays []cluster.Waiting
	stuck, first := map[string]int{}, map[string]string{}
	for _, w := range r.Waiting {
		m := byTask[w.Task]
		if m == nil {
			out.Waiting = append(out.Waiting, w)
			continue
		}
		l.rebalancing.refuse(w)
		stays = append(stays, w)
		if v := l.watch.verdicts[m.From]; v == nil || v.Node.State != cluster.NodeDraining {
			continue // what it waits for is told once it drains
		}
		if stuck[m.From]++; first[m.From] == "" {
			first[m.From] = w.Sentence
		}
	}
	for node, n := range stuck { // order-free: each node by itself
		has := "have"
		if n == 1 {
			has = "has"
		}
		l.watch.stuck[node] = fmt.Sprintf("%d of them %s nowhere to go: %s", n, has, first[node])
	}
	out.Waiting = append(out.Waiting, stays...)
	return out, leaving
}

// leave writes what lets tasks with a place elsewhere go: of those that take a healthy task from their service so many
// as its decision allows, and none where that is out of date, as the service changed and is to be decided again (P5.4).
func (l *loop) leave(ctx context.Context, snap *store.Snapshot, moves []*reconciler.Move) error {
	var units []store.Unit
	stale, left := map[cluster.OwnerRef]bool{}, map[cluster.OwnerRef]int{}
	for _, m := range moves {
		stale[m.Next.Owner] = l.dirty[m.Next.Owner]
	}
	for _, m := range moves {
		if m.Limit > 0 {
			if stale[m.Next.Owner] || left[m.Next.Owner] == m.Limit {
				continue
			}
			left[m.Next.Owner]++
		}
		w := &write{loop: l, snap: snap, owner: m.Next.Owner}
		l.dirty[m.Next.Owner] = true
		var u store.Unit
		var err error
		if m.Stop != nil {
			u, err = w.stop(m.Stop)
		} else {
			u, err = w.conclusion(m.Conclusion)
		}
		if err != nil {
			return err
		}
		units = append(units, u)
	}
	return l.commit(ctx, units)
}
