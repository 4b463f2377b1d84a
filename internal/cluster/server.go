package cluster

import "time"

// Server is one member of the control plane: the record server/<id>. Writer: the server itself, at its start and when
// its master keys change. The server that removes the member deletes the record.
type Server struct {
	// ID is made at the server's first start and never changes. Name is for people, the machine's host name by default.
	ID   string `json:"id"`
	Name string `json:"name"`
	// API is the https address that agents, other servers and people reach it at, such as
	// "https://10.0.0.1:7071"; empty for a server that only serves its own machine.
	API string `json:"api,omitempty"`
	// Member is the server's id in the store engine, in the engine's own form; empty where the store runs elsewhere.
	Member string `json:"member,omitempty"`
	// Version of the build, and the newest and oldest wire version that it speaks.
	Version string `json:"version"`
	Wire    int    `json:"wire"`
	WireMin int    `json:"wire_min"`
	// Records is the newest version of records that it reads and writes, RecordsMin the oldest that it reads.
	Records    int       `json:"records,omitempty"`
	RecordsMin int       `json:"records_min,omitempty"`
	Started    time.Time `json:"started"`
	// Masters are the ids of the master keys in the server's file, the oldest first. The server updates them when they
	// change.
	Masters []string `json:"masters,omitempty"`
}

// Role is the set of operations that a token or a certificate allows. Each role of people includes all roles after it.
type Role string

// Roles. Server and node are held by certificates only.
const (
	RoleAdmin     Role = "admin"     // everything, tokens and servers included
	RoleOperator  Role = "operator"  // nodes, clusters, snapshots; and all that a submitter may
	RoleSubmitter Role = "submitter" // services, jobs and definitions; logs and exec of their tasks
	RoleViewer    Role = "viewer"    // reads
	RoleNode      Role = "node"      // an agent: reports for its own node
	RoleServer    Role = "server"    // a member of the control plane
)

// Values returns every Role, in the order of the constants.
func (Role) Values() []Role {
	return []Role{RoleAdmin, RoleOperator, RoleSubmitter, RoleViewer, RoleNode, RoleServer}
}

// TokenPurpose is the purpose of a token.
type TokenPurpose string

// Purposes of tokens.
const (
	TokenAccess TokenPurpose = "access" // it is sent with each request
	TokenJoin   TokenPurpose = "join"   // it is traded for a certificate of its role
)

// Values returns every TokenPurpose, in the order of the constants.
func (TokenPurpose) Values() []TokenPurpose {
	return []TokenPurpose{TokenAccess, TokenJoin}
}

// AccessToken is the stored part of a token: the record token/<id>. The secret itself is stored nowhere. Writer: the
// user, and for Used the API server that accepts the token.
type AccessToken struct {
	ID      string       `json:"id"`
	Name    string       `json:"name,omitempty"` // for people: whose it is
	Purpose TokenPurpose `json:"purpose"`
	Role    Role         `json:"role"`
	// Clusters, unless empty, are the only ones that the token reaches.
	Clusters []string `json:"clusters,omitempty"`
	// Hash is the SHA-256 of the secret, in hex.
	Hash    string    `json:"hash"`
	Created time.Time `json:"created"`
	By      string    `json:"by,omitempty"` // the user who made it
	// Expires, unless zero, is when it ends.
	Expires time.Time `json:"expires,omitzero"`
	// For, unless empty, is the only name, of a node or a server, that a join token is good for; it may be that of
	// a living one, which is then replaced.
	For string `json:"for,omitempty"`
	// Uses, unless 0, is how often a join token may be used. Used is how often it was.
	Uses int `json:"uses,omitempty"`
	Used int `json:"used,omitempty"`
	// Recent names the last machines that used a join token, with their keys. A repeated request does not count again,
	// because its answer may have been lost.
	Recent []string `json:"recent,omitempty"`
}

// RecoveryState is the progress of the recovery of a store that went back.
type RecoveryState string

// States of a recovery.
const (
	// RecoveryNeeded holds the control plane back until the operator decides: it writes only verdicts on nodes, and
	// neither stops nor places tasks.
	RecoveryNeeded RecoveryState = "needed"
	// RecoveryAdopt keeps tasks that nodes report and the store does not know, where their owner still wants them.
	RecoveryAdopt RecoveryState = "adopt"
	// RecoveryStop stops them.
	RecoveryStop RecoveryState = "stop"
)

// Values returns every RecoveryState, in the order of the constants.
func (RecoveryState) Values() []RecoveryState {
	return []RecoveryState{RecoveryNeeded, RecoveryAdopt, RecoveryStop}
}

// Recovery says that the store lost acknowledged writes, and how the operator decided: the record recovery/<domain>
// (P1.7). Writer: the control plane and an offline restore for RecoveryNeeded, then the user, who takes the incarnation
// above Shown with it.
type Recovery struct {
	State RecoveryState `json:"state"`
	// Cause is a sentence: a snapshot was restored, or which node showed which token.
	Cause string `json:"cause"`
	// Shown is the highest token that an agent showed.
	Shown Token `json:"shown,omitzero"`
	// Plan is the highest plan among those that placed running attempts when the decision was pending. The store may
	// have lost plans up to it, and their numbers are used again.
	Plan  uint64    `json:"plan,omitempty"`
	Since time.Time `json:"since"`
	// By is the user who decided, and Decided the time.
	By      string    `json:"by,omitempty"`
	Decided time.Time `json:"decided,omitzero"`
}
