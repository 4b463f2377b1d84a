package dispatcher

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// session is a registration of a node at this server.
type session struct {
	node   string
	number uint64

	// reporting holds a value while a report of the session is processed, which may wait for the disk. A node's reports
	// are processed one at a time; a sign of life does not wait. It guards the following fields up to shown.
	reporting chan struct{}
	// statusRev is the revision of the node's status record, which every report compares. lastWriteRev is the revision
	// of the session's last write.
	statusRev, lastWriteRev uint64
	syncedRev               uint64 // the revision that holds the full report; it does not change
	seq                     uint64
	last                    transport.ReportReply
	sentServers             *[]string // the list of servers that the agent received last
	// reported holds the UUIDs of the full report while it is processed.
	reported map[string]bool
	// wentBack says that the agent has seen a token that is not in the store (P1.7).
	wentBack bool
	// shown is the token that the agent showed when it registered.
	shown cluster.Token

	// nextAnswerAt is the earliest time of the next answer about addresses of services (the boot-time clock). The
	// directory's mutex guards it.
	nextAnswerAt time.Duration

	// ended is closed when a newer session replaces this one.
	ended chan struct{}
	// streamRequests are the byte streams that the agent has to open.
	streamRequests chan *transport.StreamRequest

	pulse pulse
}

// sessionTable holds the sessions at this server, one for each node. A session ends when a newer one replaces it, here
// or at another server, and when the server ends. Safe for concurrent use.
type sessionTable struct {
	config *Config
	over   chan struct{} // closed when the server ends; no session begins afterwards

	mu     sync.Mutex
	byNode map[string]*session
}

// activate makes the session the node's own at this server, in place of an older one.
func (t *sessionTable) activate(s *session) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.over:
		return errEnded
	default:
	}
	if old := t.byNode[s.node]; old != nil {
		if old.number > s.number {
			return &transport.SessionError{Newest: old.number, Detail: "a newer session has begun"}
		}
		close(old.ended)
	}
	s.syncedRev = s.lastWriteRev
	t.byNode[s.node] = s
	t.reportCount()
	return nil
}

// reportCount passes the number of sessions to the metrics. t.mu is held.
func (t *sessionTable) reportCount() {
	if m := t.config.Metrics; m != nil {
		m.Sessions(len(t.byNode))
	}
}

// find returns the node's session if it has the number.
func (t *sessionTable) find(node string, number uint64) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byNode[node]
	if s == nil || s.number != number {
		return nil, &transport.SessionError{Newest: t.newest(node), Detail: fmt.Sprintf(
			"session %d of %s is not the node's newest at this server", number, node)}
	}
	return s, nil
}

// of returns the node's session, nil if it has none at this server.
func (t *sessionTable) of(node string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byNode[node]
}

// nodes returns the nodes with a session, in no order.
func (t *sessionTable) nodes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.byNode))
}

// count returns the number of sessions at this server.
func (t *sessionTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byNode)
}

// endAll ends the sessions of all nodes after the store went back. It lost reports that were acknowledged, and only a
// full report repeats them (P1.7).
func (t *sessionTable) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.config.Logger.Warn("the store went back: all nodes register again", "sessions", len(t.byNode))
	t.endEach()
	t.reportCount()
}

// close ends all sessions with the server.
func (t *sessionTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.over)
	t.endEach()
}

// endEach ends all sessions. t.mu is held.
func (t *sessionTable) endEach() {
	for node, s := range t.byNode { // order-free: all are ended
		close(s.ended)
		delete(t.byNode, node)
	}
}

// endIfDisplaced ends the node's session at this server if the node registered elsewhere since, or was removed.
func (t *sessionTable) endIfDisplaced(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byNode[node]
	if s == nil || t.newest(node) == s.number {
		return
	}
	if t.config.Tables.Snapshot().Revision() < s.syncedRev {
		return // the tables do not hold the session yet
	}
	close(s.ended)
	delete(t.byNode, node)
	t.reportCount()
	t.config.Logger.Info("a node's session is over", "node", node, "session", s.number, "newest", t.newest(node))
}

// newest returns the number of the node's newest session at any server, by the tables.
func (t *sessionTable) newest(node string) uint64 { return sessionIn(t.config.Tables.Snapshot(), node) }

// replacedError returns the error for an agent whose session is not the node's newest.
func (t *sessionTable) replacedError(node string) error {
	return &transport.SessionError{Newest: t.newest(node), Detail: "a newer session has begun"}
}

// endedError returns the error for an agent whose session has ended.
func (t *sessionTable) endedError(s *session) error {
	return &transport.SessionError{Newest: t.newest(s.node), Detail: fmt.Sprintf("session %d has ended", s.number)}
}
