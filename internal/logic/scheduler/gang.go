package scheduler

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// runGang places the members of a gang: at least the gang's size of them, or none. Once so many are placed in a cycle,
// it places each of the others by itself. The turns of deferred members are put off: of all if the gang needs some of
// them for its size.
func (y *placer) runGang(members []int32) (waiting, deferred []int32) {
	size, gang := 0, y.Classes.Task(members[0]).Gang
	for _, m := range members {
		if !y.gangPlaced[gang] {
			size = max(size, y.Classes.Task(m).GangSize)
		}
		y.Preparer.Prepare(y.Classes.At[m])
	}
	if len(members) < size {
		y.noteGangWaiting(members, fmt.Sprintf("%d of %d tasks wait for places", len(members), size), nil)
		return members, nil
	}
	mark, kept := len(y.placed), y.backfill.state()
	for _, m := range members {
		switch placed := y.allTurns(m); {
		case !placed && y.borrows.takePutOff():
			deferred = append(deferred, m)
		case !placed:
			waiting = append(waiting, m)
		}
	}
	if placed := len(members) - len(waiting) - len(deferred); placed < size {
		var others []cluster.RefusalCount
		if len(deferred) == 0 {
			others = y.gangRefusals(waiting[0])
		}
		for i := len(y.placed) - 1; i >= mark; i-- {
			y.GiveBack(&y.placed[i], y.placedAt[i])
		}
		y.placed, y.placedAt = y.placed[:mark], y.placedAt[:mark]
		y.backfill.restore(kept)
		if len(deferred) > 0 {
			return nil, members
		}
		y.backfill.promise(members, size, y.placed, y.placedAt)
		y.noteGangWaiting(members, fmt.Sprintf("%d of %d tasks find places", placed, size), others)
		return members, nil
	}
	for _, m := range waiting {
		delete(y.gangWaiting, m)
	}
	if y.gangPlaced == nil {
		y.gangPlaced = map[string]bool{}
	}
	y.gangPlaced[gang] = true
	return waiting, deferred
}

// gangRefusals returns why the first member of a gang without a place has none.
func (y *placer) gangRefusals(member int32) []cluster.RefusalCount {
	if r := y.Limits.Refusal(y.Classes.Task(member)); r.Code != "" {
		return []cluster.RefusalCount{{Refusal: r}}
	}
	first := y.Classes.At[member]
	if task := y.backfill.behind[first]; task != "" {
		return []cluster.RefusalCount{behind(task)}
	}
	y.Preparer.Prepare(first)
	others := inquiry{y.Cycle, first}.refusals()
	slices.SortFunc(others, byNodeCount)
	return others
}

// noteGangWaiting keeps why the members of a gang wait: the state of the gang, and the refusals of the first member
// without a place.
func (y *placer) noteGangWaiting(members []int32, gang string, others []cluster.RefusalCount) {
	refusals := append([]cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonGang, Detail: gang}}},
		others...)
	sentence := Sentence(refusals)
	if y.gangWaiting == nil {
		y.gangWaiting = map[int32]cluster.Waiting{}
	}
	for _, m := range members {
		y.gangWaiting[m] = cluster.Waiting{Task: y.Classes.Task(m).Task, Refusals: refusals, Sentence: sentence}
	}
}

// revived returns the waiting tasks that others may have made feasible since, with all of their gangs. A task that a
// limit of its cluster refuses is not among them: nothing is released in a cycle. If room is kept for waiting tasks, it
// returns all of them and releases that room. A revived task must not wait for room that is kept for a less urgent one.
// Room of a task that now finds another place is free for the others.
func (y *placer) revived(waiting []int32) (again []int32) {
	gangs := map[string]bool{}
	revives := func(i int32) bool { return y.Classes.At[i].Revives && y.Limits.Admits(y.Classes.Task(i)) }
	for _, i := range waiting {
		if gang := y.Classes.Task(i).Gang; gang != "" && revives(i) {
			gangs[gang] = true
		}
	}
	for _, i := range waiting {
		if gangs[y.Classes.Task(i).Gang] || revives(i) {
			again = append(again, i)
		}
	}
	if len(again) > 0 && len(y.promises.rooms)+len(y.backfill.kept) > 0 {
		y.promises.release(waiting...)
		y.backfill.forget()
		return slices.Clone(waiting)
	}
	return again
}
