package api

import (
	"time"
)

// SimulateRequest asks what would become of the domain. Nothing is written.
type SimulateRequest struct {
	// Changes are made in their order; each begins once what the one before set off has come to rest. There is one at
	// least, and there are at most MaxSimulateChanges.
	Changes []SimulateChange `json:"changes"`
}

// Bounds of a simulation.
const (
	MaxSimulateChanges = 1000
	// MaxSimulateNodes is how many nodes the changes may add together.
	MaxSimulateNodes = 10_000
)

// SimulateChange is one change of a simulation. Exactly one field is set.
type SimulateChange struct {
	AddNodes *SimulateNodes `json:"add_nodes,omitempty"`
	// RemoveNode names a node that dies and never comes back.
	RemoveNode string `json:"remove_node,omitempty"`
	// DrainNode, UndrainNode, CordonNode and UncordonNode name the node of which the operator asks this.
	DrainNode    string `json:"drain_node,omitempty"`
	UndrainNode  string `json:"undrain_node,omitempty"`
	CordonNode   string `json:"cordon_node,omitempty"`
	UncordonNode string `json:"uncordon_node,omitempty"`
	// Taint gives a node taints, Untaint takes some away.
	Taint   *SimulateTaints `json:"taint,omitempty"`
	Untaint *SimulateTaints `json:"untaint,omitempty"`
	// Run writes objects as an apply does, all or none.
	Run   []Object       `json:"run,omitempty"`
	Scale *SimulateScale `json:"scale,omitempty"`
	// Restart replaces all tasks of a service, Delete deletes a service, a job or a cron.
	Restart *SimulateObject `json:"restart,omitempty"`
	Delete  *SimulateObject `json:"delete,omitempty"`
}

// SimulateNodes are equal nodes that are added.
type SimulateNodes struct {
	// Count is 1 to MaxSimulateNodes, default 1.
	Count int `json:"count,omitempty"`
	// Name is that of the node, or with a larger count what all names begin with: "gpu" makes gpu-1, gpu-2. Default
	// "new".
	Name string `json:"name,omitempty"`
	// Like names the node whose size, devices, labels, pool and taints the new ones have, but for what is said here.
	// Without it they have the size that most nodes have, and no labels, pool and taints but those that are said.
	Like    string         `json:"like,omitempty"`
	CPU     string         `json:"cpu,omitempty"`    // such as "8" or "500m"
	Memory  string         `json:"memory,omitempty"` // such as "32GiB"
	Disk    string         `json:"disk,omitempty"`
	Arch    string         `json:"arch,omitempty"` // such as "arm64"
	Labels  Labels         `json:"labels,omitempty"`
	Pool    string         `json:"pool,omitempty"`
	Taints  []string       `json:"taints,omitempty"` // such as "dedicated=gpu:no-schedule"
	Devices []SimulateGPUs `json:"devices,omitempty"`
}

// SimulateGPUs are equal devices of a node that is added.
type SimulateGPUs struct {
	Type   string `json:"type,omitempty"` // default "gpu"
	Model  string `json:"model,omitempty"`
	Count  int    `json:"count"`            // 1 to 256
	Memory string `json:"memory,omitempty"` // of each
}

// SimulateTaints are taints of a node. To untaint, a key alone names all of its effects.
type SimulateTaints struct {
	Node   string   `json:"node"`
	Taints []string `json:"taints"`
}

// SimulateScale sets the count of a service.
type SimulateScale struct {
	Cluster string `json:"cluster,omitempty"` // default "default"
	Service string `json:"service"`
	Count   int    `json:"count"`
}

// SimulateObject names a service, a job or a cron.
type SimulateObject struct {
	Kind    Kind   `json:"kind,omitempty"`    // default Service
	Cluster string `json:"cluster,omitempty"` // default "default"
	Name    string `json:"name"`
}

// Simulation is what would become of the domain.
type Simulation struct {
	// Revision is that of the state that it began with, and At the time of that.
	Revision uint64    `json:"revision"`
	At       time.Time `json:"at"`
	// Lasted is how much time passes until all is at rest, if each task is healthy and each stopped one gone at once.
	Lasted Duration `json:"lasted"`
	// Fits says that no task waits at the end that did not wait before the changes, and that no rollout failed.
	Fits bool `json:"fits"`
	// Settled says that all came to rest within the time that a simulation lasts at most.
	Settled bool `json:"settled"`
	// Steps tell what each change brought, in their order.
	Steps []SimulateStep `json:"steps"`
	// Tasks are those that stand elsewhere at the end than before the changes, by their ids.
	Tasks []SimulateTask `json:"tasks"`
	// Waiting are the tasks that wait at the end, and Waited how many waited before the changes.
	Waiting []SimulateWaiting `json:"waiting"`
	Waited  int               `json:"waited"`
	// Nodes are all nodes of the domain, by their names; also those that are gone at the end.
	Nodes []SimulateNode `json:"nodes"`
	// Notes are what else there is to know of it, such as a rollout that failed.
	Notes []string `json:"notes,omitempty"`
}

// SimulateStep is what one change brought.
type SimulateStep struct {
	Change  string   `json:"change"`
	Placed  int      `json:"placed"`
	Moved   int      `json:"moved"`
	Ended   int      `json:"ended"`
	Waiting int      `json:"waiting"`
	Lasted  Duration `json:"lasted"`
}

// What becomes of a task.
const (
	SimulatePlaced = "placed" // it was not there before, or waited
	SimulateMoved  = "moved"
	SimulateEnded  = "ended" // it is not there any more, or waits again
)

// SimulateTask is a task that stands elsewhere than before.
type SimulateTask struct {
	Task       TaskID   `json:"task"`
	Owner      OwnerRef `json:"owner"`
	Definition Ref      `json:"definition"`
	What       string   `json:"what"`
	// From and To are the nodes; empty for none. Ports and Devices are those that it holds at the end.
	From    string         `json:"from,omitempty"`
	To      string         `json:"to,omitempty"`
	Ports   map[string]int `json:"ports,omitempty"`
	Devices []DeviceUse    `json:"devices,omitempty"`
}

// SimulateWaiting is tasks that wait for the same reasons.
type SimulateWaiting struct {
	Tasks    []TaskID       `json:"tasks"`
	Refusals []RefusalCount `json:"refusals,omitempty"`
	Sentence string         `json:"sentence"`
	// New is how many of them did not wait before the changes.
	New int `json:"new"`
}

// What becomes of a node.
const (
	SimulateAdded   = "added"
	SimulateRemoved = "removed"
)

// SimulateNode is how full a node is before the changes and at the end.
type SimulateNode struct {
	Name   string       `json:"name"`
	State  NodeState    `json:"state"` // at the end
	Change string       `json:"change,omitempty"`
	Total  Demand       `json:"total"`
	Before SimulateLoad `json:"before"`
	After  SimulateLoad `json:"after"`
	// Devices is how many devices it has, cores that tasks hold not counted.
	Devices int `json:"devices,omitempty"`
}

// SimulateLoad is what tasks take up on a node.
type SimulateLoad struct {
	Tasks    int    `json:"tasks"`
	Reserved Demand `json:"reserved"`
	// Devices is how much of devices they hold, in thousandths of one.
	Devices int `json:"devices,omitempty"`
}
