package api

import (
	"time"
)

// Messages for those who run a fleet: servers, the state of the whole, recovery, and what is done to nodes.

// ServerView is a member of the control plane: its record, and its part in the store engine.
type ServerView struct {
	Server
	// Self says that it is the server that answers.
	Self bool `json:"self,omitempty"`
	// Leader says that it leads the domain.
	Leader bool `json:"leader,omitempty"`
	// State is "up", "down", "joining" (a member of the store that has not started yet) or "unknown", where the store
	// runs elsewhere and the server was not heard.
	State ServerState `json:"state"`
	// Reason says in a sentence why it is not up.
	Reason string `json:"reason,omitempty"`
	// Engine is its part in the store engine; nil where the store runs elsewhere, or where that has no such member.
	Engine *EngineMember `json:"engine,omitempty"`
	// For is how long the server that answers has reached it, or has not; 0 where that is not known.
	For Duration `json:"for,omitempty"`
	// Revision of the record; 0 for a member without one.
	Revision uint64 `json:"revision"`
}

// ServerState tells whether a server can be counted on.
type ServerState string

// States of a server.
const (
	ServerUp      ServerState = "up"
	ServerDown    ServerState = "down"
	ServerJoining ServerState = "joining"
	ServerUnknown ServerState = "unknown"
)

// Values returns every ServerState, in the order of the constants.
func (ServerState) Values() []ServerState {
	return []ServerState{ServerUp, ServerDown, ServerJoining, ServerUnknown}
}

// EngineMember is a server's part in the store engine.
type EngineMember struct {
	ID string `json:"id"`
	// Peer is the address at which the other members reach it.
	Peer string `json:"peer,omitempty"`
	// Leader says that the engine's own leader is here, which need not be the domain's.
	Leader bool `json:"leader,omitempty"`
	// Learner says that it copies the store and has no vote yet.
	Learner bool `json:"learner,omitempty"`
	// Healthy says that it answered when it was asked just now.
	Healthy bool `json:"healthy"`
}

// Status is the state of the whole in one answer: the head of `berth status`.
type Status struct {
	// Server is the id of the server that answers, and Version its build.
	Server  string `json:"server,omitempty"`
	Version string `json:"version"`
	Domain  string `json:"domain"`
	// Index is the revision that the answer was read at.
	Index uint64 `json:"index"`
	// Leader of the domain; nil where there never was one.
	Leader *LeaderView `json:"leader,omitempty"`
	// Servers counts the members of the control plane.
	Servers ServerCount `json:"servers"`
	// Nodes counts the domain's nodes by their state.
	Nodes map[NodeState]int `json:"nodes"`
	// Store is the store engine as this server sees it; nil where that cannot be asked.
	Store *StoreView `json:"store,omitempty"`
	// Recovery, unless nil, is a recovery of the store that waits for the operator's decision.
	Recovery *Recovery `json:"recovery,omitempty"`
	// MassSilence says that so many nodes fell silent that tasks of silent nodes are not replaced, unless
	// RescheduleUntil lies ahead: then the operator overrode that.
	MassSilence     bool      `json:"mass_silence,omitempty"`
	RescheduleUntil time.Time `json:"reschedule_until,omitzero"`
	// Rebalancing, unless nil, is the list of moves that is carried out now.
	Rebalancing *RebalancingBrief `json:"rebalancing,omitempty"`
	// Alarms are sentences about all of this that somebody should read, the worst first.
	Alarms []string `json:"alarms,omitempty"`
}

// LeaderView is the leader of a domain.
type LeaderView struct {
	// ID of the server, and its Name where its record is known. An empty ID means that the next leader is awaited.
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Epoch and Incarnation are the fencing token of what it writes.
	Epoch       uint64    `json:"epoch"`
	Incarnation uint64    `json:"incarnation"`
	Since       time.Time `json:"since"`
}

// ServerCount counts servers. Learners are members of the store without a vote; Quorum is how many voters must be up
// for writes, 0 where the store runs elsewhere.
type ServerCount struct {
	Up       int `json:"up"`
	Total    int `json:"total"`
	Learners int `json:"learners,omitempty"`
	Quorum   int `json:"quorum,omitempty"`
}

// StoreView is the store engine as one server sees it.
type StoreView struct {
	// Size is what the database takes on disk, Used what of it is in use, Quota the most that it may take.
	Size  Bytes `json:"size"`
	Used  Bytes `json:"used"`
	Quota Bytes `json:"quota"`
	// Free is what the server's disk has left; below LowWater no writes are taken.
	Free     Bytes `json:"free"`
	LowWater Bytes `json:"low_water"`
	// Writable says whether writes are taken now, and Reason why not. Quorum says whether a linearizable read was
	// answered.
	Writable bool   `json:"writable"`
	Reason   string `json:"reason,omitempty"`
	Quorum   bool   `json:"quorum"`
	// Alarms are the engine's own, such as "NOSPACE", each with the member that raised it.
	Alarms []string `json:"alarms,omitempty"`
	// Engine is the engine's version.
	Engine string `json:"engine,omitempty"`
}

// RecoveryView tells whether the store went back behind the agents, and what was decided about it.
type RecoveryView struct {
	Domain string `json:"domain"`
	// Needed says that the control plane waits for POST /v1/recovery.
	Needed bool `json:"needed"`
	// Incarnation of the store now.
	Incarnation uint64 `json:"incarnation"`
	// Recovery is the record; nil if there never was one.
	Recovery *Recovery `json:"recovery,omitempty"`
	Revision uint64    `json:"revision"`
}

// RecoveryAction is what is done about tasks that nodes run and the store does not know.
type RecoveryAction string

// Actions of a recovery.
const (
	RecoverAdopt RecoveryAction = "adopt" // keep them where their owner still wants them
	RecoverStop  RecoveryAction = "stop"
)

// Values returns every RecoveryAction, in the order of the constants.
func (RecoveryAction) Values() []RecoveryAction {
	return []RecoveryAction{RecoverAdopt, RecoverStop}
}

// RecoveryRequest decides on a recovery.
type RecoveryRequest struct {
	Action RecoveryAction `json:"action"`
}

// DomainView is the operator's settings of a domain, and what they bear on.
type DomainView struct {
	DomainSettings
	// MassSilence is as in Status.
	MassSilence bool   `json:"mass_silence"`
	Revision    uint64 `json:"revision"`
}

// RescheduleRequest lets tasks of silent nodes be replaced for a while, although so many nodes are silent that the
// control plane holds it back. For 0 takes that back.
type RescheduleRequest struct {
	For Duration `json:"for"`
}

// NodeAction is how a node is drained or forgotten.
type NodeAction struct {
	// Deadline, of a drain: after this long what is left is stopped, whatever it costs its services. What is left
	// out stays as it is in a drain that goes on already.
	Deadline Duration `json:"deadline,omitempty"`
	// Force stops everything at once (drain), or declares a node gone that is not known to be down (forget).
	Force bool `json:"force,omitempty"`
}

// TaintRequest gives a node taints. Of one key and effect a node has one taint: its value is replaced.
type TaintRequest struct {
	Taints []Taint `json:"taints"`
}

// UntaintRequest takes taints from a node; those that it does not have are none the less gone.
type UntaintRequest struct {
	Taints []TaintKey `json:"taints"`
}

// TaintKey names taints of a node: that of a key and an effect or, without the effect, all of the key.
type TaintKey struct {
	Key    string      `json:"key"`
	Effect TaintEffect `json:"effect,omitempty"`
}

// PoolRequest puts a node into a pool, or, without one, takes it out of its pool.
type PoolRequest struct {
	Pool string `json:"pool,omitempty"`
}

// DrainView is how far a drain got.
type DrainView struct {
	Drain
	// Left are the attempts that are not gone yet, with why.
	Left []DrainTask `json:"left"`
}

// DrainTask is an attempt that a drain waits for.
type DrainTask struct {
	ID      TaskID `json:"id"`
	Attempt int    `json:"attempt"`
	State   State  `json:"state"`
	// Why says in a sentence what it waits for.
	Why string `json:"why"`
}

// Heartbeat is a node's last sign of life, as the server that answers knows of it.
type Heartbeat struct {
	// Age is how long ago it was, Interval after how long the next was promised.
	Age      Duration `json:"age"`
	Interval Duration `json:"interval"`
}

// Settings are a server's, by the names of its flags. What is secret is left out.
type Settings struct {
	Server string            `json:"server,omitempty"`
	Values map[string]string `json:"values"`
}

// SnapshotRevision is the header of a snapshot's answer that tells which revision it holds at the least, and
// SnapshotSum the trailer with the SHA-256 of its bytes, in hex. An answer without the trailer is cut short.
const (
	SnapshotRevision = "Berth-Revision"
	SnapshotSum      = "Berth-Sha256"
)
