// Package transport is the protocol between agents and servers: its messages, the agent's client and the server's
// handler.
//
// Only the agent dials. It begins a session by a registration, keeps one assignment stream open, and posts reports. The
// server sends the node's desired attempts on the assignment stream. For a byte stream to the node, such as logs or a
// command in a container, it sends a stream id, and the agent calls back. Everything is JSON over HTTP/2.
package transport

import (
	"encoding/json"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// WireVersion is the version of the messages that this build sends, and WireMin the oldest version that it understands.
// Both ends exchange their versions when a session begins, and use the lower WireVersion.
const (
	WireVersion = 4 // the version of the first release
	WireMin     = 4
)

// Paths of the agents' part of the API.
const (
	PathRegister    = "/agent/v1/register"
	PathAssignments = "/agent/v1/assignments"
	PathReport      = "/agent/v1/report"
	PathStream      = "/agent/v1/streams/" // + id
	// PathBeat + node/session/seq is a heartbeat: a report without content.
	PathBeat = "/agent/v1/beat/"
	// PathAlive answers immediately. Any answer distinguishes a server that waits for its disk from one that hangs.
	PathAlive = "/agent/v1/alive"
)

// Registration begins a session (P6.1). It carries the whole state of the node.
type Registration struct {
	Node string `json:"node"`
	// Previous is the newest session of the node that the agent knows, 0 for none. It must be the store's newest;
	// otherwise a SessionError returns that one. A delayed registration therefore displaces no session (T13).
	Previous uint64        `json:"previous"`
	Facts    cluster.Facts `json:"facts"`
	// Token is the highest token that the agent has persisted (P1.6, P1.7).
	Token cluster.Token `json:"token"`
	// Tasks holds every attempt that the agent knows.
	Tasks []cluster.Observed `json:"tasks"`
	// Stats are the statistics of the machine.
	Stats *cluster.NodeStats `json:"stats,omitempty"`
	// Wire and WireMin are the agent's WireVersion and WireMin.
	Wire    int `json:"wire,omitempty"`
	WireMin int `json:"wire_min,omitempty"`
	// Displaced counts how often another agent displaced this one's session lately. Two agents of one name displace
	// each other.
	Displaced int `json:"displaced,omitempty"`
}

// Welcome answers a registration.
type Welcome struct {
	Session uint64        `json:"session"`
	Token   cluster.Token `json:"token"`
	// Heartbeat is the time until the next report.
	Heartbeat cluster.Duration `json:"heartbeat"`
	// Servers are the addresses of all servers, in case this one goes away.
	Servers []string `json:"servers,omitempty"`
	// Domain is the domain of the node. Servers of earlier builds do not send it.
	Domain string `json:"domain,omitempty"`
	// Wire is the version of the session.
	Wire int `json:"wire,omitempty"`
	// Again are the UUIDs of attempts of the full report that were refused and have to be reported again.
	Again []string `json:"again,omitempty"`
}

// AssignmentsRequest opens the assignment stream of a session.
type AssignmentsRequest struct {
	Node    string `json:"node"`
	Session uint64 `json:"session"`
	// Have holds the desired record that the agent acted on for each persisted attempt, by UUID. The server does not
	// send unchanged records.
	Have map[string]Known `json:"-"`
	// Definitions are the definitions that an older agent has. Servers ignore them: a version that was deleted and
	// written again has another content under the same name.
	Definitions []cluster.Ref `json:"definitions,omitempty"`
}

// KnownLeader is the leader that wrote a record.
type KnownLeader struct {
	Incarnation uint64 `json:"i,omitempty"`
	Epoch       uint64 `json:"e,omitempty"`
}

// AssignmentsForm is the JSON form of an AssignmentsRequest.
type AssignmentsForm struct {
	Node    string `json:"node"`
	Session uint64 `json:"session"`
	// Definitions are the definitions that an older agent has. Servers ignore them.
	Definitions []cluster.Ref `json:"definitions,omitempty"`
	// Have holds the revision of the assignment that the agent acted on for each persisted attempt, by UUID. The server
	// does not send unchanged assignments.
	Have map[string]uint64 `json:"have,omitempty"`
	// Leaders holds the incarnation and the epoch of the same assignments, by UUID. Without them the server sends the
	// assignments again.
	Leaders map[string]KnownLeader `json:"leaders,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (r AssignmentsRequest) MarshalJSON() ([]byte, error) {
	w := AssignmentsForm{Node: r.Node, Session: r.Session, Definitions: r.Definitions}
	if len(r.Have) > 0 {
		w.Have, w.Leaders = make(map[string]uint64, len(r.Have)), make(map[string]KnownLeader, len(r.Have))
	}
	for uuid, k := range r.Have { // order-free: into maps
		w.Have[uuid] = k.Revision
		if k.Incarnation != 0 || k.Epoch != 0 {
			w.Leaders[uuid] = KnownLeader{k.Incarnation, k.Epoch}
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *AssignmentsRequest) UnmarshalJSON(b []byte) error {
	var w AssignmentsForm
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*r = AssignmentsRequest{Node: w.Node, Session: w.Session, Definitions: w.Definitions}
	for uuid, revision := range w.Have { // order-free: into a map
		if r.Have == nil {
			r.Have = make(map[string]Known, len(w.Have))
		}
		r.Have[uuid] = Known{Revision: revision, Incarnation: w.Leaders[uuid].Incarnation, Epoch: w.Leaders[uuid].Epoch}
	}
	return nil
}

// Known identifies a desired record that an agent acted on. The revision alone does not identify it: a store that went
// back reuses revisions for other records (P1.7). Another leader wrote those records.
type Known struct {
	Revision, Incarnation, Epoch uint64
}

// Known identifies the record of the assignment.
func (a *Assignment) Known() Known {
	return Known{Revision: a.Revision, Incarnation: a.Token.Incarnation, Epoch: a.Token.Epoch}
}

// Message is one line of an assignment stream. Exactly one field is set.
type Message struct {
	// Definition comes before the first assignment that needs it.
	Definition *cluster.TaskDefinition `json:"definition,omitempty"`
	Assignment *Assignment             `json:"assignment,omitempty"`
	// Forget says that the records of an attempt were deleted. The agent forgets the attempt. (Absence never stops a
	// task, P6.6.)
	Forget *Forget `json:"forget,omitempty"`
	// Synced says that all records that existed when the stream was opened have been sent.
	Synced bool `json:"synced,omitempty"`
	// Open requests a byte stream, for which the agent calls back.
	Open *StreamRequest `json:"open,omitempty"`
	// Secrets holds the stamps of an attempt's secrets.
	Secrets *SecretStamps `json:"secrets,omitempty"`
	// Ping keeps the connection from idling.
	Ping bool `json:"ping,omitempty"`
}

// Assignment is one desired record; its Token carries the generation of the node's ownership. Agents compare tokens for
// each task, and refuse an assignment that is older than the one that they act on (P6.6).
type Assignment struct {
	cluster.Desired
	// Revision of the record, or of the plan record that holds it.
	Revision uint64 `json:"rev"`
}

// Forget names an attempt.
type Forget struct {
	Task cluster.TaskID `json:"task"`
	UUID string         `json:"uuid"`
}

// Report carries the changes on a node since the last report; it is also the heartbeat.
type Report struct {
	Node    string `json:"node"`
	Session uint64 `json:"session"`
	// Seq grows by one with each report of a session; a repeated report has the same number.
	Seq   uint64             `json:"seq"`
	Tasks []cluster.Observed `json:"tasks,omitempty"`
	Facts *cluster.Facts     `json:"facts,omitempty"` // when they changed
	// Stats are the statistics of the machine. They are nil if they hardly changed since the last ones sent (see Same).
	Stats *cluster.NodeStats `json:"stats,omitempty"`
}

// ReportReply answers a report, once everything that must be durable is durable (P4.6).
type ReportReply struct {
	// Refused holds the refused attempts with the reasons, by UUID. A refused start barrier (P4.3) means that user code
	// must not start. All other attempts of the report were accepted.
	Refused   map[string]Refused `json:"refused,omitempty"`
	Heartbeat cluster.Duration   `json:"heartbeat"`
	Token     cluster.Token      `json:"token"`
	// Servers, unless empty, replaces the addresses that the agent knows.
	Servers []string `json:"servers,omitempty"`
}

// Refused is the reason why a server refused the report of a task.
type Refused struct {
	Reason  cluster.ReasonCode `json:"reason"`
	Message string             `json:"message"`
	// Retry says that a server may accept the same report later, since it could not write now. Without Retry the
	// refusal is final.
	Retry bool `json:"retry,omitempty"`
}

// StreamKind names the content of a byte stream.
type StreamKind string

// Kinds of streams.
const (
	StreamLogs StreamKind = "logs" // agent to server: log lines as NDJSON of logs.Line
	StreamExec StreamKind = "exec" // both ways: frames, see ExecFrame
	// StreamImageLoad carries a tar archive of images to the agent, in frames of ChannelStdin, the last one empty. The
	// agent answers with the loaded images as a JSON array of Image in frames of ChannelStdout, then ChannelExit.
	StreamImageLoad StreamKind = "image-load"
	// StreamImageList requests the node's images: the agent sends them as StreamImageLoad does.
	StreamImageList StreamKind = "image-list"
	// StreamTTLUpdate passes the word in the request to a check of type ttl. The agent answers with ChannelExit once it
	// has stored the word; an error says why it refused the word.
	StreamTTLUpdate StreamKind = "word"
	// StreamImagePull and StreamImageResolve pull or look up the image that Images of the request names. The agent
	// sends the result as StreamImageLoad does. Before the result it sends the progress of a pull in frames of
	// ChannelStderr. Each frame replaces the last.
	StreamImagePull    StreamKind = "image-pull"
	StreamImageResolve StreamKind = "image-resolve"
	// StreamImagePrune removes images; the agent sends a JSON array of PrunedImage.
	StreamImagePrune StreamKind = "image-prune"
	// StreamVolumeList lists the volumes that the agent keeps. StreamVolumeRemove removes the one that Volume of the
	// request names. The agent sends a JSON array of Volume as StreamImageLoad does: all volumes, or the removed one.
	StreamVolumeList   StreamKind = "volume-list"
	StreamVolumeRemove StreamKind = "volume-remove"
)

// Image is an image that an executor of a node holds.
type Image struct {
	Name   string        `json:"name"`
	Digest string        `json:"digest"`
	Size   cluster.Bytes `json:"size"`
	// Frees is the disk space that its removal frees, Used the time of its last use, and Kept the reason why it is
	// kept.
	Frees cluster.Bytes `json:"frees,omitempty"`
	Used  time.Time     `json:"used,omitzero"`
	Kept  string        `json:"kept,omitempty"`
}

// PrunedImage is the result for an image that a prune considered.
type PrunedImage struct {
	Names   []string      `json:"names"`
	Digest  string        `json:"digest"`
	Size    cluster.Bytes `json:"size"`
	Used    time.Time     `json:"used,omitzero"`
	Removed bool          `json:"removed,omitempty"`
	Kept    string        `json:"kept,omitempty"`
}

// Volume is a folder that an agent keeps for tasks, or one that its node declares.
type Volume struct {
	// Key identifies a kept volume (cluster.VolumeKey). It is empty for a declared volume, which HostVolume names.
	Key        string `json:"key,omitempty"`
	HostVolume string `json:"host_volume,omitempty"`
	Path       string `json:"path"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	Pin        bool   `json:"pin,omitempty"`
	Sticky     bool   `json:"sticky,omitempty"`
	// Used is the size of its files at the time At, zero if they were not counted. Size and Free are the size and free
	// space of its file system or quota.
	Used cluster.Bytes `json:"used,omitempty"`
	At   time.Time     `json:"at,omitzero"`
	Size cluster.Bytes `json:"size,omitempty"`
	Free cluster.Bytes `json:"free,omitempty"`
	// By are the tasks that use it now, in order. Last is the task that used it last, until Until.
	By    []cluster.TaskID `json:"by,omitempty"`
	Last  cluster.TaskID   `json:"last,omitempty"`
	Until time.Time        `json:"until,omitzero"`
}

// ImagesRequest is a request about an agent's images.
type ImagesRequest struct {
	// Name is the image to pull or to look up. With Keep the node pins the image after the pull.
	Name string `json:"name,omitempty"`
	Keep bool   `json:"keep,omitempty"`
	// Login, unless nil, names the secret with the login for the registry. The agent requests the login with the id of
	// the stream.
	Login *SecretName `json:"login,omitempty"`
	// All, DryRun and Unused select the images to remove: see executor.ImagePrune.
	All    bool             `json:"all,omitempty"`
	DryRun bool             `json:"dry_run,omitempty"`
	Unused cluster.Duration `json:"unused,omitempty"`
}

// StreamRequest asks an agent to open a byte stream by a POST to PathStream + ID.
type StreamRequest struct {
	ID        string         `json:"id"`
	Kind      StreamKind     `json:"kind"`
	Task      cluster.TaskID `json:"task"`
	UUID      string         `json:"uuid,omitempty"`      // default: the newest attempt on the node
	Container string         `json:"container,omitempty"` // default: the first essential one; for logs, all

	Logs *LogsRequest `json:"logs,omitempty"`
	Exec *ExecRequest `json:"exec,omitempty"`
	Word *WordRequest `json:"word,omitempty"`

	Images *ImagesRequest `json:"images,omitempty"`

	Volume string `json:"volume,omitempty"` // the key of the volume to remove

	Terminal *TerminalRequest `json:"terminal,omitempty"`
	Forward  *ForwardRequest  `json:"forward,omitempty"`
	Copy     *CopyRequest     `json:"copy,omitempty"`
	Attach   *AttachRequest   `json:"attach,omitempty"`
}

// LogsRequest selects log lines.
type LogsRequest struct {
	Follow bool `json:"follow,omitempty"`
	// Tail, unless negative, limits the existing lines to the newest ones.
	Tail int `json:"tail"`
	// Since, unless 0, leaves out lines that are older than this.
	Since cluster.Duration `json:"since,omitempty"`
	// Stream, unless empty, leaves out the other output.
	Stream cluster.LogStream `json:"stream,omitempty"`
}

// ExecRequest is a command to run in a container.
type ExecRequest struct {
	Command []string `json:"command"`
	Stdin   bool     `json:"stdin,omitempty"`
}

// WordRequest is a word for a check of type ttl.
type WordRequest struct {
	Check string            `json:"check"`
	Word  cluster.TTLUpdate `json:"word"`
	// Message is the check's result while a word other than pass is in force. It names the author of the word.
	Message string `json:"message,omitempty"`
}

// Channels of an exec stream. A frame is one byte of channel, four bytes of length (big endian), and the body. An empty
// stdin frame closes the input. The last frame is ChannelExit with ExecEnd as JSON.
const (
	ChannelStdin  = 0
	ChannelStdout = 1
	ChannelStderr = 2
	ChannelExit   = 3
	// ChannelResize carries a TerminalSize as JSON, ChannelSignal the name of a signal.
	ChannelResize = 4
	ChannelSignal = 5
)

// ExecEnd is the result of a command.
type ExecEnd struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"` // the command could not be run; Code is undefined
}
