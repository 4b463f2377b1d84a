package scheduler

import "github.com/berthd/berth/internal/cluster"

// placer gives pending tasks their turns, the most urgent first. A task takes the best node at its turn and is not
// moved again; a gang gets places for at least its size or gives all of them back.
type placer struct {
	*cycle
	promises    promises
	placed      []Placement
	placedAt    []placedTask
	gangWaiting map[int32]cluster.Waiting // by position in the order; only members of gangs
}

func newPlacer(f *Fleet, pending []cluster.Pending, opts Options) placer {
	y := newCycle(f, pending, opts)
	return placer{cycle: y, promises: promises{cycle: y}}
}

// run gives tasks their turns, by position in the order of decision. It returns the tasks that wait.
func (y *placer) run(positions []int32) (waiting []int32) {
	for len(positions) > 0 {
		gang := y.classes.task(positions[0]).Gang
		members := 1
		for gang != "" && members < len(positions) && y.classes.task(positions[members]).Gang == gang {
			members++
		}
		before := len(waiting)
		y.promises.release(positions[:members]...)
		if gang == "" {
			if !y.turn(positions[0]) {
				waiting = append(waiting, positions[0])
			}
		} else {
			waiting = append(waiting, y.runGang(positions[:members])...)
		}
		y.promises.reserve(waiting[before:])
		positions = positions[members:]
	}
	return waiting
}

// turn places the task at a position, if a node is feasible.
func (y *placer) turn(position int32) bool {
	c := y.classes.at[position]
	slot := y.promises.nodeFor(c)
	if slot < 0 {
		slot = y.search.best(c)
	}
	if slot >= 0 {
		y.placed = append(y.placed, y.place(c, slot, int(y.classes.order[position])))
		y.placedAt = append(y.placedAt, placedTask{position, slot})
	}
	y.finishTask(c)
	return slot >= 0
}
