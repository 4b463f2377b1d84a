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

// LeaderReporter is an Engine whose own members run in Berth's servers and elect a leader among themselves.
type LeaderReporter interface {
	// EngineLeader returns the engine's present leader and this process's own member. The leader is "" while this
	// process knows none. The member is "" where the engine runs elsewhere after all. The term grows with each
	// election, and a change of the leader comes with a new term. EngineLeader returns immediately and may be called
	// concurrently.
	EngineLeader() (leader, self string, term uint64)
}

// LeaderMover is a LeaderReporter that can move the engine's leadership to this process's own member. Both leaderships
// are then lost together, and found again together (P1.3).
type LeaderMover interface {
	LeaderReporter
	// MoveLeader asks the engine for its leadership, and returns nil when this process's member leads. The results of
	// writes in flight during the move may be unknown.
	MoveLeader(ctx context.Context) error
}

// Voter is an Engine whose own member may be a learner, which has no vote.
type Voter interface {
	// Votes reports whether this process's own member has a vote. A server without a vote does not seek a domain's
	// leadership: it may lag, and it cannot get the engine's leadership, which should be on the same server. Votes
	// returns immediately and may be called concurrently.
	Votes() bool
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

// EngineAlarm is one alarm of an engine.
type EngineAlarm struct {
	Name   string `json:"name"`
	Member string `json:"member"`
}
