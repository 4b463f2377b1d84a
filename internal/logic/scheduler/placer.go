package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
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
	borrows     borrows
}

// borrows puts off the turns of tasks whose clusters borrow for them, until all others had theirs. Otherwise such a
// task might take the room of another cluster's task that stays within its quota, and then have to end for it.
type borrows struct {
	allowed  bool    // the others had their turns
	putOff   bool    // find put off the last task
	deferred []int32 // the positions whose turns are to come
}

// takePutOff reports whether find put off the last task, and forgets it.
func (b *borrows) takePutOff() bool {
	putOff := b.putOff
	b.putOff = false
	return putOff
}

func newPlacer(f *fleet.Fleet, pending []cluster.Pending, opts taskclass.Options) placer {
	y := cycle.New(f, pending, opts)
	return placer{Cycle: y, promises: promises{Cycle: y}, backfill: newBackfill(y, opts.Now)}
}

// run gives tasks their turns: see turns and borrows. The positions are in the order of decision. It returns those of
// the tasks that wait, in that order.
func (y *placer) run(positions []int32) (waiting []int32) {
	waiting = y.giveTurns(positions)
	if later := y.borrows.deferred; len(later) > 0 {
		y.borrows = borrows{allowed: true}
		slices.Sort(later)
		waiting = append(waiting, y.giveTurns(later)...)
		y.borrows.allowed = false
	}
	slices.Sort(waiting)
	return waiting
}

// giveTurns is run for tasks that borrow, if they are allowed to, or for all others. It returns the positions of those
// that wait in the order of their turns.
func (y *placer) giveTurns(positions []int32) (waiting []int32) {
	t := newTurns(y.Nodes.Fleet, &y.Limits, y.backfill.now, positions, y.Classes.Task)
	for members, isFair := t.next(); len(members) > 0; members, isFair = t.next() {
		before := len(waiting)
		y.promises.release(members...)
		switch {
		case y.Classes.Task(members[0]).Gang != "":
			left, deferred := y.runGang(members)
			if len(left) == len(members) && y.backfill.rearrange(y.placed, y.placedAt) {
				left, deferred = y.runGang(members)
			}
			waiting = append(waiting, left...)
			y.borrows.deferred = append(y.borrows.deferred, deferred...)
		case isFair:
			placed, more := y.turn(members[0])
			if !placed && !y.borrows.putOff && y.backfill.rearrange(y.placed, y.placedAt) {
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
			if !placed && !y.borrows.putOff && y.backfill.rearrange(y.placed, y.placedAt) {
				placed = y.allTurns(members[0])
			}
			if !placed {
				waiting = y.wait(waiting, members)
			}
		}
		y.promises.reserve(waiting[before:])
		t.done(len(members))
	}
	return waiting
}

// wait adds a request that found no place to those that wait, or to those whose turn is put off. With one that waits,
// tasks of the positions may get promises, of which it is the first.
func (y *placer) wait(waiting, positions []int32) []int32 {
	if y.borrows.takePutOff() {
		y.borrows.deferred = append(y.borrows.deferred, positions[0])
		return waiting
	}
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

// find returns the node for the next task at a position, or -1 if no node is feasible, a limit of its cluster does not
// allow the task, or its turn is put off.
func (y *placer) find(position int32) int32 {
	c, p := y.Classes.At[position], y.Classes.Task(position)
	if y.backfill.isBlocked(c) {
		y.FinishTask(c, p.Tasks())
		return -1
	}
	switch verdict := y.Limits.Judge(p); {
	case verdict == admission.Refused:
		y.FinishTask(c, p.Tasks())
		return -1
	case verdict == admission.Borrows && !y.borrows.allowed:
		y.borrows.putOff = true
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
