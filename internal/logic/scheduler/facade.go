package scheduler

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/preemption"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// The nouns of this package's functions. The packages below define them; callers need this package alone.
type (
	// Node is what the scheduler knows of a node.
	Node = fleet.Node
	// Reservation is what one attempt of a task holds on a node.
	Reservation = fleet.Reservation
	// KeptRoom is the room that a service keeps on its node while it runs no task there.
	KeptRoom = fleet.KeptRoom
	// Fleet is the nodes of one domain with their reservations.
	Fleet = fleet.Fleet
	// Mix learns what arriving tasks ask of devices.
	Mix = devices.Mix
	// ValueModel is what the devices of a node are worth to the tasks that are likely to come.
	ValueModel = devices.ValueModel
	// Options tune a cycle.
	Options = taskclass.Options
	// Placement is a task with the node that it should run on.
	Placement = cycle.Placement
	// Blocker is one reason for which a node refuses a task.
	Blocker = feasibility.Blocker
	// PreemptInput is the input of Preempt, which does not change it.
	PreemptInput = preemption.Input
	// Victim is an attempt that may be ended for a task of higher priority.
	Victim = preemption.Victim
	// Preemption is a waiting task with the node where there will be room for it.
	Preemption = preemption.Preemption
)

// NewFleet returns a fleet without nodes.
func NewFleet() *Fleet { return fleet.New() }

// NodeOf joins the records of a node. A host or status that does not exist is nil. A node without a status has no
// capacity and no executor.
func NodeOf(host *cluster.Host, node *cluster.Node, status *cluster.NodeStatus) Node {
	return fleet.NodeOf(host, node, status)
}

// Matches reports whether the node meets the constraint. See package feasibility.
func Matches(c cluster.Constraint, n *Node) bool { return feasibility.Matches(c, n) }

// Text returns a constraint as people write it: "label.zone = b".
func Text(c cluster.Constraint) string { return feasibility.Text(c) }

// Allows reports whether a node meets what a placement demands of the node itself: its pool, its constraints, and
// tolerated taints. If running is true, the task runs there already, and only taints that evict count.
func Allows(p *cluster.Placement, n *Node, running bool) bool {
	return feasibility.Allows(p, n, running)
}

// Elsewhere returns the refusal of every other node by a task that is for one node.
func Elsewhere(node string) cluster.Refusal { return feasibility.Elsewhere(node) }

// Unmet returns the first demand on the node itself that the node does not meet, taints aside: the pool or a
// constraint. ok is false if all are met.
func Unmet(p *cluster.Placement, n *Node) (r cluster.Refusal, ok bool) {
	return feasibility.Unmet(p, n)
}

// Concerns reports whether a relation of the task own selects the task other, whose owner has the labels.
func Concerns(r cluster.Relation, own, other cluster.TaskID, labels cluster.Labels) bool {
	return fleet.Concerns(r, own, other, labels)
}

// Rank returns the priority by which a pending task is ordered: that of its owner and, for a job, what the task gained
// by waiting (AgeStep).
func Rank(p *cluster.Pending, now time.Time) int { return cycle.Rank(p, now) }

// Preempt selects tasks of lower priority that should end so that waiting tasks find places. See package preemption.
func Preempt(in PreemptInput, opts Options) []Preemption { return preemption.Preempt(in, opts) }
