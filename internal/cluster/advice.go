package cluster

// ChangeKind says what a change changes. They stand in the order of their smallness: what takes nothing from anybody
// first, then what costs the task something, then what costs others.
type ChangeKind string

// Kinds of changes that would let a waiting task in.
const (
	ChangeRelease   ChangeKind = "release"   // the task: raise its priority from 0
	ChangeWait      ChangeKind = "wait"      // an earlier attempt of the task leaves its node
	ChangeUncordon  ChangeKind = "uncordon"  // the node: no cordon and no drain any more
	ChangeRevive    ChangeKind = "revive"    // the node is ready again
	ChangePort      ChangeKind = "port"      // the task: a port is assigned instead of a fixed one
	ChangeFree      ChangeKind = "free"      // the node: others reserve less there
	ChangeLower     ChangeKind = "lower"     // the task: it asks for less
	ChangeModel     ChangeKind = "model"     // the task: a device of any model will do
	ChangeDevices   ChangeKind = "devices"   // the task: fewer devices will do
	ChangeLoosen    ChangeKind = "loosen"    // the task: a constraint lets another value in
	ChangeWish      ChangeKind = "wish"      // the task: a demand on the nearness of others becomes a wish
	ChangeApart     ChangeKind = "apart"     // the task: its owner's tasks may share a node
	ChangeDistinct  ChangeKind = "distinct"  // the task: more of its owner's tasks may share a value
	ChangeSkew      ChangeKind = "skew"      // the task: its spread may be more uneven
	ChangeTolerate  ChangeKind = "tolerate"  // the task: it tolerates a taint
	ChangeUntaint   ChangeKind = "untaint"   // the node: without the taint
	ChangeDrop      ChangeKind = "drop"      // the task: without a constraint
	ChangeEnd       ChangeKind = "end"       // other tasks end, or move away
	ChangePool      ChangeKind = "pool"      // the task: it asks for no pool
	ChangeUnasked   ChangeKind = "unasked"   // the task: it names no reservation
	ChangeJoin      ChangeKind = "join"      // the node, which is in no pool, joins that of the task
	ChangeUnreserve ChangeKind = "unreserve" // what is reserved for others is given back
	ChangeExecutor  ChangeKind = "executor"  // the node: with another executor
	ChangeNetwork   ChangeKind = "network"   // the node: what it lacks for a network
	ChangeAdd       ChangeKind = "add"       // more nodes
)

// Values returns every ChangeKind, in the order of the constants.
func (ChangeKind) Values() []ChangeKind {
	return []ChangeKind{
		ChangeRelease, ChangeWait, ChangeUncordon, ChangeRevive, ChangePort, ChangeFree, ChangeLower, ChangeModel,
		ChangeDevices, ChangeLoosen, ChangeWish, ChangeApart, ChangeDistinct, ChangeSkew, ChangeTolerate, ChangeUntaint,
		ChangeDrop, ChangeEnd, ChangePool, ChangeUnasked, ChangeJoin, ChangeUnreserve, ChangeExecutor, ChangeNetwork,
		ChangeAdd,
	}
}

// Remedy is one change of a task that waits, of a node or of what stands there. Which fields it has depends on its
// kind.
type Remedy struct {
	Kind ChangeKind `json:"kind"`
	// Text says it as a request: "free 200 MiB of memory on n3".
	Text string `json:"text"`
	// Node is the one that is changed, or on which others end or reserve less.
	Node string `json:"node,omitempty"`
	// Demand is how much is to be freed, or by how much the task's own is to be lowered.
	Demand Demand `json:"demand,omitzero"`
	// Tasks are those that end; of what is to be freed, the fewest whose end would free it. Attempts are their UUIDs.
	Tasks    []TaskID `json:"tasks,omitempty"`
	Attempts []string `json:"attempts,omitempty"`
	// Number is the index, in the task's placement or its devices, of what is changed.
	Number int `json:"number,omitempty"`
	// Constraint is the one that is dropped, or what takes its place when it is loosened; Was is what it was then.
	Constraint *Constraint `json:"constraint,omitempty"`
	Was        *Constraint `json:"was,omitempty"`
	// Relation is the one that becomes a wish.
	Relation *Relation `json:"relation,omitempty"`
	Taint    *Taint    `json:"taint,omitempty"`
	// Limit is the new bound of a distinct or a skew, or the new count of devices; Attribute what a distinct or skew is
	// about.
	Limit     int    `json:"limit,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	// Port is the number that is no longer asked for.
	Port     int    `json:"port,omitempty"`
	Pool     string `json:"pool,omitempty"`
	Executor string `json:"executor,omitempty"`
	// Network is the one that the node is to offer.
	Network NetworkMode `json:"network,omitempty"`
	// Reservation names the one that is given back, or that the task does without.
	Reservation string `json:"reservation,omitempty"`
	// Machine is what a node to be added must be and have at least, and Count how many of them.
	Machine *Machine `json:"machine,omitempty"`
	Count   int      `json:"count,omitempty"`
}

// Machine is a node that is not there, as a task asks for one. What does not matter is empty.
type Machine struct {
	// Name is given where a constraint asks for it.
	Name      string   `json:"name,omitempty"`
	Capacity  Demand   `json:"capacity"`
	Arch      string   `json:"arch,omitempty"`
	OS        string   `json:"os,omitempty"`
	Kernel    string   `json:"kernel,omitempty"`
	Labels    Labels   `json:"labels,omitempty"`
	Pool      string   `json:"pool,omitempty"`
	Devices   []Device `json:"devices,omitempty"`
	Executors []string `json:"executors,omitempty"`
}

// Suggestion is a smallest set of changes of some kinds that together would let a waiting task, or its gang, be placed.
type Suggestion struct {
	Text    string   `json:"text"`
	Changes []Remedy `json:"changes"`
	// Nodes is how many nodes the task could run on after changes of these kinds, each on its own; the changes are
	// those for the one where the least has to change.
	Nodes int `json:"nodes,omitempty"`
	// Placed and Size, unless 0, say that the changes are not enough: so many of a gang of that size would find places
	// then.
	Placed int `json:"placed,omitempty"`
	Size   int `json:"size,omitempty"`
}
