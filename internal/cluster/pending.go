package cluster

import (
	"slices"
	"time"
)

// Waiting is a task that could not be placed, with the reasons of all nodes.
type Waiting struct {
	Task TaskID `json:"task"`
	// Further is the number of tasks with the next indices that wait for the same reasons, as in Pending.
	Further int `json:"further,omitempty"`
	// Refusals counts nodes by refusal, most nodes first.
	Refusals []RefusalCount `json:"refusals"`
	// Sentence says the same to a person: "3 nodes: memory short by 200 MiB; 1 node: port 8080 taken".
	Sentence string `json:"sentence"`
	// Promise, unless nil, is the room that will be free for the task. Tasks behind it in the queue do not delay that.
	Promise *Promise `json:"promise,omitempty"`
}

// Promise is room that tasks of jobs will leave to a task of another job by their time limits.
type Promise struct {
	// Node is the node of the task. For a gang it is the node of the member that starts last.
	Node string `json:"node"`
	// At is when the room is free at the latest. It is zero if the task needs room of tasks without a time limit.
	At time.Time `json:"at,omitzero"`
	// After is the task whose end makes the room; "" if the caller does not see the task's cluster.
	After TaskID `json:"after"`
}

// RefusalCount is a refusal that several nodes share.
type RefusalCount struct {
	Refusal
	Nodes int `json:"nodes"`
}

// WaitingGroup holds tasks that wait for the same reasons. A group without tasks means all tasks that no other group
// names.
type WaitingGroup struct {
	Tasks    []TaskRange    `json:"tasks"`
	Refusals []RefusalCount `json:"refusals,omitempty"`
	Sentence string         `json:"sentence"`
	Promise  *Promise       `json:"promise,omitempty"`
}

// Count returns the number of the tasks that the group names.
func (g *WaitingGroup) Count() (tasks int) {
	for _, r := range g.Tasks {
		tasks += r.Count()
	}
	return tasks
}

// Has reports whether the group names a task.
func (g *WaitingGroup) Has(task TaskID) bool {
	return slices.ContainsFunc(g.Tasks, func(r TaskRange) bool { return r.Has(task) })
}

// Pending is a task that should run and is not placed. The reconciler passes it to the scheduler.
type Pending struct {
	Task    TaskID
	Attempt int // the number its next attempt will have
	// Further is the number of tasks of its step with the next indices that wait as it does: their requests are equal,
	// and none of them has had an attempt. So a step of a million tasks is one request.
	Further int
	Owner   OwnerRef
	// OwnerRev is the revision of the owner's spec that wants the task (P3.3).
	OwnerRev     uint64
	Definition   Ref
	Count        int
	Priority     int
	TimeLimit    Duration
	OnDisconnect OnDisconnect
	Placement    Placement // the owner's, with the cluster's constraints added
	Demand       Demand
	Ports        []Port
	// NeedsImage says that a container can only run from its image: it has an image and no command. With a command it
	// can also run as a plain process, on nodes that have the program.
	NeedsImage bool
	// Plain says that no container has an image, so only executors of plain programs run the task.
	Plain bool
	// Network is the requested network other than the node's own, else "".
	Network NetworkMode
	// ExcludedNodes holds the nodes where an earlier attempt of the task still runs (P3.6), ordered.
	ExcludedNodes []string
	// PenalizedNodes holds the nodes where attempts of the task failed, ordered. The scheduler prefers other nodes.
	PenalizedNodes []string
	// Restarted is the generation of the owner's last restart. Tasks of one definition from before it belong to another
	// version, from which anti-affinity does not separate newer tasks.
	Restarted uint64
	// OnlyNode, unless empty, is the one node that the task is for: the node of a daemon's task, or the node with its
	// volume. A cordon does not keep a daemon's task away.
	OnlyNode string
	Daemon   bool
	// Labels are the owner's labels, which the relations of other tasks match.
	Labels Labels
	// Volumes are the keys of volumes that pin the task: once nodes have one, the task runs only there.
	Volumes []string
	// Sticky are the keys of the task's sticky volumes, ordered. The scheduler prefers nodes that have one.
	Sticky []string
	// Devices are the requested devices, besides Demand.
	Devices []DeviceRequest
	// Images are the references that its containers run from, ordered: nodes that have them are better.
	Images []string
	// Gang, unless empty, names the gang that the task belongs to, and GangSize how many tasks it has: they are placed
	// in one cycle or none of them is.
	Gang     string
	GangSize int
	// Concurrency, unless nil, is the group of tasks of the cluster of which only some run at a time. JobConcurrency is
	// the group of its job.
	Concurrency    *Concurrency
	JobConcurrency *Concurrency
	// Queue is the policy of the queue of its pool; "" is QueueGreedy. It concerns tasks of jobs alone.
	Queue QueuePolicy
	// User requested the job of the task, and Weight is that of its cluster: see QueueFair.
	User   string
	Weight int
	// Hold, unless zero, is why the task may not be placed yet, whatever room there is.
	Hold Hold
	// Promised, unless empty, is the node where victims end to make room for this task. It goes there as soon as it
	// fits. Tasks behind it in the queue do not get that room.
	Promised string
	// Since is when the task began to wait: the end of its last attempt, or else the last write of its owner. Tasks
	// that wait longer go first among those of one priority.
	Since time.Time
}

// Hold is why a task may not be placed yet. The message is a whole sentence for people.
type Hold struct {
	Reason  ReasonCode
	Message string
}
