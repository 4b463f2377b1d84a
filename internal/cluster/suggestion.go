package cluster

// ChangeKind is the kind of one suggested change. The constants are in the order of preference: changes without a cost,
// changes that cost the task something, changes that cost others.
type ChangeKind string

// Kinds of changes that would let a waiting task in.
const (
	ChangeRelease  ChangeKind = "release"  // the task: raise its priority from 0
	ChangeWait     ChangeKind = "wait"     // an earlier attempt of the task leaves its node
	ChangeUncordon ChangeKind = "uncordon" // the node: no cordon and no drain any more
	ChangeRevive   ChangeKind = "revive"   // the node is ready again
	ChangePort     ChangeKind = "port"     // the task: a port is assigned instead of a fixed one
	ChangeFree     ChangeKind = "free"     // the node: others reserve less there
	ChangeLower    ChangeKind = "lower"    // the task: it requests less
	ChangeModel    ChangeKind = "model"    // the task: a device of any model suffices
	ChangeDevices  ChangeKind = "devices"  // the task: fewer devices suffice
	ChangeLoosen   ChangeKind = "loosen"   // the task: a constraint lets another value in
	ChangeWish     ChangeKind = "wish"     // the task: a required relation becomes a preference
	ChangeApart    ChangeKind = "apart"    // the task: its owner's tasks may share a node
	ChangeDistinct ChangeKind = "distinct" // the task: more of its owner's tasks may share a value
	ChangeSkew     ChangeKind = "skew"     // the task: its spread may be more uneven
	// The task: more tasks of its concurrency group may run at a time.
	ChangeConcurrency ChangeKind = "concurrency"
	// The task: more jobs of the concurrency group of its job may have begun and not ended.
	ChangeJobConcurrency ChangeKind = "job-concurrency"
	// The task: it ends before room is needed that is kept for a task ahead of it in the queue.
	ChangeTimeLimit ChangeKind = "time-limit"
	// The task: it comes before the others in the queue.
	ChangePriority ChangeKind = "priority"

	ChangeTolerate  ChangeKind = "tolerate"  // the task: it tolerates a taint
	ChangeUntaint   ChangeKind = "untaint"   // the node: without the taint
	ChangeDrop      ChangeKind = "drop"      // the task: without a constraint
	ChangeEnd       ChangeKind = "end"       // other tasks end, or move away
	ChangePool      ChangeKind = "pool"      // the task: it names no pool
	ChangeUnasked   ChangeKind = "unasked"   // the task: it names no reservation
	ChangeJoin      ChangeKind = "join"      // the node, which is in no pool, joins that of the task
	ChangeUnreserve ChangeKind = "unreserve" // other owners give a reservation back
	ChangeQuota     ChangeKind = "quota"     // the cluster: a larger quota
	ChangeExecutor  ChangeKind = "executor"  // the node: with another executor
	ChangeNetwork   ChangeKind = "network"   // the node: what it lacks for a network
	ChangeAdd       ChangeKind = "add"       // more nodes
)

// Values returns every ChangeKind, in the order of the constants: the smallest change first.
func (ChangeKind) Values() []ChangeKind {
	return []ChangeKind{
		ChangeRelease, ChangeWait, ChangeUncordon, ChangeRevive, ChangePort, ChangeFree, ChangeLower, ChangeModel,
		ChangeDevices, ChangeLoosen, ChangeWish, ChangeApart, ChangeDistinct, ChangeSkew, ChangeConcurrency,
		ChangeJobConcurrency, ChangeTimeLimit, ChangePriority, ChangeTolerate, ChangeUntaint, ChangeDrop, ChangeEnd,
		ChangePool, ChangeUnasked, ChangeJoin, ChangeUnreserve, ChangeQuota, ChangeExecutor, ChangeNetwork, ChangeAdd,
	}
}

// Remedy is one suggested change of a waiting task, of a node, or of other tasks. Its kind decides which fields it has.
type Remedy struct {
	Kind ChangeKind `json:"kind"`
	// Text says it as a request: "free 200 MiB of memory on n3".
	Text string `json:"text"`
	// Node is the node that changes, or the node where other tasks end or reserve less.
	Node string `json:"node,omitempty"`
	// Demand is the amount to free, or the amount by which the task has to lower its own demand.
	Demand Demand `json:"demand,omitzero"`
	// Tasks are the tasks that end; for a change that frees capacity, the smallest set whose end would free it.
	// Attempts are their UUIDs.
	Tasks    []TaskID `json:"tasks,omitempty"`
	Attempts []string `json:"attempts,omitempty"`
	// Number is the index of the changed entry in the task's placement or in its devices.
	Number int `json:"number,omitempty"`
	// Constraint is the dropped constraint, or the looser one that replaces Was.
	Constraint *Constraint `json:"constraint,omitempty"`
	Was        *Constraint `json:"was,omitempty"`
	// Relation is the required relation that becomes a preference.
	Relation *Relation `json:"relation,omitempty"`
	Taint    *Taint    `json:"taint,omitempty"`
	// Limit is the new bound of a distinct, a skew or a concurrency group, or the new count of devices. Attribute is
	// the attribute of that distinct or skew.
	Limit     int    `json:"limit,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	// TimeLimit and Priority are the new ones of the task.
	TimeLimit Duration `json:"time_limit,omitzero"`
	Priority  int      `json:"priority,omitempty"`
	// Port is the number that is no longer requested.
	Port     int    `json:"port,omitempty"`
	Pool     string `json:"pool,omitempty"`
	Executor string `json:"executor,omitempty"`
	// Network is the network that the node has to offer.
	Network NetworkMode `json:"network,omitempty"`
	// Reservation names the reservation that is given back, or that the task no longer names.
	Reservation string `json:"reservation,omitempty"`
	// Cluster is the cluster that gets the Quota, the least one that suffices.
	Cluster string `json:"cluster,omitempty"`
	Quota   *Quota `json:"quota,omitempty"`
	// Machine describes the least node to add. Count is the number of such nodes.
	Machine *Machine `json:"machine,omitempty"`
	Count   int      `json:"count,omitempty"`
}

// Machine describes a node to add, as a task requires it. Fields that do not matter to the task are empty.
type Machine struct {
	// Name is given where a constraint requires it.
	Name      string   `json:"name,omitempty"`
	Capacity  Demand   `json:"capacity"`
	Arch      string   `json:"arch,omitempty"`
	OS        string   `json:"os,omitempty"`
	Kernel    string   `json:"kernel,omitempty"`
	Labels    Labels   `json:"labels,omitempty"`
	Pool      string   `json:"pool,omitempty"`
	Devices   []Device `json:"devices,omitempty"`
	Executors []string `json:"executors,omitempty"`
	// Network is the network that the task needs, unless it is that of the node.
	Network NetworkMode `json:"network,omitempty"`
}

// Suggestion is a smallest set of changes of some kinds that together would let a waiting task, or its gang, be placed.
type Suggestion struct {
	Text    string   `json:"text"`
	Changes []Remedy `json:"changes"`
	// Nodes counts the nodes where the task could run after changes of these kinds, each on its own. Changes are those
	// for the node that needs the least.
	Nodes int `json:"nodes,omitempty"`
	// Placed and Size, unless 0, say that the changes are not enough: only Placed tasks of a gang of Size would find
	// places.
	Placed int `json:"placed,omitempty"`
	Size   int `json:"size,omitempty"`
}
