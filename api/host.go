package api

import "time"

// States of a task of a node that is no attempt. All other states are those of attempts.
const (
	// HostCreated is the state of a task that was created and never started.
	HostCreated = "created"
	// HostStopped is the state of a task that was stopped. It keeps its room until it is deleted.
	HostStopped = "stopped"
	// HostWaiting is the state of a started task that its node has not received yet.
	HostWaiting = "waiting"
)

// HostTask is a task on a node, as the API of the node shows it. It holds no environment, no files and no secrets.
type HostTask struct {
	// Name is the name in addresses of the API: the task's own name if it was made over this API, else its id.
	Name string `json:"name"`
	// State is the state of the newest attempt on the node, or created, stopped or waiting without one.
	State  string     `json:"state"`
	Health Health     `json:"health,omitempty"`
	Reason ReasonCode `json:"reason,omitempty"`
	// Message says in a sentence why the task is in this state.
	Message string `json:"message,omitempty"`
	// Own says that the task was made over this API, and that this API changes it.
	Own        bool     `json:"own,omitempty"`
	Owner      OwnerRef `json:"owner"`
	ID         TaskID   `json:"id,omitempty"`
	Attempt    int      `json:"attempt,omitempty"`
	UUID       string   `json:"uuid,omitempty"`
	Definition Ref      `json:"definition,omitzero"`
	// Demand is what the task reserves of the node. A stopped task reserves it too.
	Demand Demand `json:"demand"`
	// Ports are the numbers of its ports on the node, by name.
	Ports map[string]int `json:"ports,omitempty"`
	// Restarts and OOMs count restarts and kills for lack of memory. They count all attempts of the task on the node,
	// also those before a stop or a replacement, and survive restarts of the agent. A failed attempt that was replaced
	// is a restart. The numbers of the containers are those of the newest attempt.
	Restarts   int               `json:"restarts"`
	OOMs       int               `json:"ooms"`
	Started    time.Time         `json:"started,omitzero"`
	Finished   time.Time         `json:"finished,omitzero"`
	NextStart  time.Time         `json:"next_start,omitzero"`
	Containers []ContainerStatus `json:"containers,omitempty"`
	// Replaces is the task that is deleted once this one is healthy.
	Replaces string `json:"replaces,omitempty"`
}

// HostCPU is an amount of CPU of a node.
type HostCPU struct {
	Total    MilliCPU `json:"total"`
	Reserved MilliCPU `json:"reserved"`
	Used     MilliCPU `json:"used"`
}

// HostBytes is an amount of memory or disk of a node.
type HostBytes struct {
	Total    Bytes `json:"total"`
	Reserved Bytes `json:"reserved"`
	Used     Bytes `json:"used"`
}

// HostPorts are the ports of a node.
type HostPorts struct {
	// First and Last are the range of ports that are assigned to tasks.
	First int `json:"first"`
	Last  int `json:"last"`
	// Reserved are never given to tasks. Taken are those of tasks, also of stopped ones.
	Reserved []PortRange `json:"reserved,omitempty"`
	Taken    []int       `json:"taken,omitempty"`
}

// HostDevice is a device of a node, with what its tasks reserve of it, also the stopped ones.
type HostDevice struct {
	Device
	// Reserved is in thousandths of the device, and ReservedMemory a part of its memory.
	Reserved       int   `json:"reserved"`
	ReservedMemory Bytes `json:"reserved_memory,omitempty"`
}

// HostResources are the resources of a node: what it has, what its tasks reserve, and what it uses.
type HostResources struct {
	CPU    HostCPU   `json:"cpu"`
	Memory HostBytes `json:"memory"`
	Disk   HostBytes `json:"disk"`
	Ports  HostPorts `json:"ports"`
	// Devices are in the order in which the node found them. A stopped task reserves some that meet its requests: it
	// may get others of them when it starts.
	Devices []HostDevice `json:"devices,omitempty"`
	// Volumes are the folders that the node declares under a name.
	Volumes []HostVolume `json:"volumes,omitempty"`
	// Measured is when Used was measured, zero before the first measurement.
	Measured time.Time `json:"measured,omitzero"`
}

// HostOwner says who decides what runs on a node.
type HostOwner struct {
	// DrivesItself says that the node's own server runs in the same process. Only then this API changes tasks.
	DrivesItself bool `json:"drives_itself"`
	// Domain is the domain of the node, empty before its first session.
	Domain string `json:"domain,omitempty"`
	// Servers are the addresses of the servers.
	Servers []string `json:"servers,omitempty"`
	// Generation counts the owners of the node.
	Generation uint64 `json:"generation,omitempty"`
	// Answered is when a server last answered the agent. An event does not come for it.
	Answered time.Time `json:"answered,omitzero"`
}

// HostState is all that runs on a node at one moment, with its resources. It is the first event of a stream.
type HostState struct {
	Node      string        `json:"node"`
	Owner     HostOwner     `json:"owner"`
	Tasks     []HostTask    `json:"tasks"`
	Resources HostResources `json:"resources"`
}

// HostChange is a later event of a stream: the tasks that changed, in full, and the resources after the change.
type HostChange struct {
	Node  string    `json:"node"`
	Owner HostOwner `json:"owner"`
	// Tasks are new or changed. Removed are the names of tasks that are no longer on the node.
	Tasks     []HostTask    `json:"tasks,omitempty"`
	Removed   []string      `json:"removed,omitempty"`
	Resources HostResources `json:"resources"`
}
