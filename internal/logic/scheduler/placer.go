package scheduler

import (
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

// run gives tasks their turns, by position in the order of decision. It returns the tasks that wait.
func (y *placer) run(positions []int32) (waiting []int32) {
	for len(positions) > 0 {
		gang := y.Classes.Task(positions[0]).Gang
		members := 1
		for gang != "" && members < len(positions) && y.Classes.Task(positions[members]).Gang == gang {
			members++
		}
		before := len(waiting)
		y.promises.release(positions[:members]...)
		if gang == "" {
			if !y.turn(positions[0]) {
				waiting = append(waiting, positions[0])
				y.backfill.promise(positions[:1], 1, y.placed, y.placedAt)
			}
		} else {
			waiting = append(waiting, y.runGang(positions[:members])...)
		}
		y.promises.reserve(waiting[before:])
		positions = positions[members:]
	}
	return waiting
}

// turn places the task at a position, and then the further ones of its request, until one finds no place. It reports
// whether all of them are placed. The request at the position then stands for the others.
func (y *placer) turn(position int32) bool {
	for {
		slot := y.find(position)
		if slot < 0 {
			return false
		}
		taken, more := y.Classes.TakeFirst(position)
		c := y.Classes.At[taken]
		y.placed = append(y.placed, y.Place(c, slot, int(y.Classes.Order[taken])))
		y.placedAt = append(y.placedAt, cycle.PlacedTask{Position: taken, Slot: slot})
		y.backfill.notePlacement(c, slot)
		y.FinishTask(c, 1)
		if !more {
			return true
		}
	}
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
