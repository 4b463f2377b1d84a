package scheduler

import "github.com/berthd/berth/internal/cluster"

// cycle is pending tasks over one fleet, and the placements that were made of them so far. Its parts, from the lowest:
//
//   - nodes: the fleet with the cycle's placements
//   - views: how many tasks are near each node
//   - filters: which node classes can run a task, whatever runs there
//   - classes: the tasks with equal requests
//   - preparer: completes a class before its first turn
//   - eval: what one node answers to a class
//   - search: the best node for a class
//
// Each part refers to those before it. A cycle is not for concurrent use.
type cycle struct {
	nodes    overlay
	views    viewSet
	filters  filters
	fits     fitCache
	classes  classifier
	preparer preparer
	eval     evaluator
	search   searcher
}

// newCycle returns a cycle without placements. It is ready after start.
func newCycle(f *Fleet, pending []cluster.Pending, opts Options) *cycle {
	y := &cycle{nodes: newOverlay(f)}
	y.views, y.filters = newViewSet(&y.nodes), newFilters(&y.nodes)
	y.classes = newClassifier(&y.nodes, pending, opts)
	y.preparer = newPreparer(&y.nodes, &y.views, &y.filters, &y.fits)
	y.eval = newEvaluator(&y.nodes, &y.fits)
	y.search = newSearcher(&y.nodes, &y.preparer, &y.eval, opts.Search)
	return y
}

// start finds the classes of the tasks in the order of decision, and counts the tasks that relations select. Call it
// once, before anything is placed.
func (y *cycle) start(order []int32) {
	y.classes.classify(order)
	y.views.makeRelationViews(y.classes.list)
}

// place charges a task of the class to the node, and chooses its devices and ports.
func (y *cycle) place(c *taskClass, slot int32, pending int) Placement {
	p := &y.classes.pending[pending]
	l := y.nodes.ownLoad(slot)
	l.used = l.used.Add(c.demand)
	l.tasks++
	y.views.countTask(c, slot, 1)
	y.nodes.touch(l, slot)
	pl := Placement{Pending: pending, Task: p.Task, Node: y.nodes.fleet.name(slot)}
	if len(c.devices.requests) > 0 {
		uses := y.eval.devicesFor(c, slot)
		y.nodes.useDevices(slot, uses, 1)
		pl.Devices = uses
	}
	if len(p.Ports) > 0 {
		pl.Ports = y.nodes.ownPorts(slot).assign(p)
	}
	return pl
}

// finishTask notes that a task of the class is decided, and keeps what its class and group no longer need for reuse.
func (y *cycle) finishTask(c *taskClass) {
	c.left--
	c.group.left--
	y.search.release(c)
	y.views.release(c.group)
}

// giveBack undoes place. Cached refusals become invalid.
func (y *cycle) giveBack(pl *Placement, at placedTask) {
	c, l := y.classes.at[at.position], y.nodes.ownLoad(at.slot)
	l.used = l.used.Sub(c.demand)
	l.tasks--
	y.views.countTask(c, at.slot, -1)
	for _, port := range pl.Ports { // order-free: each for itself
		y.nodes.ownPorts(at.slot).remove(port)
	}
	if len(pl.Devices) > 0 {
		y.nodes.useDevices(at.slot, pl.Devices, -1)
	}
	y.nodes.touch(l, at.slot)
	y.nodes.undoCount++
}
