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
	NodeDraining NodeState = "draining" // its tasks are moving away
	NodeDrained  NodeState = "drained"
)

// Values returns every NodeState, in the order of the constants.
func (NodeState) Values() []NodeState {
	return []NodeState{NodeAbsent, NodeJoining, NodeReady, NodeSuspect, NodeDown, NodeDraining, NodeDrained}
}

// Host holds the operator's settings of a node: the record host/<name>. Writer: the user.
type Host struct {
	Name   string `json:"name"`
	Domain string `json:"domain,omitempty"`
	Labels Labels `json:"labels,omitempty"`
	// Pool is the pool of the node; a node is in one pool at most. Tasks that name no pool run on nodes of any pool.
	Pool string `json:"pool,omitempty"`
	// Taints keep tasks without a toleration away. Key and effect together are unique.
	Taints []Taint `json:"taints,omitempty"`
	// ReservedPorts are never given to tasks, as those that the node's agent reserves. A task that has one keeps it.
	ReservedPorts []PortRange `json:"reserved_ports,omitempty"`
	// Cordon keeps new tasks away.
	Cordon bool `json:"cordon,omitempty"`
	// Drain, unless nil, moves the node's tasks away; it implies Cordon.
	Drain *Drain `json:"drain,omitempty"`
	// Gone says that the machine never returns: its tasks are replaced immediately, whatever their class (P6.3), and
	// then its records are removed.
	Gone bool `json:"gone,omitempty"`
	// Generation grows by force when the ownership is taken (P7.1).
	Generation uint64 `json:"generation,omitempty"`
	// Released, unless 0, is the generation under which the node was given to an owner outside of this store. Its agent
	// is refused, and gets no assignments, until the node is adopted again (P7.2).
	Released uint64 `json:"released,omitempty"`
	// Setup, unless nil, says how the machine was added with `berth node add`.
	Setup *HostSetup `json:"setup,omitempty"`
	// Dial, unless empty, makes the node a passive one: its agent opens no connection, and the servers dial it there.
	// See ParseDialAddress.
	Dial string `json:"dial,omitempty"`
}

// Drain is the request to empty a node.
type Drain struct {
	Since time.Time `json:"since"`
	// Deadline, unless zero, is when the remaining tasks are stopped, without regard to the budgets of their services.
	Deadline time.Time `json:"deadline,omitzero"`
	// Force stops everything immediately.
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
	// Returns counts how often in a row the node came back after a silence. Returned is the last such time. Until,
	// unless zero, is when the node takes new tasks again.
	Returns  int       `json:"returns,omitempty"`
	Returned time.Time `json:"returned,omitzero"`
	Until    time.Time `json:"until,omitzero"`
}

// Facts describe the machine, as its agent found it.
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
	// Hardware describes the parts of the machine; nil if the agent does not know them.
	Hardware *Hardware `json:"hardware,omitempty"`
	// Devices are the devices that tasks may reserve, ordered by ID, without broken ones.
	Devices []Device `json:"devices,omitempty"`
	// Images are the images on the node, by their canonical names in order. They are limited to MaxNodeImages, which
	// are not always the newest.
	Images []string `json:"images,omitempty"`
	// Volumes are the keys (VolumeKey) of the node's volumes that pin tasks to it, in order.
	Volumes []string `json:"volumes,omitempty"`
	// Folders, unless nil, lists the node's folders that tasks may use, and its copies of sticky volumes. An agent
	// without it allows any path and offers no host volumes.
	Folders *FolderFacts `json:"folders,omitempty"`
	// Address is where the node's ports are reached; Addresses are all that it has.
	Address   string   `json:"address"`
	Addresses []string `json:"addresses,omitempty"`
	// Executors that work on the node, the default first.
	Executors []ExecutorFact `json:"executors"`
	// ReservedPorts are taken by others than tasks.
	ReservedPorts []int `json:"reserved_ports,omitempty"`
	// Networks are the networks that the agent may give to tasks besides the node's own, and what they lack.
	Networks []NetworkFact `json:"networks,omitempty"`
	Labels   Labels        `json:"labels,omitempty"` // given to the agent by its flags
	// Secrets says that the agent can deliver secrets: it knows how, and the node has a file system in memory for them.
	Secrets bool `json:"secrets,omitempty"`
	// Services says that the agent can give containers the addresses of services, and can render templates.
	Services bool `json:"services,omitempty"`
	// Artifacts says that the agent can fetch artifacts.
	Artifacts bool `json:"artifacts,omitempty"`
	// ImageSources says that the agent knows images from other sources than registries.
	ImageSources bool `json:"image_sources,omitempty"`
	// ObjectStore says that the agent has an object store for images and artifacts.
	ObjectStore bool `json:"object_store,omitempty"`
	// Discovery is the system outside of Berth in which the agent registers tasks.
	Discovery DiscoveryFact `json:"discovery,omitzero"`
	Version   string        `json:"version"` // of the agent
}

// DiscoveryFact is a system for service discovery that an agent uses.
type DiscoveryFact struct {
	// Name is that of the system, such as "consul"; without a system it is empty.
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Problem says why the last calls failed; it is empty while they work.
	Problem string `json:"problem,omitempty"`
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
	// Isolation names the mechanisms for required isolation, such as "namespaces, landlock 7". It is empty if the
	// executor cannot isolate plain programs.
	Isolation string `json:"isolation,omitempty"`
	// NoIsolation says what the machine lacks for isolation and how to get it.
	NoIsolation string `json:"no_isolation,omitempty"`
}

// NodeStatus is the latest registration of a node's agent: the record status/<name>. Writer: the agent, through its
// dispatcher. The leader may end a session by a higher number, as a registration does, to make a node report again (ADR
// 0008).
type NodeStatus struct {
	Name string `json:"name"`
	// Session counts the registrations (P6.1).
	Session    uint64    `json:"session"`
	Registered time.Time `json:"registered"`
	Facts      Facts     `json:"facts"`
	// Synced says that the session's full report has arrived.
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
	// Stats is the node's resource usage, nil if the agent reported none.
	Stats *NodeStats
}

// NodeStats is the resource usage of a machine, as its agent last measured it. It is soft state, in memory only.
type NodeStats struct {
	At time.Time `json:"at"`
	// CPU is the mean since the last measurement, Memory all that is not available, Disk of the file
	// system that holds the agent's data.
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	Disk   Bytes    `json:"disk"`
	// Load is the one-minute load average.
	Load float64 `json:"load"`
	// Tasks counts the attempts with something running.
	Tasks int `json:"tasks"`
	// Each is the usage of single attempts: in a report, the attempts that changed since the last report; in a pulse,
	// all known attempts. It is ordered by UUID.
	Each []TaskStats `json:"each,omitempty"`
	// Pressure, unless nil, says that the node is short of memory.
	Pressure *Pressure `json:"pressure,omitempty"`
	// ImagesRemoved and ImagesFreed are how many images the agent removed since it was started because their disk was
	// full, and what that freed.
	ImagesRemoved int   `json:"images_removed,omitempty"`
	ImagesFreed   Bytes `json:"images_freed,omitempty"`
	// Sweep is the newest such removal. DiskFull, unless nil, says that nothing is left to remove.
	Sweep    *DiskSweep `json:"sweep,omitempty"`
	DiskFull *DiskFull  `json:"disk_full,omitempty"`
}
