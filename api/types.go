// Package api holds the messages of Berth's HTTP API, as the server writes and
// the client reads them.
//
// Objects that users write (Cluster, TaskDefinition, Service, Job, Cron, Host) travel in the form in which the server
// keeps them; a view adds what the server knows of them. Every object that can be changed has a
// revision, which is its ETag and what If-Match compares. Types with certain values have constants and a method
// Values; a later server may send a value that is not among them.
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

// ApplyRequest asks for a set of objects to be written, all or none.
type ApplyRequest struct {
	Objects []Object `json:"objects"`
	// DryRun answers what would change and writes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Action is what an apply does to one object.
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

// Change is what an apply does, or would do, to one object.
type Change struct {
	Kind    Kind   `json:"kind"`
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"` // a definition's as "web@1"
	Action  Action `json:"action"`
	// Fields that differ, ordered by path.
	Fields   []FieldChange `json:"fields,omitempty"`
	Revision uint64        `json:"revision,omitempty"` // after the write
	// Effect says in a sentence what the cluster will do: "rolls out web@2 over web@1, one task at a time".
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

// ApplyReply tells what an apply did, in the order in which it was done.
type ApplyReply struct {
	Changes []Change `json:"changes"`
}

// Page is a part of a list, ordered by name. Next, unless empty, is the cursor of the next page.
type Page[T any] struct {
	Items []T `json:"items"`
	// Index is the revision that the list was read at: what ?index= takes.
	Index uint64 `json:"index"`
	Next  string `json:"next,omitempty"`
}

// ClusterView is a cluster with its revision.
type ClusterView struct {
	Cluster
	Revision uint64 `json:"revision"`
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

// ServiceStatus counts a service's tasks. Updated are those of the newest version.
type ServiceStatus struct {
	Desired int `json:"desired"`
	Running int `json:"running"`
	Healthy int `json:"healthy"`
	Updated int `json:"updated"`
	Waiting int `json:"waiting"`
	// State is "healthy", "starting", "rolling-out", "canary", "paused", "rollout-failed", "crash-looping", "degraded",
	// "failing", "stopped", "stopping" or "deleting".
	State string `json:"state"`
	// Message says in a sentence why it is not as desired; empty when it is.
	Message string `json:"message,omitempty"`
	// Versions counts the tasks of each version that runs, the newest first.
	Versions []VersionCount `json:"versions,omitempty"`
	// Rollout is where the newest version stands, empty while nothing is known of it, and RolloutMessage says it in a
	// sentence; Paused that the user holds it there.
	Rollout        RolloutState `json:"rollout,omitempty"`
	RolloutMessage string       `json:"rollout_message,omitempty"`
	Paused         bool         `json:"paused,omitempty"`
	// Crashing are tasks that end again and again, GivenUp those that are not tried again until the service changes.
	Crashing []CrashLoop `json:"crashing,omitempty"`
	GivenUp  []TaskID    `json:"given_up,omitempty"`
	// MemoryTrouble says that the tasks want more memory than they have, again and again, and what that looks like.
	MemoryTrouble string `json:"memory_trouble,omitempty"`
}

// JobView is a job with its status.
type JobView struct {
	Job
	Revision uint64    `json:"revision"`
	Status   JobStatus `json:"status"`
}

// JobStatus counts a job's tasks.
type JobStatus struct {
	Total     int `json:"total"`
	Pending   int `json:"pending"`
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
	// State is "pending", "running", "succeeded", "failed", "cancelled" or "deleting".
	State    string    `json:"state"`
	Message  string    `json:"message,omitempty"`
	Finished time.Time `json:"finished,omitzero"`
}

// Done reports whether the job will not change any more.
func (s JobStatus) Done() bool {
	return s.State == "succeeded" || s.State == "failed" || s.State == "cancelled"
}

// TaskView is one attempt of a task, or a task that waits for one.
type TaskView struct {
	ID         TaskID         `json:"id"`
	Attempt    int            `json:"attempt,omitempty"`
	UUID       string         `json:"uuid,omitempty"`
	Owner      OwnerRef       `json:"owner"`
	Generation uint64         `json:"generation"`
	Step       string         `json:"step,omitempty"`
	Index      int            `json:"index"`
	Definition Ref            `json:"definition"`
	Node       string         `json:"node,omitempty"`
	Address    string         `json:"address,omitempty"` // the node's
	Ports      map[string]int `json:"ports,omitempty"`
	State      State          `json:"state"`
	Health     Health         `json:"health,omitempty"`
	Reason     ReasonCode     `json:"reason,omitempty"`
	// Message says in a sentence why it is in this state: why it waits, why it failed.
	Message    string            `json:"message,omitempty"`
	Placed     time.Time         `json:"placed,omitzero"`
	Started    time.Time         `json:"started,omitzero"`
	Finished   time.Time         `json:"finished,omitzero"`
	Restarts   int               `json:"restarts,omitempty"`
	Containers []ContainerStatus `json:"containers,omitempty"`
	Exit       *Exit             `json:"exit,omitempty"`
	LogTail    string            `json:"log_tail,omitempty"`
	// Used is what the attempt uses, where its agent told the server that answers. A list that waits for a change does
	// not wait for this, nor is a streamed one sent for its sake.
	Used *TaskStats `json:"used,omitempty"`
	// Pressed says why its node's agent suggests to move it away: the node is short of memory. It is soft, as Used is.
	Pressed string `json:"pressed,omitempty"`
	// Misplaced says why the attempt should not be on its node as that is now, and what becomes of it: the node has a
	// taint, or does not meet a constraint.
	Misplaced string `json:"misplaced,omitempty"`
}

// NodeView is a node with what it has and what is taken.
type NodeView struct {
	Name     string    `json:"name"`
	State    NodeState `json:"state"`
	Reason   string    `json:"reason,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Domain   string    `json:"domain"`
	Cordon   bool      `json:"cordon,omitempty"`
	Labels   Labels    `json:"labels,omitempty"`
	Pool     string    `json:"pool,omitempty"`
	Taints   []Taint   `json:"taints,omitempty"`
	Facts    Facts     `json:"facts"`
	Session  uint64    `json:"session"`
	Total    Demand    `json:"total"`
	Reserved Demand    `json:"reserved"`
	Tasks    int       `json:"tasks"`
	Revision uint64    `json:"revision"` // of the operator's settings
	// LostDevices are such that tasks hold here and that the node does not have any more, ordered by their IDs.
	LostDevices []LostDevice `json:"lost_devices,omitempty"`
	// Gone says that the operator forgot the node: its records go once its tasks are replaced.
	Gone bool `json:"gone,omitempty"`
	// Drain is nil unless the node is emptied, or was and is kept so.
	Drain *DrainView `json:"drain,omitempty"`
	// Server is the id of the server that the node's agent is connected to, where that is known.
	Server string `json:"server,omitempty"`
	// Used is what the machine uses, and Heartbeat its last sign of life, where the server that answers knows them. A
	// list that waits for a change does not wait for these, nor is a streamed one sent for their sake.
	Used      *NodeStats `json:"used,omitempty"`
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
}

// LostDevice is a device that is gone while a task holds it.
type LostDevice struct {
	ID string `json:"id"`
	// Task is the task that holds it; "" where the caller does not see the task's cluster.
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

// EventGap is what a stream of events (type "gap") tells a reader that was too slow: how many events were left
// out, between which two.
type EventGap struct {
	Lost  int    `json:"lost"`
	First string `json:"first"`
	Last  string `json:"last"`
}

// ListMark is the data of the marks in a list that is streamed: "reset" (forget all, the whole list follows) and
// "synced" (all up to this index has been sent).
type ListMark struct {
	Index uint64 `json:"index"`
}

// ListRemoval is the data of a "remove" in a list that is streamed: the element's name as in its address
// ("default/web" for a service).
type ListRemoval struct {
	Name string `json:"name"`
}

// ImageView is an image that a node holds.
type ImageView struct {
	Node   string `json:"node"`
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`
	Size   Bytes  `json:"size"`
	// Frees is what the node's disk gains without it, Used when a container was last made from it or removed, and Kept
	// what keeps it from being removed, in a few words. Older agents do not tell.
	Frees Bytes     `json:"frees,omitempty"`
	Used  time.Time `json:"used,omitzero"`
	Kept  string    `json:"kept,omitempty"`
}

// ImagePull asks nodes to pull images.
type ImagePull struct {
	Images []string `json:"images"`
	// Nodes are those that are asked; default all.
	Nodes []string `json:"nodes,omitempty"`
	// Keep pins the images: a node that needs room does not remove them.
	Keep bool `json:"keep,omitempty"`
}

// ImagePullNews is a line of the answer to a client that accepts application/x-ndjson: how the pull comes along on a
// node, and in the last one what came of it.
type ImagePullNews struct {
	Node  string `json:"node,omitempty"`
	Image string `json:"image,omitempty"`
	// Message says what goes on there: layers and bytes that have come, or what the registry answered and when it is
	// asked again.
	Message string `json:"message,omitempty"`
	// Done says that the node does no more.
	Done  bool         `json:"done,omitempty"`
	Reply *ImagesReply `json:"reply,omitempty"`
}

// ImagePrune asks nodes to remove images that nothing uses.
type ImagePrune struct {
	// Nodes are those that are asked; default all.
	Nodes []string `json:"nodes,omitempty"`
	// All removes also what was loaded by hand or pinned.
	All bool `json:"all,omitempty"`
	// DryRun removes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Unused is for how long an image must not have been used.
	Unused Duration `json:"unused,omitempty"`
}

// PrunedImage is what came of an image of a node. Size is what the disk gains without it.
type PrunedImage struct {
	Node    string    `json:"node"`
	Names   []string  `json:"names"`
	Digest  string    `json:"digest"`
	Size    Bytes     `json:"size"`
	Used    time.Time `json:"used,omitzero"`
	Removed bool      `json:"removed,omitempty"`
	Kept    string    `json:"kept,omitempty"` // what keeps it
}

// ImagePruneReply lists all images of the nodes, each node's in the order in which they would go. Faults tells of nodes
// that could not be asked.
type ImagePruneReply struct {
	Items  []PrunedImage `json:"items"`
	Faults []Fault       `json:"errors,omitempty"`
}

// ImagesReply lists images. Faults tells of nodes that could not be asked.
type ImagesReply struct {
	Items  []ImageView `json:"items"`
	Faults []Fault     `json:"errors,omitempty"`
}

// Readiness is what /readyz answers: for each part, "ok" or what it lacks. What the parts store, recovery, audit and
// certificate lack is to be looked at, and does not make the server unready.
type Readiness struct {
	Ready bool              `json:"ready"`
	Parts map[string]string `json:"parts"`
}

// ScaleRequest sets a service's count, and the bounds between which scaling may change it; what is left out stays. With
// scaling the count is where it begins anew.
type ScaleRequest struct {
	Count *int `json:"count,omitempty"`
	Min   *int `json:"min,omitempty"`
	Max   *int `json:"max,omitempty"`
}

// Problem is an error answer (RFC 9457). Faults lists everything that is wrong with the request at once.
type Problem struct {
	Type   string  `json:"type,omitempty"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Faults []Fault `json:"errors,omitempty"`
	// Oldest is, for an event cursor that is too old (410), the id of the oldest event that is kept.
	Oldest string `json:"oldest,omitempty"`
}

// LogLine is one line of a task's output.
type LogLine struct {
	Time      time.Time `json:"time"`
	Task      TaskID    `json:"task,omitempty"`
	Container string    `json:"container,omitempty"`
	Stream    string    `json:"stream"` // "stdout" or "stderr"
	Text      string    `json:"text"`
	// Partial says that the text goes on in the stream's next line.
	Partial bool `json:"partial,omitempty"`
	// Lost, unless 0, says that this many lines were left out here because the reader was slow; the line has no text.
	Lost int `json:"lost,omitempty"`
}

// Version is what /v1/version answers.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
}
