package store

import (
	"context"
	"errors"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Errors of an engine that runs in several servers.
var (
	// ErrUnavailable says that the engine's servers cannot agree now, mostly since too few of them are up or reach
	// each other: nothing was read or written. The call may be made again.
	ErrUnavailable = errors.New("the store has no quorum")
	// ErrNotInSync says that a learner has not caught up yet, so that it cannot be promoted. Ask again later.
	ErrNotInSync = errors.New("the new member has not caught up with the store yet")
	// ErrRemoved says that this server's member was removed from the store's members. Its data directory is of no
	// more use, and the server stops.
	ErrRemoved = errors.New("this server was removed from the members of the store")
	// ErrMember says that there is no member of that id.
	ErrMember = errors.New("the store has no such member")
	// ErrLosesQuorum says that a change of the members is refused since the store would, or might, lose its quorum by
	// it.
	ErrLosesQuorum = errors.New("the store would lose its quorum")
)

// LeaderTeller is an Engine whose own members run in Berth's servers and elect a leader among themselves.
type LeaderTeller interface {
	// EngineLeader returns the engine's present leader, or "" while this process knows none, and this process's own
	// member. term grows with each election; a change of the leader comes with a new term. It returns at once and may
	// be called concurrently. self is "" where the engine runs elsewhere after all.
	EngineLeader() (leader, self string, term uint64)
}

// LeaderMover is a LeaderTeller that can move the engine's leadership to this process's own member, so that both
// leaderships are lost together, and found again together (P1.3).
type LeaderMover interface {
	LeaderTeller
	// MoveLeader asks the engine for its leadership, and returns nil when this process's member leads. Writes that are
	// on their way meanwhile may be unknown.
	MoveLeader(ctx context.Context) error
}

// Voter is an Engine whose own member may be one that only follows.
type Voter interface {
	// Votes says whether this process's own member has a vote. A server whose member has none does not seek a domain's
	// leadership: it may lag, and the engine's leadership, which should be on the same server, cannot come to it. It
	// returns at once and may be called concurrently.
	Votes() bool
}

// Member is one member of an engine that runs in Berth's servers.
type Member struct {
	// ID is the engine's own, in its own form. Name is the id of the server that it runs in; it is empty until that
	// server has started.
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// PeerURL is where the other members reach it, empty for a member that was always alone.
	PeerURL string `json:"peer_url,omitempty"`
	// Learner says that it follows without a vote. Leader that it leads the engine. Self that it runs in the server
	// that was asked.
	Learner bool `json:"learner,omitempty"`
	Leader  bool `json:"leader,omitempty"`
	Self    bool `json:"self,omitempty"`
	// Healthy says that the server that was asked is in touch with it.
	Healthy bool `json:"healthy"`
}

// EngineHealth is how an engine's disk and database are, as one server sees it.
type EngineHealth struct {
	// Writes says whether writes are accepted. Reason says why not, as a sentence.
	Writes bool   `json:"writes"`
	Reason string `json:"reason,omitempty"`
	// Size is the size of the database's file and InUse what of it holds data, in bytes; at Quota writes are refused.
	Size  int64 `json:"size_bytes"`
	InUse int64 `json:"in_use_bytes"`
	Quota int64 `json:"quota_bytes"`
	// Alarms are the engine's alarms, such as "NOSPACE" or "CORRUPT", with the member that raised each.
	Alarms []EngineAlarm `json:"alarms,omitempty"`
	// DiskFree is what the file system of the data has left, in bytes; below LowWater writes are refused. Both are 0
	// where the engine runs elsewhere.
	DiskFree int64 `json:"disk_free_bytes,omitempty"`
	LowWater int64 `json:"low_water_bytes,omitempty"`
	// Quorum says whether a linearizable read was answered, and Revision what it saw.
	Quorum   bool   `json:"quorum"`
	Revision uint64 `json:"revision"`
	// Leader is the engine's leader, "" while there is none.
	Leader string `json:"leader,omitempty"`
	// Version of the engine.
	Version string `json:"version,omitempty"`
}

// AlarmReplaced is the alarm of a member that met one of another store at the address of one of its own: that one was
// restored from a snapshot, and the store that this member holds is of the past.
const AlarmReplaced = "REPLACED"

// EngineAlarm is one alarm of an engine.
type EngineAlarm struct {
	Name   string `json:"name"`
	Member string `json:"member"`
}

// SnapshotInfo is what a snapshot holds.
type SnapshotInfo struct {
	// Revision of the engine, and how many records there are, in all and by the first word of their keys.
	Revision uint64         `json:"revision"`
	Keys     int            `json:"keys"`
	Nouns    map[string]int `json:"nouns"`
	// Size of the snapshot in bytes. Hash is the SHA-256 of its data, in hex; it was compared with what the snapshot
	// says.
	Size int64  `json:"size_bytes"`
	Hash string `json:"hash"`
	// Taken is the time of the newest record in it that carries one: the snapshot is not older. It is zero where
	// nothing tells.
	Taken time.Time `json:"taken,omitzero"`
	// Leaders are the leader records, by domain, with the incarnation of the store.
	Leaders map[string]cluster.Leader `json:"leaders,omitempty"`
	// Masters are the ids of the master keys that the secrets in it need, ordered.
	Masters []string `json:"masters,omitempty"`
}
