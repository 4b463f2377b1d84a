package state

import (
	"slices"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// Marks holds the agent's newest mark. Each change is queued for the disk before the next caller sees it. All methods
// may be called concurrently.
type Marks struct {
	store *Store

	mu   sync.Mutex
	mark Mark
}

// NewMarks returns marks that continue from a mark of an earlier run of the agent.
func NewMarks(store *Store, from Mark) *Marks { return &Marks{store: store, mark: from} }

// Current returns the newest mark. Callers do not change its list of servers.
func (m *Marks) Current() Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mark
}

// Session returns the number of the newest session.
func (m *Marks) Session() uint64 { return m.Current().Session }

// Raise raises the token and the session to higher values (P1.6). A session of 0 stays as it is.
func (m *Marks) Raise(t cluster.Token, session uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.mark
	if t.Compare(next.Token) > 0 {
		next.Token = t
	}
	if session != 0 {
		next.Session = session
	}
	if next.Token != m.mark.Token || next.Session != m.mark.Session {
		m.mark = next
		m.store.QueueMark(next)
	}
}

// RememberServers persists a server list that a server sent, for the next run of the agent. An empty list changes
// nothing.
func (m *Marks) RememberServers(servers []string) {
	if len(servers) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(servers, m.mark.Servers) {
		m.mark.Servers = servers
		m.store.QueueMark(m.mark)
	}
}
