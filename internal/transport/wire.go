// Package transport is the talk between agents and servers: its messages, the agent's side
// of the connection and the server's.
//
// An agent only ever dials out. It registers and so begins a session; it keeps one
// assignment stream open, on which the server sends what the node should run; it posts reports.
// When the server needs bytes from the node (logs, a command in a container) it sends
// the id of a stream, and the agent calls back to carry it. Everything is JSON over HTTP/2.
package transport

import (
	"encoding/json"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// WireVersion is the version of the messages that this build sends, and WireMin the oldest that it still
// understands. Both ends tell theirs when a session begins; each speaks the lower of the two newest.
const (
	WireVersion = 4 // 2: heartbeats without a body; 3: asks for permits; 4: terminals, ports, copies, attached output
	WireMin     = 1
)

// PermitVersion is the first version in which an agent asks for a permit before a voluntary stop (P5.2). In a session
// of an earlier one it stops at once.
const PermitVersion = 3

// Paths of the agents' part of the API.
const (
	PathRegister    = "/agent/v1/register"
	PathAssignments = "/agent/v1/assignments"
	PathReport      = "/agent/v1/report"
	PathStream      = "/agent/v1/streams/" // + id
	// PathBeat + node/session/seq is a report that says nothing but that its node lives.
	PathBeat = "/agent/v1/beat/"
	// PathAlive answers at once, to tell a server that hangs from one that waits for its disk. Any answer will do.
	PathAlive = "/agent/v1/alive"
)

// Registration begins a session (P6.1). The whole state of the node travels with it.
type Registration struct {
	Node string `json:"node"`
	// Previous is the newest session of the node that the agent has heard of, 0 for none. It must be the
	// store's; a SessionError tells the right one. So a delayed registration displaces nobody (T13).
	Previous uint64        `json:"previous"`
	Facts    cluster.Facts `json:"facts"`
	// Token is the highest that the agent has persisted (P1.6, P1.7).
	Token cluster.Token `json:"token"`
	// Tasks is every attempt that the agent knows.
	Tasks []cluster.Observed `json:"tasks"`
	// Stats is what the machine uses.
	Stats *cluster.NodeStats `json:"stats,omitempty"`
	// Wire and WireMin are the agent's WireVersion and WireMin; an agent that sends none speaks version 1.
	Wire    int `json:"wire,omitempty"`
	WireMin int `json:"wire_min,omitempty"`
	// Displaced counts how often another agent took this one's session away in the last while: two agents of one name
	// do that to each other.
	Displaced int `json:"displaced,omitempty"`
}

// Welcome answers a registration.
type Welcome struct {
	Session uint64        `json:"session"`
	Token   cluster.Token `json:"token"`
	// Heartbeat is how soon the next report is expected.
	Heartbeat cluster.Duration `json:"heartbeat"`
	// Servers are the addresses of all servers, for when this one goes away.
	Servers []string `json:"servers,omitempty"`
	// Wire is the version that the session speaks.
	Wire int `json:"wire,omitempty"`
	// Again are the UUIDs of attempts of the full report that were not taken and are to be told again.
	Again []string `json:"again,omitempty"`
}

// AssignmentsRequest opens the assignment stream of a session.
type AssignmentsRequest struct {
	Node    string `json:"node"`
	Session uint64 `json:"session"`
	// Have holds, for each attempt the agent has persisted, which desired record it acted on, by UUID; the server
	// leaves out what has not changed since.
	Have map[string]Known `json:"-"`
	// Definitions are those that the agent has persisted, as "name@version".
	Definitions []cluster.Ref `json:"definitions,omitempty"`
}

// knownLeader is the leader that wrote a record.
type knownLeader struct {
	Incarnation uint64 `json:"i,omitempty"`
	Epoch       uint64 `json:"e,omitempty"`
}

// assignmentsWire is an AssignmentsRequest as it travels: the revisions stand by themselves, as builds before know
// nothing else. What such an agent has is sent to it again, which changes nothing there.
type assignmentsWire struct {
	assignmentsPlain
	Revisions map[string]uint64      `json:"have,omitempty"`
	Leaders   map[string]knownLeader `json:"leaders,omitempty"`
}

type assignmentsPlain AssignmentsRequest // without its methods

// MarshalJSON implements json.Marshaler.
func (r AssignmentsRequest) MarshalJSON() ([]byte, error) {
	w := assignmentsWire{assignmentsPlain: assignmentsPlain(r)}
	if len(r.Have) > 0 {
		w.Revisions, w.Leaders = make(map[string]uint64, len(r.Have)), make(map[string]knownLeader, len(r.Have))
	}
	for uuid, k := range r.Have { // order-free: into maps
		w.Revisions[uuid] = k.Revision
		if k.Incarnation != 0 || k.Epoch != 0 {
			w.Leaders[uuid] = knownLeader{k.Incarnation, k.Epoch}
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *AssignmentsRequest) UnmarshalJSON(b []byte) error {
	var w assignmentsWire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*r = AssignmentsRequest(w.assignmentsPlain)
	for uuid, revision := range w.Revisions { // order-free: into a map
		if r.Have == nil {
			r.Have = make(map[string]Known, len(w.Revisions))
		}
		r.Have[uuid] = Known{Revision: revision, Incarnation: w.Leaders[uuid].Incarnation, Epoch: w.Leaders[uuid].Epoch}
	}
	return nil
}

// Known names a desired record that an agent acted on. The revision alone does not: a store that went back gives its
// revisions again, to other records (P1.7), of which none was written by the same leader.
type Known struct {
	Revision, Incarnation, Epoch uint64
}

// Known names the record that the assignment was made of.
func (a *Assignment) Known() Known {
	return Known{Revision: a.Revision, Incarnation: a.Token.Incarnation, Epoch: a.Token.Epoch}
}

// Message is one line of an assignment stream. Exactly one field is set.
type Message struct {
	// Definition comes before the first assignment that needs it.
	Definition *cluster.TaskDefinition `json:"definition,omitempty"`
	Assignment *Assignment             `json:"assignment,omitempty"`
	// Forget says that the records of an attempt are gone from the store: the agent forgets it too. (Absence
	// alone never stops a task, P6.6.)
	Forget *Forget `json:"forget,omitempty"`
	// Synced says that all that stood in the store when the stream was opened has been sent.
	Synced bool `json:"synced,omitempty"`
	// Open asks the agent to call back for a byte stream.
	Open *StreamRequest `json:"open,omitempty"`
	// Secrets tells of the secrets of an attempt; agents of earlier builds pass over it, and are sent no attempt that
	// has some.
	Secrets *SecretStamps `json:"secrets,omitempty"`
	// Ping keeps the connection from idling.
	Ping bool `json:"ping,omitempty"`
}

// Assignment is one desired record; its Token carries the generation of the node's ownership. Agents
// compare tokens for each task, and refuse what is older than what they act on (P6.6).
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

// Report carries what changed on a node since the last one; it is also the heartbeat.
type Report struct {
	Node    string `json:"node"`
	Session uint64 `json:"session"`
	// Seq grows by one with each report of a session; a report that is sent again has its number again.
	Seq   uint64             `json:"seq"`
	Tasks []cluster.Observed `json:"tasks,omitempty"`
	Facts *cluster.Facts     `json:"facts,omitempty"` // when they changed
	// Stats is what the machine uses, nil where that hardly changed since it was last told (see Same).
	Stats *cluster.NodeStats `json:"stats,omitempty"`
}

// ReportReply answers a report. It comes after what had to be durable is durable (P4.6).
type ReportReply struct {
	// Refused holds, by UUID, why a task's report was not taken. A refused start barrier (P4.3) means that
	// user code must not start; all other tasks of the report were taken.
	Refused   map[string]Refused `json:"refused,omitempty"`
	Heartbeat cluster.Duration   `json:"heartbeat"`
	Token     cluster.Token      `json:"token"`
	// Servers, unless empty, replaces the addresses that the agent knows.
	Servers []string `json:"servers,omitempty"`
}

// Refused says why a server did not take the report of a task.
type Refused struct {
	Reason  cluster.ReasonCode `json:"reason"`
	Message string             `json:"message"`
	// Retry says that the same report may be taken later (the server could not write); without it
	// the answer is final.
	Retry bool `json:"retry,omitempty"`
}

// StreamKind says what a byte stream carries.
type StreamKind string

// Kinds of streams.
const (
	StreamLogs StreamKind = "logs" // agent to server: log lines as NDJSON of logs.Line
	StreamExec StreamKind = "exec" // both ways: frames, see ExecFrame
	// StreamImageLoad carries a tar archive of images to the agent, in frames of ChannelStdin, the last one empty. The
	// agent answers with the loaded images as a JSON array of Image in frames of ChannelStdout, then ChannelExit.
	StreamImageLoad StreamKind = "image-load"
	// StreamImageList asks for the node's images: the agent sends them as StreamImageLoad does.
	StreamImageList StreamKind = "image-list"
	// StreamWord carries a word to a check of type ttl, which the request holds. The agent answers with ChannelExit
	// once the word is kept; an error says why it counts for nothing.
	StreamWord StreamKind = "word"
	// StreamImagePull and StreamImageResolve ask for what Images of the request names; the agent sends what came of it
	// as StreamImageLoad does. How a pull comes along it tells before, in frames of ChannelStderr, each of which
	// replaces the last.
	StreamImagePull    StreamKind = "image-pull"
	StreamImageResolve StreamKind = "image-resolve"
	// StreamImagePrune removes images; the agent sends a JSON array of PrunedImage.
	StreamImagePrune StreamKind = "image-prune"
	// StreamVolumeList asks for the volumes that the agent keeps, and StreamVolumeRemove to remove the one that Volume
	// of the request names; the agent sends a JSON array of Volume as StreamImageLoad does: all, or what was removed.
	// Agents of the build before refuse both.
	StreamVolumeList   StreamKind = "volume-list"
	StreamVolumeRemove StreamKind = "volume-remove"
)

// Image is an image that an executor of a node holds.
type Image struct {
	Name   string        `json:"name"`
	Digest string        `json:"digest"`
	Size   cluster.Bytes `json:"size"`
	// Frees is what the disk gains without it, Used when it was last used, and Kept what keeps it. Older agents do not
	// tell.
	Frees cluster.Bytes `json:"frees,omitempty"`
	Used  time.Time     `json:"used,omitzero"`
	Kept  string        `json:"kept,omitempty"`
}

// PrunedImage is what came of an image that might be removed.
type PrunedImage struct {
	Names   []string      `json:"names"`
	Digest  string        `json:"digest"`
	Size    cluster.Bytes `json:"size"`
	Used    time.Time     `json:"used,omitzero"`
	Removed bool          `json:"removed,omitempty"`
	Kept    string        `json:"kept,omitempty"`
}

// Volume is a folder that an agent keeps for tasks, or one that its node declares: then it has a name alone of what
// names it.
type Volume struct {
	// Key names it (cluster.VolumeKey); it is empty for one that the node declares, which HostVolume names.
	Key        string `json:"key,omitempty"`
	HostVolume string `json:"host_volume,omitempty"`
	Path       string `json:"path"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	Pin        bool   `json:"pin,omitempty"`
	Sticky     bool   `json:"sticky,omitempty"`
	// Used is what its files take as of At, zero where nobody counted them; Size and Free are of its file system or
	// quota.
	Used cluster.Bytes `json:"used,omitempty"`
	At   time.Time     `json:"at,omitzero"`
	Size cluster.Bytes `json:"size,omitempty"`
	Free cluster.Bytes `json:"free,omitempty"`
	// By are the tasks that use it now, in order; Last is the one that used it last, until Until.
	By    []cluster.TaskID `json:"by,omitempty"`
	Last  cluster.TaskID   `json:"last,omitempty"`
	Until time.Time        `json:"until,omitzero"`
}

// ImagesRequest says what an agent is to do with its images.
type ImagesRequest struct {
	// Name is the image to pull or to look up; with Keep it is pinned once it is there.
	Name string `json:"name,omitempty"`
	Keep bool   `json:"keep,omitempty"`
	// Login, unless nil, names the secret whose login the registry is asked with: the agent asks for it, with the id of
	// the stream. Older agents ask with the node's own.
	Login *SecretName `json:"login,omitempty"`
	// All, DryRun and Unused say which images go: see executor.ImagePrune.
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

	Volume string `json:"volume,omitempty"` // the key of the one to remove

	Terminal *TerminalRequest `json:"terminal,omitempty"`
	Forward  *ForwardRequest  `json:"forward,omitempty"`
	Copy     *CopyRequest     `json:"copy,omitempty"`
	Attach   *AttachRequest   `json:"attach,omitempty"`
}

// LogsRequest says which lines are wanted.
type LogsRequest struct {
	Follow bool `json:"follow,omitempty"`
	// Tail, unless negative, is how many of the newest lines to begin with.
	Tail int `json:"tail"`
	// Since, unless 0, leaves out lines that are older than this.
	Since cluster.Duration `json:"since,omitempty"`
	// Streams is "stdout", "stderr" or empty for both.
	Stream string `json:"stream,omitempty"`
}

// ExecRequest is a command to run in a container.
type ExecRequest struct {
	Command []string `json:"command"`
	Stdin   bool     `json:"stdin,omitempty"`
}

// WordRequest is what is said to a check of type ttl.
type WordRequest struct {
	Check string       `json:"check"`
	Word  cluster.Word `json:"word"`
	// Message is what the check answers while the word stands, where that is not well. It names who said it.
	Message string `json:"message,omitempty"`
}

// Channels of an exec stream. A frame is one byte of channel, four bytes of length (big endian), and
// that many bytes. An empty stdin frame closes the input. The last frame is ChannelExit with ExecEnd as JSON.
const (
	ChannelStdin  = 0
	ChannelStdout = 1
	ChannelStderr = 2
	ChannelExit   = 3
	// ChannelResize carries a TerminalSize as JSON, ChannelSignal the name of a signal, to agents that speak
	// TerminalVersion.
	ChannelResize = 4
	ChannelSignal = 5
)

// ExecEnd is how a command ended.
type ExecEnd struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"` // the command could not be run; Code means nothing
}
