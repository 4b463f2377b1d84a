// Package cycle finds the best node for each of some pending tasks, and charges placements to an overlay of the fleet.
// To schedule, to preempt and to explain are three uses of a cycle.
package cycle

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/evaluation"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Cycle is pending tasks over one fleet, and the placements that were made of them so far. Its parts, from the lowest:
//
//   - Nodes: the fleet with the cycle's placements
//   - Views: how many tasks are near each node
//   - filters: which node classes can run a task, whatever runs there
//   - Classes: the tasks with equal requests
//   - Preparer: completes a class before its first turn
//   - Eval: what one node answers to a class
//   - Search: the best node for a class
//
// Each part refers to those before it. A cycle is not for concurrent use.
type Cycle struct {
	Nodes    fleet.Overlay
	Views    taskclass.Views
	filters  feasibility.Filters
	fits     devices.FitCache
	Classes  taskclass.Classifier
	Preparer taskclass.Preparer
	Eval     evaluation.Evaluator
	Search   Searcher
	// Limits holds what the fleet's tasks and the cycle's placements take of the limits of their clusters.
	Limits admission.Draft
}

// New returns a cycle without placements. It is ready after Start.
func New(f *fleet.Fleet, pending []cluster.Pending, opts taskclass.Options) *Cycle {
	y := &Cycle{Nodes: fleet.NewOverlay(f), Limits: admission.NewDraft(&f.Limits)}
	y.Views, y.filters = taskclass.NewViews(&y.Nodes), feasibility.NewFilters(&y.Nodes)
	y.Classes = taskclass.NewClassifier(&y.Nodes, pending, opts)
	y.Preparer = taskclass.NewPreparer(&y.Nodes, &y.Views, &y.filters, &y.fits)
	y.Eval = evaluation.New(&y.Nodes, &y.fits)
	y.Search = newSearcher(&y.Nodes, &y.Preparer, &y.Eval, opts.Search)
	return y
}

// Start finds the classes of the tasks in the order of decision, and counts the tasks that relations select. Call it
// once, before anything is placed.
func (y *Cycle) Start(order []int32) {
	y.Classes.Classify(order)
	y.Views.MakeRelationViews(y.Classes.List)
}

// Place charges a task of the class to the node, and chooses its devices and ports.
func (y *Cycle) Place(c *taskclass.Class, slot int32, pending int) Placement {
	p := &y.Classes.Pending[pending]
	l := y.Nodes.OwnLoad(slot)
	l.Used = l.Used.Add(c.Demand)
	l.Tasks++
	y.Views.CountTask(c, slot, 1)
	y.Nodes.Touch(l, slot)
	y.Limits.Add(p, 1)
	pl := Placement{Pending: pending, Task: p.Task, Node: y.Nodes.Fleet.Name(slot)}
	if len(c.Devices.Requests) > 0 {
		uses := y.Eval.DevicesFor(c, slot)
		y.Nodes.UseDevices(slot, uses, 1)
		pl.Devices = uses
	}
	if len(p.Ports) > 0 {
		pl.Ports = y.Nodes.OwnPorts(slot).Assign(p)
	}
	return pl
}

// FinishTask notes that tasks of the class are decided, and keeps what its class and group no longer need for reuse.
func (y *Cycle) FinishTask(c *taskclass.Class, tasks int) {
	c.Left -= tasks
	c.Group.Left -= tasks
	y.Search.release(c)
	y.Views.Release(c.Group)
}

// GiveBack undoes place. Cached refusals become invalid.
func (y *Cycle) GiveBack(pl *Placement, at PlacedTask) {
	c, l := y.Classes.At[at.Position], y.Nodes.OwnLoad(at.Slot)
	l.Used = l.Used.Sub(c.Demand)
	l.Tasks--
	y.Views.CountTask(c, at.Slot, -1)
	for _, port := range pl.Ports { // order-free: each for itself
		y.Nodes.OwnPorts(at.Slot).Remove(port)
	}
	if len(pl.Devices) > 0 {
		y.Nodes.UseDevices(at.Slot, pl.Devices, -1)
	}
	y.Nodes.Touch(l, at.Slot)
	y.Limits.Add(y.Classes.Task(at.Position), -1)
	y.Nodes.UndoCount++
}
