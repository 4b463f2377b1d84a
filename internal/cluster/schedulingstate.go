package cluster

import "time"

// SchedulingLine is one line of the state of a domain for schedulers. Exactly one field is set.
type SchedulingLine struct {
	// Reset says that the lines up to the next revision are the whole state: the reader forgets what it knew.
	Reset bool `json:"reset,omitempty"`
	// Domain is the domain and its scheduler.
	Domain *SchedulingDomain `json:"domain,omitempty"`
	// Node is a node as it is now. A later line of the same name replaces it.
	Node *SchedulingNode `json:"node,omitempty"`
	// Group is a group of tasks as it is now. A later line of the same id replaces it.
	Group *SchedulingGroup `json:"group,omitempty"`
	// RemovedNode is the name of a node that is in the domain no longer, RemovedGroup the id of a group without tasks.
	RemovedNode  string `json:"removed_node,omitempty"`
	RemovedGroup string `json:"removed_group,omitempty"`
	// Revision ends lines that belong together: the state is consistent here. Proposals name it as their base.
	Revision string `json:"revision,omitempty"`
}

// SchedulingDomain is a domain in its state for schedulers.
type SchedulingDomain struct {
	Name string `json:"name"`
	// Revision is the revision of the domain's record, which proposals name; 0 for a domain without a record.
	Revision uint64 `json:"revision"`
	// Scheduler is the name of the scheduler that places the domain's tasks now.
	Scheduler string `json:"scheduler"`
	// Claim, unless nil, is the last claim of the domain.
	Claim *SchedulerClaim `json:"claim,omitempty"`
}

// Room is an amount of CPU, memory and disk, in numbers alone.
type Room struct {
	// CPU is in thousandths of a CPU.
	CPU int64 `json:"cpu_milli"`
	// Memory and Disk are in bytes.
	Memory int64 `json:"memory_bytes"`
	Disk   int64 `json:"disk_bytes"`
}

// RoomOf returns a demand in numbers.
func RoomOf(d Demand) Room { return Room{int64(d.CPU), int64(d.Memory), int64(d.Disk)} }

// Sub returns what is left of the room once another amount is taken from it.
func (r Room) Sub(o Room) Room { return Room{r.CPU - o.CPU, r.Memory - o.Memory, r.Disk - o.Disk} }

// Holds reports whether another amount fits into the room.
func (r Room) Holds(o Room) bool { return o.CPU <= r.CPU && o.Memory <= r.Memory && o.Disk <= r.Disk }

// SchedulingNode is a node in the state of its domain for schedulers.
type SchedulingNode struct {
	Name  string    `json:"name"`
	State NodeState `json:"state"`
	// Accepts says that the node takes new tasks: it is ready, and neither cordoned nor drained. Tasks of daemons,
	// which Berth places itself, may run there anyway.
	Accepts  bool    `json:"accepts"`
	Draining bool    `json:"draining,omitempty"`
	Pool     string  `json:"pool,omitempty"`
	Arch     string  `json:"arch,omitempty"`
	OS       string  `json:"os,omitempty"`
	Kernel   string  `json:"kernel,omitempty"`
	Labels   Labels  `json:"labels,omitempty"`
	Taints   []Taint `json:"taints,omitempty"`
	// Executors are the names of its executors.
	Executors []string `json:"executors,omitempty"`
	// Capacity is what tasks may use, and Free what is left of it. Free may be negative.
	Capacity Room `json:"capacity"`
	Free     Room `json:"free"`
	// ReservedPorts are never given to tasks.
	ReservedPorts []int `json:"reserved_ports,omitempty"`
	// Devices are the devices that tasks may reserve. Those in use are named by its tasks.
	Devices []Device `json:"devices,omitempty"`
	// Volumes are the keys of volumes on the node that bind their tasks to it.
	Volumes []string `json:"volumes,omitempty"`
	// Tasks are the attempts that hold room on the node, ordered by task.
	Tasks []SchedulingTask `json:"tasks,omitempty"`
}

// SchedulingTask is an attempt that holds room on a node.
type SchedulingTask struct {
	Task TaskID `json:"task"`
	// UUID identifies the attempt: commands that move or evict it name it.
	UUID string `json:"uuid"`
	// Group is the id of its group.
	Group  string `json:"group"`
	Demand Room   `json:"demand"`
	// Ports and Devices are those that it holds.
	Ports   []int       `json:"ports,omitempty"`
	Devices []DeviceUse `json:"devices,omitempty"`
	// Ended says that its programs have ended, and that its node cleans up.
	Ended bool `json:"ended,omitempty"`
}

// SchedulingGroup is the tasks of one service or step with one task definition. All of them make the same demands.
type SchedulingGroup struct {
	// ID is "<cluster>/<service>/<definition>@<version>" or "<cluster>/<job>/<step>/<definition>@<version>".
	ID         string   `json:"id"`
	Owner      OwnerRef `json:"owner"`
	Step       string   `json:"step,omitempty"`
	Definition Ref      `json:"definition"`
	// Running is the number of attempts that hold room on nodes.
	Running int `json:"running"`
	// Pending are the tasks without a place, ordered by id.
	Pending []SchedulingPending `json:"pending,omitempty"`
	// Priority orders tasks of different owners: a higher one is more urgent.
	Priority int `json:"priority"`
	// Demand is what each task needs.
	Demand Room `json:"demand"`
	// Ports are the ports that each task needs on its node, Devices the devices that it reserves.
	Ports   []Port          `json:"ports,omitempty"`
	Devices []DeviceRequest `json:"devices,omitempty"`
	// Placement has the constraints and preferences, those of the cluster included.
	Placement Placement `json:"placement,omitzero"`
	// Network is the requested network other than the node's own.
	Network NetworkMode `json:"network,omitempty"`
	// Gang is the number of tasks that are placed at the same time or not at all; 0 for tasks without a gang.
	Gang int `json:"gang,omitempty"`
	// Labels are those of the owner.
	Labels Labels `json:"labels,omitempty"`
	// TimeLimit is how long a task of a job may run; 0 for no limit.
	TimeLimit Duration `json:"time_limit,omitempty"`
}

// SchedulingPending is a task without a place, or several of a step with equal requests.
type SchedulingPending struct {
	Task TaskID `json:"task"`
	// Further is the number of tasks with the next indices that wait as it does.
	Further int `json:"further,omitempty"`
	// Attempt is the number of the attempt that waits.
	Attempt int       `json:"attempt"`
	Since   time.Time `json:"since"`
	// OnlyNode, unless empty, is the one node that the task is for. Berth places such a task itself.
	OnlyNode string `json:"only_node,omitempty"`
	// ExcludedNodes hold an earlier attempt of it. On PenalizedNodes, attempts of it failed.
	ExcludedNodes  []string `json:"excluded_nodes,omitempty"`
	PenalizedNodes []string `json:"penalized_nodes,omitempty"`
	// Held, unless empty, is why the task may not be placed yet.
	Held string `json:"held,omitempty"`
}
