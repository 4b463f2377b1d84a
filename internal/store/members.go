package store

import (
	"context"
	"errors"
)

// Errors of an engine that runs in several servers.
var (
	// ErrUnavailable says that the engine has no quorum now, mostly since too few servers are up or reach each other.
	// Nothing was read or written. The call may be repeated.
	ErrUnavailable = errors.New("the store has no quorum")
	// ErrNotInSync says that a learner cannot be promoted, since it has not caught up yet. The call may be repeated
	// later.
	ErrNotInSync = errors.New("the new member has not caught up with the store yet")
	// ErrRemoved says that this server's member was removed from the store. Its data directory is useless now, and the
	// server stops.
	ErrRemoved = errors.New("this server was removed from the members of the store")
	// ErrMember says that the store has no member of the given id.
	ErrMember = errors.New("the store has no such member")
	// ErrLosesQuorum says that a change of the members is refused, since it would, or might, lose the store's quorum.
	ErrLosesQuorum = errors.New("the store would lose its quorum")
)

// ErrLimited says that a store that runs elsewhere limits the rate of requests, and refused a call for as long as it
// was tried. It wraps ErrUnavailable.
var ErrLimited error = limitedError{}

type limitedError struct{}

// Error is part of error.
func (limitedError) Error() string { return "the store limits the rate of requests" }

// Unwrap returns ErrUnavailable.
func (limitedError) Unwrap() error { return ErrUnavailable }

// DeniedError says that a store that runs elsewhere refuses a call for the credentials of this server: they are
// unknown, cannot be read, or lack a permission. It wraps ErrUnavailable. Nothing was read or written. The call may
// be repeated, because an operator may replace the credentials. Its texts hold no secret.
type DeniedError struct {
	// What says who does not permit what, such as "consul does not know the token". Remedy has sentences that say what
	// an operator can do; "" where the driver does not know how it was configured.
	What, Remedy string
	// Err is the answer of the store.
	Err error
}

// Error says what the store denies, and its answer.
func (e *DeniedError) Error() string {
	return "the store denies this server: " + e.What + ": " + e.Err.Error()
}

// Advice says what the store denies, and what an operator can do. It leaves out the answer of the store.
func (e *DeniedError) Advice() string {
	remedy := e.Remedy
	if remedy == "" {
		remedy = "Ask the operator of the store"
	}
	return "the store denies this server: " + e.What + ". " + remedy
}

// Unwrap returns ErrUnavailable and the answer of the store.
func (e *DeniedError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// EngineMember is this process's own member of an engine whose members run in Berth's servers and elect a leader among
// themselves. Safe for concurrent use.
type EngineMember interface {
	// EngineLeader returns the engine's present leader and this process's own member. The leader is "" while this
	// process knows none. The term grows with each election, and a change of the leader comes with a new term.
	// EngineLeader returns immediately.
	EngineLeader() (leader, self string, term uint64)
	// Votes reports whether this process's own member has a vote. A server without a vote does not seek a domain's
	// leadership: it may lag, and it cannot get the engine's leadership, which should be on the same server. Votes
	// returns immediately.
	Votes() bool
	// MoveLeader asks the engine for its leadership, and returns nil when this process's member leads. Both leaderships
	// are then lost together, and found again together (P1.3). The results of writes in flight during the move may be
	// unknown.
	MoveLeader(ctx context.Context) error
}

// Membership is the members of an engine that run in Berth's servers, seen from this process's own member.
type Membership interface {
	EngineMember
	// MemberID returns the id of this process's own member.
	MemberID() string
	// Members returns all members.
	Members(ctx context.Context) ([]Member, error)
	// AddLearner adds a member that follows without a vote, for the server with the id name, which the other members
	// reach at peerURL. It returns all members. A repeated call returns the present members while the new member has
	// not started.
	AddLearner(ctx context.Context, name, peerURL string) ([]Member, error)
	// Promote gives a learner its vote; a voter is no error. It returns ErrNotInSync while the learner lags, and
	// ErrMember for an unknown id.
	Promote(ctx context.Context, id string) error
	// Remove removes a member; an unknown id is no error. It returns ErrLosesQuorum if the others could not go on.
	Remove(ctx context.Context, id string) error
}

// ServerEngine is an Engine that a server runs on, in the server's process or elsewhere.
type ServerEngine interface {
	Engine
	TogetherReader
	// Run maintains the engine until ctx or the engine ends. It returns the context's error, ErrClosed after Close, or
	// ErrRemoved after this process's member was removed. It is called once.
	Run(ctx context.Context) error
	// Health returns the state of the disk, the database and the quorum, within a few seconds. It fails only if the
	// engine is closed or ctx ends.
	Health(ctx context.Context) (EngineHealth, error)
	// Membership returns the members that run in Berth's servers; nil if the engine has none.
	Membership() Membership
}

// Member is one member of an engine that runs in Berth's servers.
type Member struct {
	// ID is the engine's id of the member, in the engine's form. Name is the id of the server that the member runs in;
	// it is empty until the server has started.
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// PeerURL is the address for the other members, empty for a member that was always alone.
	PeerURL string `json:"peer_url,omitempty"`
	// Learner says that the member follows without a vote, Leader that it leads the engine. Self says that it runs in
	// the server that was asked.
	Learner bool `json:"learner,omitempty"`
	Leader  bool `json:"leader,omitempty"`
	Self    bool `json:"self,omitempty"`
	// Healthy says that the server that was asked has contact with the member.
	Healthy bool `json:"healthy"`
}

// EngineHealth is the state of an engine's disk and database, as one server sees it.
type EngineHealth struct {
	// Writes reports whether writes are accepted. Reason says why not, as a sentence.
	Writes bool   `json:"writes"`
	Reason string `json:"reason,omitempty"`
	// Size is the size of the database's file, and InUse its part that holds data, in bytes. At Quota writes are
	// refused.
	Size  int64 `json:"size_bytes"`
	InUse int64 `json:"in_use_bytes"`
	Quota int64 `json:"quota_bytes"`
	// Alarms are the engine's alarms, such as "NOSPACE" or "CORRUPT", with the member that raised each.
	Alarms []EngineAlarm `json:"alarms,omitempty"`
	// DiskFree is the free space of the data's file system, in bytes; below LowWater writes are refused. Both are 0
	// where the engine runs elsewhere.
	DiskFree int64 `json:"disk_free_bytes,omitempty"`
	LowWater int64 `json:"low_water_bytes,omitempty"`
	// Quorum reports whether a linearizable read was answered, and Revision is the revision of that read.
	Quorum   bool   `json:"quorum"`
	Revision uint64 `json:"revision"`
	// Leader is the engine's leader, "" while there is none.
	Leader string `json:"leader,omitempty"`
	// Version of the engine.
	Version string `json:"version,omitempty"`
}

// AlarmReplaced is the alarm of a member that met a member of another store at the address of one of its own. The other
// store was restored from a snapshot, and the store of this member is obsolete.
const AlarmReplaced = "REPLACED"

// AlarmLimited is the alarm of an engine elsewhere that refused calls a short time ago, because it limits the rate of
// requests.
const AlarmLimited = "LIMITED"

// EngineAlarm is one alarm of an engine.
type EngineAlarm struct {
	Name   string `json:"name"`
	Member string `json:"member"`
}
