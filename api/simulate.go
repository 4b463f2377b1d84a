package api

import (
	"time"
)

// SimulateRequest requests the effect of changes on a domain. Nothing is written.
type SimulateRequest struct {
	// Domain is the domain of the changed nodes and clusters. Default: the domain default.
	Domain string `json:"domain,omitempty"`
	// Changes are applied in order. Each begins after the effects of the one before have settled. There are 1 to
	// MaxSimulateChanges.
	Changes []SimulateChange `json:"changes"`
}

// Bounds of a simulation.
const (
	MaxSimulateChanges = 1000
	// MaxSimulateNodes is the maximum number of nodes that all changes together add.
	MaxSimulateNodes = 10_000
)

// SimulateChange is one change of a simulation. Exactly one field is set.
type SimulateChange struct {
	AddNodes *SimulateNodes `json:"add_nodes,omitempty"`
	// RemoveNode names a node that fails permanently.
	RemoveNode string `json:"remove_node,omitempty"`
	// DrainNode, UndrainNode, CordonNode and UncordonNode name the node for the action.
	DrainNode    string `json:"drain_node,omitempty"`
	UndrainNode  string `json:"undrain_node,omitempty"`
	CordonNode   string `json:"cordon_node,omitempty"`
	UncordonNode string `json:"uncordon_node,omitempty"`
	// Taint adds taints to a node, Untaint removes some.
	Taint   *SimulateTaints `json:"taint,omitempty"`
	Untaint *SimulateTaints `json:"untaint,omitempty"`
	// Run writes objects as an apply does, all or none.
	Run   []Object       `json:"run,omitempty"`
	Scale *SimulateScale `json:"scale,omitempty"`
	// Restart replaces all tasks of a service, Delete deletes a service, a job or a cron.
	Restart *SimulateObject `json:"restart,omitempty"`
	Delete  *SimulateObject `json:"delete,omitempty"`
}

// SimulateNodes are equal nodes to add.
type SimulateNodes struct {
	// Count is 1 to MaxSimulateNodes, default 1.
	Count int `json:"count,omitempty"`
	// Name is the node's name. With a Count above 1 it is the prefix: "gpu" makes gpu-1, gpu-2. Default "new".
	Name string `json:"name,omitempty"`
	// Like names a node whose size, devices, labels, pool and taints are the defaults of the new ones. Without it, the
	// default size is the most common one, and there are no labels, pool or taints.
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

// SimulateGPUs are equal devices of an added node.
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

// Simulation is the predicted effect on the domain.
type Simulation struct {
	// Revision is the revision of the initial state, and At its time.
	Revision uint64    `json:"revision"`
	At       time.Time `json:"at"`
	// Lasted is the time until everything has settled, if each task is healthy immediately and each stopped task ends
	// immediately.
	Lasted Duration `json:"lasted"`
	// Fits says that no further task waits at the end than before the changes, and that no rollout failed.
	Fits bool `json:"fits"`
	// Settled says that everything settled within the maximum time of a simulation.
	Settled bool `json:"settled"`
	// Steps are the effects of each change, in order.
	Steps []SimulateStep `json:"steps"`
	// Tasks are the tasks whose node differs from before the changes, ordered by id.
	Tasks []SimulateTask `json:"tasks"`
	// Waiting are the tasks that wait at the end, and Waited is the number that waited before the changes.
	Waiting []SimulateWaiting `json:"waiting"`
	Waited  int               `json:"waited"`
	// Nodes are all nodes of the domain, ordered by name, including nodes that are gone at the end.
	Nodes []SimulateNode `json:"nodes"`
	// Notes are further results, such as a failed rollout.
	Notes []string `json:"notes,omitempty"`
}

// SimulateStep is the effect of one change.
type SimulateStep struct {
	Change  string   `json:"change"`
	Placed  int      `json:"placed"`
	Moved   int      `json:"moved"`
	Ended   int      `json:"ended"`
	Waiting int      `json:"waiting"`
	Lasted  Duration `json:"lasted"`
}

// SimulateTaskEffect is the effect of a simulation on a task.
type SimulateTaskEffect string

// Effects on a task.
const (
	SimulatePlaced SimulateTaskEffect = "placed" // it did not exist before, or waited
	SimulateMoved  SimulateTaskEffect = "moved"
	SimulateEnded  SimulateTaskEffect = "ended" // it no longer exists, or waits again
)

// Values returns every SimulateTaskEffect, in the order of the constants.
func (SimulateTaskEffect) Values() []SimulateTaskEffect {
	return []SimulateTaskEffect{SimulatePlaced, SimulateMoved, SimulateEnded}
}

// SimulateTask is a task whose node differs from before.
type SimulateTask struct {
	Task       TaskID             `json:"task"`
	Owner      OwnerRef           `json:"owner"`
	Definition Ref                `json:"definition"`
	What       SimulateTaskEffect `json:"what"`
	// From and To are the nodes, empty for none. Ports and Devices are the task's at the end.
	From    string         `json:"from,omitempty"`
	To      string         `json:"to,omitempty"`
	Ports   map[string]int `json:"ports,omitempty"`
	Devices []DeviceUse    `json:"devices,omitempty"`
}

// SimulateWaiting is a group of tasks that wait for the same reasons.
type SimulateWaiting struct {
	Tasks    []TaskID       `json:"tasks"`
	Refusals []RefusalCount `json:"refusals,omitempty"`
	Sentence string         `json:"sentence"`
	// New is the number of them that did not wait before the changes.
	New int `json:"new"`
}

// SimulateNodeEffect is the effect of a simulation on a node.
type SimulateNodeEffect string

// Effects on a node.
const (
	SimulateAdded   SimulateNodeEffect = "added"
	SimulateRemoved SimulateNodeEffect = "removed"
)

// Values returns every SimulateNodeEffect, in the order of the constants.
func (SimulateNodeEffect) Values() []SimulateNodeEffect {
	return []SimulateNodeEffect{SimulateAdded, SimulateRemoved}
}

// SimulateNode is the load of a node before the changes and at the end.
type SimulateNode struct {
	Name   string             `json:"name"`
	State  NodeState          `json:"state"`            // at the end
	Change SimulateNodeEffect `json:"change,omitempty"` // empty for a node that stays
	Total  Demand             `json:"total"`
	Before SimulateLoad       `json:"before"`
	After  SimulateLoad       `json:"after"`
	// Devices is the number of the node's devices, without cores that tasks hold.
	Devices int `json:"devices,omitempty"`
}

// SimulateLoad is the reserved part of a node.
type SimulateLoad struct {
	Tasks    int    `json:"tasks"`
	Reserved Demand `json:"reserved"`
	// Devices is the reserved part of the devices, in thousandths of one.
	Devices int `json:"devices,omitempty"`
}
