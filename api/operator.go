package api

import (
	"time"
)

// Messages for operators of a fleet: servers, the overall state, recovery, and actions on nodes.

// ServerView is a member of the control plane: its record, and its part in the store engine.
type ServerView struct {
	Server
	// Self says that this server answers the request.
	Self bool `json:"self,omitempty"`
	// Leader says that the server leads the domain.
	Leader bool `json:"leader,omitempty"`
	// State is "up", "down", "joining" (a member of the store that has not started yet) or "unknown". It is unknown if
	// the store is external and the server did not report.
	State ServerState `json:"state"`
	// Reason says in a sentence why the server is not up.
	Reason string `json:"reason,omitempty"`
	// Engine is the server's part in the store engine. It is nil if the store is external or has no such member.
	Engine *EngineMember `json:"engine,omitempty"`
	// For is the time since the answering server has reached this one, or has failed to; 0 if unknown.
	For Duration `json:"for,omitempty"`
	// Revision of the record; 0 for a member without one.
	Revision uint64 `json:"revision"`
}

// ServerState is the availability of a server.
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
	// Peer is the address for the other members.
	Peer string `json:"peer,omitempty"`
	// Leader says that the member is the engine's own leader, which may differ from the domain's.
	Leader bool `json:"leader,omitempty"`
	// Learner says that the member copies the store and has no vote yet.
	Learner bool `json:"learner,omitempty"`
	// Healthy says that the member answered a request just now.
	Healthy bool `json:"healthy"`
}

// Status is the overall state in one answer: the head of `berth status`.
type Status struct {
	// Server is the id of the server that answers, and Version its build.
	Server  string `json:"server,omitempty"`
	Version string `json:"version"`
	Domain  string `json:"domain"`
	// Index is the revision of the answer.
	Index uint64 `json:"index"`
	// Leader of the domain; nil if there never was one.
	Leader *LeaderView `json:"leader,omitempty"`
	// Servers counts the members of the control plane.
	Servers ServerCount `json:"servers"`
	// Nodes counts the domain's nodes by their state.
	Nodes map[NodeState]int `json:"nodes"`
	// Store is the store engine as this server sees it; nil if the engine does not answer.
	Store *StoreView `json:"store,omitempty"`
	// Recovery, unless nil, is a recovery of the store that needs the operator's decision.
	Recovery *Recovery `json:"recovery,omitempty"`
	// MassSilence says that too many nodes are silent to replace their tasks. A RescheduleUntil in the future means
	// that the operator has overridden this.
	MassSilence     bool      `json:"mass_silence,omitempty"`
	RescheduleUntil time.Time `json:"reschedule_until,omitzero"`
	// Rebalancing, unless nil, is the list of moves in progress.
	Rebalancing *RebalancingBrief `json:"rebalancing,omitempty"`
	// Alarms are sentences that need the operator's attention, the worst first.
	Alarms []string `json:"alarms,omitempty"`
}

// LeaderView is the leader of a domain.
type LeaderView struct {
	// ID of the server, and its Name if its record is known. An empty ID means that there is no leader at the moment.
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Epoch and Incarnation are the fencing token of the leader's writes.
	Epoch       uint64    `json:"epoch"`
	Incarnation uint64    `json:"incarnation"`
	Since       time.Time `json:"since"`
}

// ServerCount counts servers. Learners are members of the store without a vote. Quorum is the number of voters that
// writes need, 0 for an external store.
type ServerCount struct {
	Up       int `json:"up"`
	Total    int `json:"total"`
	Learners int `json:"learners,omitempty"`
	Quorum   int `json:"quorum,omitempty"`
}

// StoreView is the store engine as one server sees it.
type StoreView struct {
	// Size is the database's size on disk, Used the part in use, and Quota the maximum.
	Size  Bytes `json:"size"`
	Used  Bytes `json:"used"`
	Quota Bytes `json:"quota"`
	// Free is the free space on the server's disk. Below LowWater the server accepts no writes.
	Free     Bytes `json:"free"`
	LowWater Bytes `json:"low_water"`
	// Writable says whether the store accepts writes, and Reason why not. Quorum says whether a linearizable read
	// succeeded.
	Writable bool   `json:"writable"`
	Reason   string `json:"reason,omitempty"`
	Quorum   bool   `json:"quorum"`
	// Alarms are the engine's own, such as "NOSPACE", each with its member.
	Alarms []string `json:"alarms,omitempty"`
	// Engine is the engine's version.
	Engine string `json:"engine,omitempty"`
}

// RecoveryView is the state of a recovery: whether the store lost writes that agents have seen, and the operator's
// decision.
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

// RecoveryAction is the operator's choice for tasks that nodes run and the store does not know.
type RecoveryAction string

// Actions of a recovery.
const (
	RecoverAdopt RecoveryAction = "adopt" // keep them if their owner wants them
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

// DomainView is a domain: its settings and its state.
type DomainView struct {
	Domain
	Status DomainStatus `json:"status"`
	// Revision is that of the domain's record, or 0 for the default domain without a record.
	Revision uint64 `json:"revision"`
}

// DomainStatus is the state of a domain.
type DomainStatus struct {
	// Leader is the server that leads the domain, nil if none did yet. Its ID is "" while none does.
	Leader *LeaderView `json:"leader,omitempty"`
	// Nodes counts the nodes of the domain by their states.
	Nodes map[NodeState]int `json:"nodes"`
	// Clusters counts the clusters of the domain.
	Clusters int `json:"clusters"`
	// MassSilence is as in Status.
	MassSilence bool `json:"mass_silence"`
	// RecoveryNeeded says that the operator's decision about a store that went back is awaited.
	RecoveryNeeded bool `json:"recovery_needed,omitempty"`
}

// RescheduleRequest lets the control plane replace tasks of silent nodes for a while, despite a mass silence. A For of
// 0 withdraws it.
type RescheduleRequest struct {
	For Duration `json:"for"`
}

// NodeAction has the options of a drain or a forget.
type NodeAction struct {
	// Deadline, of a drain: after this time the drain stops the remaining tasks, whatever the effect on their services.
	// A request without it keeps the deadline of a drain in progress.
	Deadline Duration `json:"deadline,omitempty"`
	// Force stops all tasks immediately (drain), or declares a node gone that is not known to be down (forget).
	Force bool `json:"force,omitempty"`
}

// TaintRequest adds taints to a node. A taint with the same key and effect gets the new value.
type TaintRequest struct {
	Taints []Taint `json:"taints"`
}

// UntaintRequest removes taints from a node. Taints that the node does not have are no error.
type UntaintRequest struct {
	Taints []TaintKey `json:"taints"`
}

// TaintKey selects taints of a node: the one with this key and effect, or without an effect all with this key.
type TaintKey struct {
	Key    string      `json:"key"`
	Effect TaintEffect `json:"effect,omitempty"`
}

// ReservedPortsRequest reserves ports of a node, or ends that.
type ReservedPortsRequest struct {
	Ports []PortRange `json:"ports"`
}

// NodeDomainRequest gives a node to a domain.
type NodeDomainRequest struct {
	Domain string `json:"domain"`
	// Force lets the domain take the node at once, without a drain by the present one, which then treats its tasks on
	// the node like those of a silent node. It is for a domain that cannot drain.
	Force bool `json:"force,omitempty"`
}

// NodeSetupRequest records how a machine was added.
type NodeSetupRequest struct {
	// Domain and Pool, unless empty, are the domain and the pool of the node.
	Domain string    `json:"domain,omitempty"`
	Pool   string    `json:"pool,omitempty"`
	Setup  HostSetup `json:"setup"`
	// Dial, unless empty, makes the node a passive one that servers dial there.
	Dial string `json:"dial,omitempty"`
}

// NodeDialRequest makes a node a passive one that servers dial. An empty Dial makes it one whose agent dials.
type NodeDialRequest struct {
	// Dial is "HOST[:PORT]" or "ssh://[USER@]HOST[:PORT]".
	Dial string `json:"dial"`
}

// PoolRequest puts a node into a pool. Without a pool it removes the node from its pool.
type PoolRequest struct {
	Pool string `json:"pool,omitempty"`
}

// DrainView is the progress of a drain.
type DrainView struct {
	Drain
	// Left are the remaining attempts, each with the reason.
	Left []DrainTask `json:"left"`
}

// DrainTask is an attempt that a drain waits for.
type DrainTask struct {
	ID      TaskID `json:"id"`
	Attempt int    `json:"attempt"`
	State   State  `json:"state"`
	// Why says in a sentence what the attempt waits for.
	Why string `json:"why"`
}

// Heartbeat is a node's last report, as the answering server knows it.
type Heartbeat struct {
	// Age is the time since the report, and Interval the promised time until the next one.
	Age      Duration `json:"age"`
	Interval Duration `json:"interval"`
}

// Settings are a server's settings, by the names of its flags, without secrets.
type Settings struct {
	Server string            `json:"server,omitempty"`
	Values map[string]string `json:"values"`
}

// SnapshotRevision is the header of a snapshot's answer with the lowest revision that the snapshot holds. SnapshotSum
// is the trailer with the SHA-256 of its bytes, in hex. An answer without the trailer is incomplete.
const (
	SnapshotRevision = "Berth-Revision"
	SnapshotSum      = "Berth-Sha256"
)
