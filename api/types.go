// Package api holds the messages of Berth's HTTP API, as the server writes and
// the client reads them.
//
// Objects that users write (Cluster, Pool, Profile, TaskDefinition, Service, Job, Cron, Endpoint, Host) travel in the
// form in which the server keeps them; a view adds what the server knows of them. Every object that can be changed has
// a revision, which is its ETag and what If-Match compares. Types with certain values have constants and a method
// Values; a later server may send a value that is not among them.
//
// # Size
//
// The package has types and constants alone. A client imports one package for all messages, which refer to each other.
package api

import (
	"encoding/json"
	"time"
)

// Object is a manifest: an object with its kind. Spec is the object's own JSON.
type Object struct {
	Kind Kind            `json:"kind"`
	Spec json.RawMessage `json:"spec"`
}

// ApplyRequest requests the write of a set of objects, all or none.
type ApplyRequest struct {
	Objects []Object `json:"objects"`
	// DryRun returns the changes and writes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Action is the effect of an apply on one object.
type Action string

// Actions.
const (
	ActionCreate Action = "create"
	ActionUpdate Action = "update"
	ActionNone   Action = "none"
)

// Values returns every Action, in the order of the constants.
func (Action) Values() []Action {
	return []Action{ActionCreate, ActionUpdate, ActionNone}
}

// Change is the effect, or the predicted effect, of an apply on one object.
type Change struct {
	Kind    Kind   `json:"kind"`
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"` // a definition's as "web@1"
	Action  Action `json:"action"`
	// Fields that differ, ordered by path.
	Fields   []FieldChange `json:"fields,omitempty"`
	Revision uint64        `json:"revision,omitempty"` // after the write
	// Generation is that of a service after the write. It is higher than before if the write begins a rollout.
	Generation uint64 `json:"generation,omitempty"`
	// Effect describes in a sentence what the cluster will do: "rolls out web@2 over web@1, one task at a time".
	Effect string `json:"effect,omitempty"`
	// Note says what a new version lacks: "image app:1 is not pinned: …".
	Note string `json:"note,omitempty"`
}

// FieldChange is one field that differs, with both values as JSON.
type FieldChange struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// ApplyReply lists the changes of an apply, in their order.
type ApplyReply struct {
	Changes []Change `json:"changes"`
}

// Page is a part of a list, ordered by name. Next, unless empty, is the cursor of the next page.
type Page[T any] struct {
	Items []T `json:"items"`
	// Index is the revision of the list, for ?index=.
	Index uint64 `json:"index"`
	Next  string `json:"next,omitempty"`
}

// ClusterView is a cluster with its revision.
type ClusterView struct {
	Cluster
	Revision uint64 `json:"revision"`
	// Used is what the tasks hold of the quota. Lists of clusters and clusters without a quota do not have it.
	Used *QuotaUse `json:"used,omitempty"`
}

// DefinitionView is a version of a task definition with its revision.
type DefinitionView struct {
	TaskDefinition
	Revision uint64 `json:"revision"`
}

// ServiceView is a service with its status.
type ServiceView struct {
	Service
	Revision uint64        `json:"revision"`
	Status   ServiceStatus `json:"status"`
}

// ServiceStatus counts a service's tasks. Updated counts those of the newest version.
type ServiceStatus struct {
	Desired int          `json:"desired"`
	Running int          `json:"running"`
	Healthy int          `json:"healthy"`
	Updated int          `json:"updated"`
	Waiting int          `json:"waiting"`
	State   ServiceState `json:"state"`
	// Message says in a sentence why the service is not as desired; empty if it is.
	Message string `json:"message,omitempty"`
	// Unmet says which needs the first task waits for; empty if it waits for none.
	Unmet string `json:"unmet,omitempty"`
	// Versions counts the tasks of each version with running tasks, the newest first.
	Versions []VersionCount `json:"versions,omitempty"`
	// Rollout is the state of the newest version, empty if it has no record yet. RolloutMessage says it in a sentence.
	// Paused says that the user holds the rollout.
	Rollout        RolloutState `json:"rollout,omitempty"`
	RolloutMessage string       `json:"rollout_message,omitempty"`
	Paused         bool         `json:"paused,omitempty"`
	// Crashing are the tasks that end repeatedly. GivenUp are the tasks that are not retried until the service changes.
	Crashing []CrashLoop `json:"crashing,omitempty"`
	GivenUp  []TaskID    `json:"given_up,omitempty"`
	// MemoryTrouble says that the tasks repeatedly need more memory than they have, with the evidence.
	MemoryTrouble string `json:"memory_trouble,omitempty"`
}

// JobView is a job with its status.
type JobView struct {
	Job
	Revision uint64    `json:"revision"`
	Status   JobStatus `json:"status"`
}

// TaskCounts counts tasks of a job. A placed task without an outcome counts as running. A task that will not begin any
// more counts as cancelled.
type TaskCounts struct {
	Total     int `json:"total"`
	Pending   int `json:"pending"`
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
}

// JobStatus counts a job's tasks.
type JobStatus struct {
	TaskCounts
	State    JobState  `json:"state"`
	Message  string    `json:"message,omitempty"`
	Finished time.Time `json:"finished,omitzero"`
	// Unmet says which needs the first task of the run waits for; empty if it waits for none.
	Unmet string `json:"unmet,omitempty"`
	// Steps are in the order of the job.
	Steps []StepStatus `json:"steps,omitempty"`
}

// StepStatus counts the tasks of a step.
type StepStatus struct {
	Name string `json:"name"`
	TaskCounts
	State StepState `json:"state"`
	// Message says what the step waits for, or why it failed or was skipped.
	Message string `json:"message,omitempty"`
}

// Done reports whether the job has reached its final state.
func (s JobStatus) Done() bool { return s.State.Ended() }

// TaskView is one attempt of a task, or a task that waits for one.
type TaskView struct {
	ID         TaskID   `json:"id"`
	Attempt    int      `json:"attempt,omitempty"`
	UUID       string   `json:"uuid,omitempty"`
	Owner      OwnerRef `json:"owner"`
	Generation uint64   `json:"generation"`
	Step       string   `json:"step,omitempty"`
	Index      int      `json:"index"`
	// Further is the number of tasks with the next indices that the view stands for as well. A list shows so many equal
	// tasks that wait for the same reason. It also shows so those tasks of a step of more than 1,000 that succeeded at
	// their first attempt, unless it is asked for all tasks or for those that succeeded.
	Further int `json:"further,omitempty"`
	// Parameters are the values that the step gives to the task, by name.
	Parameters map[string]string `json:"parameters,omitempty"`
	Definition Ref               `json:"definition"`
	Node       string            `json:"node,omitempty"`
	Address    string            `json:"address,omitempty"` // the node's
	Ports      map[string]int    `json:"ports,omitempty"`
	State      State             `json:"state"`
	Health     Health            `json:"health,omitempty"`
	Reason     ReasonCode        `json:"reason,omitempty"`
	// Message says in a sentence why the task is in this state.
	Message  string    `json:"message,omitempty"`
	Placed   time.Time `json:"placed,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	Restarts int       `json:"restarts,omitempty"`
	// NextStart is set while the attempt is backing off: its node starts it again then, by the clock of the node.
	NextStart  time.Time         `json:"next_start,omitzero"`
	Containers []ContainerStatus `json:"containers,omitempty"`
	Exit       *Exit             `json:"exit,omitempty"`
	LogTail    string            `json:"log_tail,omitempty"`
	// Used is the resource use of the attempt, if the answering server knows it. A list that waits for a change does
	// not wait for it, and a streamed list is not sent for it.
	Used *TaskStats `json:"used,omitempty"`
	// Pressed says why the agent suggests to move the task away: the node is short of memory. It is as transient as
	// Used.
	Pressed string `json:"pressed,omitempty"`
	// Misplaced says why the attempt should no longer run on its node, and what will happen to it. The node has a
	// taint, or does not meet a constraint.
	Misplaced string `json:"misplaced,omitempty"`
}

// NodeView is a node with its resources and their use.
type NodeView struct {
	Name   string    `json:"name"`
	State  NodeState `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Domain string    `json:"domain"`
	Cordon bool      `json:"cordon,omitempty"`
	Labels Labels    `json:"labels,omitempty"`
	Pool   string    `json:"pool,omitempty"`
	Taints []Taint   `json:"taints,omitempty"`
	// ReservedPorts are those that the operator reserved. The facts have those of the node's agent.
	ReservedPorts []PortRange `json:"reserved_ports,omitempty"`
	Facts         Facts       `json:"facts"`
	Session       uint64      `json:"session"`
	Total         Demand      `json:"total"`
	Reserved      Demand      `json:"reserved"`
	Tasks         int         `json:"tasks"`
	Revision      uint64      `json:"revision"` // of the operator's settings
	// Setup says how the machine was added with `berth node add`; nil for another way.
	Setup *HostSetup `json:"setup,omitempty"`
	// Dial is where the servers dial the agent of a passive node; "" for a node whose agent dials the servers.
	// DialProblem says why the answering server does not reach it there.
	Dial        string `json:"dial,omitempty"`
	DialProblem string `json:"dial_problem,omitempty"`
	// LostDevices are the missing devices of the node that tasks hold, ordered by ID.
	LostDevices []LostDevice `json:"lost_devices,omitempty"`
	// KeptRoom is the room that services keep while they run no task on the node, ordered by owner. It is not part of
	// Reserved, and no other task gets it. Only a read of one node shows it, lists do not.
	KeptRoom []KeptRoom `json:"kept_room,omitempty"`
	// Gone says that the operator forgot the node. Its records are removed after its tasks were replaced.
	Gone bool `json:"gone,omitempty"`
	// Drain is nil unless the node is draining or drained.
	Drain *DrainView `json:"drain,omitempty"`
	// Server is the id of the server that the node's agent is connected to, if known.
	Server string `json:"server,omitempty"`
	// Used is the resource use of the machine, and Heartbeat its last report, if the answering server knows them. A
	// list that waits for a change does not wait for them, and a streamed list is not sent for them.
	Used      *NodeStats `json:"used,omitempty"`
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
}

// KeptRoom is the room that a service with keep_room keeps on its node while it runs no task there.
type KeptRoom struct {
	// Owner is the service; nil if the caller does not see its cluster.
	Owner  *OwnerRef `json:"owner,omitempty"`
	Demand Demand    `json:"demand"`
	// Ports are the fixed ports of its task, in ascending order.
	Ports []int `json:"ports,omitempty"`
	// Devices are the requests of its task. Devices of the node that meet them are kept.
	Devices []DeviceRequest `json:"devices,omitempty"`
}

// LostDevice is a missing device that a task holds.
type LostDevice struct {
	ID string `json:"id"`
	// Task is the task that holds the device; "" if the caller does not see the task's cluster.
	Task TaskID `json:"task,omitempty"`
}

// EventView is one event with its place in the log.
type EventView struct {
	// ID is the cursor: "<batch id>.<position>".
	ID         string    `json:"id"`
	At         time.Time `json:"at"`
	RoutingKey string    `json:"routing_key"`
	Event
}

// EventGap informs a slow reader of an event stream (type "gap") how many events were left out, and between which two.
type EventGap struct {
	Lost  int    `json:"lost"`
	First string `json:"first"`
	Last  string `json:"last"`
}

// ListMark is the data of the marks in a streamed list: "reset" (discard everything, the whole list follows) and
// "synced" (everything up to this index was sent).
type ListMark struct {
	Index uint64 `json:"index"`
}

// ListRemoval is the data of a "remove" in a streamed list: the element's name as in its address ("default/web" for a
// service).
type ListRemoval struct {
	Name string `json:"name"`
}

// ImageView is an image of a node.
type ImageView struct {
	Node   string `json:"node"`
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`
	Size   Bytes  `json:"size"`
	// Frees is the disk space that its removal frees. Used is the time when it was last used for a container or
	// removed. Kept says what prevents its removal.
	Frees Bytes     `json:"frees,omitempty"`
	Used  time.Time `json:"used,omitzero"`
	Kept  string    `json:"kept,omitempty"`
}

// ImagePull asks nodes to pull images.
type ImagePull struct {
	Images []string `json:"images"`
	// Nodes are the nodes to ask; default all.
	Nodes []string `json:"nodes,omitempty"`
	// Keep pins the images, so a node does not remove them for disk space.
	Keep bool `json:"keep,omitempty"`
}

// ImagePullNews is a line of the answer to a client that accepts application/x-ndjson: the progress of the pull on a
// node, and in the last line its result.
type ImagePullNews struct {
	Node  string `json:"node,omitempty"`
	Image string `json:"image,omitempty"`
	// Message is the progress in layers and bytes, or the registry's answer and the time of the next try.
	Message string `json:"message,omitempty"`
	// Done says that the node has finished.
	Done  bool         `json:"done,omitempty"`
	Reply *ImagesReply `json:"reply,omitempty"`
}

// ImagePrune asks nodes to remove images that nothing uses.
type ImagePrune struct {
	// Nodes are the nodes to ask; default all.
	Nodes []string `json:"nodes,omitempty"`
	// All also removes images that were loaded by hand or pinned.
	All bool `json:"all,omitempty"`
	// DryRun removes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Unused is the minimum time since the last use of an image.
	Unused Duration `json:"unused,omitempty"`
}

// PrunedImage is the result for one image of a node. Size is the disk space that its removal frees.
type PrunedImage struct {
	Node    string    `json:"node"`
	Names   []string  `json:"names"`
	Digest  string    `json:"digest"`
	Size    Bytes     `json:"size"`
	Used    time.Time `json:"used,omitzero"`
	Removed bool      `json:"removed,omitempty"`
	Kept    string    `json:"kept,omitempty"` // what prevents its removal
}

// ImagePruneReply lists all images of the nodes, each node's in the order of removal. Faults are the nodes without an
// answer.
type ImagePruneReply struct {
	Items  []PrunedImage `json:"items"`
	Faults []Fault       `json:"errors,omitempty"`
}

// ImagesReply lists images. Faults are the nodes without an answer.
type ImagesReply struct {
	Items  []ImageView `json:"items"`
	Faults []Fault     `json:"errors,omitempty"`
}

// Readiness is the answer of /readyz: for each part, "ok" or its fault. A fault of the parts store, recovery, audit and
// certificate needs attention but does not make the server unready.
type Readiness struct {
	Ready bool              `json:"ready"`
	Parts map[string]string `json:"parts"`
}

// ScaleRequest sets a service's count and the bounds of its scaling; omitted fields stay. Scaling starts again from the
// new count.
type ScaleRequest struct {
	Count *int `json:"count,omitempty"`
	Min   *int `json:"min,omitempty"`
	Max   *int `json:"max,omitempty"`
}

// PriorityRequest sets the priority of a job's tasks that are not placed yet.
type PriorityRequest struct {
	Priority Priority `json:"priority"`
}

// RetryRequest has failed tasks of a job tried again. Their failures so far no longer count: they have all the retries
// of their step again.
type RetryRequest struct {
	// Tasks are the ids of failed tasks; without them all failed tasks of the job are meant.
	Tasks []TaskID `json:"tasks,omitempty"`
}

// Problem is an error answer (RFC 9457). Faults lists all errors of the request.
type Problem struct {
	Type   string  `json:"type,omitempty"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Faults []Fault `json:"errors,omitempty"`
	// Oldest is the id of the oldest available event, if the cursor of events is too old (410).
	Oldest string `json:"oldest,omitempty"`
}

// LogLine is one line of a task's output.
type LogLine struct {
	Time      time.Time `json:"time"`
	Task      TaskID    `json:"task,omitempty"`
	Container string    `json:"container,omitempty"`
	Stream    LogStream `json:"stream"`
	Text      string    `json:"text"`
	// Partial says that the line continues in the stream's next line.
	Partial bool `json:"partial,omitempty"`
	// Lost, unless 0, is the number of lines that were left out here for a slow reader; the line has no text.
	Lost int `json:"lost,omitempty"`
}

// Version is the answer of /v1/version.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
}
