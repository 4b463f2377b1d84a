package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// placer gives pending tasks their turns, the most urgent first. A task takes the best node at its turn and is not
// moved again; a gang gets places for at least its size or gives all of them back.
type placer struct {
	*cycle.Cycle
	promises    promises
	backfill    backfill
	placed      []cycle.Placement
	placedAt    []cycle.PlacedTask
	gangWaiting map[int32]cluster.Waiting // by position in the order; only members of gangs
	gangPlaced  map[string]bool           // gangs of which enough members are placed
	limitReason limitReason               // the last one
}

func newPlacer(f *fleet.Fleet, pending []cluster.Pending, opts taskclass.Options) placer {
	y := cycle.New(f, pending, opts)
	return placer{Cycle: y, promises: promises{Cycle: y}, backfill: newBackfill(y, opts.Now)}
}

// run gives tasks their turns: see turns. The positions are in the order of decision. It returns those of the tasks
// that wait, in that order.
func (y *placer) run(positions []int32) (waiting []int32) {
	t := newTurns(y.Nodes.Fleet, &y.Limits, y.backfill.now, positions, y.Classes.Task)
	for members, isFair := t.next(); len(members) > 0; members, isFair = t.next() {
		before := len(waiting)
		y.promises.release(members...)
		switch {
		case y.Classes.Task(members[0]).Gang != "":
			left := y.runGang(members)
			if len(left) == len(members) && y.backfill.rearrange(y.placed, y.placedAt) {
				left = y.runGang(members)
			}
			waiting = append(waiting, left...)
		case isFair:
			placed, more := y.turn(members[0])
			if !placed && y.backfill.rearrange(y.placed, y.placedAt) {
				placed, more = y.turn(members[0])
			}
			if placed && more {
				t.placed()
				continue
			}
			if !placed {
				waiting = y.wait(waiting, t.owed())
			}
		default:
			placed := y.allTurns(members[0])
			if !placed && y.backfill.rearrange(y.placed, y.placedAt) {
				placed = y.allTurns(members[0])
			}
			if !placed {
				waiting = y.wait(waiting, members)
			}
		}
		y.promises.reserve(waiting[before:])
		t.done(len(members))
	}
	slices.Sort(waiting)
	return waiting
}

// wait adds a request that found no place to those that wait. With it, tasks of the positions may get promises, of
// which it is the first.
func (y *placer) wait(waiting, positions []int32) []int32 {
	y.backfill.promise(positions, 0, y.placed, y.placedAt)
	return append(waiting, positions[0])
}

// allTurns places the task at a position, and then the further ones of its request, until one finds no place. It
// reports whether all of them are placed.
func (y *placer) allTurns(position int32) bool {
	placed, more := y.turn(position)
	for placed && more {
		placed, more = y.turn(position)
	}
	return placed
}

// turn places the next task of the request at a position. It reports whether that found a place, and whether there are
// more, for which the request then stands.
func (y *placer) turn(position int32) (placed, more bool) {
	slot := y.find(position)
	if slot < 0 {
		return false, false
	}
	taken, more := y.Classes.TakeFirst(position)
	c := y.Classes.At[taken]
	y.placed = append(y.placed, y.Place(c, slot, int(y.Classes.Order[taken])))
	y.placedAt = append(y.placedAt, cycle.PlacedTask{Position: taken, Slot: slot})
	y.backfill.notePlacement(c, slot)
	y.FinishTask(c, 1)
	return true, more
}

// find returns the node for the next task at a position, or -1 if no node is feasible or a limit of its cluster does
// not allow the task.
func (y *placer) find(position int32) int32 {
	c, p := y.Classes.At[position], y.Classes.Task(position)
	if y.backfill.isBlocked(c) || !y.Limits.Admits(p) {
		y.FinishTask(c, p.Tasks())
		return -1
	}
	slot := y.promises.nodeFor(c)
	if slot < 0 {
		slot = y.Search.Best(c)
	}
	if slot < 0 {
		if slot = y.backfill.roomFor(c); slot >= 0 {
			y.backfill.open(slot)
		}
	}
	if slot < 0 {
		y.FinishTask(c, p.Tasks())
	}
	return slot
}
