package cluster

import "time"

// NodeState is the watcher's verdict on a node.
type NodeState string

// States of a node.
const (
	NodeAbsent   NodeState = "absent"   // no agent has registered under the name; shown for hosts, in no record
	NodeJoining  NodeState = "joining"  // it registered; its first full report is not in
	NodeReady    NodeState = "ready"    // it may take tasks
	NodeSuspect  NodeState = "suspect"  // silent, or back from too many silences: no new tasks
	NodeDown     NodeState = "down"     // silent for long: its tasks are lost by their class
	NodeDraining NodeState = "draining" // its tasks are moved away
	NodeDrained  NodeState = "drained"
)

// Values returns every NodeState, in the order of the constants.
func (NodeState) Values() []NodeState {
	return []NodeState{NodeAbsent, NodeJoining, NodeReady, NodeSuspect, NodeDown, NodeDraining, NodeDrained}
}

// Host is what the operator set for a node: the record host/<name>. Writer: the user.
type Host struct {
	Name   string `json:"name"`
	Domain string `json:"domain,omitempty"`
	Labels Labels `json:"labels,omitempty"`
	// Pool is the pool that the node is in; it is in one at most. Tasks that name no pool run on nodes of any.
	Pool string `json:"pool,omitempty"`
	// Taints keep tasks away that do not tolerate them. Of one key and effect there is one.
	Taints []Taint `json:"taints,omitempty"`
	// Cordon keeps new tasks away.
	Cordon bool `json:"cordon,omitempty"`
	// Drain, unless nil, moves the node's tasks away; it implies Cordon.
	Drain *Drain `json:"drain,omitempty"`
	// Gone says that the machine is known never to come back: its tasks are replaced at once, whatever their class
	// (P6.3), and then its records are removed.
	Gone bool `json:"gone,omitempty"`
	// Generation grows by force when the ownership is taken (P7.1).
	Generation uint64 `json:"generation,omitempty"`
}

// Drain asks for a node to be emptied.
type Drain struct {
	Since time.Time `json:"since"`
	// Deadline, unless zero, is when what is left is stopped, whatever it costs its services.
	Deadline time.Time `json:"deadline,omitzero"`
	// Force stops everything at once.
	Force bool `json:"force,omitempty"`
}

// Node is the control plane's view of a node: the record node/<name>. Writer: the control plane.
type Node struct {
	Name   string    `json:"name"`
	State  NodeState `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	Domain string    `json:"domain"`
	// Generation of the ownership; part of the token.
	Generation uint64 `json:"generation"`
	// Session is the registration that the verdict is about.
	Session uint64 `json:"session"`
	// Returns counts how often in a row the node came back after a silence, Returned is when it last did; Until, unless
	// zero, is when it takes new tasks again.
	Returns  int       `json:"returns,omitempty"`
	Returned time.Time `json:"returned,omitzero"`
	Until    time.Time `json:"until,omitzero"`
}

// Facts are what an agent found out about its machine.
type Facts struct {
	Hostname string   `json:"hostname"`
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	Kernel   string   `json:"kernel"`
	BootID   string   `json:"boot_id,omitempty"`
	CPU      MilliCPU `json:"cpu"`
	Memory   Bytes    `json:"memory"`
	// Disk is the capacity for tasks: of the file system that holds the agent's data.
	Disk  Bytes      `json:"disk"`
	Disks []DiskFact `json:"disks,omitempty"`
	// Devices are what tasks may reserve, ordered by ID; of what is broken nothing is said.
	Devices []Device `json:"devices,omitempty"`
	// Images are those that are on the node, by their normal names in order: MaxNodeImages at most, and not always the
	// newest.
	Images []string `json:"images,omitempty"`
	// Volumes are the keys of those on the node that keep tasks with them (VolumeKey), in order.
	Volumes []string `json:"volumes,omitempty"`
	// Folders, unless nil, is what the node lends to tasks of its own folders, and which of them keep copies of volumes
	// that stick to a task. Of agents that tell none, tasks can have any path and none of the others.
	Folders *FolderFacts `json:"folders,omitempty"`
	// Address is where the node's ports are reached; Addresses are all that it has.
	Address   string   `json:"address"`
	Addresses []string `json:"addresses,omitempty"`
	// Executors that work on the node, the default first.
	Executors []ExecutorFact `json:"executors"`
	// ReservedPorts are taken by others than tasks.
	ReservedPorts []int `json:"reserved_ports,omitempty"`
	// Networks are those that an agent may give to tasks beside the node's own, with what lacks for them.
	Networks []NetworkFact `json:"networks,omitempty"`
	Labels   Labels        `json:"labels,omitempty"` // given to the agent by its flags
	// Secrets says that the agent hands out secrets: it knows how, and the node has a place in memory for them.
	Secrets bool `json:"secrets,omitempty"`
	// Services says that the agent knows how to tell containers the addresses of services, and to make files from
	// templates.
	Services bool `json:"services,omitempty"`
	// Artifacts says that the agent fetches artifacts.
	Artifacts bool   `json:"artifacts,omitempty"`
	Version   string `json:"version"` // of the agent
}

// DiskFact is one file system.
type DiskFact struct {
	Mount string `json:"mount"`
	Type  string `json:"type"`
	Total Bytes  `json:"total"`
	Free  Bytes  `json:"free"`
}

// ExecutorFact is an executor with its version.
type ExecutorFact struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Isolation says by what plain programs are kept apart whose container demands it, such as "namespaces, landlock
	// 7"; empty where they cannot be.
	Isolation string `json:"isolation,omitempty"`
	// NoIsolation says what the machine lacks for that, and the way to get it.
	NoIsolation string `json:"no_isolation,omitempty"`
}

// NodeStatus is what a node's agent last registered: the record status/<name>. Writer: the agent, through its
// dispatcher. The leader ends a session by a higher number, as a registration does, where a node has to report anew
// (ADR 0008).
type NodeStatus struct {
	Name string `json:"name"`
	// Session counts the registrations (P6.1).
	Session    uint64    `json:"session"`
	Registered time.Time `json:"registered"`
	Facts      Facts     `json:"facts"`
	// Synced says that the session's full report is in.
	Synced bool `json:"synced"`
	// Token is the highest that the agent has seen (P1.7).
	Token Token `json:"token"`
}

// Pulse is the soft record of a session's last sign of life, kept in memory only.
type Pulse struct {
	Session uint64
	Seq     uint64
	// At is when the server received it and Next how long after that the next was promised, on
	// the server's boot-time clock.
	At   time.Duration
	Next time.Duration
	// Stats is what the node uses, nil where nothing was reported.
	Stats *NodeStats
}

// NodeStats is what a machine uses, as its agent last measured it. It is soft: it is kept in memory only.
type NodeStats struct {
	At time.Time `json:"at"`
	// CPU is the mean since the last measurement, Memory all that is not available, Disk of the file
	// system that holds the agent's data.
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	Disk   Bytes    `json:"disk"`
	// Load is the load average of one minute.
	Load float64 `json:"load"`
	// Tasks counts the attempts of which something runs.
	Tasks int `json:"tasks"`
	// Each holds what single attempts use. In a report it holds those that changed since they were last told; in a
	// pulse all that are known, by UUID in order.
	Each []TaskStats `json:"each,omitempty"`
	// Pressure, unless nil, says that the node is short of memory now.
	Pressure *Pressure `json:"pressure,omitempty"`
	// ImagesRemoved and ImagesFreed are how many images the agent removed since it was started because their disk was
	// full, and what that freed.
	ImagesRemoved int   `json:"images_removed,omitempty"`
	ImagesFreed   Bytes `json:"images_freed,omitempty"`
	// Sweep is the newest removal of images and artifacts for that reason, and DiskFull, unless nil, says that there is
	// nothing left to remove.
	Sweep    *DiskSweep `json:"sweep,omitempty"`
	DiskFull *DiskFull  `json:"disk_full,omitempty"`
}
